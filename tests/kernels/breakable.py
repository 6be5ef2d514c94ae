"""Correct kernels, and ten ways to break one: each way is one small change of the MSL, as a person would slip.

The changed text must occur in the correct source exactly once, so a breakage cannot quietly become a no-op.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from metalwright import MetalKernel, MetalParameter

Case = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A correct kernel: its parts, and how to make the case of one size."""

    name: str
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    src: str
    reference: Callable[..., Any]
    case: Callable[..., Case]
    params: tuple[tuple[str, str, str], ...] = (("gid", "uint", "thread_position_in_grid"),)
    templates: dict[str, str] = field(default_factory=dict)

    def build(self, src: str | None = None) -> MetalKernel:
        """Return the kernel, with another body if one is given."""
        return MetalKernel(
            self.name,
            input_names=list(self.inputs),
            result_names=list(self.results),
            src=self.src if src is None else src,
            torch_defn=self.reference,
            metal_params=[MetalParameter(*parameter) for parameter in self.params],
            template_dtypes=self.templates,
        )


@dataclass(frozen=True)
class Breakage:
    """One way to break a subject: ``good`` becomes ``bad``; ``sizes`` are the arguments of its ``case``."""

    name: str
    subject: Subject
    good: str
    bad: str
    sizes: tuple[tuple[int, ...], ...]

    def broken_src(self) -> str:
        """Return the subject's body with the breakage in it."""
        count = self.subject.src.count(self.good)
        assert count == 1, f"{self.name}: {self.good!r} occurs {count} times in {self.subject.name}, not once"
        assert self.good != self.bad
        return self.subject.src.replace(self.good, self.bad)


def _values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def _sizes(grid: tuple[int, int, int], group: tuple[int, int, int], *shapes: list[int]) -> Case:
    return {"threads_per_grid": grid, "threads_per_thread_group": group, "result_shapes": list(shapes)}


# --- sums of rows, one thread a row ---


def _row_sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1)


def _row_sums_case(rows: int, columns: int) -> Case:
    # all near 1 in half: a sum kept in half stands still at 2048, one kept in float does not
    x = (1.0 + 0.1 * _values(rows, columns)).to(torch.float16)
    return {"inputs": [x], **_sizes((rows, 1, 1), (4, 1, 1), [rows])}


ROW_SUMS = Subject(
    "row_sums",
    ("x",),
    ("out",),
    """
    float sum = 0.0f;
    for (int i = 0; i < x.get_extent(0); ++i)
        sum += x[i, gid];
    out[gid] = TYPE(sum);
    """,
    _row_sums,
    _row_sums_case,
    templates={"x": "TYPE"},
)

# --- four elements a thread, the last thread fewer ---


def _square(x: torch.Tensor) -> torch.Tensor:
    return x * x


def _square_case(size: int) -> Case:
    return {"inputs": [_values(size)], **_sizes(((size + 3) // 4, 1, 1), (32, 1, 1), [size])}


SQUARE_BY_FOUR = Subject(
    "square_by_four",
    ("x",),
    ("out",),
    """
    const uint n = x.get_extent(0);
    for (uint i = gid * 4; i < min(gid * 4 + 4, n); ++i)
        out[i] = x[i] * x[i];
    """,
    _square,
    _square_case,
)

# --- matrix products ---


def _matmul(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    return A @ B


def _matmul_case(m: int, k: int, n: int) -> Case:
    return {"inputs": [_values(m, k), _values(k, n)], **_sizes((n, m, 1), (8, 8, 1), [m, n])}


MATMUL = Subject(
    "matmul",
    ("A", "B"),
    ("C",),
    """
    float sum = 0.0f;
    for (int k = 0; k < A.get_extent(0); ++k)
        sum += A[k, gid.y] * B[gid.x, k];
    C[gid.x, gid.y] = sum;
    """,
    _matmul,
    _matmul_case,
    params=(("gid", "uint2", "thread_position_in_grid"),),
)


def _tiled_case(m: int, k: int, n: int) -> Case:
    grid = ((n + 7) // 8 * 8, (m + 7) // 8 * 8, 1)
    return {"inputs": [_values(m, k), _values(k, n)], **_sizes(grid, (8, 8, 1), [m, n])}


MATMUL_TILED = Subject(
    "matmul_tiled_8x8",
    ("A", "B"),
    ("C",),
    """
    threadgroup float a[8][8], b[8][8];
    const uint N = C.get_extent(0), M = C.get_extent(1), K = A.get_extent(0);
    float sum = 0.0f;
    for (uint k0 = 0; k0 < K; k0 += 8) {
        a[tid.y][tid.x] = gid.y < M && k0 + tid.x < K ? A[k0 + tid.x, gid.y] : 0.0f;
        b[tid.y][tid.x] = gid.x < N && k0 + tid.y < K ? B[gid.x, k0 + tid.y] : 0.0f;
        threadgroup_barrier(mem_flags::mem_threadgroup);  // loaded
        for (uint k = 0; k < 8; ++k) sum += a[tid.y][k] * b[k][tid.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);  // used
    }
    if (gid.x < N && gid.y < M) C[gid.x, gid.y] = sum;
    """,
    _matmul,
    _tiled_case,
    params=(
        ("gid", "uint2", "thread_position_in_grid"),
        ("tid", "uint2", "thread_position_in_threadgroup"),
    ),
)

# --- two results ---


def _smaller_larger(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.minimum(x, y), torch.maximum(x, y)


def _smaller_larger_case(size: int) -> Case:
    x, y = _values(2, size)
    return {"inputs": [x, y], **_sizes((size, 1, 1), (32, 1, 1), [size], [size])}


SMALLER_LARGER = Subject(
    "smaller_larger",
    ("x", "y"),
    ("smaller", "larger"),
    """
    smaller[gid] = min(x[gid], y[gid]);
    larger[gid] = max(x[gid], y[gid]);
    """,
    _smaller_larger,
    _smaller_larger_case,
)

# --- attention scores of one query ---


def _scores(K: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return K @ q / K.shape[1] ** 0.5


def _scores_case(keys: int, width: int) -> Case:
    return {"inputs": [_values(keys, width), _values(width)], **_sizes((keys, 1, 1), (16, 1, 1), [keys])}


SCORES = Subject(
    "scores",
    ("K", "q"),
    ("out",),
    """
    const int width = K.get_extent(0);
    float dot = 0.0f;
    for (int i = 0; i < width; ++i) dot += K[i, gid] * q[i];
    out[gid] = dot * rsqrt(float(width));
    """,
    _scores,
    _scores_case,
)

# --- a scale that the model keeps in half ---

# 0.1 rounded to half, 2.4e-4 below 0.1
_TENTH = float(torch.tensor(0.1, dtype=torch.float16))


def _dequantize(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float32) * _TENTH


def _dequantize_case(size: int) -> Case:
    return {"inputs": [_values(size, dtype=torch.float16)], **_sizes((size, 1, 1), (32, 1, 1), [size])}


DEQUANTIZE = Subject(
    "dequantize",
    ("x",),
    ("out",),
    "out[gid] = float(x[gid]) * 0.1h;",
    _dequantize,
    _dequantize_case,
)

BREAKAGES = (
    Breakage("wrong index", ROW_SUMS, "x[i, gid]", "x[gid, gid]", ((2, 40), (5, 300), (9, 1000))),
    Breakage("missing tail", SQUARE_BY_FOUR, "min(gid * 4 + 4, n)", "n / 4 * 4", ((5,), (127,), (1002,))),
    Breakage(
        "swapped coordinates", MATMUL, "A[k, gid.y]", "A[gid.y, k]", ((2, 2, 2), (16, 16, 8), (7, 9, 5))
    ),
    Breakage(
        "missing barrier",
        MATMUL_TILED,
        "threadgroup_barrier(mem_flags::mem_threadgroup);  // loaded",
        "",
        ((8, 8, 8), (16, 24, 8), (9, 11, 13)),
    ),
    Breakage(
        "off-by-one bound",
        ROW_SUMS,
        "i < x.get_extent(0)",
        "i < x.get_extent(0) - 1",
        ((1, 1), (4, 33), (9, 200)),
    ),
    Breakage("wrong accumulation type", ROW_SUMS, "float sum", "half sum", ((1, 2500), (5, 3000), (8, 4096))),
    Breakage(
        "unwritten output", SMALLER_LARGER, "larger[gid] = max(x[gid], y[gid]);", "", ((1,), (64,), (333,))
    ),
    Breakage("wrong scale", SCORES, "rsqrt(float(width))", "(1.0f / width)", ((3, 8), (16, 64), (50, 31))),
    Breakage(
        "transposed output", MATMUL, "C[gid.x, gid.y]", "C[gid.y, gid.x]", ((2, 3, 2), (16, 8, 16), (5, 6, 9))
    ),
    Breakage("float for half constant", DEQUANTIZE, "0.1h", "0.1f", ((1,), (64,), (1000,))),
    # two more of the kinds above, which fail in another way: past the row's end, and only on the second tile
    Breakage(
        "bound past the end",
        ROW_SUMS,
        "i < x.get_extent(0)",
        "i <= x.get_extent(0)",
        ((1, 1), (4, 33), (9, 200)),
    ),
    Breakage(
        "missing second barrier",
        MATMUL_TILED,
        "threadgroup_barrier(mem_flags::mem_threadgroup);  // used",
        "",
        ((8, 16, 8), (16, 40, 8), (9, 21, 13)),
    ),
)
