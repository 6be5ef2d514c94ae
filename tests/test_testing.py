"""``assert_kernel``, and the tests that the pytest plugin makes of kernels."""

from __future__ import annotations

import re

import pytest
import torch

import metalwright
from metalwright import ArgumentError
from metalwright.testing import assert_kernel
from tests.report import kernels

pytest_plugins = ["pytester"]
PLUGIN = ("-p", "metalwright.pytest_plugin")
ON = (*PLUGIN, "--metal-check")
KERNELS = """
import torch
from metalwright import MetalKernel, MetalParameter
from metalwright.check import random

def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

def make(name, src):
    return MetalKernel(name, input_names=["x"], result_names=["out"], src=src, torch_defn=double,
                       metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")])

def cases():
    for size in (3, 20):
        yield {"name": f"size {size}", "inputs": [random((size,))], "threads_per_grid": (size, 1, 1),
               "threads_per_thread_group": (8, 1, 1), "result_shapes": [[size]]}

bare = make("bare", "out[gid] = x[gid] * 2;")
good = make("good", "out[gid] = x[gid] * 2;")
good.cases = cases
again = good
"""
WRONG = """
wrong = make("wrong", "out[gid] = gid > 10 ? x[gid + 40] : x[gid] * 2;")
wrong.cases = cases
"""


def test_a_right_kernel_gives_its_report():
    report = assert_kernel(kernels.right, [kernels.case(torch.ones(4), 4)])
    assert report.ok and report.kernel == "right"


def test_a_wrong_kernel_is_an_assertion_with_the_report():
    cases = [kernels.case(torch.ones(10), 10)]
    with pytest.raises(AssertionError) as caught:
        assert_kernel(kernels.outside, cases)
    assert str(caught.value) == str(metalwright.check(kernels.outside, cases))


def test_the_arguments_are_those_of_check():
    cases = [kernels.case(metalwright.check.random((1000,)), 930, [930])]
    cases[0]["inputs"] = [torch.ones(930)]
    assert_kernel(kernels.column, cases, tolerances={torch.float32: (0.0, 0.6)})
    report = assert_kernel(
        kernels.right, [kernels.case(torch.ones(4), 4)], seed=4, math_mode="fast", timeout=None
    )
    assert (report.seed, report.math_mode) == (4, "fast")
    with pytest.raises(ArgumentError, match="no cases"):
        assert_kernel(kernels.right)


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(test_kernels=source)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)


def test_each_case_of_each_kernel_is_a_test(pytester):
    result = run(pytester, KERNELS + WRONG + "\ndef test_own(): pass\n", *ON, "-v")
    text = result.stdout.str()
    result.assert_outcomes(passed=4, failed=1)
    assert re.findall(r"^test_kernels\.py::(.+?) (PASSED|FAILED)", text, re.MULTILINE) == [
        ("good::size 3", "PASSED"),
        ("good::size 20", "PASSED"),
        ("wrong::size 3", "PASSED"),
        ("wrong::size 20", "FAILED"),
        ("test_own", "PASSED"),
    ]
    assert "wrong: size 20" in text
    assert "x[gid + 40]" in text and "wrong: wrong in 3 of 3 cases" in text
    assert "Traceback" not in text and "checking.py" not in text and "testing.py" not in text


def test_one_case_is_chosen_by_its_name(pytester):
    result = run(pytester, KERNELS, *ON, "test_kernels.py::good::size 20")
    result.assert_outcomes(passed=1)


def test_the_configuration_may_ask_for_it(pytester):
    pytester.makeini("[pytest]\nmetal_check = true\n")
    run(pytester, KERNELS, *PLUGIN).assert_outcomes(passed=2)


def test_without_the_option_kernels_are_no_tests(pytester):
    run(pytester, KERNELS + "\ndef test_own(): pass\n", *PLUGIN).assert_outcomes(passed=1)


def test_cases_that_are_wrong_are_an_error_of_the_collection(pytester):
    result = run(pytester, KERNELS + "\ngood.cases = [{}]\n", *ON)
    result.assert_outcomes(errors=1)
    assert "kernel 'good', case 1 lacks 'inputs'" in result.stdout.str()
    assert "cases.py" not in result.stdout.str()


def test_cases_of_one_name_are_told_apart(pytester):
    more = "\none = list(cases())[0]\ngood.cases = lambda: [one, one]\n"
    result = run(pytester, KERNELS + more, *ON, "-v")
    assert "good::size 3 PASSED" in result.stdout.str() and "good::size 3 #2 PASSED" in result.stdout.str()
