"""Splits preprocessed MSL into tokens, keeping every character and its place."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\f\v]+)
  | (?P<newline>\n)
  | (?P<comment>//[^\n]*|/\*(?:.|\n)*?\*/)
  | (?P<raw>(?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\((?:.|\n)*?\)(?P=fence)")
  | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"|(?:u8|[uUL])?'(?:[^'\\\n]|\\.)*')
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'?[\w]|\.)*)
  | (?P<word>[A-Za-z_$][\w$]*)
  | (?P<mark>::|->|<<=|>>=|<=>|\.\.\.|[-+*/%&|^=!<>]=|&&|\|\||\+\+|--|<<|[{}\[\]()<>;:,.?~!+\-*/%^&|=#@\\`])
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """A piece of source text.

    ``kind`` is ``space``, ``newline``, ``comment``, ``string``, ``number``, ``word``, ``mark``, ``other`` or
    ``directive`` (a whole line that begins with ``#``); ``offset`` counts characters from the text's start.
    """

    kind: str
    text: str
    offset: int


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a preprocessed text; joined, they are the text."""
    tokens: list[Token] = []
    position = 0
    at_line_start = True
    while position < len(text):
        if at_line_start and (hash_at := _directive_at(text, position)) is not None:
            end = text.find("\n", hash_at)
            end = len(text) if end < 0 else end
            tokens.append(Token("directive", text[position:end], position))
            position = end
            at_line_start = False
            continue
        match = _TOKEN.match(text, position)
        assert match is not None, "the pattern ends with a wildcard"
        kind = match.lastgroup or "other"
        if match["raw"]:
            kind = "string"
        tokens.append(Token(kind, match.group(), position))
        position = match.end()
        at_line_start = kind == "newline" or (at_line_start and kind in ("space", "comment"))
    return tokens


def _directive_at(text: str, position: int) -> int | None:
    while position < len(text) and text[position] in " \t":
        position += 1
    return position if position < len(text) and text[position] == "#" else None
