"""Products of matrices with vectors: plain, transposed, gathered and with a few vectors at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import pytest
import torch
from arrays import garbage, groups, integers, up
from units import Unit

import metalwright

UNREACHED = (
    "a threadgroup_barrier that some threads never reach, which Metal leaves undefined; unchecked it matches"
)
PLAIN = ((0, False), (1, False))


@dataclass(frozen=True)
class Tile:
    """What a threadgroup computes: its simdgroups, a simdgroup's threads, a thread's elements, each in two axes."""

    bm: int
    bn: int
    sm: int
    sn: int
    tm: int
    tn: int

    @property
    def rows(self) -> int:
        return self.bm * self.sm * self.tm

    @property
    def columns(self) -> int:
        return self.bn * self.sn * self.tn

    @property
    def group(self) -> tuple[int, int, int]:
        return (32, self.bn, self.bm)

    def __str__(self) -> str:
        return ", ".join(map(str, astuple(self)))


# tiles that MLX chooses for long rows, short rows, few rows, and for rows that are much longer than there are rows
WIDE, NARROW, SINGLE = Tile(4, 1, 1, 32, 4, 4), Tile(1, 1, 8, 4, 4, 4), Tile(4, 1, 1, 32, 1, 4)
SPLIT = Tile(1, 8, 1, 32, 4, 4)
# and where the matrix lies transposed
TALL, TALL_SINGLE, TALL_LONG = Tile(1, 2, 8, 4, 4, 4), Tile(1, 2, 8, 4, 4, 1), Tile(1, 16, 4, 8, 4, 4)


@dataclass(frozen=True)
class Product:
    """One instantiation of ``gemv``, or of ``gemv_t`` whose matrix lies transposed in memory."""

    tile: Tile
    kind: str = "float"
    transposed: bool = False
    several_batch_axes: bool = False
    biased: bool = False

    @property
    def name(self) -> str:
        return "gemv_t" if self.transposed else "gemv"

    @property
    def arguments(self) -> str:
        flags = (self.several_batch_axes, self.biased)
        return ", ".join([self.kind, str(self.tile), *(str(flag).lower() for flag in flags)])

    def __str__(self) -> str:
        return f"{self.name}<{self.arguments}>"

    def groups(self, rows: int) -> int:
        return up(rows, self.tile.columns if self.transposed else self.tile.rows)


PRODUCTS = {
    Product(WIDE): [(16, 128), (4, 1), (5, 127), (37, 259)],
    Product(WIDE, "complex64_t"): [(16, 128), (7, 130)],
    Product(WIDE, "half", several_batch_axes=True, biased=True): [(16, 128), (19, 65)],
    Product(NARROW, several_batch_axes=True): [(32, 64), (4, 3), (35, 33)],
    Product(SINGLE, "bfloat16_t", biased=True): [(1, 128), (3, 5), (6, 250)],
}
# of these the loop over whole blocks has a barrier, so the threads of a group all need columns of their own
TRANSPOSED = {
    Product(TALL, transposed=True): [(32, 64), (64, 75), (35, 31), (6, 1)],
    Product(TALL_SINGLE, "bfloat16_t", transposed=True, biased=True): [(8, 32), (3, 17)],
    Product(TALL_LONG, "half", True, several_batch_axes=True, biased=True): [(512, 16), (515, 15)],
}


def unit_of(products: Sequence[Product]) -> Unit:
    return Unit("gemv.h", (), tuple((str(one), one.name, one.arguments) for one in products), PLAIN)


def times(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Return the product, exactly: the values are small integers."""
    wide = torch.complex128 if matrix.dtype.is_complex else torch.float64
    return (matrix.to(wide) @ vector.to(wide).unsqueeze(-1)).squeeze(-1)


def ints(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def check(
    bench: Any, unit: Unit, product: Product, shapes: Sequence[tuple[int, int]], checked: bool = True
) -> None:
    """Launch over a batch of which no axis is dense: vectors and biases are broadcast."""
    for rows, columns in shapes:
        seed = rows * 1000 + columns
        batch = (2, 3) if product.several_batch_axes else (3,)
        axes = len(batch)
        # rows of the matrix do not lie behind each other: there are two columns that are not used
        stored = (columns, rows + 2) if product.transposed else (rows, columns + 2)
        whole = integers(seed, *reversed(batch), *stored, kind=product.kind, limit=2)
        if product.several_batch_axes:
            whole = whole.transpose(0, 1)
        matrix = whole[..., :rows].mT if product.transposed else whole[..., :columns]
        vector = integers(seed + 1, batch[0], *(1 for _ in batch[1:]), columns, kind=product.kind, limit=2)
        vector = vector.expand(*batch, columns)
        bias = integers(seed + 2, batch[-1], 2 * rows, kind=product.kind, limit=9)[:, ::2].expand(
            *batch, rows
        )
        out = garbage(*batch, rows, dtype=vector.dtype)
        bench.run(
            unit,
            str(product),
            whole,
            vector,
            bias,
            out,
            columns,
            rows,
            whole.stride(-2),
            2.0,
            -3.0,
            axes,
            ints(batch),
            torch.tensor(vector.stride()[:axes]),
            torch.tensor(whole.stride()[:axes]),
            torch.tensor(bias.stride()[:axes]),
            bias.stride(-1),
            **groups(product.groups(rows), 1, out[..., 0].numel(), group=product.tile.group),
            checked=checked,
        )
        expected = times(matrix, vector)
        if product.biased:
            expected = 2 * expected - 3 * bias
        assert torch.equal(out, expected.to(out.dtype)), (rows, columns)


@pytest.mark.parametrize("product", PRODUCTS, ids=str)
def test_gemv(bench, product: Product) -> None:
    check(bench, unit_of(tuple(PRODUCTS)), product, PRODUCTS[product])


@pytest.mark.parametrize("product", TRANSPOSED, ids=str)
def test_gemv_t(bench, product: Product) -> None:
    check(bench, unit_of(tuple(TRANSPOSED)), product, TRANSPOSED[product])


unreached = pytest.mark.xfail(raises=metalwright.BarrierFault, reason=UNREACHED)


@pytest.mark.parametrize("checked", [False, pytest.param(True, marks=unreached)])
@pytest.mark.parametrize(
    ("product", "shapes"),
    [
        (Product(SPLIT), [(4, 1024), (7, 1030), (9, 2500)]),
        (Product(Tile(1, 4, 8, 4, 4, 4), transposed=True), [(65, 64), (70, 75)]),
    ],
    ids=str,
)
def test_gemv_with_a_barrier_in_a_branch(
    bench, product: Product, shapes: list[tuple[int, int]], checked: bool
) -> None:
    check(bench, unit_of((product,)), product, shapes, checked)


@pytest.mark.parametrize("batch", [(5,), (2, 3)], ids=str)
@pytest.mark.parametrize(
    ("name", "tile", "kind"), [("gemv_gather", WIDE, "half"), ("gemv_t_gather", TALL, "float")]
)
def test_gemv_gather(bench, name: str, tile: Tile, kind: str, batch: tuple[int, ...]) -> None:
    unit = Unit("gemv.h", (), ((name, name, f"{kind}, {tile}"),), PLAIN)
    transposed = name == "gemv_t_gather"
    for rows, columns in ((64, 96), (37, 31)):
        vectors = integers(rows, 2, 2, columns, kind=kind, limit=2).transpose(0, 1)
        stored = integers(
            columns, 3, *((columns, rows) if transposed else (rows, columns)), kind=kind, limit=2
        )
        matrices = stored.mT if transposed else stored
        pick_vector = torch.tensor([1, 3, 0, 2, 3, 1])[: torch.Size(batch).numel()].reshape(batch)
        # matrices' indices are the same along the second axis
        used = torch.tensor([2, 0, 2, 1, 1], dtype=torch.int32)[: batch[0]]
        pick_matrix = used.reshape(-1, *(1 for _ in batch[1:])).expand(batch)
        out = garbage(*batch, rows, dtype=vectors.dtype)
        bench.run(
            unit,
            name,
            stored,
            vectors,
            vectors,
            out,
            columns,
            rows,
            stored.stride(-2),
            1.0,
            0.0,
            len(batch),
            ints(batch),
            torch.tensor([*pick_vector.stride(), *pick_matrix.stride()]),
            2,
            ints([2, 2]),
            torch.tensor(vectors.stride()[:2]),
            1,
            ints([3]),
            torch.tensor([stored.stride(0)]),
            pick_vector.int(),
            used,
            **groups(
                up(rows, tile.columns if transposed else tile.rows), 1, out[..., 0].numel(), group=tile.group
            ),
        )
        expected = times(matrices[pick_matrix], vectors.reshape(4, columns)[pick_vector])
        assert torch.equal(out, expected.to(out.dtype))


# vectors of a group, lanes along K: at least 8 chunks of 4 elements for each lane take the unrolled loop
WIDES = {"float, 3, 8": [(1, 1, 8), (7, 5, 260), (4, 9, 524)], "half, 5, 32": [(5, 4, 128), (11, 6, 1036)]}


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("arguments", WIDES)
def test_gemv_wide(bench, arguments: str, biased: bool) -> None:
    """The grid has fewer groups along x than there are chunks of vectors: a group takes several."""
    kind, each, lanes = arguments.split(", ")
    unit = Unit("gemv.h", (), (("gemv_wide", "gemv_wide", arguments),), ((0, biased), (1, biased)))
    simdgroups = int(lanes) // 8
    for count, rows, columns in WIDES[arguments]:
        batch = (2, 2) if biased else (2,)
        axes = len(batch)
        matrix = integers(rows, *batch, rows, columns + 4, kind=kind, limit=1)[..., :columns]
        # one set of vectors for the whole last axis of the batch
        vectors = integers(columns, *batch[:-1], 1, count, columns + 8, kind=kind, limit=1)[..., :columns]
        vectors = vectors.expand(*batch, count, columns)
        bias = integers(count, *batch, rows, count, kind=kind, limit=9).mT
        out = garbage(*batch, count, rows, dtype=matrix.dtype)
        optional = (2.0, -3.0) if biased else (None, None)
        bench.run(
            unit,
            "gemv_wide",
            matrix,
            vectors,
            bias if biased else None,
            out,
            columns,
            rows,
            count,
            matrix.stride(-2),
            vectors.stride(-2),
            *optional,
            axes,
            ints(batch),
            torch.tensor(vectors.stride()[:axes]),
            torch.tensor(matrix.stride()[:axes]),
            *((torch.tensor(bias.stride()[:axes]), bias.stride(-2), bias.stride(-1)) if biased else ()),
            **groups(
                min(2, up(count, int(each))),
                up(rows, 4),
                torch.Size(batch).numel(),
                group=(32, simdgroups, 1),
            ),
        )
        expected = vectors.double() @ matrix.double().mT
        if biased:
            expected = 2 * expected - 3 * bias
        assert torch.equal(out, expected.to(out.dtype)), (count, rows, columns)


@pytest.mark.parametrize("batch", [(5,), (2, 3)], ids=str)
def test_gemv_wide_gather(bench, batch: tuple[int, ...]) -> None:
    unit = Unit("gemv.h", (), (("gemv_wide_gather", "gemv_wide_gather", "float, 2, 16"),), PLAIN)
    for count, rows, columns in ((2, 4, 64), (5, 7, 516)):
        vectors = integers(rows, 4, count, columns, limit=2)
        matrices = integers(columns, 3, 2, rows, columns, limit=2).transpose(0, 1)
        pick_vector = torch.tensor([1, 3, 0, 2, 3, 1], dtype=torch.int32)[
            : torch.Size(batch).numel()
        ].reshape(batch)
        pick_matrix = torch.tensor([5, 0, 2, 1, 4, 3], dtype=torch.int32)[: pick_vector.numel()].reshape(
            batch
        )
        out = garbage(*batch, count, rows, dtype=torch.float32)
        bench.run(
            unit,
            "gemv_wide_gather",
            matrices,
            vectors,
            vectors,
            out,
            columns,
            rows,
            count,
            matrices.stride(-2),
            vectors.stride(-2),
            None,
            None,
            len(batch),
            ints(batch),
            torch.tensor([*pick_vector.stride(), *pick_matrix.stride()]),
            1,
            ints([4]),
            torch.tensor([vectors.stride(0)]),
            2,
            ints([2, 3]),
            torch.tensor(matrices.stride()[:2]),
            pick_vector,
            pick_matrix,
            **groups(up(count, 2), up(rows, 4), pick_vector.numel(), group=(32, 2, 1)),
        )
        expected = vectors[pick_vector].double() @ matrices.reshape(6, rows, columns)[pick_matrix].double().mT
        assert torch.equal(out, expected.float())
