"""Tests that were written for a Mac pass under the plugin, every one, and without it none does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = {"graphs.py": 16, "runtime.py": 15, "threads.py": 9, "values.py": 23}
PLUGIN = ("-p", "metalwright.pytest_plugin", "--metal=cpu")


def outcomes(file: str, *options: str) -> tuple[int, dict[str, int], str]:
    """Run pytest on a file; return its exit code and how many tests ended how."""
    path = HERE / "written_for_a_mac" / file
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=line",
        "-p",
        "no:cacheprovider",
        "--show-capture=no",
    ]
    done = subprocess.run([*command, *options, path], capture_output=True, text=True, cwd=HERE.parent.parent)
    last = done.stdout.strip().splitlines()[-1]
    counts = {
        word.rstrip("s"): int(number) for number, word in re.findall(r"(\d+) (\w+)", last.split(" in ")[0])
    }
    counts.pop("warning", None)
    return done.returncode, counts, done.stdout + done.stderr


def test_the_files_are_those_here() -> None:
    assert set(FILES) == {path.name for path in (HERE / "written_for_a_mac").glob("*.py")} - {"common.py"}
    assert sum(FILES.values()) >= 40


@pytest.mark.parametrize("file", FILES)
def test_with_the_plugin_all_pass(file: str) -> None:
    code, counts, output = outcomes(file, *PLUGIN)
    assert (code, counts) == (0, {"passed": FILES[file]}), output


@pytest.mark.skipif(sys.platform == "darwin", reason="on macOS Core AI may have a GPU to run them on")
@pytest.mark.parametrize("file", FILES)
def test_without_it_all_fail(file: str) -> None:
    code, counts, output = outcomes(file)
    assert (code, counts) == (1, {"failed": FILES[file]}), output


@pytest.mark.parametrize(
    "option, test, counts",
    [
        ((), "test_an_access_out_of_bounds", {"passed": 1}),
        # nothing watches the access then, and the test waits in vain for the fault
        (("--metal-unchecked",), "test_an_access_out_of_bounds", {"failed": 1}),
    ],
)
def test_unchecked(option: tuple[str, ...], test: str, counts: dict[str, int]) -> None:
    code, found, output = outcomes("runtime.py", *PLUGIN, *option, "-k", test)
    found.pop("deselected")
    assert (code, found) == (int("failed" in counts), counts), output
