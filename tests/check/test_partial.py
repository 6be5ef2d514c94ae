"""Reductions that count the first simdgroup only, seen through ``check``."""

import pytest
import torch

import metalwright
from metalwright import MetalKernel, MetalParameter
from metalwright.check import random

PARAMS = [
    MetalParameter("group", "uint2", "threadgroup_position_in_grid"),
    MetalParameter("tid", "uint", "thread_index_in_threadgroup"),
    MetalParameter("lane", "uint", "thread_index_in_simdgroup"),
    MetalParameter("simdgroup", "uint", "simdgroup_index_in_threadgroup"),
]
SUM = """
    threadgroup float partial[32];
    const uint n = x.get_extent(0), row = group.y;
    float mine = EMPTY;
    for (uint i = tid; i < n; i += 128) mine = COMBINE(mine, float(x[i, row]));
    mine = REDUCE(mine);
    if (lane == 0) partial[simdgroup] = mine;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float total = REDUCE(lane < 4 ? partial[lane] : EMPTY);
    if (tid == 0) out[row] = total;
"""


def row_sum(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1)


def row_mean(x: torch.Tensor) -> torch.Tensor:
    return x.mean(-1)


def row_max(x: torch.Tensor) -> torch.Tensor:
    return x.amax(-1)


def kernel(name, reference, right):
    empty, combine, reduce = {
        row_max: ("-INFINITY", "max", "simd_max"),
        row_sum: ("0.0f", "add", "simd_sum"),
        row_mean: ("0.0f", "add", "simd_sum"),
    }[reference]
    src = SUM.replace("EMPTY", empty).replace("COMBINE", combine).replace("REDUCE", reduce)
    if not right:
        src = src.replace("lane < 4 ?", "lane < 1 ?")
    if reference is row_mean:
        src = src.replace("= total", "= total / n")
    helper = "inline float add(float a, float b) { return a + b; }"
    return MetalKernel(name, ["x"], ["out"], src, reference, PARAMS, helper)


def case(rows, n):
    return {
        "inputs": [random((rows, n), low=-5, high=5) if rows > 1 else random((rows, n)).draw(3)],
        "threads_per_grid": (128, rows, 1),
        "threads_per_thread_group": (128, 1, 1),
        "result_shapes": [[rows]],
    }


@pytest.mark.parametrize("reference", [row_sum, row_mean, row_max])
@pytest.mark.parametrize("size", [100, 1000])
def test_the_first_simdgroup_only_is_named(reference, size):
    report = metalwright.check(kernel(f"first_{reference.__name__}", reference, False), [case(5, size)])
    finding = report.cases[0].findings[0]
    assert (finding.kind, finding.pattern) == ("value", "partial-sum")
    assert "only the first simdgroup is counted" in finding.message
    assert ("of each 128 elements" in finding.message) == (size == 1000)
    assert metalwright.check(kernel(f"all_{reference.__name__}", reference, True), [case(5, size)])


def test_one_number_is_enough_where_it_is_told_apart_by_far():
    report = metalwright.check(kernel("first_alone", row_sum, False), [case(1, 1000)])
    assert report.cases[0].findings[0].pattern == "partial-sum"


def test_another_part_is_not_named():
    src = kernel("second", row_sum, True).src.replace("lane < 4 ?", "lane == 1 ?")
    of = MetalKernel(
        "second_only", ["x"], ["out"], src, row_sum, PARAMS, kernel("second", row_sum, True).helpers
    )
    finding = metalwright.check(of, [case(5, 1000)]).cases[0].findings[0]
    assert finding.kind == "value" and finding.pattern is None
