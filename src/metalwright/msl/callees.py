"""Pointers to functions that are known: an argument that says which function to apply, as libraries pass them.

When everything is inlined, such a pointer lies in a variable of the kernel that only ever holds that one function.
Optimised code has it inlined by then; what is to be checked is not optimised, so it is told here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from metalwright.engine.passes import text

_NAME = re.compile(r'%(?:[-\w.$]+|"[^"]*")')
_SLOT = re.compile(r"^\s*(?P<slot>%[-\w.$]+) = alloca ptr\b")
_STORE = re.compile(r"^\s*store ptr (?P<value>[%@][-\w.$]+), ptr (?P<slot>%[-\w.$]+),")
_LOAD = re.compile(r"^\s*(?P<result>%[-\w.$]+) = load ptr, ptr (?P<slot>%[-\w.$]+),")
_CONSTANT = re.compile(r"^@(?P<name>[-\w.$]+) = private [^\n]*\bconstant [^\n]*@[^\n]*\n", re.MULTILINE)
_CALL = re.compile(r"\bcall\b[^@\n]*? (?P<callee>%[-\w.$]+)\(")


@dataclass
class _Slot:
    """A variable that holds pointers: what is stored in it, and whether anything else is done with it."""

    values: set[str] = field(default_factory=set)
    loads: list[str] = field(default_factory=list)
    escapes: bool = False


def told(ir: str) -> str:
    """Return the IR with calls through pointers that can only be to one function as calls of that function."""
    lines = ir.splitlines()
    defined = {f"@{function.name}" for function in text.functions(lines)}
    for function in text.functions(lines):
        body = lines[function.first : function.last + 1]
        if any(match["value"] in defined for line in body if (match := _STORE.match(line))):
            lines[function.first : function.last + 1] = _told(body, defined)
    return "\n".join([*lines, ""])


def without_unused_constants(ir: str) -> str:
    """Return the IR without constants that hold pointers and that nothing reads any more.

    They are what structs and arrays of pointers to functions were set to, before these became known.
    """

    def kept(match: re.Match[str]) -> str:
        used = re.search(rf"@{re.escape(match['name'])}(?![-\w.$])", ir[match.end() :])
        return match[0] if used else ""

    return _CONSTANT.sub(kept, ir)


def _told(body: list[str], defined: set[str]) -> list[str]:
    slots = _slots(body)
    values = {load: name for name, slot in slots.items() for load in slot.loads}
    held = {name: held for name in slots if (held := _held(name, slots, values)) in defined}
    known = {load: held[name] for load, name in values.items() if name in held}
    only_called = _only_called(body, held, known)
    out = []
    for line in body:
        match = _STORE.match(line)
        if match and held.get(match["slot"]) in only_called:
            # nothing reads it any more, and the function is to be known by its calls alone
            line = line.replace(f"store ptr {match['value']},", "store ptr null,", 1)
        elif (match := _CALL.search(line)) and match["callee"] in known:
            start, end = match.span("callee")
            line = f"{line[:start]}{known[match['callee']]}{line[end:]}"
        out.append(line)
    return out


def _slots(body: Sequence[str]) -> dict[str, _Slot]:
    slots = {match["slot"]: _Slot() for line in body if (match := _SLOT.match(line))}
    for line in body:
        if match := _STORE.match(line):
            if (slot := slots.get(match["slot"])) is not None:
                slot.values.add(match["value"])
            if (stored := slots.get(match["value"])) is not None:
                stored.escapes = True
        elif (match := _LOAD.match(line)) and match["slot"] in slots:
            slots[match["slot"]].loads.append(match["result"])
        elif not _SLOT.match(line) and "@llvm.lifetime." not in line:
            for name in _NAME.findall(line):
                if name in slots:
                    slots[name].escapes = True
    return slots


def _held(name: str, slots: dict[str, _Slot], values: dict[str, str]) -> str | None:
    """Return the one value that a variable ever has, followed through copies into others."""
    seen = set()
    while name not in seen:
        seen.add(name)
        slot = slots[name]
        if slot.escapes or len(slot.values) != 1:
            return None
        value = next(iter(slot.values))
        if value not in values:
            return value
        name = values[value]
    return None


def _only_called(body: Sequence[str], held: dict[str, str], known: dict[str, str]) -> set[str]:
    """Return the functions whose pointers are called and passed on, and nothing else."""
    found = set(held.values())
    for line in body:
        callee = match["callee"] if (match := _CALL.search(line)) else None
        stored = match["value"] if (match := _STORE.match(line)) and match["slot"] in held else None
        loaded = match["result"] if (match := _LOAD.match(line)) else None
        for name in _NAME.findall(line):
            if name in known and name not in (callee, stored, loaded):
                found.discard(known[name])
    return found
