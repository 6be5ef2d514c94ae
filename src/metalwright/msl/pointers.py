"""Pointers and references must name their address space: those that do not, as far as tokens tell."""

from __future__ import annotations

from metalwright.msl.grammar import ADDRESS_SPACES, PLAIN_TYPES, TokenText

_CV = frozenset({"const", "volatile"})
_BEFORE_A_TYPE = _CV | frozenset("unsigned signed long struct static constexpr inline".split())
_MORE_PLAIN = frozenset({"long", "short", "int", "char", "signed", "unsigned"})
# templates of the library: no address space of their own hides behind these
_PLAIN_TEMPLATES = frozenset(
    {"vec", "packed_vec", "matrix", "array", "atomic", *(f"texture{n}d" for n in (1, 2, 3))}
)
_CASTS = frozenset({"reinterpret_cast", "static_cast", "const_cast"})
_MARKS = frozenset({"*", "&", "&&"})


def bare_pointers(source: TokenText, own_types: set[str]) -> list[tuple[int, str]]:
    """Return each ``*`` and ``&`` right after a type that hides no address space where none is written either.

    ``own_types`` are the structs and enumerations that the source declares.
    """
    found: list[tuple[int, str]] = []
    for i in range(len(source)):
        if source.text(i) not in _MARKS:
            continue
        last = i - 1
        while source.text(last) in _CV:
            last -= 1
        # float (&a)[4]: the type stands before a bracket
        bracketed = source.text(last) == "(" and source.is_word(i + 1) and source.text(i + 2) == ")"
        if bracketed and last == i - 1 and source.text(i + 3) == "[" and source.text(i + 4) != "[":
            last -= 1
        name = _name_of_type(source, last)
        if name < 0:
            continue
        word = source.text(name)
        plain = word in PLAIN_TYPES or word in _MORE_PLAIN or (name < last and word in _PLAIN_TEMPLATES)
        if not plain and (word not in own_types or source.text(name - 1) in (".", "->")):
            continue
        if source.text(i + 1) in (">", "&") and not _in_cast(source, name):
            continue  # a template argument
        first = _type_start(source, name)
        if first < 0 or not _may_be_a_type(source, first, i):
            continue
        if plain or _declares(source, first, i):
            found.append((i, _sentence(source, i, word)))
    return found


def _sentence(source: TokenText, mark: int, word: str) -> str:
    what = "pointer" if source.text(mark) == "*" else "reference"
    name = source.text(mark + 1) if source.is_word(mark + 1) else ""
    written = f"{word}{source.text(mark)}" + (f" {name}" if name else "")
    where = "points" if what == "pointer" else "refers"
    others = f"(or device, constant, threadgroup: where it {where} to)"
    return f"a {what} needs an address space in Metal: write 'thread {written}' {others}"


def _name_of_type(source: TokenText, last: int) -> int:
    """Return the index of the name of the type that ends at ``last``, or -1: of ``vec`` in ``vec<float, 4>``."""
    if source.is_word(last):
        return last
    if source.text(last) != ">":
        return -1
    depth = 0
    for i in range(last, -1, -1):
        text = source.text(i)
        depth += (text == ">") - (text == "<")
        if depth == 0:
            return i - 1 if source.is_word(i - 1) else -1
        if text in (";", "{", "}"):
            return -1
    return -1


def _in_cast(source: TokenText, name: int) -> bool:
    """Whether a type is what ``static_cast<…>`` and its like make."""
    i = name - 1
    while source.text(i) in _CV:
        i -= 1
    return source.text(i) == "<" and source.text(i - 1) in _CASTS


def _may_be_a_type(source: TokenText, first: int, mark: int) -> bool:
    before = source.text(first - 1)
    if before == "<":
        return source.text(first - 2) in _CASTS
    # behind a comma and without a name, it may be a template argument
    return before != "," or source.is_word(mark + 1) or source.text(mark + 1) in (",", ")", "=")


def _type_start(source: TokenText, i: int) -> int:
    """Return where the type whose name is at ``i`` begins, or -1 where an address space is written in it."""
    after = i + 1
    if source.text(after) == "<":
        after = source.closing_angle(after) + 1
    while source.text(after) in _CV or source.text(after) in ADDRESS_SPACES:
        if source.text(after) in ADDRESS_SPACES:
            return -1
        after += 1
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
    if before == "typedef" or (before == "=" and source.text(first - 3) == "using"):
        return True
    if before == "<":
        return True  # of a cast
    if not source.is_word(mark + 1):
        return before in ("(", ",") and source.text(mark + 1) in (",", ")", "=")
    if before in (";", "{", "}"):
        return after in ("=", ";", ",", "(")
    return before in ("(", ",") and after in (",", ")", "=", "[", ";")  # a parameter, or one of a call
