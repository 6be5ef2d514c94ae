"""What is kept of a result's errors: small, and true to where and how large they are."""

import math

import pytest
import torch

from metalwright.check import picture
from metalwright.check.picture import CELLS, ErrorMap, UlpBin


def mapped(shape, wrong=(), mark=picture.VALUE):
    error = torch.zeros(shape)
    mask = torch.zeros(shape, dtype=torch.bool)
    for index in wrong:
        error[index], mask[index] = 2.5, True
    return picture.error_map(error, {mark: mask})


@pytest.mark.parametrize(
    "shape",
    [
        (),
        (1,),
        (5,),
        (65,),
        (1000,),
        (4096,),
        (4097,),
        (100_003,),
        (1000, 1),
        (70, 130),
        (2, 70, 130),
        (64, 64),
    ],
)
def test_every_element_is_in_one_cell_of_a_small_map(shape):
    seen = mapped(shape)
    assert len(seen.marks) <= CELLS and {len(row) for row in seen.marks} == {len(seen.marks[0])}
    assert len(seen.marks[0]) <= CELLS and len(seen.errors) == sum(map(len, seen.marks))
    assert seen.rows * seen.columns >= math.prod(shape)
    assert len(seen.marks) * seen.cell_rows >= seen.rows
    assert len(seen.marks[0]) * seen.cell_columns >= seen.columns


@pytest.mark.parametrize(
    ("shape", "index"), [((70, 130), (69, 128)), ((2, 70, 130), (1, 3, 4)), ((5,), (4,))]
)
def test_a_wrong_element_marks_its_cell(shape, index):
    seen = mapped(shape, [index])
    *leading, last = index
    row = sum(i * math.prod(shape[axis + 1 : -1]) for axis, i in enumerate(leading))
    at = (row // seen.cell_rows, last // seen.cell_columns)
    marked = [(r, c) for r, line in enumerate(seen.marks) for c, mark in enumerate(line) if mark == "x"]
    assert marked == [at]
    assert seen.errors[at[0] * len(seen.marks[0]) + at[1]] == 2.5


def test_a_long_vector_is_read_as_text_with_simdgroups_in_columns():
    seen = mapped((1000,), [(i,) for i in range(7, 1000, 32)])
    assert seen.folded and seen.columns == 32
    assert {line.find("x") for line in seen.marks} <= {7, -1}
    assert seen.marks[-1] == ".......x" + " " * 24


def test_the_gravest_mark_of_a_cell_is_shown():
    masks = {mark: torch.zeros(128, 128, dtype=torch.bool) for mark in picture.MARKS[1:]}
    for step, mark in enumerate(picture.MARKS[1:]):
        masks[mark][0, : 8 - 2 * step] = True
    seen = picture.error_map(torch.zeros(128, 128), masks)
    assert seen.marks[0][:5] == "unxo."


def test_what_is_not_finite_counts_as_no_error():
    seen = picture.error_map(torch.tensor([math.nan, math.inf, 1.0]), {})
    assert seen == ErrorMap(1, 3, 1, 1, False, ("...",), (0.0, 0.0, 1.0))


def test_nothing_is_seen_of_nothing():
    assert mapped((0, 3)) is None
    assert picture.ulp_histogram(torch.zeros(0)) == ()


def test_distances_are_counted_in_powers_of_two():
    bins = picture.ulp_histogram(torch.tensor([0, 0, 1, 2, 3, 4, 5, 8, 9, 2.0**31], dtype=torch.float64))
    assert bins == (
        UlpBin(0, 2), UlpBin(1, 1), UlpBin(2, 1), UlpBin(4, 2), UlpBin(8, 2), UlpBin(16, 1), UlpBin(2**31, 1),
    )  # fmt: skip
