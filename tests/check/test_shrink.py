"""A wrong case is made small, and its report has a program that shows it again."""

import json
import re
import subprocess
import sys

import pytest
import torch

import metalwright
from metalwright.check import random
from metalwright.check.simple import LADDER, drawn, literal, simple

MODULE = '''
import torch
from metalwright import MetalKernel, MetalParameter
from metalwright.check import random


def row_sums(x: torch.Tensor, scale: float) -> torch.Tensor:
    return x.sum(-1) * scale


def case_for(rows: int = 5, columns: int = 40):
    sizes = {"threads_per_grid": (rows, 1, 1), "threads_per_thread_group": (16, 1, 1)}
    return {"inputs": [random((rows, columns)), 2.0], **sizes, "result_shapes": [[rows]]}


def make(name, change=("", "")):
    src = """
    float sum = 0;
    for (int i = 0; i < x.get_extent(0); ++i) sum += x[i, gid];
    out[gid] = sum * scale;
    """
    made = MetalKernel(
        name, ["x", "scale"], ["out"], src.replace(*change), row_sums,
        [MetalParameter("gid", "uint", "thread_position_in_grid")],
    )
    made.case_for = case_for
    return made


right = make("right")
from_17 = make("from_17", ("sum += x[i, gid]", "sum += i < 17 ? x[i, gid] : 0"))
second_row = make("second_row", ("out[gid] = sum", "out[gid] = (gid == 2 ? -1 : 1) * sum"))
position = make("position", ("x[i, gid]", "x[x.get_extent(0) - 1, gid]"))
outside = make("outside", ("i < x.get_extent(0)", "i <= x.get_extent(0) + (x.get_extent(0) > 10 ? 0 : -1)"))
unwritten = make("unwritten", ("out[gid] =", "if (gid < 3) out[gid] ="))
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The kernels above, imported from a file whose name no other test has."""
    path = tmp_path / f"kernels_{tmp_path.name.replace('-', '_')}.py"
    path.write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    loaded = __import__(path.stem)
    yield loaded
    del sys.modules[path.stem]


def shrunk(report):
    """The first case that was made smaller: one of each kind is."""
    made = [case for case in report.cases if case.smallest]
    kinds = [case.findings[0].kind for case in made]
    assert len(set(kinds)) == len(kinds)
    return made[0]


def run(program, folder):
    path = folder / "again.py"
    path.write_text(program)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    return subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=elsewhere, timeout=120)


@pytest.mark.parametrize(
    ("name", "kind", "smallest"),
    [
        ("from_17", "value", "rows=1, columns=18: all ones"),
        ("second_row", "value", "rows=3, columns=1: all ones"),
        ("position", "value", "rows=1, columns=2: small integers"),
        ("outside", "fault", "rows=1, columns=11: all ones"),
        ("unwritten", "unwritten", "rows=4, columns=1: all ones"),
    ],
)
def test_the_smallest_case_is_found_and_its_program_shows_the_same(module, tmp_path, name, kind, smallest):
    report = metalwright.check(getattr(module, name), edges=True)
    case = shrunk(report)
    assert case.smallest == smallest
    assert case.findings[0].kind == kind
    done = run(case.reproduce, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"^  {kind}  ", done.stdout, re.MULTILINE), done.stdout
    assert f"{name}: wrong in 1 of 1 case" in done.stdout


def test_a_right_kernel_has_nothing_to_reproduce(module):
    report = metalwright.check(module.right, edges=True)
    assert report.ok and not any(case.reproduce or case.smallest for case in report.cases)


def test_the_program_is_in_the_text_and_in_the_json(module):
    report = metalwright.check(module.from_17, edges=True)
    text, plain = str(report), json.loads(report.to_json())
    assert "smallest  rows=1, columns=18: all ones; to see it again:" in text
    assert text.count("import metalwright") == 1
    program = shrunk(report).reproduce
    assert all(line.strip() in text for line in program.splitlines())
    assert program in [case["reproduce"] for case in plain["cases"]]


def test_a_case_that_is_given_has_its_inputs_in_the_program(module, tmp_path):
    given = {**module.case_for(2, 20), "inputs": [torch.tensor([[1.5] * 19 + [torch.inf]] * 2), 3.0]}
    (case,) = metalwright.check(module.from_17, [given]).cases
    assert case.smallest is None and "inf" in case.reproduce
    done = run(case.reproduce, tmp_path)
    assert done.returncode == 1 and "2 of 2 elements are infinite or NaN" in done.stdout


@pytest.mark.parametrize("variant", ["normal", "extreme", "non-finite"])
def test_drawn_inputs_are_drawn_again(module, tmp_path, variant):
    report = metalwright.check(module.from_17, [module.case_for(2, 40)], seed=5, math_mode="safe")
    (case,) = [case for case in report.cases if case.variant == variant]
    done = run(case.reproduce, tmp_path)
    worst = re.search(r"worst at .*", case.findings[-1].message)
    assert done.returncode == 1 and worst and worst[0].split("\n")[0] in done.stdout


def test_own_tolerances_and_seed_are_in_the_program(module, tmp_path):
    tolerances = {torch.float32: (0.0, 1e9)}
    assert metalwright.check(module.from_17, [module.case_for()], tolerances=tolerances).cases[0].ok
    report = metalwright.check(
        module.from_17, [module.case_for()], tolerances={torch.float32: (0.0, 1e-3)}, seed=11
    )
    program = report.cases[0].reproduce
    assert "seed=11" in program and "tolerances={torch.float32: (0.0, 0.001)}" in program
    assert run(program, tmp_path).returncode == 1


def test_a_kernel_in_no_module_is_asked_for(module):
    of = module.make("nowhere", ("sum += x[i, gid]", "sum += 1"))
    program = metalwright.check(of, [module.case_for()]).cases[0].reproduce
    assert "here the definition of `kernel`, or its import: it is called 'nowhere'" in program


def test_inputs_too_large_to_be_written_down_have_no_program(module):
    given = {**module.case_for(2, 4000), "inputs": [torch.ones(2, 4000), 1.0]}
    assert metalwright.check(module.from_17, [given]).cases[0].reproduce is None


def test_shrinking_leaves_nothing_in_the_working_directory(module, tmp_path, monkeypatch):
    folder = tmp_path / "working"
    folder.mkdir()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport metalwright, {module.__name__} as m\n"
    code += "r = metalwright.check(m.from_17, edges=True); print([c.smallest for c in r.cases if c.smallest])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert "columns=18" in done.stdout, done.stderr
    assert list(folder.iterdir()) == []


SPECS = [
    random((3, 5)), random((40,), torch.float16), random((7,), torch.int32, low=3, high=5), random((50,), torch.bool),
    random((6,), torch.uint8), random((9,), low=0.5, high=0.75), random((0, 2)), random((33,), torch.bfloat16),
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_values_are_what_their_text_says_and_in_range(spec):
    made = [*(simple(spec, kind) for kind in LADDER), drawn(spec, 7, "normal"), literal(spec.draw(1))]
    for value in made:
        again = eval(value.text, {"torch": torch, "random": random, "inf": torch.inf, "nan": torch.nan})
        assert again.dtype is spec.dtype and again.shape == spec.shape
        assert torch.equal(again, value.value), value.text
        if spec.low is not None:
            assert (value.value >= spec.low).all() and (value.value < spec.high).all()
