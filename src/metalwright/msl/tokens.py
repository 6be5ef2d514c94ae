"""Splits preprocessed MSL into tokens, keeping every character and its place."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import NamedTuple

_COMMENT = r"/\*.*?\*/"
_TOKEN = re.compile(
    rf"""
    (?P<directive>^[ \t\f\v]*(?:{_COMMENT}[ \t\f\v]*)*\#[^\n]*)
  | (?P<space>[ \t\f\v]+)
  | (?P<newline>\n)
  | (?P<comment>//[^\n]*|{_COMMENT})
  | (?P<raw>(?:u8|[uUL])?R"(?P<fence>[^()\\\s]{{0,16}})\(.*?\)(?P=fence)")
  | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"|(?:u8|[uUL])?'(?:[^'\\\n]|\\.)*')
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'?[\w]|\.)*)
  | (?P<word>[A-Za-z_$][\w$]*)
  | (?P<mark>::|->|<<=|>>=|<=>|\.\.\.|[-+*/%&|^=!<>]=|&&|\|\||\+\+|--|<<|[{{}}\[\]()<>;:,.?~!+\-*/%^&|=\#@\\`])
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


class Token(NamedTuple):
    """A piece of source text.

    ``kind`` is ``space``, ``newline``, ``comment``, ``string``, ``number``, ``word``, ``mark``, ``other`` or
    ``directive`` (a whole line that begins with ``#``, with the comments before it); ``offset`` counts characters
    from the text's start.
    """

    kind: str
    text: str
    offset: int


def tokenize(text: str, without: Set[str] = frozenset()) -> list[Token]:
    """Return the tokens of a preprocessed text, but for the kinds in ``without``; all of them, joined, are the text."""
    tokens: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind not in without:
            assert kind is not None, "the pattern ends with a wildcard"
            tokens.append(Token("string" if kind == "raw" else kind, match[0], match.start()))
    return tokens
