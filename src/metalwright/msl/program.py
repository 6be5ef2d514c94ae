"""The text of a program on its way to the compiler, and where each of its lines came from."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from metalwright.errors import Site

GENERATED = "<generated>"
_BYTE_ORDER_MARK = "\ufeff"
_MARKER = re.compile(r'^\s*#\s*(?:line\s+)?(\d+)\s+"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Section:
    """A piece of a program.

    ``file`` is the name under which diagnostics speak of a piece that a person wrote, or ``None`` for generated text;
    ``original`` is that piece as it was written, where ``text`` has dtype placeholders replaced (same lines).
    """

    text: str
    file: str | None = None
    original: str | None = None


def join(sections: tuple[Section, ...]) -> str:
    """Return the program's text with a line marker in front of each piece."""
    pieces = []
    for section in sections:
        # some editors begin a file with a mark of its encoding
        pieces.append(f'# 1 "{section.file or GENERATED}"\n{section.text.removeprefix(_BYTE_ORDER_MARK)}\n')
    return "".join(pieces)


def sources(sections: tuple[Section, ...]) -> dict[str, str]:
    """Return each of the user's files with its text as it was written."""
    found: dict[str, str] = {}
    for section in sections:
        if section.file is not None:
            text = section.text if section.original is None else section.original
            found[section.file] = text
    return found


class LineMap:
    """Finds lines of a text by the place that its line markers say they came from."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = text.split("\n")
        self._starts = [0, *itertools.accumulate(len(line) + 1 for line in self._lines)]
        self._places: list[tuple[str, int]] = []
        self._by_place: dict[tuple[str, int], int] = {}
        file, line = GENERATED, 1
        for index, content in enumerate(self._lines):
            if (marker := _MARKER.match(content)) is not None:
                line, file = int(marker.group(1)) - 1, marker.group(2)
            self._places.append((file, line))
            self._by_place.setdefault((file, line), index)
            line += 1

    def site(self, text: str, offset: int) -> Site:
        """Return the place of an offset of the text."""
        index = text.count("\n", 0, offset)
        column = offset - (text.rfind("\n", 0, offset) + 1) + 1
        file, line = self._places[index]
        return Site(file, line, column)

    def content(self, file: str, line: int) -> str:
        """Return the text's line that came from a place."""
        index = self._by_place.get((file, line))
        return "" if index is None else self._lines[index]

    def offset(self, file: str, line: int, column: int) -> int | None:
        """Return the text's offset of a place whose column counts bytes, as clang's do."""
        index = self._by_place.get((file, line))
        if index is None:
            return None
        before = self._lines[index].encode()[: column - 1].decode("utf-8", "ignore")
        return self._starts[index] + len(before)
