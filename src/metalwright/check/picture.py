"""A result seen from far: where its errors are, and how many are how large. Small, however large the result is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F

# a map has at most this many cells along each axis
CELLS = 64
# what a cell is marked with: the last of these that holds for one of its elements. A blank cell has no element.
RIGHT, ORDER, VALUE, NOT_FINITE, UNWRITTEN = MARKS = ".oxnu"
_BLANK = " "
_SIMDGROUP = 32


@dataclass(frozen=True)
class ErrorMap:
    """Where a result is wrong, on a grid of at most 64 by 64 cells.

    The result is seen as a matrix of ``rows`` by ``columns``: the last axis runs along the columns, all others are
    stacked along the rows. A result along one axis is ``folded``: it is read row by row, as text is. A cell covers
    ``cell_rows`` by ``cell_columns`` elements.

    ``marks`` has a string for each row of cells and in it a character for each cell: ``"."`` right, ``"o"`` depends on
    the order of threads, ``"x"`` a wrong value, ``"n"`` infinite or NaN on one side, ``"u"`` never written, ``" "`` no
    element there. ``errors`` has the largest finite absolute error of each cell, row by row.
    """

    rows: int
    columns: int
    cell_rows: int
    cell_columns: int
    folded: bool
    marks: tuple[str, ...]
    errors: tuple[float, ...]


@dataclass(frozen=True)
class UlpBin:
    """``count`` elements are off by at most ``most`` units in the last place, and by more than half of that."""

    most: int
    count: int


def error_map(error: torch.Tensor, marked: Mapping[str, torch.Tensor]) -> ErrorMap | None:
    """Return the map of a result whose elements are off by ``error``; ``None`` if it has no elements.

    Args:
        error: the absolute error of each element; what is not finite counts as 0.
        marked: a mask of the result's shape for each mark that is not ``RIGHT``.
    """
    if not error.numel():
        return None
    state = torch.zeros(error.shape, dtype=torch.int8)
    for rank, mark in enumerate(MARKS):
        if mark in marked:
            state[marked[mark]] = rank
    columns = error.shape[-1] if error.ndim else 1
    rows = error.numel() // columns
    folded = 1 in (rows, columns) and error.numel() > CELLS
    if folded:
        columns = _fold(error.numel())
        rows = -(-error.numel() // columns)
    elif columns == 1:
        rows, columns = columns, rows
    # the cells of a folded result are pieces of a row: consecutive elements
    cell_rows, cell_columns = (1 if folded else -(-rows // CELLS)), -(-columns // CELLS)
    finite = torch.where(error.isfinite(), error, 0.0).to(torch.float64)
    shape = (rows, columns, cell_rows, cell_columns)
    marks = _pooled(state, *shape, blank=-1)
    return ErrorMap(
        *shape,
        folded=folded,
        marks=tuple("".join((MARKS + _BLANK)[int(cell)] for cell in row) for row in marks.tolist()),
        errors=tuple(_pooled(finite, *shape, blank=0.0).reshape(-1).tolist()),
    )


def _fold(elements: int) -> int:
    """Return a row's length: a power of two, so that what repeats with simdgroups or threadgroups stands in columns."""
    if elements <= CELLS**2:
        return max(_SIMDGROUP, 2 ** math.ceil(math.log2(elements) / 2))
    # so long that there are no more rows than cells
    return 2 ** math.ceil(math.log2(elements / CELLS))


def _pooled(
    values: torch.Tensor, rows: int, columns: int, cell_rows: int, cell_columns: int, *, blank: float
) -> torch.Tensor:
    """Return the largest value of each cell."""
    flat = values.reshape(-1)
    flat = F.pad(flat, (0, rows * columns - flat.numel()), value=blank).reshape(rows, columns)
    flat = F.pad(flat, (0, -columns % cell_columns, 0, -rows % cell_rows), value=blank)
    cells = flat.reshape(flat.shape[0] // cell_rows, cell_rows, flat.shape[1] // cell_columns, cell_columns)
    return cells.amax(dim=(1, 3))


def ulp_histogram(steps: torch.Tensor) -> tuple[UlpBin, ...]:
    """Count distances in units in the last place: 0, 1, 2, up to 4, up to 8, ...; bins with no element are left out."""
    if not steps.numel():
        return ()
    # bin 0 holds 0, bin k what is above 2**(k - 2) and at most 2**(k - 1)
    bins = torch.where(steps > 0, steps.clamp(min=1).log2().ceil() + 1, 0).to(torch.int64).reshape(-1)
    counts = torch.bincount(bins).tolist()
    return tuple(UlpBin(2 ** (k - 1) if k else 0, count) for k, count in enumerate(counts) if count)
