"""quantized_nax.h and fp_quantized_nax.h: products with quantised matrices on the matrix units of newer GPUs."""

from __future__ import annotations

import pytest
from nax_units import (
    AFFINE,
    AFFINE_GATHERED,
    AFFINE_UNIT,
    ALIGNED_ROWS,
    FLOATING,
    FLOATING_ALIGNED_ROWS,
    FLOATING_GATHERED,
    FLOATING_RAGGED_ROWS,
    FLOATING_RAGGED_UNIT,
    FLOATING_UNIT,
    RAGGED_ROWS,
    RAGGED_UNIT,
)
from products import Case, affine_weights, floating_weights, multiply, multiply_gathered, multiply_sorted

from metalwright.errors import BarrierFault, MemoryFault

# a matrix's rows by whole groups and tiles, and by fewer than a tile's, some without any
COUNTS = ((0, 70, 66, 0, 1), (10,))
INSIDE_A_TILE = (
    "where a row of the matrix ends inside a tile of 64, the kernel reads the codes and scales of the rest of the tile, "
    "past the last row's end too"
)


@pytest.mark.parametrize("case", AFFINE, ids=lambda case: case.host)
def test_affine(bench, case: Case) -> None:
    for sizes in case.sizes:
        multiply(bench, AFFINE_UNIT, case, sizes, affine_weights(case, sizes, *case.batch))


@pytest.mark.parametrize("case", AFFINE_GATHERED, ids=lambda case: case.host)
def test_affine_gathered(bench, case: Case) -> None:
    for sizes in case.sizes:
        multiply_gathered(bench, AFFINE_UNIT, case, sizes, affine_weights(case, sizes, 3))


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_affine_sorted_rows(bench, counts: tuple[int, ...]) -> None:
    sizes = ALIGNED_ROWS.sizes[0]
    weights = affine_weights(ALIGNED_ROWS, sizes, len(counts))
    multiply_sorted(bench, AFFINE_UNIT, ALIGNED_ROWS, sizes, weights, counts)
    sizes = RAGGED_ROWS.sizes[0]
    weights = affine_weights(RAGGED_ROWS, sizes, len(counts)).with_room()
    multiply_sorted(bench, RAGGED_UNIT, RAGGED_ROWS, sizes, weights, counts)


@pytest.mark.parametrize("case", FLOATING, ids=lambda case: case.host)
def test_floating(bench, case: Case) -> None:
    for sizes in case.sizes:
        multiply(bench, FLOATING_UNIT, case, sizes, floating_weights(case, sizes, *case.batch))


@pytest.mark.parametrize("case", FLOATING_GATHERED, ids=lambda case: case.host)
def test_floating_gathered(bench, case: Case) -> None:
    for sizes in case.sizes:
        multiply_gathered(bench, FLOATING_UNIT, case, sizes, floating_weights(case, sizes, 3))


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_floating_sorted_rows(bench, counts: tuple[int, ...]) -> None:
    sizes = FLOATING_ALIGNED_ROWS.sizes[0]
    weights = floating_weights(FLOATING_ALIGNED_ROWS, sizes, len(counts))
    multiply_sorted(bench, FLOATING_UNIT, FLOATING_ALIGNED_ROWS, sizes, weights, counts)
    sizes = FLOATING_RAGGED_ROWS.sizes[0]
    weights = floating_weights(FLOATING_RAGGED_ROWS, sizes, len(counts)).with_room()
    multiply_sorted(bench, FLOATING_RAGGED_UNIT, FLOATING_RAGGED_ROWS, sizes, weights, counts)


@pytest.mark.xfail(raises=MemoryFault, strict=True, reason=INSIDE_A_TILE)
def test_affine_ragged_sums(bench) -> None:
    weights = affine_weights(RAGGED_ROWS, RAGGED_ROWS.sizes[0], 2)
    multiply_sorted(bench, RAGGED_UNIT, RAGGED_ROWS, RAGGED_ROWS.sizes[0], weights, (5, 40))


@pytest.mark.xfail(raises=MemoryFault, strict=True, reason=INSIDE_A_TILE)
def test_floating_ragged_sums(bench) -> None:
    sizes = FLOATING_RAGGED_ROWS.sizes[0]
    weights = floating_weights(FLOATING_RAGGED_ROWS, sizes, 2)
    multiply_sorted(bench, FLOATING_RAGGED_UNIT, FLOATING_RAGGED_ROWS, sizes, weights, (5, 40))


# rows of which some simdgroups of a threadgroup have a whole tile, others a cut one
UNLIKE_ROWS = 37
WAITS_APART = pytest.mark.xfail(
    strict=True,
    raises=BarrierFault,
    reason="checked, a barrier is missed: simdgroups with whole and with cut tiles wait in other instantiations of one "
    "function; unchecked, it matches",
)
# Metal leaves undefined what comes of such a wait; unchecked, any barrier serves
either_way = pytest.mark.parametrize("checked", [False, pytest.param(True, marks=WAITS_APART)])


@either_way
def test_affine_whole_and_cut_tiles(bench, checked: bool) -> None:
    case = AFFINE[0]
    sizes = (UNLIKE_ROWS, 64, 64)
    multiply(bench, AFFINE_UNIT, case, sizes, affine_weights(case, sizes), checked=checked)


@either_way
def test_affine_whole_and_cut_tiles_of_sorted_rows(bench, checked: bool) -> None:
    sizes, counts = ALIGNED_ROWS.sizes[0], (3, UNLIKE_ROWS - 3)
    weights = affine_weights(ALIGNED_ROWS, sizes, len(counts))
    multiply_sorted(bench, AFFINE_UNIT, ALIGNED_ROWS, sizes, weights, counts, checked=checked)


@either_way
def test_floating_whole_and_cut_tiles(bench, checked: bool) -> None:
    case = FLOATING_GATHERED[0]
    sizes = (UNLIKE_ROWS, 83, 64)
    weights = floating_weights(case, sizes, 3)
    multiply_gathered(bench, FLOATING_UNIT, case, sizes, weights, checked=checked)
