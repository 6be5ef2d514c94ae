"""Races and reads of what nobody wrote, as ``check`` reports them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import metalwright
from metalwright import MetalKernel, MetalParameter
from metalwright.check import Finding, Report
from metalwright.check.observed import findings_of
from metalwright.engine import Access, BadNumber, Race
from metalwright.errors import Site

ROWS, WIDTH = 3, 64
SUM = """
threadgroup float partial[32];
float sum = simd_sum(x[lid, row]);
if (lane == 0)
    partial[simdgroup] = sum;
threadgroup_barrier(mem_flags::mem_threadgroup);
float total = 0.0f;
for (uint s = 0; s < simdgroups; ++s)
    total += partial[s];
out[lid, row] = total;
"""
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);\n"


def _row_sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1, keepdim=True).expand_as(x)


def checked(source: str) -> Report:
    parameters = {
        "row": "threadgroup_position_in_grid",
        "lid": "thread_position_in_threadgroup",
        "lane": "thread_index_in_simdgroup",
        "simdgroup": "simdgroup_index_in_threadgroup",
        "simdgroups": "simdgroups_per_threadgroup",
    }
    kernel = MetalKernel(
        "row_sums",
        input_names=["x"],
        result_names=["out"],
        src=source,
        torch_defn=_row_sums,
        metal_params=[MetalParameter(name, "uint", attribute) for name, attribute in parameters.items()],
    )
    case = {
        "inputs": [torch.rand(ROWS, WIDTH, generator=torch.Generator().manual_seed(0)) + 1],
        "threads_per_grid": (ROWS * WIDTH, 1, 1),
        "threads_per_thread_group": (WIDTH, 1, 1),
        "result_shapes": [[ROWS, WIDTH]],
    }
    return metalwright.check(kernel, [case])


def found(report: Report, kind: str) -> list[Finding]:
    return [finding for case in report.cases for finding in case.findings if finding.kind == kind]


def test_nothing_is_found_in_a_right_kernel() -> None:
    assert checked(SUM).ok


def test_a_race_is_one_finding_with_both_places() -> None:
    (finding,) = found(checked(SUM.replace(BARRIER, "")), "race")
    head, where = finding.message.splitlines()
    assert "of the threadgroup memory 'partial': two threads use the same bytes" in head
    assert head.endswith("put threadgroup_barrier(mem_flags::mem_threadgroup) between the two")
    assert where.startswith("row_sums.src:8:14: the thread at (1, 0, 0) reads 0x")
    assert finding.excerpt == "    total += partial[s];"
    (before,) = finding.related
    assert str(before.site) == "row_sums.src:5:24"
    assert before.text.startswith("the thread at (0, 0, 0) writes 0x") and before.text.endswith(
        ", before that"
    )
    assert before.excerpt == "    partial[simdgroup] = sum;"


def test_what_a_missing_barrier_leaves_unwritten_is_no_finding_of_its_own() -> None:
    assert found(checked(SUM.replace(BARRIER, "")), "uninitialised") == []


def test_a_barrier_for_other_memory() -> None:
    report = checked(SUM.replace("mem_threadgroup", "mem_device"))
    (finding,) = found(report, "race")
    assert finding.message.splitlines()[0].endswith(
        "the barrier between them does not cover threadgroup memory: give it mem_flags::mem_threadgroup"
    )
    # here the threads happen to run in an order that gives the right sums
    assert [finding.kind for finding in report.cases[0].findings] == ["race"]


def test_memory_that_no_thread_has_written() -> None:
    report = checked(SUM.replace("s < simdgroups", "s <= simdgroups"))
    (finding,) = found(report, "uninitialised")
    first, second = finding.message.splitlines()
    assert first == (
        "byte 8 of the threadgroup memory 'partial': a thread reads what no thread has written (192 times)"
    )
    assert second.startswith("row_sums.src:9:14: the thread at (0, 0, 0) reads 0xffffffff (4294967295)")


def test_the_json_has_them() -> None:
    (case,) = checked(SUM.replace(BARRIER, "")).to_dict()["cases"]
    assert "race" in [finding["kind"] for finding in case["findings"]]


def _race(**changed: Any) -> Race:
    first = Access(Site("k.src", 1, 1), "a", (0, 0, 0), "writes", b"\x00\x00\x80\x3f")
    second = Access(Site("k.src", 2, 1), "b", (1, 0, 0), "reads", b"\x07\x00\x00\x00")
    return Race(**{
        "memory": "y", "space": "device", "offset": 4, "now": second, "before": first, "count": 2,
        "other_threadgroup": False, "barrier_between": False, **changed,
    })  # fmt: skip


def test_values_are_shown_as_what_they_likely_are() -> None:
    (finding,) = findings_of([_race()])
    assert "writes 0x3f800000 (1 as a float)" in finding.related[0].text
    assert "reads 0x00000007 (7)" in finding.message


@pytest.mark.parametrize(
    ("changed", "advice"),
    [
        ({}, "put threadgroup_barrier(mem_flags::mem_device) between the two"),
        ({"barrier_between": True}, "does not cover device memory: give it mem_flags::mem_device"),
        ({"other_threadgroup": True}, "split the work into two dispatches"),
    ],
)
def test_advice(changed: dict[str, bool], advice: str) -> None:
    (finding,) = findings_of([_race(**changed)])
    assert finding.message.splitlines()[0].endswith(advice)


def test_there_and_back_is_one_race() -> None:
    race = _race()
    (finding,) = findings_of([race, _race(now=race.before, before=race.now, count=3)])
    assert "(5 times)" in finding.message


def test_bad_numbers_count_where_the_inputs_are_finite() -> None:
    bad = BadNumber("a shift", Site("k.src", 3, 2), "a << b", (5, 0, 0), 2)
    (finding,) = findings_of([bad], [bad])
    assert finding.kind == "number"
    assert finding.message == (
        "k.src:3:2: a shift, by the thread at (5, 0, 0) (2 times): it may give anything on a GPU"
    )
    assert (finding.site, finding.excerpt) == (bad.site, "a << b")
    assert list(findings_of([bad], numbers=False)) == []


def test_a_shift_by_too_much_is_found() -> None:
    report = checked(SUM.replace("out[lid, row] = total;", "out[lid, row] = total + ((1 << lid) & 0);"))
    (finding,) = found(report, "number")
    assert finding.message.startswith("row_sums.src:10:")
    assert "a shift by a negative number, or by the width" in finding.message
    assert "the thread at (32, 0, 0) (96 times)" in finding.message
    assert str(finding.site).startswith("row_sums.src:10:")
