"""Overloads that differ in nothing but address spaces: once these are erased, all but the first would be duplicates.

Metal lets a library write ``complex() thread``, ``complex() threadgroup`` and so on, one body each. Here every address
space is the same memory, so the first one serves them all. Where the bodies differ, the choice would matter: such
functions are reported instead of dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from metalwright.msl.tokens import Token

SPACES = frozenset({"device", "constant", "thread", "threadgroup"})
_SCOPES = frozenset({"namespace", "struct", "class", "union"})
_TYPE_WORDS = frozenset(
    "void bool char short int long float half bfloat unsigned signed const volatile uchar ushort uint ulong".split()
)


@dataclass
class Found:
    """What to leave out, by index of the first and last token, and what is wrong."""

    dropped: list[tuple[int, int]] = field(default_factory=list)
    # `constant` behind the parameters of a constructor, which cannot be const
    erased: list[int] = field(default_factory=list)
    differing: list[tuple[int, str]] = field(default_factory=list)
    # the braces of classes with a constructor for variables in threadgroup memory
    made_in_threadgroup: list[int] = field(default_factory=list)


class _Scan:
    def __init__(self, tokens: Sequence[Token], brackets: dict[int, int]) -> None:
        self.tokens = tokens
        self.brackets = brackets
        self.found = Found()

    def text(self, index: int) -> str:
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def scope(self, first: int, last: int, owner: str) -> None:
        """Look at the declarations from ``first`` to ``last``; ``owner`` is the class they belong to, if any."""
        # the header without address spaces, to the header as written and the body
        seen: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]] = {}
        i = first
        while i < last:
            following = self.declaration(i, last, owner, seen)
            if owner and self.makes_in_threadgroup(i, following, owner):
                self.found.made_in_threadgroup.append(first - 1)
            i = following

    def makes_in_threadgroup(self, first: int, last: int, owner: str) -> bool:
        """Whether a declaration is ``owner() threadgroup``, with a body of its own."""
        for i in range(first, min(last, self.brackets.get(first, last))):
            if self.text(i) in ("{", ";"):
                return False
            if self.text(i) == owner and self.text(i + 1) == "(":
                behind = self.text(i + 4) if self.text(i + 3) == "threadgroup" else "="
                return self.text(i + 2) == ")" and behind != "="
        return False

    def declaration(
        self,
        first: int,
        last: int,
        owner: str,
        seen: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]],
    ) -> int:
        """Look at one declaration; return the index behind it."""
        header_end = opening = -1  # behind the header; the first bracket of the parameters
        words: list[str] = []
        i = first
        while i < last:
            text = self.text(i)
            if text in ("(", "["):
                # (): of operator()() and of attributes before the parameters
                if text == "(" and self.text(i - 1) not in ("operator", "decltype", "__attribute__"):
                    opening = i if opening < 0 else opening
                i = self.brackets.get(i, last)
            elif text == "<" and opening < 0:
                i = self.angle(i, last)
            elif text == ":" and opening >= 0 and header_end < 0:
                header_end = i
            elif text == ":" and opening < 0 and self.text(i - 1) in ("public", "private", "protected"):
                return i + 1
            elif text == ";":
                if owner and opening >= 0:
                    self.function(first, opening, header_end if header_end >= 0 else i, i, owner, seen)
                return i + 1
            elif text == "=":
                header_end = i if header_end < 0 and opening >= 0 else header_end
            elif text == "{":
                closing = self.brackets.get(i, last)
                scope = _SCOPES.intersection(words)
                if opening < 0 and scope:
                    inner = "" if "namespace" in scope else self.class_name(first, i)
                    if not (inner and self.specialization(first, i, closing, seen)):
                        self.scope(i + 1, closing, inner)
                elif opening >= 0 and self.is_body(i, header_end):
                    end = header_end if header_end >= 0 else i
                    self.function(first, opening, end, closing, owner, seen)
                    return closing + 1
                i = closing
                if "namespace" in words:
                    return i + 1
            elif text == "}":
                return i + 1
            elif opening < 0:
                words.append(text)
            i += 1
        return last

    def specialization(
        self,
        first: int,
        brace: int,
        closing: int,
        seen: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]],
    ) -> bool:
        """Look at a class such as ``element<device T*>``; return whether it is left out."""
        written = tuple(self.text(i) for i in range(first, brace))
        if SPACES.isdisjoint(written):
            return False
        body = tuple(_erased(tuple(self.text(i) for i in range(brace, closing + 1))))
        earlier = seen.setdefault(tuple(_erased(written)), (written, body))
        if earlier == (written, body):
            return False
        if earlier[1] != body:
            self.found.differing.append((first, self.class_name(first, brace)))
            return False
        end = closing + 1 if self.text(closing + 1) == ";" else closing
        self.found.dropped.append((first, end))
        return True

    def is_body(self, index: int, header_end: int) -> bool:
        """Whether a brace opens a body: in `x{0}` of a constructor's initializers and in `= {…}` it does not."""
        if header_end >= 0 and self.text(header_end) == ":":
            return self.text(index - 1) in (")", "}", "]")
        return header_end < 0

    def class_name(self, first: int, brace: int) -> str:
        for i in range(first, brace):
            if self.text(i) in ("struct", "class", "union"):
                return self.text(i + 1)
        return ""

    def angle(self, index: int, last: int) -> int:
        depth = 0
        i = index
        while i < last:
            text = self.text(i)
            if text in ("(", "[", "{"):
                i = self.brackets.get(i, last)
            elif text in (";", "}"):
                return index
            depth += (text == "<") - (text == ">") - 2 * (text == ">>")
            if depth <= 0:
                return i
            i += 1
        return index

    def function(
        self,
        first: int,
        opening: int,
        header_end: int,
        end: int,
        owner: str,
        seen: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]],
    ) -> None:
        closing = self.brackets.get(opening, header_end)
        constructor = bool(owner) and self.text(opening - 1) == owner
        written = tuple(self.text(i) for i in range(first, header_end))
        if SPACES.isdisjoint(written):
            return
        if constructor:
            self.found.erased += [i for i in range(closing + 1, header_end) if self.text(i) == "constant"]
        after = [t for t in written[closing + 1 - first :] if t not in SPACES]
        if "constant" in written[closing + 1 - first :] and not constructor:
            after.append("const")
        key = (
            *_erased(written[: opening - first]),
            *self.parameters(opening, closing),
            *sorted(set(after)),
        )
        body = tuple(_erased(tuple(self.text(i) for i in range(header_end, end + 1))))
        earlier = seen.setdefault(key, (written, body))
        if earlier[0] == written:
            return
        if earlier[1] == body:
            self.found.dropped.append((first, end))
        else:
            self.found.differing.append((opening - 1, self.text(opening - 1)))

    def parameters(self, opening: int, closing: int) -> list[str]:
        """Return the types of the parameters: a name is a word that follows another, or a mark, and ends a piece."""
        kept: list[str] = ["("]
        i = opening + 1
        while i < closing:
            text = self.text(i)
            is_name = (
                self.tokens[i].kind == "word"
                and text not in _TYPE_WORDS
                and self.text(i + 1) in (",", ")", "=", "[")
                and (self.tokens[i - 1].kind == "word" or self.text(i - 1) in ("*", "&", "&&", ">"))
            )
            if not is_name:
                kept.append(text)
            i += 1
        return [*_erased(tuple(kept)), ")"]


def _erased(words: tuple[str, ...]) -> list[str]:
    """Return words without address spaces, where ``constant`` is ``const``, which comes once."""
    kept: list[str] = []
    for word in words:
        word = "const" if word == "constant" else word
        if word in SPACES or (word == "const" and kept and kept[-1] == "const"):
            continue
        kept.append(word)
    return kept


def find(tokens: Sequence[Token], brackets: dict[int, int]) -> Found:
    """Return the functions that are one once address spaces are erased."""
    scan = _Scan(tokens, brackets)
    scan.scope(0, len(tokens), "")
    return scan.found
