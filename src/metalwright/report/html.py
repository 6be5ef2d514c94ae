"""One HTML file that holds everything: no script, no network, light and dark as the reader's system is."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

import metalwright
from metalwright.check import Finding, Report
from metalwright.check.report import show_input, show_shape
from metalwright.check.verdict import show, show_index
from metalwright.errors import Related, excerpt_lines
from metalwright.report.figures import heat_map, histogram


def to_html(reports: Sequence[Report], errors: Mapping[str, str] | None = None) -> str:
    """Return a page that shows the reports of kernels, the verdict first.

    All text that comes from kernels is escaped, and the page forbids scripts and requests.

    Args:
        reports: what :func:`metalwright.check` returned.
        errors: kernels that could not be checked, by name, with the reason.
    """
    page = (
        _environment()
        .get_template("report.html")
        .render(
            reports=reports,
            wrong=[report for report in reports if not report.ok],
            errors=dict(errors or {}),
            version=metalwright.__version__,
        )
    )
    # a lone surrogate in a name can be in no file
    return page.encode("utf-8", "backslashreplace").decode()


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("metalwright.report"),
        autoescape=True,  # whatever the template is called: kernels are written by strangers
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        g=lambda number: f"{number:.3g}",
        shape=show_shape,
        index=show_index,
        input=show_input,
        value=show,
        sizes=lambda sizes: " × ".join(map(str, sizes)),
        excerpt=_excerpt,
    )
    environment.globals.update(heat_map=heat_map, histogram=histogram)
    return environment


def _excerpt(found: Finding | Related) -> str:
    """Return the line of MSL with its number, and the caret under it."""
    lines: list[Any] = excerpt_lines(found.site, found.excerpt)
    number = str(found.site.line) if found.site else ""
    return "\n".join(
        f"{number if first else '':>{len(number)}} │ {line[4:]}"
        for first, line in zip((True, False), lines, strict=False)
    )
