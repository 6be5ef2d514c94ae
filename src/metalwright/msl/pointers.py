"""Pointers and references must name their address space: those that do not, as far as tokens tell."""

from __future__ import annotations

from metalwright.msl.grammar import ADDRESS_SPACES, PLAIN_TYPES, TokenText

_BEFORE_A_TYPE = frozenset("const volatile unsigned signed long struct static constexpr inline".split())


def bare_pointers(source: TokenText, own_types: set[str]) -> list[tuple[int, str]]:
    """Return each ``*`` and ``&`` right after a type that hides no address space where none is written either.

    ``own_types`` are the structs that the source declares.
    """
    found: list[tuple[int, str]] = []
    for i in range(len(source)):
        mark = source.text(i)
        if mark not in ("*", "&") or not source.is_word(i - 1):
            continue
        if source.text(i + 1) in (">", "&") or source.text(i - 2) in (".", "->"):
            continue
        first = _type_start(source, i - 1)
        if first < 0 or source.text(first - 1) == "<":
            continue
        if source.text(first - 1) == "," and not source.is_word(i + 1):
            continue  # perhaps a template argument
        word = source.text(i - 1)
        known = word in PLAIN_TYPES or word in ("long", "short", "int", "char", "signed", "unsigned")
        if not known and not (word in own_types and _declares(source, first, i)):
            continue
        what = "pointer" if mark == "*" else "reference"
        name = source.text(i + 1) if source.is_word(i + 1) else ""
        written = f"{word}{mark}" + (f" {name}" if name else "")
        where = "points" if mark == "*" else "refers"
        others = f"(or device, constant, threadgroup: where it {where} to)"
        found.append((i, f"a {what} needs an address space in Metal: write 'thread {written}' {others}"))
    return found


def _type_start(source: TokenText, i: int) -> int:
    """Return where the type that ends at ``i`` begins, or -1 where an address space is written in it."""
    while True:
        before = source.text(i - 1)
        if source.text(i) in ADDRESS_SPACES or before in ADDRESS_SPACES:
            return -1
        if before == "::" and source.is_word(i - 2):
            i -= 2
        elif before in _BEFORE_A_TYPE:
            i -= 1
        elif before == ")" and source.text(source.opening.get(i - 1, 0) - 1) == "coherent":
            return -1
        else:
            return i


def _declares(source: TokenText, first: int, mark: int) -> bool:
    """Whether ``S * name`` is a declaration and no product: what stands before and after it fits only that."""
    before, after = source.text(first - 1), source.text(mark + 2)
    if not source.is_word(mark + 1):
        return before == "(" and source.text(mark + 1) == ")"
    if before in (";", "{", "}"):
        return after in ("=", ";", ",", "(")
    return before in ("(", ",") and after in (",", ")", "=", "[")  # a parameter, or one of a call
