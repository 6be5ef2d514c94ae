"""Bfloat without LLVM's bfloat: its bits in an i16, its arithmetic in float, rounded by operations on integers.

For a processor without bfloat LLVM calls a function at each rounding, which no loop over threads survives, what it
gives differs between processors (some flush what is subnormal), and the code generator of LLVM 22 fails an assertion
on the sign of such a value. Float has bfloat's exponents and more than twice its digits, so rounding its sum, product
or quotient again gives what rounding once would.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from metalwright.engine.passes import text

_TYPE = r"(?:bfloat|<\d+ x bfloat>)"
_RESULT = rf"^\s*(?P<result>{text.NAME}) = "
_FLAGS = r"(?P<flags>(?:(?:nnan|ninf|nsz|arcp|contract|afn|reassoc|fast|nneg) )*)"
_DEBUG = r"(?P<debug>(?:, ![\w.]+ !\d+)*)$"
_ARITHMETIC = re.compile(
    rf"{_RESULT}(?P<operation>f(?:add|sub|mul|div|rem)) {_FLAGS}(?P<type>{_TYPE}) (?P<operands>.*?){_DEBUG}"
)
_COMPARISON = re.compile(
    rf"{_RESULT}fcmp {_FLAGS}(?P<operation>\w+) (?P<type>{_TYPE}) (?P<operands>.*?){_DEBUG}"
)
_NEGATION = re.compile(rf"{_RESULT}fneg {_FLAGS}(?P<type>{_TYPE}) (?P<operand>.*?){_DEBUG}")
_NARROWING = re.compile(
    rf"{_RESULT}(?P<operation>fptrunc|[su]itofp) {_FLAGS}(?P<operand>.*?) to (?P<type>{_TYPE}){_DEBUG}"
)
_WIDENING = re.compile(
    rf"{_RESULT}(?P<operation>fpext|fpto[su]i) {_FLAGS}(?P<type>{_TYPE}) (?P<operand>.*?) to (?P<to>.*?){_DEBUG}"
)
_INTRINSIC = re.compile(
    rf"{_RESULT}(?:tail |notail )?call {_FLAGS}(?P<returns>[^@]*?)(?P<name>@llvm\.[\w.]*bf16)\((?P<arguments>.*)\)"
    rf"(?: #\d+)?{_DEBUG}"
)
_MOVE = re.compile(rf"({text.NAME} = (?:select|phi)) {_FLAGS}")
_WORD = re.compile(r"(?<![\w.%@$])bfloat(?![\w.$])")
_LITERAL = re.compile(r"\b0xR([0-9A-F]{4})\b")
_DECLARED = re.compile(r"declare [^(]*?(@[\w.]+)\(")
_INTEGER = re.compile(r"(?:<\d+ x )?i(\d+)>?$")
_ATTRIBUTE = re.compile(r"^(?:(?:noundef|nofpclass\([^)]*\)) )*")
_FLOAT_DIGITS, _DOUBLE_DIGITS = 24, 53
_SIGN = 1 << 15


@dataclass(frozen=True)
class _Shape:
    """One bfloat or a vector of them: how its lanes are written in the types of the same number of lanes."""

    lanes: str

    @classmethod
    def of(cls, type_name: str) -> _Shape:
        return cls("" if type_name == "bfloat" else type_name.removesuffix("bfloat>"))

    def type(self, element: str) -> str:
        return f"{self.lanes}{element}>" if self.lanes else element

    def constant(self, element: str, value: object) -> str:
        return f"splat ({element} {value})" if self.lanes else str(value)


def as_integers(lines: list[str]) -> list[str]:
    """Return a module's lines with every bfloat replaced."""
    if not any("bfloat" in line for line in lines):
        return lines
    names = (f"%mw.bf{index}" for index in count())
    out: list[str] = []
    declared: dict[str, str] = {}
    for line in lines:
        if "bfloat" not in line or line.startswith("!"):
            out.append(line)
        elif line.startswith("declare") and "bf16" in line:
            continue  # what is declared instead stands at the end
        else:
            out += [_plain(made) for made in _lower(line, names, declared)]
    known = {match[1] for line in lines if (match := _DECLARED.match(line))}
    return [*out, *(line for function, line in declared.items() if function not in known)]


def _plain(line: str) -> str:
    """Return a line that only moves values, with the type and its literals as integers."""
    if "bfloat" not in line:
        return line
    parts = _MOVE.sub(r"\1 ", line).split('"')
    # every second part is a quoted name or text
    parts[::2] = (
        _LITERAL.sub(lambda match: str(int(match[1], 16)), _WORD.sub("i16", part)) for part in parts[::2]
    )
    return '"'.join(parts)


def _lower(line: str, names: Iterator[str], declared: dict[str, str]) -> list[str]:
    for pattern, lower in _LOWERINGS:
        if match := pattern.match(line):
            return [f"  {made}{match['debug'] or ''}" for made in lower(match, next(names))]
    if match := _INTRINSIC.match(line):
        return [f"  {made}{match['debug'] or ''}" for made in _call(match, next(names), declared)]
    return [line]


def _arithmetic(match: re.Match[str], name: str) -> list[str]:
    shape = _Shape.of(match["type"])
    left, right = text.split_arguments(match["operands"])
    return [
        *_widened(left, f"{name}.left", shape),
        *_widened(right, f"{name}.right", shape),
        f"{name}.wide = {match['operation']} {match['flags']}{shape.type('float')} {name}.left, {name}.right",
        *_rounded(match["result"], name, shape),
    ]


def _comparison(match: re.Match[str], name: str) -> list[str]:
    shape = _Shape.of(match["type"])
    left, right = text.split_arguments(match["operands"])
    compare = f"fcmp {match['flags']}{match['operation']} {shape.type('float')}"
    return [
        *_widened(left, f"{name}.left", shape),
        *_widened(right, f"{name}.right", shape),
        f"{match['result']} = {compare} {name}.left, {name}.right",
    ]


def _negation(match: re.Match[str], name: str) -> list[str]:
    shape = _Shape.of(match["type"])
    return [f"{match['result']} = xor {match['type']} {match['operand']}, {shape.constant('i16', -_SIGN)}"]


def _widening(match: re.Match[str], name: str) -> list[str]:
    shape, to = _Shape.of(match["type"]), match["to"]
    if to == shape.type("float"):
        return _widened(match["operand"], match["result"], shape, name)
    return [
        *_widened(match["operand"], f"{name}.wide", shape, name),
        f"{match['result']} = {match['operation']} {shape.type('float')} {name}.wide to {to}",
    ]


def _narrowing(match: re.Match[str], name: str) -> list[str]:
    shape, how = _Shape.of(match["type"]), match["operation"]
    source, value = text.take_type(match["operand"])
    integer = _INTEGER.match(source)
    bits = int(integer.group(1)) if integer else 0
    if source == shape.type("float"):
        lines = [f"{name}.wide = bitcast {source} {value} to {source}"]
    elif integer and bits <= _FLOAT_DIGITS:
        lines = [f"{name}.wide = {how} {source} {value} to {shape.type('float')}"]
    else:
        if bits > _DOUBLE_DIGITS:
            lines = _sticky(how, source, value, bits - _DOUBLE_DIGITS, name, shape)
        else:
            lines = [
                f"{name}.long = {how if integer else 'bitcast'} {source} {value} to {shape.type('double')}"
            ]
        lines += _odd(name, shape)
    return [*lines, *_rounded(match["result"], name, shape)]


def _call(match: re.Match[str], name: str, declared: dict[str, str]) -> list[str]:
    """Return lines that call an intrinsic's float form: the optimiser makes such calls of plain operations."""
    types, arguments, lines = [], [], []
    shape = _Shape("")
    for index, argument in enumerate(text.split_arguments(match["arguments"])):
        type_name, value = text.take_type(argument)
        value = _ATTRIBUTE.sub("", value)
        if "bfloat" in type_name:
            shape = _Shape.of(type_name)
            lines += _widened(value, f"{name}.a{index}", shape)
            type_name, value = shape.type("float"), f"{name}.a{index}"
        types.append(type_name)
        arguments.append(f"{type_name} {value}")
    returns = _ATTRIBUTE.sub("", match["returns"].strip())
    wide, function = returns.replace("bfloat", "float"), match["name"].removesuffix("bf16") + "f32"
    declared[function] = f"declare {wide} {function}({', '.join(types)})"
    call = f"call {match['flags']}{wide} {function}({', '.join(arguments)})"
    if wide == returns:
        return [*lines, f"{match['result']} = {call}"]
    return [*lines, f"{name}.wide = {call}", *_rounded(match["result"], name, _Shape.of(returns))]


def _widened(value: str, result: str, shape: _Shape, name: str | None = None) -> list[str]:
    """Return lines that set ``result`` to a bfloat's value as a float, which is exact."""
    stem, words = name or result, shape.type("i32")
    return [
        f"{stem}.low = zext {shape.type('bfloat')} {value} to {words}",
        f"{stem}.high = shl {words} {stem}.low, {shape.constant('i32', 16)}",
        f"{result} = bitcast {words} {stem}.high to {shape.type('float')}",
    ]


def _sticky(how: str, source: str, value: str, drop: int, name: str, shape: _Shape) -> list[str]:
    """Return lines that set ``name``.long to an integer's value, or to one that rounds to the same bfloat.

    The bits that double has no room for become one, set where any of them was: what decides a tie is kept.
    """
    flags, double = shape.type("i1"), shape.type("double")
    limit = shape.constant("double", f"{2.0**_DOUBLE_DIGITS:.1f}")
    return [
        f"{name}.low = and {source} {value}, {shape.constant('i64', (1 << drop) - 1)}",
        f"{name}.some = icmp ne {source} {name}.low, {shape.constant('i64', 0)}",
        f"{name}.bit = zext {flags} {name}.some to {source}",
        f"{name}.high = {'ashr' if how == 'sitofp' else 'lshr'} {source} {value}, {shape.constant('i64', drop)}",
        f"{name}.both = or {source} {name}.high, {name}.bit",
        f"{name}.part = {how} {source} {name}.both to {double}",
        f"{name}.far = fmul {double} {name}.part, {shape.constant('double', f'{2.0**drop:.1f}')}",
        f"{name}.near = {how} {source} {value} to {double}",
        f"{name}.minus = fneg {double} {name}.near",
        f"{name}.over = fcmp oge {double} {name}.near, {limit}",
        f"{name}.under = fcmp oge {double} {name}.minus, {limit}",
        f"{name}.large = or {flags} {name}.over, {name}.under",
        f"{name}.long = select {flags} {name}.large, {double} {name}.far, {double} {name}.near",
    ]


def _odd(name: str, shape: _Shape) -> list[str]:
    """Return lines that set ``name``.wide to ``name``.long rounded to odd, which a second rounding sees through.

    A float that is not exact and ends in 0 gives way to its neighbour on the other side of the value.
    """
    flags, words, float_, double = (shape.type(element) for element in ("i1", "i32", "float", "double"))
    zero, one, minus = (shape.constant("i32", value) for value in (0, 1, -1))
    return [
        f"{name}.first = fptrunc {double} {name}.long to {float_}",
        f"{name}.back = fpext {float_} {name}.first to {double}",
        f"{name}.word = bitcast {float_} {name}.first to {words}",
        f"{name}.last = and {words} {name}.word, {one}",
        f"{name}.even = icmp eq {words} {name}.last, {zero}",
        f"{name}.inexact = fcmp one {double} {name}.back, {name}.long",
        f"{name}.move = and {flags} {name}.even, {name}.inexact",
        f"{name}.above = fcmp ogt {double} {name}.back, {name}.long",
        f"{name}.negative = icmp slt {words} {name}.word, {zero}",
        f"{name}.inward = xor {flags} {name}.above, {name}.negative",
        f"{name}.step = select {flags} {name}.inward, {words} {minus}, {words} {one}",
        f"{name}.moved = add {words} {name}.word, {name}.step",
        f"{name}.chosen = select {flags} {name}.move, {words} {name}.moved, {words} {name}.word",
        f"{name}.wide = bitcast {words} {name}.chosen to {float_}",
    ]


def _rounded(result: str, name: str, shape: _Shape) -> list[str]:
    """Return lines that round ``name``.wide to nearest, ties to even; a NaN stays one, made quiet."""
    flags, words, float_ = (shape.type(element) for element in ("i1", "i32", "float"))
    sixteen = shape.constant("i32", 16)
    return [
        f"{name}.bits = bitcast {float_} {name}.wide to {words}",
        f"{name}.top = lshr {words} {name}.bits, {sixteen}",
        f"{name}.digit = and {words} {name}.top, {shape.constant('i32', 1)}",
        f"{name}.tie = add {words} {name}.digit, {shape.constant('i32', 0x7FFF)}",
        f"{name}.up = add {words} {name}.bits, {name}.tie",
        f"{name}.nearest = lshr {words} {name}.up, {sixteen}",
        f"{name}.quiet = or {words} {name}.top, {shape.constant('i32', 0x40)}",
        f"{name}.nan = fcmp uno {float_} {name}.wide, {name}.wide",
        f"{name}.kept = select {flags} {name}.nan, {words} {name}.quiet, {words} {name}.nearest",
        f"{result} = trunc {words} {name}.kept to {shape.type('bfloat')}",
    ]


_LOWERINGS = (
    (_ARITHMETIC, _arithmetic),
    (_COMPARISON, _comparison),
    (_NEGATION, _negation),
    (_NARROWING, _narrowing),
    (_WIDENING, _widening),
)
