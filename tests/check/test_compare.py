"""The comparison of one result with its reference, on tensors made by hand."""

import math

import pytest
import torch

from metalwright.check.condition import Condition
from metalwright.check.data import compare
from metalwright.check.tolerance import DEFAULTS, EXACT, Tolerance, tolerances_by_dtype
from metalwright.check.verdict import findings
from metalwright.errors import ArgumentError

INF, NAN = math.inf, math.nan


def judged(got, expected, *, own=None, reverse=None, written=None, tolerance=None, condition=None):
    """Compare ``got`` with a reference in float64 (integers: in its own dtype)."""
    floating = got.dtype.is_floating_point
    wide = torch.as_tensor(expected, dtype=torch.float64) if floating else None
    if own is None:
        own = wide.to(got.dtype) if wide is not None else torch.as_tensor(expected, dtype=got.dtype)
    return compare(
        "out",
        got=got,
        reverse=got if reverse is None else reverse,
        written=torch.ones(got.shape, dtype=torch.bool) if written is None else written,
        own=own,
        wide=wide,
        tolerance=tolerance or DEFAULTS.get(got.dtype, EXACT),
        condition=lambda: condition,
    )


def kinds(result):
    return [finding.kind for finding in findings([result])]


def f32(*values):
    return torch.tensor(values, dtype=torch.float32)


def test_equal_results_have_no_error_and_no_worst_element():
    result = judged(f32(1, -2, 0), [1, -2, 0])
    assert (result.max_abs, result.max_rel, result.max_ulp, result.wrong) == (0, 0, 0, 0)
    assert result.worst is None and result.reference == "float64"
    assert kinds(result) == []


def test_a_correctly_rounded_result_has_no_error():
    third = f32(1.0) / 3
    assert judged(third, [1 / 3]).max_abs == 0


def test_the_worst_element_is_named_with_both_values():
    got = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    expected = got.double().clone()
    expected[1, 2] = 8.0
    expected[2, 0] = 8.5
    result = judged(got, expected)
    assert result.wrong == 2 and result.max_abs == 2.0
    assert result.worst.index == (1, 2)
    assert (result.worst.got, result.worst.expected, result.worst.error) == (6.0, 8.0, 2.0)
    (finding,) = findings([result])
    assert finding.kind == "value" and finding.result == "out"
    assert (
        "2 of 12 elements differ" in finding.message
        and "worst at [1, 2]: got 6, expected 8" in finding.message
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_one_step_of_the_dtype_is_one_ulp_also_across_zero(dtype):
    one = torch.ones(1, dtype=dtype)
    above = torch.nextafter(one, one * 2)
    assert judged(above, one.double()).max_ulp == 1
    tiny = torch.tensor([torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps], dtype=dtype)
    assert judged(tiny, -tiny.double()).max_ulp == 2
    assert judged(-torch.zeros(1, dtype=dtype), [0.0]).max_ulp == 0


def test_relative_error_is_of_the_reference():
    result = judged(f32(2.2, 0.0), [2.0, 0.0])
    assert result.max_rel == pytest.approx(0.1, rel=1e-5)


@pytest.mark.parametrize(
    ("got", "expected", "right"),
    [
        (NAN, NAN, True),
        (INF, INF, True),
        (-INF, INF, False),
        (NAN, INF, False),
        (NAN, 1.0, False),
        (INF, 1.0, False),
        (1.0, NAN, False),
        (1.0, -INF, False),
        (3e38, INF, False),
    ],
)
def test_infinities_and_nan(got, expected, right):
    result = judged(f32(got, 1.0), [expected, 1.0])
    assert kinds(result) == ([] if right else ["not-finite"])
    assert result.not_finite == (not right)


def test_a_value_beyond_the_range_is_infinite_in_the_dtype():
    assert kinds(judged(torch.tensor([INF], dtype=torch.float16), [70000.0])) == []
    assert (
        kinds(judged(torch.tensor([-INF], dtype=torch.float16), [70000.0])) == []
    )  # terms of either sign overflow
    assert kinds(judged(torch.tensor([5.0], dtype=torch.float16), [70000.0])) == ["not-finite"]


def test_rounding_at_the_end_of_the_range_is_not_an_error():
    assert kinds(judged(torch.tensor([65504.0], dtype=torch.float16), [65525.0])) == []
    assert kinds(judged(torch.tensor([INF], dtype=torch.float16), [65515.0])) == []
    assert kinds(judged(torch.tensor([INF], dtype=torch.float16), [60000.0])) == ["not-finite"]


def test_a_float16_tolerance_is_about_one_unit_in_the_last_place():
    got = torch.tensor([1.0], dtype=torch.float16)
    assert kinds(judged(got, [1 + 2**-11])) == []
    assert kinds(judged(got, [1 + 2**-9])) == ["value"]


def test_the_absolute_tolerance_shrinks_with_the_result():
    assert kinds(judged(f32(1.0, 5e-6), [1.0, 0.0])) == []
    assert kinds(judged(f32(1e-4, 5e-6), [1e-4, 0.0])) == ["value"]


def test_a_given_tolerance_is_taken_as_it_is():
    generous = Tolerance(0.0, 0.5)
    condition = Condition(100, torch.full((1,), 1e9, dtype=torch.float64))
    assert kinds(judged(f32(1.4), [1.0], tolerance=generous)) == []
    assert kinds(judged(f32(1.6), [1.0], tolerance=generous, condition=condition)) == ["value"]


def test_the_measured_condition_widens_only_what_needs_it():
    got, expected = f32(1.0001, 1.0), [1.0, 1.0]
    condition = Condition(4, torch.tensor([1e4, 0.0], dtype=torch.float64))
    assert kinds(judged(got, expected)) == ["value"]
    result = judged(got, expected, condition=condition)
    assert kinds(result) == [] and result.inputs_per_result == 4
    other_way = Condition(4, torch.tensor([0.0, 1e4], dtype=torch.float64))
    assert kinds(judged(got, expected, condition=other_way)) == ["value"]


def test_pytorchs_own_distance_counts_twice_and_no_more():
    nothing = Condition(1, torch.zeros(1, dtype=torch.float64))
    own = f32(1.0001)
    assert kinds(judged(f32(1.0002), [1.0], own=own, condition=nothing)) == []
    assert kinds(judged(f32(1.0003), [1.0], own=own, condition=nothing)) == ["value"]


@pytest.mark.parametrize(
    ("got", "right"), [(0.0, True), (1.0, True), (0.5, False), (1.5, False), (-1.0, False)]
)
def test_where_the_references_stand_on_either_side_of_a_jump_a_result_is_near_one_of_them(got, right):
    condition = Condition(1, torch.ones(1, dtype=torch.float64))
    assert kinds(judged(f32(got), [0.0], own=f32(1.0), condition=condition)) == ([] if right else ["value"])


def test_the_rounding_of_half_is_bounded_by_what_half_moves():
    steep = Condition(1, torch.full((1,), 4096.0).double(), coarse=torch.full((1,), 30.0).double())
    got = torch.tensor([0.5], dtype=torch.float16)
    assert kinds(judged(got, [0.0], condition=steep)) == ["value"]
    assert kinds(judged(got / 32, [0.0], condition=steep)) == []


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.int32, torch.int64, torch.uint32, torch.bool]
)
def test_integers_and_bools_are_exact(dtype):
    got = torch.tensor([1, 0, 1]).to(dtype)
    assert kinds(judged(got, got)) == []
    other = torch.tensor([1, 1, 1]).to(dtype)
    result = judged(got, other)
    assert kinds(result) == ["value"]
    assert (result.wrong, result.max_ulp, result.worst.index) == (1, 1, (1,))
    assert result.tolerance.describe() == "exact"


def test_large_integers_that_float64_cannot_tell_apart_differ():
    got = torch.tensor([2**62 + 1], dtype=torch.int64)
    result = judged(got, torch.tensor([2**62], dtype=torch.int64))
    assert kinds(result) == ["value"]
    assert (result.worst.got, result.worst.expected) == (2**62 + 1, 2**62)


def test_unwritten_elements_are_counted_and_not_compared():
    written = torch.tensor([[True, False], [False, True]])
    got = torch.tensor([[1.0, NAN], [NAN, 4.0]])
    result = judged(got, [[1.0, 2.0], [3.0, 4.0]], written=written)
    assert result.unwritten.count == 2 and result.unwritten.first == ((0, 1), (1, 0))
    assert result.wrong == 0 and kinds(result) == ["unwritten"]
    assert "2 of 4 elements were never written: [0, 1], [1, 0]" in findings([result])[0].message


def test_many_unwritten_elements_are_counted_and_the_first_listed():
    result = judged(f32(*[0.0] * 100), [0.0] * 100, written=torch.arange(100) < 50)
    assert result.unwritten.count == 50 and len(result.unwritten.first) == 8
    assert findings([result])[0].message.endswith("[57], ...")


def test_rounding_that_depends_on_the_order_is_seen_but_not_wrong():
    got = f32(1.0)
    result = judged(got, [1.0], reverse=torch.nextafter(got, got * 2))
    assert result.order.count == 1 and result.order.beyond == 0
    assert kinds(result) == []


@pytest.mark.parametrize("reverse", [f32(1.0, 3.0), f32(1.0, NAN)])
def test_results_that_depend_on_the_order_are_wrong(reverse):
    result = judged(f32(1.0, 2.0), [1.0, 2.0], reverse=reverse)
    assert kinds(result) == ["order"]
    assert result.order.index == (1,) and result.order.forward == 2.0


def test_integers_that_depend_on_the_order_at_all_are_wrong():
    got = torch.tensor([5, 6], dtype=torch.int32)
    result = judged(got, got, reverse=torch.tensor([5, 7], dtype=torch.int32))
    assert kinds(result) == ["order"]
    assert "6 forward, 7 in reverse" in findings([result])[0].message


def test_an_empty_result_is_right():
    result = judged(torch.empty(0, 3), torch.empty(0, 3))
    assert kinds(result) == [] and result.elements == 0


def test_tolerances_by_dtype_replaces_one_and_keeps_the_others():
    table = tolerances_by_dtype({torch.float32: (0.1, 0.2)})
    assert table[torch.float32] == Tolerance(0.1, 0.2)
    assert table[torch.float16] == DEFAULTS[torch.float16]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"float32": (1, 1)}, "expected a torch dtype as the key, got 'float32'"),
        ({torch.float32: 0.1}, r"expected \(rtol, atol\) of at least 0 for torch.float32, got 0.1"),
        ({torch.float32: (-1, 0)}, r"at least 0.*\(-1, 0\)"),
        ({torch.float32: (NAN, 0)}, "at least 0"),
    ],
)
def test_tolerances_that_make_no_sense_are_refused(given, message):
    with pytest.raises(ArgumentError, match=message):
        tolerances_by_dtype(given)
