"""Code that others wrote, run here. It takes minutes, so it runs only by ``make test-thirdparty``.

The suites share a scoreboard of what compiles, runs and matches.
A test notes each kernel it meets with the ``score`` fixture; ``--scoreboard FILE`` writes the page at the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import cast

import pytest
from scoreboard import Scoreboard

from metalwright.errors import KernelFault

Score = Callable[..., None]
_board = Scoreboard()

if not os.environ.get("METALWRIGHT_THIRDPARTY"):
    collect_ignore_glob = ["*"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--scoreboard", metavar="FILE", help="write the table of other projects' kernels to this page"
    )


@pytest.fixture
def score(record_property: Callable[[str, object], None]) -> Score:
    """Return a function that notes what a test did with a kernel: found, compiled, ran, or unsupported.

    The detail is which instantiation ran, or why a kernel is not supported.
    """

    def note(suite: str, file: str, kernel: str, what: str, detail: str = "") -> None:
        record_property("score", [suite, file, kernel, what, detail])

    return note


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and issubclass(call.excinfo.type, KernelFault):
        report.user_properties.append(("stopped", True))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        notes = [value for name, value in report.user_properties if name == "score"]
        stopped = any(name == "stopped" for name, _ in report.user_properties)
        _board.add(cast(list[list[str]], notes), report, stopped)


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--scoreboard")
    if path and not hasattr(session.config, "workerinput"):
        Path(path).write_text(_board.page())
