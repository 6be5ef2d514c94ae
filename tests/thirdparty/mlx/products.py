"""Products with quantised matrices, launched as MLX's host code launches them (``quantized.cpp``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from arrays import TYPES, garbage, groups, integers, up
from quantizing import MXFP4, MXFP8, NVFP4, Matrices, affine, floating
from units import ALIGNED, QUANTIZED, QUANTIZED_NAX, Unit

ONE_SIMDGROUP = (32, 1, 1)
TWO_SIMDGROUPS = (32, 2, 1)
FOUR_SIMDGROUPS = (32, 2, 2)
FORMS = {(form.group, form.bits): form for form in (MXFP4, MXFP8, NVFP4)}
# 448, the largest of e4m3, times 6, the largest of e2m1
WHOLE_SCALE = 448 * 6
# kernels that take scales of whole matrices, and which of their further template arguments says that they use them
SCALED = {"qmv_fast": 2, "qmv": 2, "qvm": 1, "qmm_t": 2, "gather_qmv_fast": 0, "gather_qmv": 0, "gather_qvm": 0,
          "gather_qmm_t": 1, "gather_qmm_n": 0, "gather_qmm_rhs": 6,
          "qmm_t_nax": 7, "gather_qmm_t_nax": 6, "gather_qmm_rhs_nax": 6}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One instantiation of a kernel and the sizes that it is launched with.

    Attributes:
        name: the template, without the prefix that tells affine codes from others.
        kind: the type of the vectors.
        group: codes that share a scale.
        bits: bits of a code.
        more: the other template arguments.
        sizes: rows of the vectors, of the result, and what is summed over: M, N and K.
        batch: how many products, in each dimension.
    """

    name: str
    kind: str
    group: int
    bits: int
    more: tuple[int | bool, ...]
    sizes: tuple[tuple[int, int, int], ...]
    batch: tuple[int, ...] = ()

    @property
    def arguments(self) -> str:
        return ", ".join([self.kind, *(str(value).lower() for value in (self.group, self.bits, *self.more))])

    @property
    def host(self) -> str:
        return re.sub(r"\W+", "_", f"{self.name} {self.arguments}")

    @property
    def dtype(self) -> torch.dtype:
        return TYPES[self.kind]

    @property
    def transposed(self) -> bool:
        """Whether the rows of the matrices are summed over."""
        return "qmv" in self.name or "_t" in self.name or (self.more[-1:] == (True,) and "_rhs" in self.name)

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a product of matrices that a threadgroup computes."""
        stated = [value for value in self.more if not isinstance(value, bool)]
        if not stated:
            return 32, 32
        # rows, columns and length of a tile where rows are sorted, else rows, length and columns
        return stated[0], stated[1 if "_rhs" in self.name else 2]

    def matrix_shape(self, columns: int, summed: int) -> tuple[int, int]:
        return (columns, summed) if self.transposed else (summed, columns)

    def product(
        self, x: torch.Tensor, values: torch.Tensor, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Return the exact product, rounded once."""
        return (x.double() @ (values.mT if self.transposed else values)).to(dtype or self.dtype)

    def launch(self, rows: int, columns: int, products: int = 1) -> dict[str, Any]:
        """Return the threads of the grid and of a threadgroup."""
        if "qmm" in self.name:
            return groups(up(columns, self.tile[1]), up(rows, self.tile[0]), products, group=FOUR_SIMDGROUPS)
        if self.name == "qmv_quad":
            return groups(rows, up(columns, 64), products, group=ONE_SIMDGROUP)
        if self.name == "qmv_wide":
            vectors, lanes = self.more[:2]
            return groups(up(rows, vectors), up(columns, 2 * 32 // lanes), products, group=TWO_SIMDGROUPS)
        if "qvm" in self.name:
            return groups(rows, up(columns, 2 * min(self.group, 32)), products, group=TWO_SIMDGROUPS)
        results = self.more[3] if len(self.more) > 3 else 4
        return groups(rows, up(columns, 2 * results), products, group=TWO_SIMDGROUPS)


def unit(
    file: str, prefix: str, cases: Iterable[Case], constants: tuple[tuple[int, bool], ...] = ALIGNED
) -> Unit:
    """Return the instantiations of some cases as one text for the compiler."""
    kernels = {case.host: (case.host, f"{prefix}_{case.name}", case.arguments) for case in cases}
    before = QUANTIZED_NAX if "nax" in file else QUANTIZED
    return Unit(file, before, tuple(kernels.values()), constants)


def alignment(*, columns: bool = True, sums: bool = True) -> tuple[tuple[int, bool], ...]:
    """Return the function constants that tell which sizes are whole tiles; the number of rows is not."""
    return ((200, False), (201, columns), (202, sums))


def affine_weights(case: Case, sizes: tuple[int, int, int], *batch: int) -> Matrices:
    """Return matrices for a kernel that takes affine codes."""
    return affine((*batch, *case.matrix_shape(*sizes[1:])), case.group, case.bits, case.kind)


def floating_weights(case: Case, sizes: tuple[int, int, int], *batch: int) -> Matrices:
    """Return matrices for a kernel that takes floating codes; where it takes scales of whole matrices, with these."""
    form = FORMS[case.group, case.bits]
    matrices = floating((*batch, *case.matrix_shape(*sizes[1:])), form)
    if case.name not in SCALED:
        return matrices
    place = SCALED[case.name]
    scaled = case.more[place : place + 1] == (True,)
    # of gathered matrices, each has a scale
    factors = torch.tensor([0.5, 2, 1, 4, 0.25][: batch[0]] if "gather" in case.name else [0.5])
    scales = factors * WHOLE_SCALE if scaled else torch.full((1,), float("nan"))
    values = matrices.values * factors.double().view(-1, 1, 1) if scaled else matrices.values
    return Matrices(matrices.parts, values.view(matrices.values.shape), (scales,))


def vectors(*shape: int, kind: str) -> torch.Tensor:
    """Return small whole numbers."""
    return integers(sum(shape), *shape, kind=kind, limit=2)


def vectors_of(x: torch.Tensor) -> list[Any]:
    """Return the arguments by which a kernel finds its vectors: dimensions of the batch, shape and strides."""
    return [x.ndim - 2, torch.tensor(x.shape, dtype=torch.int32), torch.tensor(x.stride())]


def multiply(
    bench: Any,
    code: Unit,
    case: Case,
    sizes: tuple[int, int, int],
    weights: Matrices,
    *,
    checked: bool = True,
) -> None:
    """Run a product, of as many matrices as the batch of the case, and compare it."""
    rows, columns, summed = sizes
    # the batch of the vectors lies in memory the other way round
    x = vectors(*case.batch[::-1], rows, summed, kind=case.kind)
    x = x.permute(*reversed(range(len(case.batch))), -2, -1)
    y = garbage(*case.batch, rows, columns, dtype=case.dtype)
    counts = [summed, columns, rows] if case.name.startswith(("qmm", "qmv_wide")) else [summed, columns]
    bench.run(
        code, case.host, *weights.arguments, x, y, *counts, *vectors_of(x), *weights.strides(),
        **case.launch(rows, columns, products=y.numel() // (rows * columns)), checked=checked,
    )  # fmt: skip
    assert torch.equal(y, case.product(x, weights.values)), sizes


def multiply_gathered(
    bench: Any,
    code: Unit,
    case: Case,
    sizes: tuple[int, int, int],
    weights: Matrices,
    *,
    checked: bool = True,
) -> None:
    """Run products of vectors and matrices that indices choose, and compare them."""
    rows, columns, summed = sizes
    x = vectors(2, rows, summed, kind=case.kind)
    left = torch.tensor([[1, 0, 1]], dtype=torch.int32).expand(2, 3)
    right = torch.tensor([[2, 0], [1, 1], [0, 2]], dtype=torch.int32).t()
    for lhs, rhs in ((left[0], right[:, 0].repeat(2)[:3]), (left, right)):
        y = garbage(*lhs.shape, rows, columns, dtype=case.dtype)
        counts = [summed, columns, rows] if "qmm" in case.name else [summed, columns]
        indices = [
            lhs.ndim,
            torch.tensor(lhs.shape, dtype=torch.int32),
            torch.tensor(lhs.stride()),
            torch.tensor(rhs.stride()),
        ]
        bench.run(
            code, case.host, *weights.arguments, x, lhs, rhs, y, *counts, *vectors_of(x), *weights.strides(), *indices,
            **case.launch(rows, columns, products=lhs.numel()), checked=checked,
        )  # fmt: skip
        assert torch.equal(y, case.product(x[lhs.long()], weights.values[rhs.long()])), (sizes, lhs.ndim)


def split_sums(
    case: Case, x: torch.Tensor, values: torch.Tensor, size: int, dtype: torch.dtype
) -> torch.Tensor:
    """Return the products of pieces of what is summed over, ``size`` long, the last the rest."""
    pieces = zip(x.split(size, -1), values.split(size, -1 if case.transposed else -2), strict=True)
    return torch.stack([case.product(one, other, dtype) for one, other in pieces])


def multiply_vectors_in_parts(
    bench: Any, code: Unit, case: Case, sizes: tuple[int, int, int], weights: Matrices
) -> None:
    """Run ``qvm_split_k``: each part of the sum is a matrix of its own to the kernel."""
    rows, columns, summed = sizes
    parts = int(case.more[0])
    size = up(summed, parts)
    x = vectors(rows, summed, kind=case.kind)
    y = garbage(parts, rows, columns, dtype=case.dtype)
    words, *others = weights.parts
    bench.run(
        code, case.host, *weights.arguments, x, y, size, columns,
        1, torch.tensor([parts, rows, summed // parts], dtype=torch.int32), torch.tensor([size, size, 1]),
        1, torch.tensor([parts, summed, words.shape[-1] // parts], dtype=torch.int32),
        *(torch.tensor([size * part.shape[-1], *part.stride()]) for part in (words, *others)),
        summed - (parts - 1) * size,
        **case.launch(rows, columns, products=parts),
    )  # fmt: skip
    assert torch.equal(y, split_sums(case, x, weights.values, size, case.dtype)), sizes


def multiply_matrices_in_parts(
    bench: Any, code: Unit, case: Case, sizes: tuple[int, int, int], weights: Matrices, parts: int
) -> None:
    """Run ``qmm_t_splitk``, whose partial sums are ``float``."""
    rows, columns, summed = sizes
    x = vectors(rows, summed, kind=case.kind)
    y = garbage(parts, rows, columns, dtype=torch.float32)
    size = summed // parts
    bench.run(
        code, case.host, *weights.arguments, x, y, summed, columns, rows, size, rows * columns,
        **case.launch(rows, columns, products=parts),
    )  # fmt: skip
    assert torch.equal(y, split_sums(case, x, weights.values, size, torch.float32)), sizes


def multiply_sorted(
    bench: Any,
    code: Unit,
    case: Case,
    sizes: tuple[int, int, int],
    weights: Matrices,
    counts: Sequence[int],
    *,
    checked: bool = True,
) -> None:
    """Run ``gather_qmm_rhs``: the first ``counts[0]`` rows with the first matrix, and so on."""
    _, columns, summed = sizes
    rows = sum(counts)
    x = vectors(rows, summed, kind=case.kind)
    y = garbage(rows, columns, dtype=case.dtype)
    offsets = torch.tensor([sum(counts[:index]) for index in range(len(counts))], dtype=torch.int32)
    tiles = min(rows, up(rows, case.tile[0]) + len(counts) - 1)
    group = FOUR_SIMDGROUPS if "nax" in case.name else TWO_SIMDGROUPS
    words, *others = weights.arguments
    bench.run(
        code, case.host, x, words, *others, offsets, y, rows, columns, summed, len(counts),
        **groups(up(columns, case.tile[1]), tiles, 1, group=group), checked=checked,
    )  # fmt: skip
    pieces = zip(x.split(list(counts)), weights.values, strict=True)
    assert torch.equal(y, torch.cat([case.product(one, matrix) for one, matrix in pieces])), counts
