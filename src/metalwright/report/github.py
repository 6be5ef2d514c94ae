"""Workflow commands of GitHub Actions: what is wrong with a kernel, at a line of the pull request."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from metalwright.check import Finding, Report
from metalwright.check.origin import line_of, origin_of
from metalwright.errors import excerpt_lines


def to_github(report: Report, kernel: Any) -> Iterator[str]:
    """Yield a line ``::error file=…,line=…,title=…::message`` for each thing that is wrong with a kernel.

    The line is that of the kernel's MSL in its Python file where it can be found, else that of the kernel's
    definition. What is wrong at the same place in several cases is said once.
    """
    alike: dict[tuple[Any, ...], list[tuple[Finding, str]]] = {}
    for case in report.cases:
        for finding in case.findings:
            # not by the message, whose numbers differ: GitHub shows ten annotations of a step
            alike.setdefault((finding.kind, finding.result, finding.site), []).append((finding, case.title))
    for entries in alike.values():
        finding, cases = entries[0][0], [title for _, title in entries]
        yield error_command(
            kernel, f"{report.kernel}: {finding.kind}", _message(finding, cases), _line(kernel, finding)
        )


def error_command(kernel: Any, title: str, message: str, line: int | None = None) -> str:
    """Return the command that puts a message beside a line of the kernel's file, by default its definition."""
    properties = {}
    origin = origin_of(kernel)
    if origin is not None:
        properties["file"] = _in_the_repository(origin.file)
        properties["line"] = str(line or origin.line or 1)
    properties["title"] = title
    listed = ",".join(f"{name}={_escaped_property(value)}" for name, value in properties.items())
    return f"::error {listed}::{_escaped(message)}"


def _line(kernel: Any, finding: Finding) -> int | None:
    return line_of(kernel, finding.site, finding.excerpt) if finding.site is not None else None


def _message(finding: Finding, cases: list[str]) -> str:
    more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
    result = f"{finding.result}: " if finding.result else ""
    lines = [f"{result}{finding.message}", *excerpt_lines(finding.site, finding.excerpt)]
    lines += [other.render() for other in finding.related]
    return "\n".join([*lines, f"in {cases[0]}{more}"])


def _in_the_repository(file: str) -> str:
    """Return a path as GitHub wants it: from the root of the checkout."""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()
    path = Path(file).resolve()
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
