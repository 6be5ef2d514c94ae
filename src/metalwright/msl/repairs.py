"""Expressions that Metal has and clang refuses, put right where clang complains.

Two such are known: casts between half and bfloat, and operators in templates whose operands are all swizzles
(``a.xy + b.xy``, which clang takes for built-in operators where one of that name is visible). Whether an expression
is one of them depends on types, which only the compiler knows; its message says where the expression is, and there a
call of a function of ``metal_types`` says the same in a way that clang takes.
"""

from __future__ import annotations

import re
from collections.abc import Set

from metalwright.msl.diagnostics import parse
from metalwright.msl.edits import Edits
from metalwright.msl.operands import end_of_operand
from metalwright.msl.program import LineMap

_TYPE = r"'([^']+)'(?: \(aka '([^']+)'\))?"
_CAST = re.compile(
    rf"^(static_cast|C-style cast|functional-style cast) from {_TYPE} to {_TYPE} is not allowed$"
)
_QUALIFIERS = re.compile(r"\b(?:const|volatile) |\b\w+::")
_NARROW = frozenset({"half", "bfloat", "_Float16", "__bf16"})
_OPERANDS = re.compile(r"^invalid operands to binary expression \(")
_OPERAND = re.compile(r"^invalid argument type .* to unary expression$")
_OPERATOR = re.compile(r"(?:<<|>>|&&|\|\||[-+*/%&|^=!<>]=?)\s*")
_UNARY = {"+": "value", "-": "negative", "~": "complement", "!": "opposite"}
_INSTANTIATION = "in instantiation of "
_HELPERS = "::__mw::"


def repair(text: str, output: str, files: Set[str]) -> str | None:
    """Return the text with what clang complained of put right, or ``None`` if there is nothing that can be.

    ``output`` is what clang said of the text; ``files`` are those whose lines may change.
    """
    lines = LineMap(text)
    messages = parse(output)
    in_template = any(message.text.startswith(_INSTANTIATION) for message in messages)
    edits = Edits()
    done: set[int] = set()
    for message in messages:
        if message.severity != "error" or message.file not in files:
            continue
        offset = lines.offset(message.file, message.line, message.column)
        if offset is None or offset in done:
            continue
        repaired = False
        if (cast := _CAST.match(message.text)) is not None:
            kind, source, source_meaning, target, target_meaning = cast.groups()
            if _is_narrow(source_meaning or source) and _is_narrow(target_meaning or target):
                repaired = _repair_cast(text, offset, kind, edits)
        elif in_template and _OPERANDS.match(message.text):
            repaired = _repair_operands(text, offset, edits)
        elif in_template and _OPERAND.match(message.text) and text[offset] in _UNARY:
            _call(_UNARY[text[offset]], text, offset, offset + 1, edits)
            repaired = True
        if repaired:
            done.add(offset)
    return edits.apply(text) if done else None


def _is_narrow(type_name: str) -> bool:
    return _QUALIFIERS.sub("", type_name) in _NARROW


def _call(function: str, text: str, start: int, operand: int, edits: Edits) -> None:
    """Put a call in place of what stands before an operand."""
    end = end_of_operand(text, operand)
    edits.replace(start, operand, f"{_HELPERS}{function}(")
    edits.replace(end, end, ")")


def _repair_operands(text: str, offset: int, edits: Edits) -> bool:
    """Make a value of what is on the right of an operator."""
    operator = _OPERATOR.match(text, offset)
    if operator is None or text.startswith(_HELPERS, operator.end()):
        return False
    _call("value", text, operator.end(), operator.end(), edits)
    return True


def _repair_cast(text: str, offset: int, kind: str, edits: Edits) -> bool:
    if kind == "static_cast":
        if not text.startswith("static_cast", offset):
            return False
        edits.replace(offset, offset + len("static_cast"), f"{_HELPERS}cast")
        return True
    if kind == "C-style cast":
        close = text.find(")", offset)
        written = text[offset + 1 : close].strip()
        if not _is_type_name(written):
            return False
        _call(f"c_cast<{written}>", text, offset, close + 1, edits)
        return True
    # T(x): the type is what stands before the bracket
    bracket = text.find("(", offset)
    written = text[offset:bracket].strip()
    if not _is_type_name(written):
        return False
    edits.replace(offset, bracket, f"{_HELPERS}c_cast<{written}>")
    return True


def _is_type_name(text: str) -> bool:
    return text != "decltype" and re.fullmatch(r"[\w:<>,\s]+", text) is not None
