"""Expressions of MSL as trees: as much of C++ as a kernel's statements need.

What is not understood becomes an ``opaque`` node: rules are silent about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from metalwright.msl.grammar import ADDRESS_SPACES, PLAIN_TYPES, TokenText

_BINARY = {
    operator: level
    for level, operators in enumerate(
        ("||", "&&", "|", "^", "&", "== !=", "< > <= >= <=>", "<< >>", "+ -", "* / %"), start=1
    )
    for operator in operators.split()
}
_ASSIGN = frozenset("= += -= *= /= %= &= |= ^= <<= >>=".split())
_PREFIX = frozenset("- + ! ~ * & ++ --".split())
# what is followed by template arguments and then by parentheses
_TEMPLATES = frozenset(
    "static_cast reinterpret_cast const_cast as_type vec array matrix numeric_limits dextents extents tensor "
    "simdgroup_matrix matmul2d".split()
)
_CASTS = frozenset({"static_cast", "reinterpret_cast", "const_cast"})


@dataclass(frozen=True)
class Node:
    """A part of an expression.

    ``kind`` is ``number``, ``string``, ``name``, ``call``, ``cast``, ``subscript``, ``member``, ``unary``, ``postfix``,
    ``binary``, ``conditional``, ``assign``, ``list`` or ``opaque``; ``text`` is the number, name, operator or type;
    ``at`` is the index of the token that stands for it.
    """

    kind: str
    text: str
    at: int
    parts: tuple[Node, ...] = ()

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it."""
        yield self
        for part in self.parts:
            yield from part.walk()

    def names(self) -> set[str]:
        """Return the names in it."""
        return {node.text for node in self.walk() if node.kind == "name"}

    @property
    def root(self) -> str:
        """The variable that ``a[i].x`` is about: ``a``; ``""`` where it is none."""
        node = self
        while node.kind in ("subscript", "member"):
            node = node.parts[0]
        return node.text if node.kind == "name" else ""

    def uncast(self) -> Node:
        """Return what is left without casts around it."""
        node = self
        while node.kind == "cast" and len(node.parts) == 1:
            node = node.parts[0]
        return node


class _Parser:
    def __init__(self, source: TokenText, first: int, last: int, types: frozenset[str]) -> None:
        self.source, self.i, self.last, self.types = source, first, last, types

    def text(self, ahead: int = 0) -> str:
        return self.source.text(self.i + ahead) if self.i + ahead < self.last else ""

    def expression(self) -> Node:
        left = self.assignment()
        while self.text() == ",":
            at = self.i
            self.i += 1
            left = Node("list", ",", at, (left, self.assignment()))
        return left

    def assignment(self) -> Node:
        left = self.conditional()
        if (text := self.text()) in _ASSIGN:
            at = self.i
            self.i += 1
            return Node("assign", text, at, (left, self.assignment()))
        return left

    def conditional(self) -> Node:
        test = self.binary(1)
        if self.text() != "?":
            return test
        at = self.i
        self.i += 1
        yes = self.assignment()
        if self.text() != ":":
            return self.rest()
        self.i += 1
        return Node("conditional", "?", at, (test, yes, self.assignment()))

    def binary(self, level: int) -> Node:
        left = self.unary()
        while (found := _BINARY.get(self.text(), 0)) >= level:
            at, operator = self.i, self.text()
            self.i += 1
            left = Node("binary", operator, at, (left, self.binary(found + 1)))
        return left

    def unary(self) -> Node:
        at, text = self.i, self.text()
        if text in _PREFIX:
            self.i += 1
            return Node("unary", text, at, (self.unary(),))
        if text == "(" and (type_ := self._type_in_parentheses()):
            self.i = self.source.closing(self.i) + 1
            return Node("cast", type_, at, (self.unary(),))
        return self.postfix(self.primary())

    def _type_in_parentheses(self) -> str:
        close = self.source.closing(self.i)
        inside = [self.source.text(i) for i in range(self.i + 1, close)]
        if not inside or self.source.text(close + 1) in ("", ")", ";", ",", "]"):
            return ""
        words = [word for word in inside if word not in ("*", "&", "const")]
        spaced = any(word in ADDRESS_SPACES for word in words)
        known = words and (words[-1] in PLAIN_TYPES or words[-1] in self.types)
        return words[-1] if known and (len(words) == 1 or spaced) else ""

    def primary(self) -> Node:
        at, text = self.i, self.text()
        if text == "" or text in (")", "]", "}", ";", ","):
            return Node("opaque", text, at)
        kind = self.source.tokens[at].kind
        if kind in ("number", "string"):
            self.i += 1
            return Node(kind, text, at)
        if text == "(":
            close = self.source.closing(at)
            inner = parse(self.source, at + 1, min(close, self.last), self.types)
            self.i = close + 1
            return inner
        if text == "{":
            self.i = self.source.closing(at) + 1
            return Node("list", "{", at, self._arguments(at))
        if kind == "word":
            return self._name()
        return self.rest()

    def _name(self) -> Node:
        while self.text(1) == "::" and self.source.is_word(self.i + 2):
            self.i += 2
        at, name = self.i, self.text()
        self.i += 1
        type_ = ""
        if self.text() == "<" and (close := self.source.closing_angle(self.i)) >= 0:
            inside = [self.source.tokens[i] for i in range(self.i + 1, close)]
            plain = all(
                t.kind == "number" or t.text in (",", "*", "::", "metal") or t.text in PLAIN_TYPES | self.types
                or t.text in ADDRESS_SPACES or t.text == "const"
                for t in inside
            )  # fmt: skip
            if name in _TEMPLATES or (plain and self.source.text(close + 1) in ("(", "{", "::")):
                words = [t.text for t in inside if t.kind == "word"]
                type_ = words[-1] if words else ""
                self.i = close + 1
                while self.text() == "::" and self.source.is_word(self.i + 1):
                    at, name = self.i + 1, self.text(1)
                    self.i += 2
        if self.text() in ("(", "{") and (self.text() == "(" or name in PLAIN_TYPES or name in self.types):
            opening = self.i
            self.i = self.source.closing(opening) + 1
            arguments = self._arguments(opening)
            if name in _CASTS:
                return Node("cast", type_, at, arguments)
            if name in PLAIN_TYPES or name in self.types:
                return Node("cast", name, at, arguments)
            return Node("call", name, at, arguments)
        return Node("name", name, at)

    def postfix(self, node: Node) -> Node:
        while True:
            at, text = self.i, self.text()
            if text == "[":
                self.i = self.source.closing(at) + 1
                node = Node("subscript", "[", at, (node, *self._arguments(at)))
            elif text in (".", "->") and self.source.is_word(at + 1):
                name = self.text(1)
                self.i += 2
                if name == "template" and self.source.is_word(self.i):
                    name = self.text()
                    self.i += 1
                if self.text() == "(":
                    opening = self.i
                    self.i = self.source.closing(opening) + 1
                    node = Node("call", name, at + 1, (node, *self._arguments(opening)))
                else:
                    node = Node("member", name, at + 1, (node,))
            elif text in ("++", "--"):
                self.i += 1
                node = Node("postfix", text, at, (node,))
            else:
                return node

    def _arguments(self, opening: int) -> tuple[Node, ...]:
        pieces = self.source.split(opening + 1, self.source.closing(opening))
        return tuple(parse(self.source, first, last, self.types) for first, last in pieces)

    def rest(self) -> Node:
        at = self.i
        self.i = self.last
        return Node("opaque", "", at)


def parse(source: TokenText, first: int, last: int, types: frozenset[str]) -> Node:
    """Return the expression between two tokens; ``types`` are names of types besides Metal's own."""
    parser = _Parser(source, first, last, types)
    node = parser.expression()
    if parser.i < last:
        # something is left over: what was read may mean something else
        return Node("opaque", "", first, (node,))
    return node


def integer(text: str) -> int | None:
    """Return the value of an integer literal; ``None`` where it is a floating-point one."""
    plain = text.replace("'", "").lower()
    if not plain.startswith("0x") and any(mark in plain for mark in ".efh"):
        return None
    plain = plain.rstrip("ul")
    try:
        return (
            int(plain, 8) if plain.startswith("0") and plain.isdigit() and len(plain) > 1 else int(plain, 0)
        )
    except ValueError:
        return None
