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


def test_an_element_at_the_edge_of_finite_may_be_anything():
    edge = 1 / (1 + FLOAT32_ROUNDING / 2)
    change = condition_of(
        lambda x: torch.where(x > 1, math.nan, x), torch.tensor([edge], dtype=torch.float64)
    ).change
    assert change.isinf().all()


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
