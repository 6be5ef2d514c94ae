"""What MLX's host code hands to the steel kernels: structs of parameters, tiles, grids.

The structs are NumPy's structured types with C's alignment, as the headers ``steel/*/params.h`` lay them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from arrays import up

GEMM_PARAMS = np.dtype(
    [
        *((name, "i4") for name in ("M", "N", "K", "lda", "ldb", "ldd", "tiles_n", "tiles_m")),
        *((name, "i8") for name in ("batch_stride_a", "batch_stride_b", "batch_stride_d")),
        *((name, "i4") for name in ("swizzle_log", "k_iterations", "batch_ndim")),
    ],
    align=True,
)
ADDMM_PARAMS = np.dtype(
    [("ldc", "i4"), ("fdc", "i4"), ("batch_stride_c", "i8"), ("alpha", "f4"), ("beta", "f4")], align=True
)
SPLITK_PARAMS = np.dtype(
    [
        *((name, "i4") for name in ("M", "N", "K", "lda", "ldb", "ldc", "tiles_n", "tiles_m")),
        *((name, "i4") for name in ("partitions", "partition_stride", "partition_size")),
        *((name, "i4") for name in ("swizzle_log", "k_iterations")),
    ],
    align=True,
)


def struct(dtype: np.dtype[Any], **values: Any) -> torch.Tensor:
    """Return a struct's bytes; every member needs a value."""
    assert set(values) == set(dtype.names or ()), set(values) ^ set(dtype.names or ())
    record = np.zeros((), dtype)
    for name, value in values.items():
        record[name] = value
    return torch.frombuffer(bytearray(record.tobytes()), dtype=torch.uint8)


def wide(values: torch.Tensor) -> torch.Tensor:
    """Return the values in a type whose sums of them are exact."""
    return values.to(torch.complex128 if values.is_complex() else torch.float64)


@dataclass(frozen=True)
class Tile:
    """Sizes of the block of a threadgroup, and its simdgroups along m and n."""

    bm: int = 32
    bn: int = 32
    bk: int = 16
    wm: int = 2
    wn: int = 2

    @property
    def arguments(self) -> str:
        return f"{self.bm}, {self.bn}, {self.bk}, {self.wm}, {self.wn}"

    @property
    def group(self) -> tuple[int, int, int]:
        return 32, self.wn, self.wm

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        """Return the threadgroups along n and along m."""
        return up(n, self.bn), up(m, self.bm)

    def aligned(self, m: int, n: int, k: int) -> tuple[bool, bool, bool]:
        return m % self.bm == 0, n % self.bn == 0, k % self.bk == 0


def flag(value: bool) -> str:
    return "true" if value else "false"


def matrices(values: torch.Tensor, turned: bool) -> torch.Tensor:
    """Return the values laid out by columns if turned, else by rows, which are longer than they need to be."""
    kept = values.mT if turned else values
    padded = torch.full((*kept.shape[:-1], kept.shape[-1] + 3), torch.nan, dtype=values.dtype)
    padded[..., : kept.shape[-1]] = kept
    cut = padded[..., : kept.shape[-1]]
    return cut.mT if turned else cut


def rows(values: torch.Tensor) -> tuple[bool, int]:
    """Return whether matrices lie by columns, and how far their lines are apart (MLX's ``check_transpose``)."""
    if values.stride(-1) == 1:
        return False, values.stride(-2)
    assert values.stride(-2) == 1
    return True, values.stride(-1)


def strides(*batched: torch.Tensor) -> torch.Tensor:
    """Return the strides of the batch dimensions, those of one tensor after the other's."""
    listed = [stride for values in batched for stride in values.stride()[:-2] or (0,)]
    return torch.tensor(listed, dtype=torch.int64)


def gemm_params(tile: Tile, a: torch.Tensor, b: torch.Tensor, **others: int) -> torch.Tensor:
    """Return the parameters of a product; batch strides and the like are given, 0 otherwise."""
    m, k = a.shape[-2:]
    n = b.shape[-1]
    tiles_n, tiles_m = tile.tiles(m, n)
    values = {
        "M": m,
        "N": n,
        "K": k,
        "lda": rows(a)[1],
        "ldb": rows(b)[1],
        "ldd": n,
        "tiles_n": tiles_n,
        "tiles_m": tiles_m,
        "batch_stride_a": 0,
        "batch_stride_b": 0,
        "batch_stride_d": m * n,
        "swizzle_log": 0,
        "k_iterations": k // tile.bk,
        "batch_ndim": 0,
    }
    return struct(GEMM_PARAMS, **(values | others))
