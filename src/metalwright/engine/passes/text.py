"""LLVM IR as text: the little that the passes need to know of its grammar.

llvmlite reads IR but cannot change it, and the IR comes from one known version of clang, whose printer writes one
instruction a line. So passes work on lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = r'(?:%[-\w.$]+|%"[^"]*"|@[-\w.$]+|@"[^"]*")'
DEFINE = re.compile(r'^define\b.*?@([-\w.$]+|"[^"]*")\(')
LABEL = re.compile(r'^([-\w.$]+|"[^"]*"):')
DEBUG = re.compile(r", !dbg !(\d+)")

_SCALAR_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}
_VECTOR = re.compile(r"<(\d+) x (.+)>$")
_ARRAY = re.compile(r"\[(\d+) x (.+)\]$")


@dataclass(frozen=True)
class Function:
    """A function definition: the index of its ``define`` line and of its closing brace."""

    name: str
    first: int
    last: int


def functions(lines: list[str]) -> list[Function]:
    """Return the function definitions of a module, in order."""
    found: list[Function] = []
    name, first = "", -1
    for index, line in enumerate(lines):
        if line.startswith("define"):
            match = DEFINE.match(line)
            name, first = (match.group(1).strip('"') if match else ""), index
        elif line.startswith("}") and first >= 0:
            found.append(Function(name, first, index))
            first = -1
    return found


def alone(lines: list[str], name: str) -> list[str]:
    """Return a module without the functions other than the one of this name, which calls none of them."""
    kept: list[str] = []
    position = 0
    for function in functions(lines):
        if function.name != name:
            kept += lines[position : function.first]
            position = function.last + 1
    return [*kept, *lines[position:]]


def split_arguments(text: str) -> list[str]:
    """Split at the commas that stand outside brackets and quotes."""
    parts: list[str] = []
    depth = start = 0
    quoted = False
    for index, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    tail = text[start:].strip()
    return [*parts, tail] if tail else parts


def take_type(text: str) -> tuple[str, str]:
    """Split a type from the front of a text: ``"[4 x float] %a"`` gives ``("[4 x float]", "%a")``."""
    depth = 0
    for index, character in enumerate(text):
        if character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
        elif character in " ," and depth == 0:
            return text[:index], text[index + 1 :].strip()
    return text, ""


def store_bytes(type_name: str) -> int:
    """Return how many bytes a load or store of this type touches.

    Raises:
        ValueError: the type is one that clang does not load or store for MSL.
    """
    if type_name in _SCALAR_BITS:
        return _SCALAR_BITS[type_name] // 8
    if type_name.startswith("i") and type_name[1:].isdigit():
        return (int(type_name[1:]) + 7) // 8
    if match := _VECTOR.match(type_name):
        count, element = int(match.group(1)), match.group(2)
        bits = int(element[1:]) if element[0] == "i" else _SCALAR_BITS[element]
        return (count * bits + 7) // 8
    if match := _ARRAY.match(type_name):
        return int(match.group(1)) * store_bytes(match.group(2))
    if type_name.startswith("{"):
        return sum(store_bytes(part) for part in split_arguments(type_name.strip("{} ")))
    raise ValueError(f"unknown size of IR type {type_name!r}")


def size_expression(type_name: str) -> str:
    """Return a constant expression for the size of a type that a module may name: ``%struct.pair`` too."""
    return f"ptrtoint (ptr getelementptr ({type_name}, ptr null, i64 1) to i64)"


def call_pattern(name: str) -> re.Pattern[str]:
    """Return a pattern for calls of a function: groups ``result`` (may be absent), ``arguments`` and ``rest``."""
    result = rf"(?:(?P<result>{NAME}) = )?(?:tail |musttail |notail )?"
    return re.compile(rf"^\s*{result}call [^@]*@{name}\((?P<arguments>.*?)\)(?P<rest>[^()]*)$")


def value_of(argument: str) -> str:
    """Return the value of a printed argument: ``"i32 noundef 3"`` gives ``"3"``."""
    return argument.rsplit(" ", 1)[-1]
