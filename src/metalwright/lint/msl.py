"""A kernel's MSL as statements, variables and expressions, with the place of each in the user's own text."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from metalwright.errors import Site
from metalwright.lint.expressions import Node, integer, parse
from metalwright.msl.grammar import TokenText, declarator, type_name
from metalwright.msl.tokens import Token, tokenize

_SPACE = frozenset({"space", "newline", "comment", "directive"})
_NUMBER_MACRO = re.compile(r"\s*#\s*define\s+(\w+)\s+\(?(\d\w*)\)?\s*$")
_IF_0 = re.compile(r"\s*#\s*if\s+0\s*$")
_HEADS = frozenset({"if", "for", "while", "switch"})


@dataclass(frozen=True)
class Variable:
    """A declared name; ``dimensions`` are the extents of an array, ``value`` its initial value.

    It is known from token ``index`` to token ``end``.
    """

    name: str
    index: int
    end: int
    type_word: str
    space: str
    kind: str
    const: bool
    dimensions: tuple[Node, ...]
    value: Node | None


@dataclass
class Statement:
    """A statement with those inside it.

    ``kind`` is ``block``, ``if``, ``for``, ``while``, ``do``, ``switch`` or ``plain``; ``parts`` are the bodies;
    ``expressions`` those of its head (for a ``for``: initial, condition, step), or its own.
    """

    kind: str
    first: int
    last: int
    parts: tuple[Statement, ...] = ()
    expressions: tuple[Node | None, ...] = ()
    variables: tuple[Variable, ...] = ()

    def walk(self) -> Iterator[Statement]:
        """Yield this statement and all inside it."""
        yield self
        for part in self.parts:
            yield from part.walk()

    @property
    def is_loop(self) -> bool:
        return self.kind in ("for", "while", "do")


@dataclass(frozen=True)
class Access:
    """One use of a variable: where, whether it is written or read, and with which indices."""

    at: int
    writes: bool
    reads: bool
    indices: tuple[Node, ...] = field(default=())


class Code(TokenText):
    """One text of a kernel, its ``src`` or its ``helper_src``; ``types`` are its dtype placeholders."""

    def __init__(self, file: str, text: str, types: frozenset[str], constants: dict[str, int] | None = None):
        self.file, self.written, self.types = file, text, types
        self.lines = text.split("\n")
        everything = tokenize(text)
        self.comments = [token for token in everything if token.kind == "comment"]
        self.constants = dict(constants or {})
        kept: list[Token] = []
        skipping = 0
        for token in everything:
            if token.kind == "directive":
                word = token.text.replace("#", " ").split()[:1]
                if skipping:
                    skipping += word in (["if"], ["ifdef"], ["ifndef"])
                    skipping -= word == ["endif"] or (skipping == 1 and word in (["else"], ["elif"]))
                elif _IF_0.match(token.text):
                    skipping = 1
                elif (macro := _NUMBER_MACRO.match(token.text)) and (value := integer(macro[2])) is not None:
                    self.constants[macro[1]] = value
            elif not skipping and token.kind not in _SPACE:
                kept.append(token)
        super().__init__(kept)

    # Statements -----------------------------------------------------------------------------------------------

    @functools.cached_property
    def body(self) -> Statement:
        """All of the text as a block."""
        return Statement("block", 0, len(self), self._statements(0, len(self)))

    def _statements(self, first: int, last: int) -> tuple[Statement, ...]:
        found: list[Statement] = []
        i = first
        while i < last:
            found.append(self._statement(i, last, last))
            i = max(found[-1].last, i + 1)
        return tuple(found)

    def _statement(self, i: int, last: int, end: int) -> Statement:
        """Read the statement at ``i``; what it declares is known until ``end``."""
        text = self.text(i)
        if text == "{":
            close = min(self.closing(i), last)
            return Statement("block", i, close + 1, self._statements(i + 1, close))
        head = i + 1 + (text == "if" and self.text(i + 1) == "constexpr")
        if text in _HEADS and self.text(head) == "(":
            return self._with_head(text, i, head, last)
        if text == "do":
            body = self._statement(i + 1, last, last)
            after = body.last
            if self.text(after) == "while" and self.text(after + 1) == "(":
                close = self.closing(after + 1)
                test = self._parse(after + 2, close)
                return Statement("do", i, min(close + 2, last), (body,), (test,))
        if text in ("case", "default"):
            while i < last and self.text(i) != ":":
                i += 1
            return self._statement(i + 1, last, end) if i + 1 < last else Statement("plain", i, last)
        return self._plain(i, last, end)

    def _with_head(self, kind: str, i: int, head: int, last: int) -> Statement:
        close = self.closing(head)
        body = self._statement(close + 1, last, last) if close + 1 < last else Statement("block", last, last)
        parts, after = [body], body.last
        if kind == "if" and self.text(after) == "else" and after + 1 < last:
            parts.append(self._statement(after + 1, last, last))
            after = parts[-1].last
        variables: list[Variable] = []
        expressions: list[Node | None] = []
        start = head + 1
        for piece in self._semicolons(start, close) if kind == "for" else [(start, close)]:
            declared = self._declared(*piece, after)
            variables += declared
            if declared or piece[0] >= piece[1]:
                expressions.append(None)
            else:
                expressions.append(self._parse(*piece))
        return Statement(kind, i, after, tuple(parts), tuple(expressions), tuple(variables))

    def _semicolons(self, first: int, last: int) -> list[tuple[int, int]]:
        pieces: list[tuple[int, int]] = []
        start = i = first
        while i < last:
            if self.text(i) in ("(", "[", "{"):
                i = self.closing(i)
            elif self.text(i) == ";":
                pieces.append((start, i))
                start = i + 1
            i += 1
        return [*pieces, (start, last)]

    def _plain(self, first: int, last: int, end: int) -> Statement:
        i = first
        bodies: list[Statement] = []
        while i < last and self.text(i) != ";":
            if self.text(i) == "{" and self.text(i - 1) in (")", "const", "mutable"):
                # the body of a function or lambda
                close = self.closing(i)
                bodies.append(Statement("block", i, close + 1, self._statements(i + 1, min(close, last))))
                i = close
                if self.text(i + 1) not in (";", ")", ",", "("):
                    return Statement("plain", first, i + 1, tuple(bodies))
            elif self.text(i) in ("(", "[", "{"):
                if self.text(i) == "{" and self.text(first) in ("struct", "namespace", "class", "union"):
                    close = self.closing(i)
                    inner = Statement("block", i, close + 1, self._statements(i + 1, min(close, last)))
                    after = close + 1 + (self.text(close + 1) == ";")
                    return Statement("plain", first, after, (inner,))
                i = self.closing(i)
            i += 1
        after = min(i + 1, last)
        if bodies:
            return Statement("plain", first, after, tuple(bodies))
        declared = self._declared(first, i, end)
        if declared:
            return Statement("plain", first, after, (), (), declared)
        start = first + (self.text(first) == "return")
        expressions = (self._parse(start, i),) if start < i else ()
        return Statement("plain", first, after, (), expressions)

    def _declared(self, first: int, last: int, end: int) -> tuple[Variable, ...]:
        type_ = type_name(self, first)
        if type_ is None or type_.after >= last:
            return ()
        found: list[Variable] = []
        for start, stop in self.split(type_.after, last):
            one = declarator(self, type_, start)
            if (
                one is None
                or one.index >= last
                or self.text(one.after) not in ("=", ";", ",", "{", "(", ":", "")
            ):
                return tuple(found)
            if one.after > stop:
                return tuple(found)
            extents: list[Node] = []
            at = one.index + 1
            while self.text(at) == "[":
                extents.append(self._parse(at + 1, self.closing(at)))
                at = self.closing(at) + 1
            value = None
            if one.after < stop and self.text(one.after) == "=":
                value = self._parse(one.after + 1, stop)
            elif one.after < stop:
                value = self._parse(one.after, stop)
            const = bool(one.specifiers & {"const", "constexpr"}) or one.space == "constant"
            found.append(
                Variable(
                    one.name, one.index, end, one.type_word, one.space, one.kind, const, tuple(extents), value
                )
            )
        return tuple(found)

    def _parse(self, first: int, last: int) -> Node:
        return parse(self, first, last, self.types)

    # Questions ------------------------------------------------------------------------------------------------

    @functools.cached_property
    def statements(self) -> list[Statement]:
        return list(self.body.walk())

    @functools.cached_property
    def variables(self) -> list[Variable]:
        return [variable for statement in self.statements for variable in statement.variables]

    @functools.cached_property
    def expressions(self) -> list[Node]:
        """Every whole expression and initial value, in order."""
        found = [e for s in self.statements for e in s.expressions if e is not None]
        found += [v.value for v in self.variables if v.value is not None]
        found += [e for v in self.variables for e in v.dimensions]
        return sorted(found, key=lambda node: node.at)

    @functools.cached_property
    def nodes(self) -> list[Node]:
        return [node for expression in self.expressions for node in expression.walk()]

    def calls(self, *names: str) -> list[Node]:
        """Return the calls of functions with these names, in order."""
        return sorted(
            (node for node in self.nodes if node.kind == "call" and node.text in names),
            key=lambda node: node.at,
        )

    def around(self, at: int) -> list[Statement]:
        """Return the statements around a token, the outermost first."""
        return [s for s in self.statements if s.first <= at < s.last]

    def variable(self, name: str, at: int) -> Variable | None:
        """Return what a name means at a token; ``None`` where it is not declared in this text."""
        known = [v for v in self.variables if v.name == name and v.index <= at < v.end]
        return max(known, key=lambda v: v.index) if known else None

    def assignments(self, name: str) -> list[Node]:
        """Return the expressions that change a variable: ``a = …``, ``a += …``, ``++a``."""
        return [
            node
            for node in self.nodes
            if (node.kind == "assign" or (node.kind in ("unary", "postfix") and node.text in ("++", "--")))
            and node.parts[0].root == name
        ]

    def accesses(self, name: str) -> list[Access]:
        """Return the uses of an array, in order; a name that is passed on counts as read and written."""
        found: list[Access] = []
        for expression in self.expressions:
            self._collect(expression, name, found, writes=False, reads=True)
        return sorted(found, key=lambda access: access.at)

    def _collect(self, node: Node, name: str, found: list[Access], *, writes: bool, reads: bool) -> None:
        if node.kind in ("subscript", "member") and node.root == name:
            indices: tuple[Node, ...] = ()
            at = node.at
            while node.kind in ("subscript", "member"):
                for part in node.parts[1:]:
                    self._collect(part, name, found, writes=False, reads=True)
                if node.kind == "subscript":
                    indices = (*node.parts[1:], *indices)
                at, node = node.at, node.parts[0]
            found.append(Access(at, writes, reads, indices))
        elif node.kind == "name":
            if node.text == name:
                found.append(Access(node.at, True, True))
        elif node.kind == "assign":
            self._collect(node.parts[0], name, found, writes=True, reads=node.text != "=")
            self._collect(node.parts[1], name, found, writes=False, reads=True)
        elif node.kind in ("unary", "postfix") and node.text in ("++", "--", "&"):
            self._collect(node.parts[0], name, found, writes=True, reads=True)
        else:
            for part in node.parts:
                self._collect(part, name, found, writes=False, reads=True)

    def constant(self, node: Node | None, depth: int = 0) -> int | None:
        """Return the value of an integer expression that is known without running; ``None`` where it is "
        "not."""
        if node is None or depth > 16:
            return None
        if node.kind == "number":
            return integer(node.text)
        if node.kind == "cast" and len(node.parts) == 1:
            return self.constant(node.parts[0], depth + 1)
        if node.kind == "name":
            variable = self.variable(node.text, node.at)
            if variable is None:
                return self.constants.get(node.text)
            fixed = variable.const and variable.kind == "value" and not self.assignments(variable.name)
            return self.constant(variable.value, depth + 1) if fixed else None
        if node.kind == "binary":
            left, right = (self.constant(part, depth + 1) for part in node.parts)
            return None if left is None or right is None else _calculate(node.text, left, right)
        return None

    # Places ---------------------------------------------------------------------------------------------------

    def place(self, at: int) -> tuple[Site, str]:
        """Return the place of a token and the line that it stands on."""
        return self.place_of(self.tokens[min(at, len(self.tokens) - 1)].offset)

    def place_of(self, offset: int) -> tuple[Site, str]:
        """Return the place of an offset of the text and the line that it is in."""
        line = self.written.count("\n", 0, offset) + 1
        column = offset - (self.written.rfind("\n", 0, offset) + 1) + 1
        return Site(self.file, line, column), self.lines[line - 1]


def _calculate(operator: str, left: int, right: int) -> int | None:
    if operator in ("/", "%"):
        if right == 0:
            return None
        return left // right if operator == "/" else left % right
    if operator in ("<<", ">>") and not 0 <= right < 64:
        return None
    results = {"+": left + right, "-": left - right, "*": left * right}
    if operator in results:
        return results[operator]
    return left << right if operator == "<<" else left >> right if operator == ">>" else None
