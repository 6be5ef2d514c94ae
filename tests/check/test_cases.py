"""Where cases come from: dicts, the kernel, or a shape and a dtype."""

from types import SimpleNamespace

import pytest
import torch

from metalwright import MetalParameter
from metalwright.check import Random, case_for_shape, cases_of, random
from metalwright.errors import ArgumentError


def kernel(position=None, scalars=None, names=("x", "y"), **extra):
    """All that cases need to know of a kernel."""
    parameters = [MetalParameter("gid", position, "thread_position_in_grid")] if position else []
    return SimpleNamespace(
        name="k",
        input_names=list(names),
        metal_parameters=parameters,
        _scalar_input_types=scalars or {},
        **extra,
    )


GOOD = {
    "inputs": [torch.ones(3), random((3,))],
    "threads_per_grid": (3, 1, 1),
    "threads_per_thread_group": (3, 1, 1),
    "result_shapes": [[3]],
}


def test_cases_are_named_by_their_place_or_their_name():
    names = [case.name for case in cases_of(kernel(), [GOOD, {**GOOD, "name": "mine"}, GOOD])]
    assert names == ["case 1", "mine", "case 3"]


@pytest.mark.parametrize("source", [[GOOD], lambda: [GOOD], lambda: iter([GOOD])])
def test_a_kernels_own_cases_may_be_a_list_a_callable_or_a_generator(source):
    (case,) = cases_of(kernel(cases=source), None)
    assert case.threads_per_grid == (3, 1, 1) and case.result_shapes == ((3,),)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "kernel 'k': there are no cases"),
        (GOOD, "kernel 'k': expected a list of cases, got dict"),
        (["x"], "kernel 'k', case 1: expected a dict with 'inputs'.*got 'x'"),
        ([GOOD, {k: v for k, v in GOOD.items() if k != "result_shapes"}], "case 2 lacks 'result_shapes'"),
        ([{**GOOD, "grid": 1}], "case 1 has unknown 'grid'"),
        ([{**GOOD, "inputs": [1]}], r"case 1: expected 2 inputs \(x, y\), got 1"),
        (
            [{**GOOD, "threads_per_grid": 3}],
            "case 1: expected a sequence of sizes in 'threads_per_grid', got 3",
        ),
        ([{**GOOD, "result_shapes": [3]}], "case 1: expected a sequence of sizes in 'result_shapes', got 3"),
    ],
)
def test_cases_of_another_form_are_refused(given, message):
    with pytest.raises(ArgumentError, match=message):
        list(cases_of(kernel(), given))


def test_a_kernel_without_cases_says_how_to_give_some():
    with pytest.raises(ArgumentError, match=r"kernel 'k' has no cases: pass check.*--shape"):
        list(cases_of(kernel(), None))


def test_variants_follow_from_the_generated_inputs():
    def variants(*inputs, finite=False):
        (case,) = cases_of(kernel(), [{**GOOD, "inputs": inputs}])
        return case.variants(finite)

    assert variants(torch.ones(3), 1.0) == ("given",)
    assert variants(torch.ones(3), random((3,))) == ("normal", "extreme", "non-finite")
    assert variants(torch.ones(3), random((3,)), finite=True) == ("normal", "extreme")
    assert variants(torch.ones(3), random((3,), torch.int32)) == ("normal", "extreme")
    assert variants(torch.ones(3), random((3,), torch.bool)) == ("normal",)


def test_two_inputs_of_one_form_are_drawn_apart():
    (case,) = cases_of(kernel(), [{**GOOD, "inputs": [random((9,)), random((9,))]}])
    x, y = case.draw("normal", 0, ["x", "y"])
    assert not torch.equal(x, y)


def test_a_case_from_a_shape():
    case = case_for_shape(kernel("uint"), lambda x, y: x + y, (4, 5), torch.float16)
    assert case["name"] == "float16[4,5]"
    assert case["inputs"] == [Random((4, 5), torch.float16)] * 2
    assert case["result_shapes"] == [[4, 5]]
    assert case["threads_per_grid"] == (20, 1, 1), "one thread for each element along x"
    assert case["threads_per_thread_group"] == (20, 1, 1)


@pytest.mark.parametrize(
    ("position", "shape", "grid", "group"),
    [
        ("uint", (1000,), (1000, 1, 1), (256, 1, 1)),
        ("uint2", (40, 50), (50, 40, 1), (16, 16, 1)),
        ("uint2", (3, 50), (50, 3, 1), (16, 3, 1)),
        ("uint3", (2, 3, 50), (50, 3, 2), (8, 3, 2)),
        ("uint3", (30, 50), (50, 30, 1), (16, 16, 1)),
        ("uint2", (2, 3, 4), (24, 1, 1), (24, 1, 1)),
        ("uint3", (2, 2, 3, 4), (48, 1, 1), (48, 1, 1)),
        (None, (40, 50), (2000, 1, 1), (256, 1, 1)),
    ],
)
def test_the_grid_follows_the_position_parameter(position, shape, grid, group):
    case = case_for_shape(kernel(position), lambda x, y: x + y, shape, torch.float32)
    assert (case["threads_per_grid"], case["threads_per_thread_group"]) == (grid, group)


def test_scalars_of_a_case_from_a_shape_come_from_the_seed():
    of = kernel("uint", {"a": float, "b": int, "c": bool}, ("x", "a", "b", "c"))
    one, other = (case_for_shape(of, lambda x, *_: x, (3,), torch.float32, seed)["inputs"] for seed in (0, 1))
    assert 0.5 <= one[1] < 2 and one[2] == 1 and isinstance(one[3], bool)
    assert one[1] != other[1]


def test_a_reference_that_does_not_take_the_shape_is_named():
    with pytest.raises(ArgumentError, match=r"its reference does not take torch.float32 inputs of shape \[2"):
        case_for_shape(kernel("uint"), lambda x, y: x @ y, (2, 3), torch.float32)
