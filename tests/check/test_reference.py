"""The reference in float64, and how much it magnifies rounding."""

import math

import pytest
import torch

from metalwright.check.condition import FLOAT32_ROUNDING, measure
from metalwright.check.reference import evaluate


def test_floats_are_evaluated_in_float64_too():
    x = torch.tensor([0.1], dtype=torch.float16)
    expected = evaluate(lambda x: x * x, (x,))
    assert expected.own[0].dtype is torch.float16
    assert float(expected.wide[0]) == float(x) ** 2


def test_a_scalar_is_what_the_kernel_sees():
    expected = evaluate(lambda x, alpha: x * alpha, (torch.ones(1), 0.1))
    assert float(expected.wide[0]) == float(torch.tensor(0.1))


def test_integers_have_no_float64_reference():
    expected = evaluate(lambda x: (x + 1, x.float() / 2), (torch.tensor([3]),))
    assert expected.wide[0] is None and float(expected.wide[1]) == 1.5


def test_a_reference_that_refuses_float64_is_used_in_its_own_dtype():
    weight = torch.ones(3, 3)
    expected = evaluate(lambda x: x @ weight, (torch.ones(2, 3),))
    assert expected.wide == (None,) and expected.own[0].dtype is torch.float32


def test_a_reference_may_write_into_its_inputs():
    x = torch.zeros(3)
    expected = evaluate(lambda x: x.add_(1), (x,))
    assert x.tolist() == [0, 0, 0] and expected.wide[0].tolist() == [1, 1, 1]


def test_what_the_reference_raises_comes_out():
    with pytest.raises(ZeroDivisionError):
        evaluate(lambda x: x / (1 // 0), (torch.ones(1),))


def condition_of(reference, *inputs):
    inputs = tuple(x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs)
    results = reference(*inputs)
    return measure(reference, inputs, (results,), seed=0)[0]


def test_elementwise_work_depends_on_one_element_of_each_input():
    x, y = torch.randn(50), torch.randn(50)
    condition = condition_of(lambda x, y: x * y, x, y)
    assert condition.inputs_per_result == 2
    assert torch.allclose(condition.change, 2 * (x * y).double().abs(), rtol=1e-4)


def test_a_product_of_matrices_depends_on_a_row_and_a_column():
    a, b = torch.randn(5, 30), torch.randn(30, 7)
    assert condition_of(torch.matmul, a, b).inputs_per_result == 60
    a[:, ::2] = 0  # zeros do not hide a dependence
    assert condition_of(torch.matmul, a, b).inputs_per_result == 60


def test_cancellation_shows():
    x = torch.tensor([1.0, 1.0])
    y = torch.tensor([-0.99999, 1.0])
    change = condition_of(torch.add, x, y).change
    assert float(change[0]) == pytest.approx(2.0, rel=1e-3), "of the size of the terms, not of their sum"


def test_a_sum_of_either_sign_is_conditioned_by_its_terms():
    x = torch.tensor([1e6, -1e6, 1.0])
    change = condition_of(lambda x: x.sum().reshape(1), x).change
    assert 1e5 < float(change) < 1e7


@pytest.mark.parametrize("beyond", [0.0, math.nan, math.inf, 1e6])
@pytest.mark.parametrize("offset", [0.0, 2.0**-25, -(2.0**-25), 2.0**-28])
def test_a_jump_is_no_magnified_rounding(beyond, offset):
    x = torch.tensor([1.0 + offset], dtype=torch.float64)
    for reference in (lambda x: torch.where(x > 1, beyond, x), lambda x: torch.where(x >= 1, x, beyond)):
        before = reference(x)
        if float(before) == float(x):
            change = condition_of(reference, x).change
            assert float(change) == pytest.approx(1.0, rel=1e-3), "that of x, on the side where it is"


def test_a_jump_in_one_term_leaves_the_condition_of_the_others():
    x = torch.tensor([1.0, *[100.0] * 9], dtype=torch.float64)
    change = float(condition_of(lambda x: torch.where(x >= 1, x, -1e5).sum().reshape(1), x).change)
    assert change == pytest.approx(901.0, rel=1e-3)


def test_the_foot_of_a_square_root_is_steep_and_no_jump():
    x = torch.tensor([1.0], dtype=torch.float64)
    (condition,) = measure(
        lambda x: (1 - x).clamp(min=0).sqrt(), (x,), (torch.zeros(1).double(),), 0, [torch.float16]
    )
    moved = math.sqrt(FLOAT32_ROUNDING)
    assert float(condition.change) * FLOAT32_ROUNDING == pytest.approx(moved, rel=1e-6)
    # extrapolated from float32's rounding it would be 2
    assert float(condition.rounding(torch.float16)) == pytest.approx(math.sqrt(2.0**-11), rel=1e-6)


def test_what_is_not_differentiable_is_guessed_from_the_extents():
    def reference(x):
        return torch.from_numpy(x.detach().numpy().sum(keepdims=True)) if not x.requires_grad else 1 // 0

    assert condition_of(reference, torch.randn(40)).inputs_per_result == 40


def test_no_condition_where_the_reference_refuses_the_rounded_inputs():
    def picky(x):
        if float(x[0]) != 1.0:
            raise ValueError("only 1")
        return x

    assert condition_of(picky, torch.ones(3)) is None
