"""Output on a terminal and off it."""

import io
import subprocess
import sys

from rich.console import Console

import metalwright
from metalwright.check import Report
from metalwright.cli import progress
from metalwright.cli.output import show_error, show_table

HEADER = ("name", "verdict")
ROWS = [("a" * 100, "ok"), ("b", "wrong")]


def test_a_table_off_a_terminal_is_aligned_and_never_cut():
    file = io.StringIO()
    show_table(Console(file=file, width=20, soft_wrap=True, markup=False), HEADER, ROWS)
    lines = file.getvalue().splitlines()
    assert lines == ["name" + " " * 98 + "verdict", "a" * 100 + "  ok", "b" + " " * 101 + "wrong"]


def test_a_table_on_a_terminal_is_coloured_and_loses_nothing():
    file = io.StringIO()
    show_table(Console(file=file, width=40, force_terminal=True, color_system="standard"), HEADER, ROWS)
    assert "\x1b[" in file.getvalue() and file.getvalue().count("a") >= 100


def test_a_report_on_a_terminal_is_coloured_and_says_the_same():
    report = Report("k", "safe", 0, ())
    coloured, plain = io.StringIO(), io.StringIO()
    report.print_report(Console(file=coloured, force_terminal=True, color_system="standard"))
    report.print_report(Console(file=plain, width=10))
    assert "\x1b[" in coloured.getvalue()
    assert plain.getvalue().rstrip("\n") == str(report)


def test_an_error_is_text_on_standard_error(capsys):
    show_error(ValueError("what [bold]you[/bold] wrote"))
    out, err = capsys.readouterr()
    assert out == "" and err == "error: what [bold]you[/bold] wrote\n"


def test_progress_passes_everything_on_and_ends_with_an_error(monkeypatch, capsys):
    assert list(progress.track(range(3), "counting")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")
    shown = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda **_: Console(file=shown, force_terminal=True))
    monkeypatch.setattr(progress, "_SECONDS_BEFORE_IT_SHOWS", -1.0)
    assert list(progress.track(range(3), "counting")) == [0, 1, 2]
    assert "counting" in shown.getvalue()


def test_public_names_are_there_and_lazy():
    code = """
import sys, metalwright
assert not {"torch", "coreai_torch", "llvmlite"} & set(sys.modules)
for name in metalwright.__all__:
    getattr(metalwright, name)
assert callable(metalwright.check) and metalwright.check.random((2,)).shape == (2,)
import metalwright.check
assert callable(metalwright.check)
assert set(metalwright.__all__) <= set(dir(metalwright))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_an_unknown_public_name_is_an_attribute_error():
    assert not hasattr(metalwright, "no_such_name")
