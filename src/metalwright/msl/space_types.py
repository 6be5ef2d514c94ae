"""Address spaces followed as types, through templates, members, ``auto`` and results of functions.

clang compiles a program without its address spaces. Where a source has pointers into several, clang reads it once more
with them, on a target whose plain pointers take every other: what it then says about two named spaces is a mistake in
the source, and all else that it says there (methods cannot be told apart by their object's space, for one) is not.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass

from metalwright.msl.diagnostics import parse
from metalwright.msl.grammar import TokenText
from metalwright.msl.program import LineMap
from metalwright.msl.spaces import NO_CONVERSION
from metalwright.msl.tokens import tokenize

# the flat address space of this target is what a plain pointer has, and holds the others
TARGET = ("-target", "amdgcn-amd-amdhsa", "-nogpulib")
READ_ONLY = ("-fsyntax-only", "-ferror-limit=1000")
BEGIN = "#include <metalwright/spaces.h>"
END = "\n".join(f"#undef {word}" for word in ("thread", "device", "constant", "threadgroup"))

_NUMBERS = {"1": "device", "3": "threadgroup", "4": "constant", "5": "thread"}
_NAMED = re.compile(r"\b(device|threadgroup|constant|thread)\b|\baddress_space\((\d)\)")
_TYPE = r"'([^']*)'(?: \(aka '([^']*)'\))?"
_SET = re.compile(rf"^cannot initialize (.*?) of type {_TYPE} with an? [lrx]?value of type {_TYPE}$")
_ASSIGNED = re.compile(rf"^assigning {_TYPE} to {_TYPE} changes address space of pointer$")
_INCOMPATIBLE = re.compile(rf"^assigning to {_TYPE} from incompatible type {_TYPE}$")
_BOUND = re.compile(rf"^binding reference of type {_TYPE} to value of type {_TYPE} changes address space$")
_CAST = re.compile(rf"^(?:\w+_cast|C-style cast|functional-style cast) from {_TYPE} to {_TYPE}")
_MIXED = re.compile(
    rf"^(?:incompatible operand types|comparison (?:of|between) distinct pointer types) \({_TYPE} and {_TYPE}\)"
)
_NO_MATCH = re.compile(
    r"^no matching (?:member )?(?:function|constructor) for (?:call to|initialization of) "
)
_CALLED = re.compile(r"'([^']*)'")
_ARITY = re.compile(r"requires .* arguments?, but")
_PASSED = re.compile(
    r"cannot pass pointer to address space '(\d)' as a pointer to address space '(\d)' in (\d+)\w\w argument"
)
_PASSED_OBJECT = re.compile(
    r"cannot bind reference in address space '(\d)' to object in address space '(\d)' in (\d+)\w\w argument"
)
_CONVERTED = re.compile(rf"no known conversion from {_TYPE} to {_TYPE} for (\d+)\w\w argument")
_DEDUCED = re.compile(
    rf"deduced type {_TYPE} of (\d+)\w\w parameter does not match adjusted type {_TYPE} of argument"
)
_NOT_DEDUCED = re.compile(rf"cannot deduce a type for '\w+' that would make {_TYPE} equal {_TYPE}")
_CONFLICT = re.compile(rf"deduced conflicting types for parameter '\w+' \({_TYPE} vs\. {_TYPE}\)")
_LONGEST_CALL = 1 << 14  # characters


@dataclass(frozen=True)
class Mistake:
    """A place in the text that clang read, and what is wrong there."""

    offset: int
    sentence: str


@dataclass(frozen=True)
class _Misfit:
    """One argument that a function does not take: its position (0 if unknown), what it is and what is wanted."""

    position: int
    given: str
    wanted: str
    reference: bool


def mistakes(output: str, text: str, files: Set[str]) -> list[Mistake]:
    """Return what is wrong with a program's address spaces, from what clang said of its text with them.

    ``files`` are the user's own.
    """
    messages = parse(output)
    lines = LineMap(text)
    found: list[Mistake] = []
    for index, message in enumerate(messages):
        if message.severity != "error" or message.file not in files:
            continue
        notes = itertools.takewhile(lambda note: note.severity == "note", messages[index + 1 :])
        said = _sentence(message.text, [note.text for note in notes])
        offset = lines.offset(message.file, message.line, message.column)
        if said is None or offset is None:
            continue
        sentence, argument = said
        if argument:
            offset = _argument(text, offset, argument)
        found.append(Mistake(offset, f"{sentence}: {NO_CONVERSION}"))
    return found


def _sentence(text: str, notes: Sequence[str]) -> tuple[str, int] | None:
    """Return what is wrong, and which argument of a call is meant (0 for none)."""
    if (match := _SET.match(text)) is not None:
        what, wanted, wanted_meaning, given, given_meaning = match.groups()
        pair = _pair(given, given_meaning, wanted, wanted_meaning)
        if what == "return object":
            return _say(pair, "the function returns a {wanted} pointer and this is a {given} pointer")
        if what == "a parameter":
            return _say(pair, "the parameter is a {wanted} pointer and cannot be given a {given} pointer")
        return _say(pair, "a {wanted} pointer cannot be set to a {given} pointer")
    if (match := _ASSIGNED.match(text)) is not None:
        given, given_meaning, wanted, wanted_meaning = match.groups()
        pair = _pair(given, given_meaning, wanted, wanted_meaning)
        return _say(pair, "a {wanted} pointer cannot be set to a {given} pointer")
    if (match := _INCOMPATIBLE.match(text)) is not None:
        wanted, wanted_meaning, given, given_meaning = match.groups()
        pair = _pair(given, given_meaning, wanted, wanted_meaning)
        return _say(pair, "a {wanted} pointer cannot be set to a {given} pointer")
    if (match := _BOUND.match(text)) is not None:
        wanted, wanted_meaning, given, given_meaning = match.groups()
        if _is_const(wanted, wanted_meaning):
            return None  # it can be bound to a copy
        pair = _pair(given, given_meaning, wanted, wanted_meaning)
        return _say(pair, "a {wanted} reference cannot be bound to {given} memory")
    if (match := _CAST.match(text)) is not None:
        pair = _pair(*match.groups())
        return _say(pair, "a {given} pointer cannot be cast to a {wanted} pointer")
    if (match := _MIXED.match(text)) is not None:
        pair = _pair(*match.groups())
        return _say(pair, "a {given} pointer and a {wanted} pointer have no type in common")
    if _NO_MATCH.match(text):
        return _about_call(text, notes)
    return None


def _say(pair: tuple[str, str] | None, sentence: str) -> tuple[str, int] | None:
    return None if pair is None else (sentence.format(given=pair[0], wanted=pair[1]), 0)


def _pair(given: str, given_meaning: str, wanted: str, wanted_meaning: str) -> tuple[str, str] | None:
    """Return the address spaces that two types lead to, if both name one and they are different."""
    one, other = _space(given_meaning or given), _space(wanted_meaning or wanted)
    return (one, other) if one and other and one != other else None


def _space(type_name: str) -> str:
    """Return the only address space that a type names."""
    names = {word or _NUMBERS.get(number, "") for word, number in _NAMED.findall(type_name)}
    return names.pop() if len(names) == 1 else ""


def _is_const(type_name: str, meaning: str) -> bool:
    return re.search(r"\bconst\b|\bconstant\b", meaning or type_name) is not None


def _about_call(text: str, notes: Sequence[str]) -> tuple[str, int] | None:
    """Whether address spaces are why a call fits no function: then each that takes as many arguments says so."""
    misfits: list[_Misfit] = []
    for note in notes:
        if not note.startswith("candidate") or _ARITY.search(note):
            continue
        misfit = _misfit(note)
        if misfit is None:
            return None
        misfits.append(misfit)
    if not misfits:
        return None
    first = misfits[0]
    called = _CALLED.search(text)
    name = "" if called is None or "lambda" in called.group(1) else f" of {called.group(1)!r}"
    wanted = " or ".join(dict.fromkeys(misfit.wanted for misfit in misfits))
    if first.reference:
        what = f"a {wanted} reference and got {first.given} memory"
    else:
        what = f"a {wanted} pointer and got a {first.given} pointer"
    which = f"argument {first.position}" if first.position else "an argument"
    return f"{which}{name} must be {what}", first.position


def _misfit(note: str) -> _Misfit | None:
    for pattern, reference in ((_PASSED, False), (_PASSED_OBJECT, True)):
        if (match := pattern.search(note)) is not None:
            given, wanted, position = match.groups()
            return _Misfit(int(position), _NUMBERS.get(given, ""), _NUMBERS.get(wanted, ""), reference)
    if (match := _CONVERTED.search(note)) is not None:
        *types, position = match.groups()
        pair = _pair(types[0], types[1], types[2], types[3])
    elif (match := _NOT_DEDUCED.search(note)) is not None:
        wanted, wanted_meaning, given, given_meaning = match.groups()
        pair = _pair(given, given_meaning, wanted, wanted_meaning)
        return None if pair is None else _Misfit(0, *pair, reference=True)
    elif (match := _CONFLICT.search(note)) is not None:
        wanted, wanted_meaning, given, given_meaning = match.groups()
        if not (wanted_meaning or wanted).endswith("*") or not (given_meaning or given).endswith("*"):
            return None
        pair = _pair(given, given_meaning, wanted, wanted_meaning)
        return None if pair is None else _Misfit(0, *pair, reference=False)
    elif (match := _DEDUCED.search(note)) is not None:
        wanted, wanted_meaning, position, given, given_meaning = match.groups()
        pair = _pair(given, given_meaning, wanted, wanted_meaning)
    else:
        return None
    return None if pair is None else _Misfit(int(position), *pair, reference=False)


def _argument(text: str, offset: int, position: int) -> int:
    """Return the offset of an argument of the call that begins at ``offset``, or of the call."""
    source = TokenText(
        [
            token
            for token in tokenize(text[offset : offset + _LONGEST_CALL])
            if token.kind not in ("space", "newline", "comment", "directive")
        ]
    )
    opening = 0
    while opening < len(source) and source.text(opening) not in ("(", "{", ";"):
        close = source.closing_angle(opening) if source.text(opening) == "<" else -1
        opening = max(opening, close) + 1
    if source.text(opening) not in ("(", "{"):
        return offset
    pieces = source.split(opening + 1, source.closing(opening))
    if not 0 < position <= len(pieces):
        return offset
    return offset + source.tokens[pieces[position - 1][0]].offset
