"""The program that runs a case again: it runs, and finds the same."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import metalwright
from metalwright.check import Tolerance, cases_of, random
from metalwright.check.origin import Origin
from metalwright.report import snippet
from tests.report import kernels

KERNELS = """
import torch
from beside import add_one
from metalwright import MetalKernel, MetalParameter

def reference(x: torch.Tensor, factor: float) -> torch.Tensor:
    return add_one(x) * factor

wrong = MetalKernel("wrong", input_names=["x", "factor"], result_names=["out"], src="out[gid] = x[gid] * factor;",
                    torch_defn=reference, metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")])

def cases():
    for n in (3, 4):
        yield {"inputs": [torch.arange(float(n)), 2.0], "threads_per_grid": (n, 1, 1),
               "threads_per_thread_group": (n, 1, 1), "result_shapes": [[n]]}
wrong.cases = cases
"""


@pytest.fixture
def wrong(tmp_path, monkeypatch):
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "beside.py").write_text("def add_one(x):\n    return x + 1\n")
    (folder / "my-kernels.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    from metalwright.cli import loading

    return loading.load(folder / "my-kernels.py").wrong


def run(program):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    ).stdout


def test_a_drawn_case_is_drawn_again_in_all_variants(wrong):
    case = {
        **kernels.case(random((5,), low=-1), 5, name='a "name"\n'),
        "inputs": [random((5,), low=-1), -float("inf")],
    }
    report = metalwright.check(wrong, [case], seed=3)
    assert not report.ok
    program = snippet(report, report.cases[0])
    assert '"a folder/my-kernels.py"' in program and 'float("-inf")' in program
    assert run(program).strip() == str(report)


def test_a_given_case_is_taken_from_the_kernel_by_name(wrong):
    report = metalwright.check(wrong, math_mode="fast")
    program = snippet(report, report.cases[1])
    (case,) = (case for case in cases_of(wrong, None) if case.name == "case 2")
    assert run(program).strip() == str(metalwright.check(wrong, [case], math_mode="fast"))


def test_tolerances_of_the_caller_are_in_the_program():
    case = kernels.case(random((5,)), 5)
    report = metalwright.check(kernels.column, [case], tolerances={torch.float32: Tolerance(0.0, 0.5)})
    assert "tolerances={torch.float32: (0.0, 0.5)}" in snippet(report, report.cases[0])
    assert "tolerances" not in snippet(
        *(lambda r: (r, r.cases[0]))(metalwright.check(kernels.column, [case]))
    )


def test_the_program_says_where_the_kernel_is_missing():
    report = metalwright.check(kernels.right, [kernels.case(random((5,)), 5)])
    program = snippet(replace(report, origin=None), report.cases[0])
    assert 'kernel = ...  # the kernel "right"' in program and "runpy" not in program
    compile(program, "program", "exec")


def test_names_cannot_leave_their_quotes():
    text = '"); import os; os.abort() #\n"""'
    report = metalwright.check(kernels.right, [kernels.case(random((5,)), 5, name=text)])
    program = snippet(replace(report, kernel=text, origin=Origin(text, text)), report.cases[0])
    assert "\nimport os" not in program and text not in program
    compile(program, "program", "exec")
