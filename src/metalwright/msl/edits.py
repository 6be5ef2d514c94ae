"""Replacements in a text that leave its lines where they are, and the way back for columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import SequenceMatcher


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

    def apply(self, text: str) -> str:
        """Return the text with every replacement made."""
        pieces: list[str] = []
        position = 0
        for start, end, new in sorted(self.replacements):
            pieces += [text[position:start], new]
            position = end
        return "".join([*pieces, text[position:]])


def original_column(new_line: str, old_line: str, column: int) -> int:
    """Return the 1-based column in ``old_line`` of the text at a 1-based column of ``new_line``.

    Lines change on their way to the compiler (dtype placeholders, lowering, collapsed spaces); what is the same in
    both is aligned, and a place inside something new maps to where that stands in the old line.
    """
    if column <= 0 or new_line == old_line:
        return column
    at = column - 1
    for tag, new_start, new_end, old_start, old_end in SequenceMatcher(
        None, new_line, old_line, autojunk=False
    ).get_opcodes():
        if new_start <= at < new_end:
            return (
                old_start + (at - new_start) if tag == "equal" else min(old_start, max(old_end - 1, 0))
            ) + 1
    return len(old_line) + 1
