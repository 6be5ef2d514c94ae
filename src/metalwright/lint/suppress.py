"""Comments that silence a rule: ``// metalwright: ignore MW104`` in MSL, ``# metalwright: ignore MW301`` in Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from metalwright.errors import Site
from metalwright.lint.msl import Code
from metalwright.lint.python_source import PythonFile

_COMMENT = re.compile(r"metalwright:\s*ignore\s+(\w+(?:\s*,\s*\w+|\s+MW\d+)*)")
_SEPARATOR = re.compile(r"[\s,]+")


@dataclass
class Suppression:
    """One comment: the rules that it names, for its own line and the one below; ``used`` are those it "
    "silenced."""

    ids: tuple[str, ...]
    site: Site
    excerpt: str
    lines: tuple[int, int]
    used: set[str] = field(default_factory=set)

    def covers(self, rule: str, site: Site | None) -> bool:
        """Whether it silences a rule at a place."""
        return site is not None and (
            rule in self.ids and site.file == self.site.file and site.line in self.lines
        )


def in_msl(code: Code) -> Iterator[Suppression]:
    """Yield the suppressions in a kernel's MSL."""
    for comment in code.comments:
        if match := _COMMENT.search(comment.text):
            site, excerpt = code.place_of(comment.offset)
            last = site.line + comment.text.count("\n")
            yield Suppression(_ids(match), site, excerpt, (last, last + 1))


def in_python(file: PythonFile) -> Iterator[Suppression]:
    """Yield the suppressions in a Python file."""
    for line, column, text in file.comments:
        if match := _COMMENT.search(text):
            yield Suppression(
                _ids(match), Site(file.shown, line, column), file.lines[line - 1], (line, line + 1)
            )


def _ids(match: re.Match[str]) -> tuple[str, ...]:
    return tuple(_SEPARATOR.split(match[1].strip()))
