"""Swizzles as operands of operators that user code overloads.

A swizzle is a property of our vectors. In a template, where the vector's type is not known yet, clang asks all visible
``operator+`` whether they want the operand, forgets that it is a property, and refuses ``v.x + 1``. So where a text
declares operators, the swizzles beside such an operator are read through a function, and ``v.x += e`` becomes
``v.x = v.x + (e)``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from metalwright.msl.tokens import Token

_SWIZZLE = re.compile(r"[xyzw]{1,4}$|[rgba]{1,4}$")
_COMPOUND = frozenset({"+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})
_NO_READ = frozenset({".", "->", "[", "(", "=", "++", "--"}) | _COMPOUND
_READ = "::__mw::lane_value("

Edit = tuple[int, int, str]


def declared_operators(tokens: Sequence[Token]) -> frozenset[str]:
    """Return the operators that the text overloads: ``+`` for ``operator+``."""
    return frozenset(
        following.text
        for token, following in itertools.pairwise(tokens)
        if token.text == "operator" and following.kind == "mark" and following.text not in ("(", "[")
    )


def edits(tokens: Sequence[Token], brackets: dict[int, int]) -> Iterator[Edit]:
    """Yield the replacements, as offsets of their start and end and the new text."""
    operators = declared_operators(tokens)
    if not operators:
        return
    opening = {close: first for first, close in brackets.items()}
    for index in range(2, len(tokens) - 1):
        if tokens[index - 1].text != "." or _SWIZZLE.match(tokens[index].text) is None:
            continue
        first = _object(tokens, opening, index - 2)
        if first < 0:
            continue
        following = tokens[index + 1]
        if following.text in operators & _COMPOUND:
            yield from _compound(tokens, brackets, first, index)
        elif following.text not in _NO_READ and (
            following.text in operators or _is_operand_of(tokens, first - 1, operators)
        ):
            yield tokens[first].offset, tokens[first].offset, _READ
            end = tokens[index].offset + len(tokens[index].text)
            yield end, end, ")"


def _is_operand_of(tokens: Sequence[Token], index: int, operators: frozenset[str]) -> bool:
    if index < 1 or tokens[index].text not in operators:
        return False
    if tokens[index].text != "&":
        return True
    # the address of a member is no read
    before = tokens[index - 1]
    return before.kind in ("word", "number") or before.text in (")", "]")


def _object(tokens: Sequence[Token], opening: dict[int, int], index: int) -> int:
    """Return where the expression begins that ends at ``index``, or -1 where that is not plain to see."""
    while index >= 0:
        token = tokens[index]
        if token.text == "]":
            index = opening.get(index, 0) - 1
            continue
        if token.text == ")":
            index = opening.get(index, 0)
            if tokens[index - 1].kind != "word" or tokens[index - 1].text in ("return", "else"):
                return index if tokens[index - 1].text not in (">", "return", "else") else -1
            index -= 1
        elif token.kind != "word":
            return -1
        if tokens[index - 1].text not in (".", "->", "::"):
            return index
        index -= 2
    return -1


def _compound(tokens: Sequence[Token], brackets: dict[int, int], first: int, index: int) -> Iterator[Edit]:
    if any(token.text in ("(", "++", "--") for token in tokens[first:index]):
        # what has an effect must happen once
        return
    i = index + 2
    while i < len(tokens) and tokens[i].text not in (";", ",", ")", "]", "}"):
        i = brackets.get(i, i) + 1
    if i >= len(tokens):
        return
    operator, end = tokens[index + 1], tokens[i]
    target = "".join(token.text for token in tokens[first : index + 1])
    new = f"= {_READ}{target}) {operator.text[:-1]} ("
    yield operator.offset, operator.offset + len(operator.text), new
    yield end.offset, end.offset + len(end.text), f"){end.text}"
