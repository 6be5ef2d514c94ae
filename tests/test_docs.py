"""Runs the README and every page of ``docs/``: their Python blocks, their console blocks, and what those print.

- A ``python`` block is executed; the blocks of one page share their names. With a title it is also saved under it.
- A ``text`` block titled "Output" is what the Python block above it printed.
- A ``console`` block is a session: each ``$ `` line is run in bash, and the lines below are what it printed.
  A command that ends with ``# exits with N`` must exit with N, any other with 0.

``...`` in expected output stands for anything. Each page runs in a folder of its own that holds ``examples``.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch
from sybil import Document, Example, Region, Sybil
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

import metalwright

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_INFO = re.compile(r'(?P<language>\w*)(?: title="(?P<title>[^"]*)")?[ \t]*\n')
_EXIT_CODE = re.compile(r"# exits with (\d+)\s*$")
_COMMAND_SECONDS = 300


def _compare(expected: str, printed: str, what: str) -> None:
    checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if not checker.check_output(expected.strip() + "\n", printed.strip() + "\n", flags):
        difference = checker.output_difference(
            doctest.Example(what, expected.strip() + "\n"), printed.strip() + "\n", flags
        )
        raise AssertionError(f"{what} printed something else\n{difference}")


def _run_python(example: Example, title: str | None) -> None:
    source = str(example.parsed)
    module = example.namespace.setdefault("module", types.ModuleType("page"))
    if title:
        Path(title).write_text(source)
    printed = io.StringIO()
    # blank lines put the block where it stands in the page, so that a traceback points there
    code = compile("\n" * example.line + source, example.path, "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, module.__dict__)
    example.namespace["printed"] = printed.getvalue()


def _sessions(source: str) -> Iterable[tuple[str, str]]:
    for part in re.split(r"^\$ ", source, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def _run_console(example: Example) -> None:
    sessions = list(_sessions(str(example.parsed)))
    assert sessions, f"{example.path}:{example.line}: a console block without a '$ ' line"
    for command, output in sessions:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-c", command],
            env={**os.environ, "PATH": path, "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
        )
        code = _EXIT_CODE.search(command)
        wanted = int(code.group(1)) if code else 0
        assert done.returncode == wanted, (
            f"$ {command}\n{done.stdout}{done.stderr}exit code {done.returncode}"
        )
        if output.strip():
            # a terminal shows both; errors are the only thing that the commands print to stderr
            _compare(output, done.stdout + (done.stderr if wanted else ""), f"$ {command}")


def _run_block(example: Example) -> None:
    language, title = example.region.lexemes["language"], example.region.lexemes["title"]
    if language == "python":
        _run_python(example, title)
    elif language == "console":
        _run_console(example)
    elif title == "Output":
        _compare(str(example.parsed), example.namespace["printed"], f"the block above line {example.line}")
    else:
        commands = [
            line for line in str(example.parsed).splitlines() if line.lstrip("$ ").startswith("metalwright ")
        ]
        assert not commands, f"write {commands} as a console block, so that it is run"


def _blocks(document: Document) -> Iterable[Region]:
    for region in RawFencedCodeBlockLexer(_INFO)(document):
        region.parsed, region.evaluator = region.lexemes["source"], _run_block
        yield region


SYBIL = Sybil(parsers=[_blocks], path=str(ROOT), pattern="*.md")


@pytest.fixture(autouse=True)
def _forget_modules(tmp_path: Path) -> Iterator[None]:
    """Drop the modules that a page made, so that the next page may use the same file names."""
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    if "cache clear" in page.read_text(encoding="utf-8"):
        # not that of all the tests
        monkeypatch.setenv("METALWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for example in SYBIL.parse(page).examples():
        example.evaluate()


def test_the_workflow_is_shown_as_it_is() -> None:
    workflow = (ROOT / "examples" / "test-aimodel.yml").read_text()
    assert f"```yaml\n{workflow}```" in (ROOT / "docs" / "how-to" / "aimodel-tests.md").read_text()


def test_the_pages_are_found() -> None:
    blocks = [example for page in PAGES for example in SYBIL.parse(page).examples()]
    languages = [example.region.lexemes["language"] for example in blocks]
    assert languages.count("python") > 5 and languages.count("console") > 5


def test_the_functions_that_the_reference_lists_exist() -> None:
    page = (ROOT / "docs" / "reference" / "msl.md").read_text()
    section = page.split("## Functions")[1].split("\n## ")[0]
    rows = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    listed = [name for cell in re.findall(r"`([^`]+)`", rows) for name in cell.split() if name.isidentifier()]
    assert len(listed) > 150

    def same(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    # a using-declaration of a name that is not there does not compile
    kernel = metalwright.MetalKernel(
        "uses_every_function",
        input_names=["x"],
        result_names=["out"],
        helper_src="namespace listed {\n" + "".join(f"using metal::{name};\n" for name in listed) + "}",
        src="out[gid] = x[gid];",
        torch_defn=same,
        metal_params=[metalwright.MetalParameter("gid", "uint", "thread_position_in_grid")],
    )
    sizes = {"threads_per_grid": (1, 1, 1), "threads_per_thread_group": (1, 1, 1), "result_shapes": [[1]]}
    assert kernel(torch.ones(1), **sizes).item() == 1
