"""The shape of an error: named where it is sure, and only there."""

import pytest
import torch

from metalwright.check.pattern import Errors, recognise
from metalwright.check.tolerance import DEFAULTS


def values(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def errors(got, expected, tiles=(), written=None, slack=None):
    got, expected = got.to(torch.float64), expected.to(torch.float64)
    tolerance = DEFAULTS[torch.float32]
    allowed = (
        tolerance.rtol * expected.abs() + tolerance.atol if slack is None else torch.full_like(got, slack)
    )
    written = torch.ones_like(got, dtype=torch.bool) if written is None else written
    wrong = written & ~(((got - expected).abs() <= allowed) | (got.isnan() & expected.isnan()))
    return Errors(got, expected, allowed, wrong, written, tiles)


def name(got, expected, **more):
    found = recognise(errors(got, expected, **more))
    return found.name if found else None


def sentence(got, expected, **more):
    found = recognise(errors(got, expected, **more))
    assert found is not None
    return found.sentence


def shifted(expected, step, axis):
    """Each element its neighbour's value, the last its own."""
    got = expected.roll(-step, axis)
    edge = expected.shape[axis] - 1 if step > 0 else 0
    got.select(axis, edge).copy_(expected.select(axis, edge))
    return got


@pytest.mark.parametrize("shape", [(8, 8), (5, 9), (3, 6, 4)])
def test_transposed(shape):
    expected = values(*shape)
    assert name(expected.transpose(0, 1).reshape(shape), expected) == "transposed"
    if len(shape) == 3:
        text = sentence(expected.transpose(1, 2).reshape(shape), expected)
        assert "axes 1 and 2 are swapped" in text


def test_a_transposed_input_written_back_in_the_other_order():
    expected = values(5, 9)
    # the kernel wrote out[r, c] where it should have written out[c, r]: its flat memory, read the other way
    got = expected.reshape(9, 5).T.contiguous().reshape(5, 9)
    assert name(got, expected) == "transposed"


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("step", [1, -1])
def test_shifted_by_one(axis, step):
    expected = values(12, 20)
    text = sentence(shifted(expected, step, axis), expected)
    assert f"shifted by one along axis {axis}" in text
    assert ("i + 1, the next" if step > 0 else "i - 1, the previous") in text


def test_shifted_around_the_end():
    expected = values(50)
    assert name(expected.roll(1), expected) == "shifted"


def test_a_prefix_sum_that_leaves_its_own_element_out_is_shifted():
    x = values(100).double()
    inclusive = x.cumsum(0)
    assert name(inclusive - x, inclusive, slack=1e-6) == "shifted"


@pytest.mark.parametrize("state", ["wrong", "unwritten"])
@pytest.mark.parametrize(("size", "first", "tile"), [(300, 256, 256), (70, 64, 32), (257, 256, 256)])
def test_a_missing_tail(state, size, first, tile):
    expected = values(size)
    got, written = expected.clone(), torch.ones(size, dtype=torch.bool)
    if state == "wrong":
        got[first:] = -7
    else:
        got[first:], written[first:] = torch.nan, False
    text = sentence(got, expected, tiles=(tile,), written=written)
    assert f"from index {first} of {size}" in text and f"multiple of {tile}" in text
    assert ("never written" in text) == (state == "unwritten")


def test_a_missing_tail_along_an_axis():
    expected = values(10, 40)
    got = expected.clone()
    got[:, 32:] = 0
    assert "along axis 1" in sentence(got, expected, tiles=(16,))


def test_a_tail_that_no_tile_begins_is_not_named():
    expected = values(300)
    got = expected.clone()
    got[250:] = 0
    assert name(got, expected, tiles=(64, 256)) is None
    got[100:110] = 0
    got[256:] = 0
    assert name(got, expected, tiles=(64, 256)) is None


@pytest.mark.parametrize(("factor", "text"), [(2, "2 times"), (0.5, "1/2 times"), (32, "32 times")])
def test_a_constant_factor(factor, text):
    expected = values(64)
    assert text in sentence(expected * factor, expected)


def test_a_factor_of_integers_and_of_some_rows_only():
    expected = torch.arange(64).reshape(8, 8)
    assert name(expected * 3, expected, slack=0.0) == "factor"
    got = expected.clone()
    got[3] *= 2
    assert name(got, expected, slack=0.0) == "factor"


def test_negated_and_off_by_a_constant():
    expected = values(64)
    assert name(-expected, expected) == "negated"
    assert "plus 1" in sentence(expected + 1, expected)
    assert "minus 3" in sentence(torch.arange(50) - 3, torch.arange(50), slack=0.0)


@pytest.mark.parametrize("axis", [0, 1])
def test_reversed_and_halves_swapped(axis):
    expected = values(6, 10)
    assert f"reversed along axis {axis}" in sentence(expected.flip(axis), expected)
    got = expected.roll(expected.shape[axis] // 2, axis)
    assert f"halves of axis {axis} are swapped" in sentence(got, expected)


@pytest.mark.parametrize("index", [0, -1])
def test_one_row_shared(index):
    expected = values(6, 10)
    got = expected[index].expand_as(expected).clone()
    text = sentence(got, expected)
    assert "one slice is shared: along axis 0" in text and ("first" if index == 0 else "last") in text


def test_a_last_element_alone_is_no_tail_of_small_tiles():
    expected = values(37)
    got = expected.clone()
    got[36] = 9
    assert name(got, expected, tiles=(4,)) is None


def test_what_has_no_shape_is_not_named():
    expected = values(20, 30)
    assert name(values(20, 30, seed=1), expected) is None
    assert name(expected.flatten()[torch.randperm(600)].reshape(20, 30), expected) is None
    assert name(torch.zeros(20, 30), expected) is None
    assert name(torch.full((20, 30), torch.nan), expected) is None
    one = expected.clone()
    one[3, 4] += 1
    assert name(one, expected) is None


@pytest.mark.parametrize("expected", [torch.ones(8, 8), torch.zeros(8, 8), torch.full((5, 9), 3.0)])
@pytest.mark.parametrize("got", [0.0, 2.0, 7.0])
def test_constant_tensors_are_not_named(expected, got):
    assert name(torch.full_like(expected, got), expected) is None


@pytest.mark.parametrize("seed", range(20))
def test_tensors_of_few_values_are_not_named_by_chance(seed):
    generator = torch.Generator().manual_seed(seed)
    shape = (2, 3) if seed % 2 else (16, 16)
    expected = torch.randint(0, 2, shape, generator=generator)
    got = torch.randint(0, 2, shape, generator=generator)
    assert name(got, expected, slack=0.0) is None
    small = torch.randint(0, 5, (7,), generator=generator)
    assert name(torch.randint(0, 5, (7,), generator=generator), small, slack=0.0) is None


def test_two_swapped_elements_are_too_few_to_be_sure():
    assert name(torch.tensor([2.0, 1.0]), torch.tensor([1.0, 2.0])) is None
    assert name(torch.tensor([[1.0, 3.0], [2.0, 4.0]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])) is None


def test_a_half_explained_error_is_not_named():
    expected = values(16, 16)
    got = expected.T.clone()
    got[:4] = values(4, 16, seed=3)
    assert name(got, expected) is None


def test_a_right_part_that_the_shape_would_have_changed_denies_it():
    expected = values(100)
    got = expected.clone()
    got[:30] = expected.roll(-1)[:30]
    assert name(got, expected) is None
