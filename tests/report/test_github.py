"""Annotations for GitHub: the line, and what has to be escaped."""

import re
from pathlib import Path

import pytest
import torch

import metalwright
from metalwright.cli import loading
from metalwright.report import to_github
from metalwright.report.github import error_command
from tests.report import kernels

HEAD = """
import torch
from metalwright import MetalKernel, MetalParameter

def reference(x: torch.Tensor) -> torch.Tensor:
    return x + 1

GID = [MetalParameter("gid", "uint", "thread_position_in_grid")]

def make(src, **more):
    return MetalKernel("made", input_names=["x"], result_names=["out"], src=src, torch_defn=reference,
                       metal_params=GID, **more)

"""
FAULT = "out[gid] = x[gid + 8];"


def annotated(tmp_path, monkeypatch, source):
    """Check the kernel ``k`` of a file in ``tmp_path``; return the commands and the line they name."""
    path = tmp_path / "kernels" / f"file_{abs(hash(source))}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEAD + source)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    kernel = loading.load(path).k
    report = metalwright.check(kernel, [kernels.case(torch.ones(8), 8)])
    found = list(to_github(report, kernel))
    assert found[0].startswith(f"::error file=kernels/{path.name},line=")
    return found, path.read_text().splitlines()[int(re.search(r"line=(\d+)", found[0])[1]) - 1]


@pytest.mark.parametrize(
    "source",
    [
        f'k = make("""\n  float a = x[gid];\n  {FAULT}\n""")\n',
        f'SRC = """float a = x[gid];\n{FAULT}"""\nk = make(SRC)\n',
        f'import textwrap\nk = make(textwrap.dedent("""\n    float a = 1;\n    {FAULT}\n    """).strip())\n',
        f'k = make("float a = x[gid];\\n"\n  "{FAULT}\\n")\n',
        f'A = 2\nk = make(f"""\n  float a = {{A}};\n  {FAULT}\n""")\n',
        'k = make("out[gid] = f(x, gid);", helper_src="""\n'
        "template <typename A> float f(A x, uint i) {\n  return x[i + 8];\n}\n"
        '""")\n',
    ],
    ids=["body", "constant", "dedented", "two strings", "formatted", "helper"],
)
def test_the_line_of_the_kernels_source_is_named(tmp_path, monkeypatch, source):
    (found,), line = annotated(tmp_path, monkeypatch, source)
    assert "+ 8]" in line
    assert "title=made%3A fault::" in found and "%0A" in found and "\n" not in found


def test_without_a_line_the_definition_is_named(tmp_path, monkeypatch):
    _, line = annotated(tmp_path, monkeypatch, 'k = make(" ".join(["out[gid] =", "x[gid + 8];"]))\n')
    assert line.startswith("k = make(")
    _, line = annotated(tmp_path, monkeypatch, 'k = make("out[gid] = x[gid];")\n')
    assert line.startswith("k = make(")


def test_what_is_wrong_in_all_variants_is_said_once():
    report = metalwright.check(kernels.column, [kernels.case(metalwright.check.random((1000,)), 1000)])
    value, unwritten = to_github(report, kernels.column)
    assert "in only (normal) and 2 more" in value and "were never written" in unwritten


def test_a_right_kernel_has_none():
    report = metalwright.check(kernels.right, [kernels.case(torch.ones(4), 4)])
    assert list(to_github(report, kernels.right)) == []


def test_commands_cannot_be_broken_out_of(monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    line = error_command(kernels.right, "a,b:c\n%", "100%\r\n::error::x", 7)
    assert line == "::error file=kernels.py,line=7,title=a%2Cb%3Ac%0A%25::100%25%0D%0A::error::x"
