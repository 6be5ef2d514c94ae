"""Replacements in a text that leave its lines where they are."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field


@dataclass
class Edits:
    """Collects replacements by offset; none of them may overlap, and none changes the number of lines."""

    replacements: list[tuple[int, int, str]] = field(default_factory=list)

    def replace(self, start: int, end: int, new: str) -> None:
        """Put ``new`` in place of the characters from ``start`` to ``end``."""
        self.replacements.append((start, end, new))

    def blank(self, text: str, start: int, end: int) -> None:
        """Put spaces in place of a piece, so that nothing after it moves; line ends stay."""
        self.replace(start, end, "".join("\n" if character == "\n" else " " for character in text[start:end]))

    def without(self, text: str, pieces: list[tuple[int, int]]) -> Edits:
        """Return these replacements with ``pieces``, in order and apart from each other, blanked instead."""
        starts = [start for start, _ in pieces]

        def inside(start: int, end: int) -> bool:
            index = bisect.bisect_right(starts, start) - 1
            return index >= 0 and end <= pieces[index][1]

        kept = Edits([edit for edit in self.replacements if not inside(edit[0], edit[1])])
        for start, end in pieces:
            kept.blank(text, start, end)
        return kept

    def apply(self, text: str) -> str:
        """Return the text with every replacement made."""
        pieces: list[str] = []
        position = 0
        for start, end, new in sorted(self.replacements):
            pieces += [text[position:start], new]
            position = end
        return "".join([*pieces, text[position:]])

    def origin(self, offset: int) -> int:
        """Return the offset in the text as it was of an offset in the text with every replacement made."""
        moved = 0  # by how much the replacements so far have lengthened the text
        for start, end, new in sorted(self.replacements):
            if offset < start + moved:
                break
            if offset < start + moved + len(new):
                return start
            moved += len(new) - (end - start)
        return offset - moved
