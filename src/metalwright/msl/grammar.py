"""Just enough of the grammar of declarations to know names, pointers and address spaces, on tokens.

Every function here answers None where it is not sure: what is built on it may miss a mistake and must not invent one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metalwright.msl.tokens import Token

ADDRESS_SPACES = frozenset({"device", "constant", "thread", "threadgroup", "threadgroup_imageblock"})
_CV = frozenset({"const", "volatile"})
_SPECIFIERS = _CV | {"constexpr", "static", "inline", "typename", "struct", "class", "enum", "mutable"}
_INTEGER_WORDS = frozenset({"unsigned", "signed", "long", "short"})
_NOT_TYPES = frozenset(
    "return else case default goto using typedef new delete throw operator sizeof alignof if for while do switch break "
    "continue namespace template public private protected friend this true false nullptr static_assert".split()
)
_SCALARS = (
    "bool char uchar short ushort int uint long ulong half bfloat float size_t ptrdiff_t int8_t uint8_t int16_t "
    "uint16_t int32_t uint32_t int64_t uint64_t"
).split()
_VECTORS = "bool char uchar short ushort int uint long ulong half bfloat float".split()
# types of Metal that have a name of their own: nothing about an address space can hide behind one of these
PLAIN_TYPES = frozenset(
    [
        *_SCALARS,
        *(f"{packed}{name}{n}" for packed in ("", "packed_") for name in _VECTORS for n in (2, 3, 4)),
        *(f"{name}{c}x{r}" for name in ("float", "half") for c in (2, 3, 4) for r in (2, 3, 4)),
        *(f"atomic_{name}" for name in ("int", "uint", "bool", "ulong", "float")),
        "void",
        "unsigned",
        "signed",
    ]
)
_OPEN = frozenset("([{")
_CLOSE = frozenset(")]}")
_LONGEST_TEMPLATE_ARGUMENTS = 4096  # tokens; past that, a '<' is taken for a comparison


@dataclass(frozen=True)
class Declarator:
    """One declared name.

    ``kind`` is ``"pointer"`` (of one level), ``"array"``, ``"reference"``, ``"value"`` or ``""`` where it is none of
    these for sure. ``space`` is the address space that it points or refers to, or lives in; ``""`` where none is
    written. ``type_word`` is the type's last name, ``const`` whether what it points to cannot be written.
    """

    name: str
    index: int
    kind: str
    space: str
    type_word: str
    const: bool
    specifiers: frozenset[str]
    dimensions: int
    after: int  # index of the token that follows name and dimensions


class TokenText:
    """Tokens with what is needed to step over them."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        # asked for several times a token: a list of its own spares a step each time
        self._texts = [token.text for token in tokens]
        self.brackets = _closing_brackets(tokens)
        self.opening = {closing: opening for opening, closing in self.brackets.items()}

    def __len__(self) -> int:
        return len(self.tokens)

    def text(self, index: int) -> str:
        return self._texts[index] if 0 <= index < len(self._texts) else ""

    def is_word(self, index: int) -> bool:
        return 0 <= index < len(self.tokens) and self.tokens[index].kind == "word"

    def closing(self, index: int) -> int:
        """Return the index of the bracket that closes the one at ``index`` (the end of the text if none does)."""
        return self.brackets.get(index, len(self.tokens))

    def closing_angle(self, index: int) -> int:
        """Return the index of the ``>`` that closes template arguments, or -1 where these are none."""
        depth = 0
        i = index
        while i < min(index + _LONGEST_TEMPLATE_ARGUMENTS, len(self.tokens)):
            text = self.tokens[i].text
            if text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return i
            elif text in _OPEN:
                i = self.closing(i)
            elif text in (";", "}", ")", "]"):
                return -1
            i += 1
        return -1

    def after_attributes(self, index: int) -> int:
        """Return the index after any ``[[…]]`` at ``index``."""
        while self.text(index) == "[" and self.text(index + 1) == "[":
            index = self.closing(index) + 1
        return index

    def split(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the pieces between commas that stand outside brackets and template arguments."""
        pieces: list[tuple[int, int]] = []
        start = i = first
        while i < last:
            text = self.text(i)
            if text in _OPEN:
                i = self.closing(i)
            elif text == "<" and (close := self.closing_angle(i)) >= 0:
                i = close
            elif text == ",":
                pieces.append((start, i))
                start = i + 1
            i += 1
        return [*pieces, (start, min(i, last))] if start < last else pieces


def _closing_brackets(tokens: Sequence[Token]) -> dict[int, int]:
    """Return, for each bracket that is closed, the index of the one that closes it."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind != "mark":
            continue
        if token.text in _OPEN:
            opened.append(index)
        elif token.text in _CLOSE and opened:
            pairs[opened.pop()] = index
    return pairs


@dataclass(frozen=True)
class TypeName:
    """A type up to its first ``*`` or ``&``: its last name, its address space, and where it ends."""

    word: str
    space: str
    const: bool
    specifiers: frozenset[str]
    after: int


def type_name(source: TokenText, index: int) -> TypeName | None:
    """Read ``const device metal::vec<T, 4>`` at ``index``, as far as the type goes."""
    word = ""
    specifiers: set[str] = set()
    spaces: list[str] = []
    i = source.after_attributes(index)
    while source.is_word(i):
        text = source.text(i)
        if text in ADDRESS_SPACES:
            spaces.append(text)
        elif text == "coherent" and source.text(i + 1) == "(":
            i = source.closing(i + 1)
        elif text in _SPECIFIERS:
            specifiers.add(text)
        elif text in _NOT_TYPES:
            return None
        elif text in _INTEGER_WORDS or (word in _INTEGER_WORDS and text in ("int", "char")):
            word = text if word == "" or text in ("int", "char") else word
        elif word:
            break
        elif text == "decltype" and source.text(i + 1) == "(":
            word, i = text, source.closing(i + 1)
        else:
            while source.text(i + 1) == "::" and source.is_word(i + 2):
                i += 2
            word = source.text(i)
            if source.text(i + 1) == "<":
                close = source.closing_angle(i + 1)
                if close < 0:
                    return None
                i = close
                if source.text(i + 1) == "::":
                    # T<…>::type, or ::template type<…>
                    word = ""
                    i += 1 + (source.text(i + 2) == "template")
        i += 1
    if not word or len(set(spaces)) > 1:
        return None
    const = "const" in specifiers or "constexpr" in specifiers or spaces == ["constant"]
    return TypeName(word, spaces[0] if spaces else "", const, frozenset(specifiers), i)


def declarator(source: TokenText, type_: TypeName, index: int) -> Declarator | None:
    """Read ``* const name[4]`` at ``index``, after its type."""
    marks: list[str] = []
    own_spaces = False
    i = index
    while source.text(i) in ("*", "&", "&&", *_CV, *ADDRESS_SPACES):
        text = source.text(i)
        if text in ("*", "&", "&&"):
            marks.append(text)
        elif text in ADDRESS_SPACES:
            own_spaces = True
        i += 1
    if not source.is_word(i) or source.text(i) in _NOT_TYPES:
        return None
    name = i
    i += 1
    dimensions = 0
    while source.text(i) == "[" and source.text(i + 1) != "[":
        dimensions += 1
        i = source.closing(i) + 1
    after = source.after_attributes(i)
    if own_spaces or len(marks) > 1 or (marks and dimensions):
        kind = ""
    elif marks:
        kind = {"*": "pointer", "&": "reference"}.get(marks[0], "")
    else:
        kind = "array" if dimensions else "value"
    return Declarator(
        source.text(name),
        name,
        kind,
        type_.space,
        type_.word,
        type_.const,
        type_.specifiers,
        dimensions,
        after,
    )


@dataclass(frozen=True)
class Function:
    """A function as it is declared; ``parameters`` has None where one is not understood."""

    name: str
    index: int
    parameters: tuple[Declarator | None, ...]
    required: int
    result_space: str  # of the pointer that it returns, or ""
    kernel: bool
    variadic: bool


def parameters(source: TokenText, opening: int) -> tuple[tuple[Declarator | None, ...], int, bool]:
    """Read the parameters between parentheses: each, how many have no default value, whether more may follow."""
    found: list[Declarator | None] = []
    required = 0
    variadic = False
    for first, last in source.split(opening + 1, source.closing(opening)):
        texts = [source.text(i) for i in range(first, last)]
        if texts == ["void"]:
            continue
        variadic = variadic or "..." in texts
        type_ = type_name(source, first)
        one = declarator(source, type_, type_.after) if type_ else None
        if one is not None and one.after != last and source.text(one.after) != "=":
            one = None
        if one is not None and one.index >= last:
            one = None
        if one is not None and one.dimensions and one.kind == "array":
            one = None  # an array parameter is a pointer
        if "=" not in texts:
            required = len(found) + 1
        found.append(one)
    return tuple(found), required, variadic


def lambda_body(source: TokenText, index: int) -> int:
    """Return the brace that opens the body of the lambda that begins at ``[``, or -1 where it is none."""
    before = source.text(index - 1)
    if before in (")", "]", "[") or (source.is_word(index - 1) and before != "return"):
        return -1
    i = source.closing(index) + 1
    if source.text(i) == "(":
        i = source.closing(i) + 1
    while i < len(source) and source.text(i) not in ("{", ";", ",", ")", "}"):
        i += 1
    return i if source.text(i) == "{" else -1
