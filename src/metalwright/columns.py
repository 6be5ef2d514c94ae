"""Places on a line that has changed on its way to the compiler."""

from __future__ import annotations

from difflib import SequenceMatcher


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
