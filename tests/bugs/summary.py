"""The corpus' two numbers in the summary of a session, counted by the process that the user started."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

PLANTED, FOUND, RUNS, FINDINGS = "bug planted", "bug found", "correct case runs", "findings on correct cases"

_kinds: set[str] = set()
_counts: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up what tests recorded as their properties: those are what a worker of pytest-xdist sends home."""
    if report.when != "call":
        return
    for name, value in report.user_properties:
        if name == PLANTED:
            _counts[name] += 1
            _kinds.add(str(value))
        elif name == FOUND:
            _counts[name] += 1
        elif name in (RUNS, FINDINGS):
            _counts[name] += int(str(value))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the numbers, where any of the corpus ran."""
    if _counts:
        terminalreporter.write_line(
            f"planted bugs: {_counts[FOUND]} of {_counts[PLANTED]} found, {len(_kinds)} kinds; "
            f"correct kernels: {_counts[FINDINGS]} findings in {_counts[RUNS]} case runs"
        )
