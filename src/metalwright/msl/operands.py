"""Where an operand of a cast or of a unary operator ends: as much C++ grammar as that takes."""

from __future__ import annotations

from metalwright.msl.tokens import Token, tokenize

_LONGEST = 1 << 14  # characters
_PREFIXES = frozenset({"+", "-", "!", "~", "*", "&", "++", "--"})
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
# between angle brackets that are not comparisons
_IN_TEMPLATE_ARGUMENTS = frozenset({"::", ",", "*", "&", "<", ">"})
_TYPES = frozenset(
    "bool char uchar short ushort int uint long ulong half bfloat float size_t int8_t uint8_t int16_t uint16_t int32_t "
    "uint32_t int64_t uint64_t".split()
)


class _Reader:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens

    def text(self, index: int) -> str:
        return self.tokens[index].text if index < len(self.tokens) else ""

    def kind(self, index: int) -> str:
        return self.tokens[index].kind if index < len(self.tokens) else ""

    def after_bracket(self, index: int) -> int:
        """Return the index behind the bracket that closes the one at ``index``."""
        open_brackets: list[str] = []
        for i in range(index, len(self.tokens)):
            text = self.text(i)
            if text in _BRACKETS:
                open_brackets.append(_BRACKETS[text])
            elif open_brackets and text == open_brackets[-1]:
                open_brackets.pop()
                if not open_brackets:
                    return i + 1
        return len(self.tokens)

    def after_template_arguments(self, index: int) -> int | None:
        """Return the index behind the ``>`` that matches the ``<`` at ``index``; ``None`` if this is a comparison."""
        depth = 0
        for i in range(index, len(self.tokens)):
            text = self.text(i)
            depth += {"<": 1, ">": -1}.get(text, 0)
            if depth == 0:
                return i + 1 if self.text(i + 1) in ("(", "::", "{") else None
            if self.kind(i) not in ("word", "number") and text not in _IN_TEMPLATE_ARGUMENTS:
                return None
        return None

    def unary(self, index: int) -> int:
        """Return the index behind a unary expression, casts included."""
        while self.text(index) in _PREFIXES:
            index += 1
        if self.text(index) == "(":
            behind = self.after_bracket(index)
            if self.is_cast(index, behind):
                return self.unary(behind)
            return self.postfix(behind)
        return self.postfix(self.name(index))

    def is_cast(self, opening: int, behind: int) -> bool:
        """Whether brackets hold the type of a cast. (Before a bracket, what follows belongs to it either way.)"""
        if self.kind(behind) in ("word", "number", "string") or self.text(behind) in ("!", "~"):
            return True
        return (
            behind == opening + 3
            and self.text(opening + 1) in _TYPES
            and (self.text(behind) in _PREFIXES or self.text(behind) == "(")
        )

    def name(self, index: int) -> int:
        """Return the index behind a literal, or a name with its scopes and template arguments."""
        if self.text(index) == "::":
            index += 1
        index += 1
        while True:
            if self.text(index) == "<":
                behind = self.after_template_arguments(index)
                if behind is None:
                    return index
                index = behind
            elif self.text(index) == "::":
                index += 2
            else:
                return index

    def postfix(self, index: int) -> int:
        while True:
            text = self.text(index)
            if text in _BRACKETS:
                index = self.after_bracket(index)
            elif text in (".", "->"):
                index += 2 if self.text(index + 1) == "template" else 1
                index = self.name(index)
            elif text in ("++", "--"):
                index += 1
            else:
                return index


def end_of_operand(text: str, offset: int) -> int:
    """Return the offset behind the unary expression that begins at an offset of lowered MSL."""
    tokens = [
        token
        for token in tokenize(text[offset : offset + _LONGEST])
        if token.kind not in ("space", "newline", "comment", "directive")
    ]
    behind = _Reader(tokens).unary(0)
    last = tokens[min(behind, len(tokens)) - 1]
    return offset + last.offset + len(last.text)
