"""Which address space an expression points to, where the tokens tell for sure.

clang compiles text without address spaces, so Metal's rule that a pointer never changes its own is checked here, on
names whose declarations are in sight: ``p``, ``p + i``, ``&p[i]``, ``&variable``, in parentheses or not.
"""

from __future__ import annotations

from collections.abc import Callable

from metalwright.msl.grammar import Declarator, TokenText, type_name

Lookup = Callable[[str], Declarator | None]

_ARITHMETIC = frozenset("+-*/%()[].") | {"<<", ">>", "::"}
_POSTFIX = frozenset({"[", "(", ".", "->", "::", "++", "--"})
NO_CONVERSION = "Metal has no conversion between address spaces"


def points_to(source: TokenText, first: int, last: int, lookup: Lookup) -> str:
    """Return the address space of the pointer that the tokens from ``first`` to ``last`` compute, or ``""``."""
    while last - first > 2 and source.text(first) == "(" and source.closing(first) == last - 1:
        first, last = first + 1, last - 1
    after, space = _operand(source, first, lookup)
    if not space or after > last:
        return ""
    if after == last:
        return space
    # a number added to a pointer; another pointer there would make it something else
    if source.text(after) not in ("+", "-"):
        return ""
    for i in range(after, last):
        token = source.tokens[i]
        if token.kind == "number":
            continue
        if token.kind == "word":
            known = lookup(token.text)
            if known is not None and known.kind != "value":
                if source.text(i + 1) != "[":
                    return ""
            elif source.text(i + 1) == "(" and type_name(source, i) is None:
                return ""
        elif token.text not in _ARITHMETIC:
            return ""
    return space


def refers_to(source: TokenText, first: int, last: int, lookup: Lookup) -> str:
    """Return the address space of the object that the tokens name: ``p[i]``, ``*p``, ``variable``; or ``""``."""
    if source.text(first) == "*" and last - first == 2:
        known = lookup(source.text(first + 1))
        return known.space if known is not None and known.kind == "pointer" else ""
    if not source.is_word(first):
        return ""
    known = lookup(source.text(first))
    if known is None:
        return ""
    after, subscripts = _subscripts(source, first + 1)
    if after != last:
        return ""
    if known.kind == "pointer" and subscripts == 1:
        return known.space
    if known.kind == "array" and subscripts == known.dimensions:
        return known.space or "thread"
    if known.kind == "value" and subscripts == 0 and known.type_word != "auto":
        return known.space or "thread"
    if known.kind == "reference" and subscripts == 0:
        return known.space
    return ""


def _operand(source: TokenText, first: int, lookup: Lookup) -> tuple[int, str]:
    """Return the index after the operand at ``first`` and the address space that it points to."""
    if source.text(first) == "&" and source.is_word(first + 1):
        after, _ = _subscripts(source, first + 2)
        if source.text(after) in _POSTFIX:
            return after, ""
        return after, refers_to(source, first + 1, after, lookup)
    if source.text(first) == "(":
        close = source.closing(first)
        if source.text(close + 1) in _POSTFIX or _is_cast(source, first):
            return close, ""
        return close + 1, points_to(source, first + 1, close, lookup)
    if source.is_word(first) and source.text(first + 1) not in _POSTFIX:
        known = lookup(source.text(first))
        if known is not None and known.kind == "pointer":
            return first + 1, known.space
        if known is not None and known.kind == "array":
            return first + 1, known.space or "thread"
    return first, ""


def unary_operand(source: TokenText, first: int) -> int:
    """Return the index after the operand of a cast at ``first``."""
    i = first + 1 if source.text(first) == "&" else first
    i = source.closing(i) + 1 if source.text(i) == "(" else i + 1
    while source.text(i) in _POSTFIX:
        i = (
            source.closing(i) + 1
            if source.text(i) in ("[", "(")
            else i + 1 + (source.text(i) in (".", "->", "::"))
        )
    return i


def _is_cast(source: TokenText, opening: int) -> bool:
    """Whether parentheses hold a type and no expression, or might."""
    close = source.closing(opening)
    following = source.text(close + 1)
    return source.is_word(close + 1) or following in ("(", "&", "*") or following == ""


def _subscripts(source: TokenText, index: int) -> tuple[int, int]:
    count = 0
    while source.text(index) == "[":
        count += 1
        index = source.closing(index) + 1
    return index, count


def cast_target(source: TokenText, first: int, last: int) -> str:
    """Return the address space that a cast to the type between two tokens points to, or ``""``: ``device float*``."""
    type_ = type_name(source, first)
    if type_ is None or not type_.space:
        return ""
    i = type_.after
    if source.text(i) != "*":
        return ""
    i += 1
    while source.text(i) in ("const", "volatile"):
        i += 1
    return type_.space if i == last else ""
