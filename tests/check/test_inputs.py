"""Generated inputs: seeded, inside their range, and with the special values that the dtype has."""

import math
import subprocess
import sys

import pytest
import torch

from metalwright.check import random
from metalwright.check.inputs import seed_for
from metalwright.errors import ArgumentError

FLOATS = [torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.uint32,
    torch.int64,
    torch.uint64,
]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool])
def test_a_seed_gives_the_same_values_and_another_seed_others(dtype):
    spec = random((50,), dtype)
    first, again, other = spec.draw(1), spec.draw(1), spec.draw(2)
    assert first.dtype is dtype and first.shape == (50,)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_seeds_are_the_same_in_another_process():
    code = "from metalwright.check.inputs import seed_for; print(seed_for(7, 'case', 'x'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == seed_for(7, "case", "x")
    assert len({seed_for(seed, name) for seed in range(4) for name in "xyz"}) == 12


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_values_have_both_signs_and_zeros_and_are_finite(dtype):
    values = random((1000,), dtype).draw(0)
    assert (values > 0).any() and (values < 0).any() and (values == 0).any()
    assert values.isfinite().all()
    assert 0.8 < float(values.float().std()) < 1.2


@pytest.mark.parametrize("dtype", FLOATS)
def test_extreme_values_reach_both_ends_of_the_dtype(dtype):
    values = random((1000,), dtype).draw(0, "extreme")
    limits = torch.finfo(dtype)
    assert values.isfinite().all()
    assert float(values.max()) == limits.max and float(values.min()) == limits.min
    tiny = values[values != 0].abs().min()
    assert float(tiny) < limits.smallest_normal, "subnormal numbers are among them"
    zeros = values[values == 0]
    assert zeros.signbit().any() and not zeros.signbit().all(), "zeros of both signs"


@pytest.mark.parametrize("dtype", FLOATS)
def test_non_finite_values_are_there_beside_ordinary_ones(dtype):
    values = random((1000,), dtype).draw(0, "non-finite")
    assert values.isnan().any() and values.isposinf().any() and values.isneginf().any()
    finite = values[values.isfinite()]
    assert len(finite) > 900
    assert float(finite.abs().max()) < 100, "nothing that overflows stands beside an infinity"


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_have_extremes_but_no_non_finite_variant(dtype):
    spec = random((400,), dtype)
    assert spec.variants() == ("normal", "extreme")
    limits = torch.iinfo(dtype)
    wide = spec.draw(0, "extreme").to(torch.int64)
    if limits.bits < 32:
        assert int(wide.max()) == limits.max and int(wide.min()) == limits.min
    elif limits.min < 0:
        assert abs(int(wide.max())) ** 2 <= limits.max, (
            "a product of two must not overflow: that is undefined"
        )
    assert (spec.draw(0).to(torch.int64).abs() <= 100).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_range_is_kept_also_by_special_values(dtype):
    spec = random((2000,), dtype, low=0.5, high=2.0)
    assert spec.variants() == ("normal", "extreme")
    for variant in spec.variants():
        values = spec.draw(3, variant).float()
        assert float(values.min()) >= 0.5 and float(values.max()) < 2.0


def test_an_integer_range_reaches_both_ends_and_excludes_the_upper():
    values = random((1000,), torch.int32, low=0, high=4).draw(0)
    assert sorted(set(values.tolist())) == [0, 1, 2, 3]


def test_a_one_element_tensor_can_be_special():
    seen = {float(random((1,)).draw(seed, "non-finite")) for seed in range(40)}
    assert any(math.isnan(value) for value in seen) and math.inf in seen


def test_an_empty_tensor_has_one_variant():
    assert random((0, 3)).variants() == ("normal",)
    assert random((0, 3)).draw(0).shape == (0, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((3,), torch.float64), "cannot generate torch.float64 inputs: Metal has float32"),
        (((3,), torch.complex64), "cannot generate torch.complex64"),
        (((3, -1),), r"shape \[3, -1\].*negative"),
    ],
)
def test_what_cannot_be_generated_is_refused(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        random(*arguments)


def test_an_empty_range_is_refused():
    with pytest.raises(ArgumentError, match="low must be below high"):
        random((3,), low=1, high=1)
