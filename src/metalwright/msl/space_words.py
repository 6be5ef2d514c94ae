"""The words for address spaces in a source, and what else of it a compiler has to see to follow them as types."""

from __future__ import annotations

from dataclasses import dataclass

from metalwright.msl.edits import Edits
from metalwright.msl.grammar import ADDRESS_SPACES, TokenText, type_name

_CV = frozenset({"const", "volatile"})
_POINTS = frozenset({"*", "&", "&&"})
_REFERS = frozenset({"&", "&&"})
_AFTER_PARAMETERS = frozenset({"{", ";", ":", "=", "->", "noexcept"})


@dataclass(frozen=True)
class Places:
    """Offsets of objects of the thread whose address is taken, and of what is cast to a pointer in an address space."""

    thread_objects: tuple[tuple[int, int], ...]
    casts: tuple[tuple[str, int, int], ...]

    def mark(self, edits: Edits) -> None:
        """Write around each what ``metalwright/spaces.h`` has for it."""
        for start, end in self.thread_objects:
            edits.replace(start, start, "__mw::spaces::of_thread(")
            edits.replace(end, end, ")")
        for space, start, end in self.casts:
            # a cast of C's form takes a pointer of any address space for any other
            edits.replace(start, start, f"static_cast<const volatile {space} void*>(")
            edits.replace(end, end, ")")


def places(
    source: TokenText, thread_objects: tuple[tuple[int, int], ...], casts: tuple[tuple[str, int, int], ...]
) -> Places:
    """Return places given by indices of tokens (the first, and the one behind the last) as offsets."""

    def offsets(first: int, end: int) -> tuple[int, int]:
        last = source.tokens[end - 1]
        return source.tokens[first].offset, last.offset + len(last.text)

    return Places(
        tuple(offsets(*piece) for piece in thread_objects),
        tuple((space, *offsets(first, end)) for space, first, end in casts if end <= len(source)),
    )


def points(source: TokenText, index: int) -> bool:
    """Whether the word at ``index`` says where a pointer or a reference leads: ``device float*``, ``float device*``."""
    if source.text(index + 1) in _POINTS:
        return True
    type_ = type_name(source, index)
    return type_ is not None and source.text(type_.after) in _POINTS


def refers(source: TokenText, index: int) -> bool:
    """Whether the word at ``index`` says where a reference leads: ``constant uint& n``."""
    type_ = type_name(source, index)
    return type_ is not None and source.text(type_.after) in _REFERS


def belongs_to_a_type(source: TokenText, index: int) -> bool:
    """Whether the word at ``index`` can stay where a compiler takes address spaces for parts of types.

    It cannot behind a method's parameters, nor before a variable of the thread, whose memory needs no word.
    """
    i = index + 1
    while source.text(i) in ADDRESS_SPACES or source.text(i) in _CV:
        i += 1
    if source.text(i) in _AFTER_PARAMETERS:
        return False
    return source.text(index) != "thread" or points(source, index)
