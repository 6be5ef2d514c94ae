"""Turns what clang says into sentences about the user's own lines."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from metalwright.columns import original_column
from metalwright.errors import CompileError, Diagnostic, RefusedSourceError, Site, UnsupportedFeatureError
from metalwright.msl.hints import with_hint
from metalwright.msl.program import LineMap
from metalwright.msl.refused import UNSUPPORTED, UNSUPPORTED_OF_TEXTURES
from metalwright.msl.tokens import Token, tokenize

_LINE = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): (?P<severity>fatal error|error|warning|note): (?P<text>.*)$"
)
_QUOTED = re.compile(r"'([^']*)'")
_UNKNOWN = re.compile(
    r"unknown type name|undeclared identifier|no type named|no member named|no template named|unknown class name"
)
_TEXTURE_MEMBER = re.compile(r"no member named '(\w+)' in '(?:metal::)?texture\w*<")
_HEADERS_ASSERTION = re.compile(r"^static assertion failed(?: due to requirement '.*')?: ")
_OUTSIDE_FILE = re.compile(r"'(.*)' file not found")
_CLANG_OPTION = re.compile(r" \[-W[\w+-]+(?:,-W[\w+-]+)*\]$")
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_MOST_SHOWN = 12
_ALSO = re.compile(r"'([^']+)' \(aka '([^']+)'\)")
# what clang says in words of a library that Metal has not
_REWORDED = {
    "cannot deduce type of initializer list because std::initializer_list was not found; include <initializer_list>": (
        "a list in braces has no type of its own here: make it an array"
    ),
}
# what follows from an error inside the headers, about names that nobody wrote
_INTERNAL = re.compile(r"__mw|__MW|__builtin_")

# clang's words for the types that stand for Metal's
_NAMES = (
    (re.compile(r"\b(?:metal::)?vec<(?:unsigned )?(\w+), ?(\d)>"), None),
    (re.compile(r"\bmetal::(?=tensor)"), ""),
    (re.compile(r"\b_Float16\b"), "half"),
    (re.compile(r"\b__bf16\b"), "bfloat"),
)
# a scope that only keeps names apart, and what stands for an extent that is known at run time
_INTERNAL_SCOPE = re.compile(r"\b(?:metal::)?__mw_\w+::")
_EXTENTS = re.compile(r"\b(?:metal::)?extents<(\w+)((?:, ?18446744073709551615)+)>")
_UNSIGNED = {
    "char": "uchar",
    "short": "ushort",
    "int": "uint",
    "long": "ulong",
    "_Float16": "half",
    "__bf16": "bfloat",
}


@dataclass(frozen=True)
class Message:
    """One line of clang's output."""

    file: str
    line: int
    column: int
    severity: str
    text: str


def parse(output: str) -> list[Message]:
    """Return the messages in clang's standard error."""
    found = []
    for line in output.splitlines():
        if match := _LINE.match(line):
            severity = "error" if match["severity"] == "fatal error" else match["severity"]
            text = _CLANG_OPTION.sub("", match["text"])
            found.append(Message(match["file"], int(match["line"]), int(match["column"]), severity, text))
    return found


def failure(
    label: str,
    output: str,
    lines: LineMap,
    user: Mapping[str, str],
    elsewhere: Callable[[Message, Message | None, str], Diagnostic | None] = lambda *_: None,
) -> CompileError:
    """Return the exception for a failed run of clang.

    ``elsewhere`` knows what is better said in other words or of another place than the one in the text of ``lines``.
    """
    messages = parse(output)
    diagnostics: list[Diagnostic] = []
    kind: type[CompileError] = CompileError
    for index, message in enumerate(messages):
        if message.severity != "error":
            continue
        sentence, verdict = _sentence(message)
        if message.file not in user:
            # the headers' own words are enough: the condition before them is one that nobody wrote
            sentence = _HEADERS_ASSERTION.sub("", sentence)
        if verdict is None:
            sentence = with_hint(sentence, _notes(messages[index + 1 :]), lines.text)
        kind = verdict or kind
        place = _users_place(message, messages[index + 1 :], user)
        diagnostic = elsewhere(message, place, sentence) or Diagnostic(
            "error", sentence, *_locate(place, lines, user)
        )
        if diagnostic not in diagnostics:
            diagnostics.append(diagnostic)
    # what clang says of the text around the user's follows from a mistake in the user's: often a bracket
    placed = _readable([d for d in diagnostics if d.site is not None])
    if not placed and (bracket := _unbalanced(user)) is not None:
        placed = [bracket]
    diagnostics = placed or _readable(diagnostics)
    if not diagnostics:
        diagnostics.append(Diagnostic("error", "the compiler gave up on this source without saying why"))
    return kind(label, tuple(diagnostics[:_MOST_SHOWN]))


def _notes(following: Sequence[Message]) -> list[str]:
    """Return what clang adds to an error."""
    return [metal_names(m.text) for m in itertools.takewhile(lambda m: m.severity == "note", following)]


def _readable(diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    """Return the diagnostics without those that speak of names inside the headers, if there are others."""
    return [d for d in diagnostics if not _INTERNAL.search(d.message)] or diagnostics


# a macro's text goes on where a line ends in a backslash; its brackets need not pair
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)
_ALTERNATIVES = re.compile(r"^[ \t]*#[ \t]*el", re.MULTILINE)
_BLANK = re.compile(r"[^\n]")


def _users_place(message: Message, following: Sequence[Message], user: Mapping[str, str]) -> Message | None:
    """Return where the user's own text caused an error that clang reports inside a header."""
    if message.file in user:
        return message
    for note in following:
        if note.severity == "error":
            return None
        if note.file in user:
            return note
    return None


def _unbalanced(user: Mapping[str, str]) -> Diagnostic | None:
    """Return the first bracket in the user's sources that closes nothing or is never closed."""
    for file, text in user.items():
        opened: list[Token] = []
        wrong: tuple[Token, str] | None = None
        if _ALTERNATIVES.search(text):
            # each branch may hold brackets of its own
            continue
        for token in tokenize(_DIRECTIVE.sub(lambda match: _BLANK.sub(" ", match.group()), text)):
            if token.kind == "mark" and token.text in _PAIRS:
                opened.append(token)
            elif token.kind == "mark" and token.text in _PAIRS.values():
                if not opened or _PAIRS[opened[-1].text] != token.text:
                    wrong = token, "closes nothing that was opened here"
                    break
                opened.pop()
        if wrong is None and opened:
            wrong = opened[-1], "is never closed"
        if wrong is not None:
            token, sentence = wrong
            line = text.count("\n", 0, token.offset) + 1
            site = Site(file, line, token.offset - (text.rfind("\n", 0, token.offset) + 1) + 1)
            return Diagnostic("error", f"'{token.text}' {sentence}", site, text.split("\n")[line - 1])
    return None


def _locate(place: Message | None, lines: LineMap, user: Mapping[str, str]) -> tuple[Site | None, str | None]:
    written = user[place.file].split("\n") if place else []
    if place is None or not 0 < place.line <= len(written):
        return None, None
    excerpt = written[place.line - 1]
    column = original_column(lines.content(place.file, place.line), excerpt, place.column)
    return Site(place.file, place.line, column), excerpt or None


def _sentence(message: Message) -> tuple[str, type[CompileError] | None]:
    text = message.text
    if text in _REWORDED:
        return _REWORDED[text], None
    if match := _OUTSIDE_FILE.search(text):
        return (
            f"{match.group(1)!r} is outside the include roots: a kernel includes Metal's own headers, and a "
            f"whole file those in the folders that it is given (include_dirs, or -I on the command line)",
            RefusedSourceError,
        )
    if (member := _TEXTURE_MEMBER.search(text)) is not None and member[1] in UNSUPPORTED_OF_TEXTURES:
        return UNSUPPORTED_OF_TEXTURES[member[1]], UnsupportedFeatureError
    if _UNKNOWN.search(text):
        for name in _QUOTED.findall(text):
            word = name.rsplit("::", 1)[-1].split("<", 1)[0]
            if word in UNSUPPORTED:
                return UNSUPPORTED[word], UnsupportedFeatureError
    return metal_names(text), None


def _dextents(match: re.Match[str]) -> str:
    return f"dextents<{match.group(1)}, {match.group(2).count(',')}>"


def metal_names(text: str) -> str:
    """Return a message with Metal's names for types: ``vec<float, 4>`` is ``float4``."""

    def short(match: re.Match[str]) -> str:
        element = match.group(1)
        if "unsigned" in match.group(0):
            element = _UNSIGNED.get(element, element)
        return f"{_UNSIGNED.get(element, element) if element.startswith('_') else element}{match.group(2)}"

    text = _INTERNAL_SCOPE.sub("", text)
    text = _EXTENTS.sub(_dextents, text)
    for pattern, name in _NAMES:
        text = pattern.sub(short if name is None else name, text)
    # two names for one type say nothing where they are the same, or where the second is C++'s
    text = _ALSO.sub(lambda match: f"'{match.group(2 if _INTERNAL.search(match.group(1)) else 1)}'", text)
    return text.replace("const address space", "constant")
