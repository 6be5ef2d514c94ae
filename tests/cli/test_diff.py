"""``metalwright diff``: what two artifacts do not have in common."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from metalwright import MetalKernel, MetalParameter, coreai, export
from metalwright.cli import diff as shown
from metalwright.coreai.diff import diff
from tests.models.edit import edit_kernel


def _double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def kernel(name: str) -> MetalKernel:
    return MetalKernel(
        name, input_names=["x"], result_names=["out"], src="out[gid] = x[gid] * 2;", torch_defn=_double,
        metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")],
    )  # fmt: skip


one, two = kernel("diff_one"), kernel("diff_two")


class Uses(torch.nn.Module):
    def __init__(self, *used: MetalKernel, group: int = 4) -> None:
        super().__init__()
        self.used, self.group = used, group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for each in self.used:
            x = each(
                x, threads_per_grid=(x.shape[0], 1, 1), threads_per_thread_group=(self.group, 1, 1),
                result_shapes=[[x.shape[0]]],
            )  # fmt: skip
        return x


@pytest.fixture
def artifact(tmp_path: Path):
    def write(name: str, *used: MetalKernel, group: int = 4, size: int = 8) -> Path:
        return export(
            Uses(*used, group=group), torch.ones(size), tmp_path / f"{name}.aimodel", output_names=["y"]
        )

    return write


def test_the_same_model_exported_twice(command, artifact):
    first, second = artifact("a", one, two), artifact("b", kernel("diff_one"), kernel("diff_two"))
    names = [used.name for path in (first, second) for used in coreai.inspect(path).kernels]
    assert len(set(names)) == 4, "the suffixes are random"
    done = command("diff", first, second)
    assert (done.code, done.out) == (0, "the functions and kernels are the same\n")
    plain = json.loads(command("diff", first, second, "--json").out)
    assert plain == {"same": True, "functions": [], "kernels": []}


def test_another_source(command, artifact, tmp_path):
    first = artifact("a", one, one, two)
    edited = tmp_path / "b.aimodel"
    edit_kernel(first, edited, "diff_one", "* 2", "* 3")
    done = command("diff", first, edited)
    assert done.code == 1
    lines = [line.strip() for line in done.out.splitlines()]
    assert "kernel diff_one, launch 1 in function main" in lines and "diff_two" not in done.out
    removed = next(line for line in lines if line.startswith("-") and "x[gid] * 2;" in line)
    added = next(line for line in lines if line.startswith("+") and "x[gid] * 3;" in line)
    assert lines.index(added) == lines.index(removed) + 1
    assert lines[-1] == "source: differs as in launch 1 in function main", "not printed twice"
    plain = json.loads(command("diff", first, edited, "--json").out)
    assert [(k["name"], k["launch"], k["only_in"]) for k in plain["kernels"]] == [
        ("diff_one", 1, None),
        ("diff_one", 2, None),
    ]
    assert any(line.startswith("+") and "* 3;" in line for line in plain["kernels"][0]["source"])


def test_other_sizes_and_signatures(command, artifact):
    done = command("diff", artifact("a", one), artifact("b", one, group=8, size=16))
    assert done.code == 1
    lines = done.out.splitlines()
    for before, after in (
        ("x: f32[8]", "x: f32[16]"),
        ("8 x 1 x 1", "16 x 1 x 1"),
        ("4 x 1 x 1", "8 x 1 x 1"),
    ):
        at = lines.index(f"  - {before}")
        assert lines[at + 1] == f"  + {after}"
    assert "@@" not in done.out, "the source is the same"


def test_kernels_that_one_of_them_has(command, artifact, tmp_path):
    done = command("diff", artifact("a", one), artifact("b", two, two))
    assert done.code == 1
    assert f"kernel diff_one, launch 1 in function main: only in {tmp_path / 'a.aimodel'}" in done.out
    assert f"kernel diff_two, launch 2 in function main: only in {tmp_path / 'b.aimodel'}" in done.out


def test_another_order(artifact):
    (function,) = diff(
        coreai.inspect(artifact("a", one, two)), coreai.inspect(artifact("b", two, one))
    ).functions
    (change,) = function.changes
    assert (change.what, change.before, change.after) == (
        "kernels in order", "diff_one, diff_two", "diff_two, diff_one",
    )  # fmt: skip


def test_colours_on_a_terminal(artifact, tmp_path):
    first, edited = artifact("a", one), tmp_path / "b.aimodel"
    edit_kernel(first, edited, "diff_one", "* 2", "* 3")
    screen = Console(file=io.StringIO(), force_terminal=True, color_system="standard", soft_wrap=True)
    shown._show(screen, first, edited, diff(coreai.inspect(first), coreai.inspect(edited)))
    text = screen.file.getvalue()
    assert "\x1b[31m  -" in text and "\x1b[32m  +" in text


def test_what_is_not_there(command, artifact, tmp_path):
    done = command("diff", artifact("a", one), tmp_path / "none.aimodel")
    assert done.code == 2 and "none.aimodel: does not exist" in done.err
