"""Checked mode: a call before each access, and one at the end of each round of a loop.

An access whose pointer was visibly made from one buffer, threadgroup variable, private variable or constant is
checked against that object; so a read past the end of ``x`` is found even where ``y`` begins there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from metalwright.engine import abi
from metalwright.engine.passes import text

_LOAD = re.compile(rf"^\s*{text.NAME} = load (?:atomic )?(?:volatile )?(?P<rest>.*)$")
_STORE = re.compile(r"^\s*store (?:atomic )?(?:volatile )?(?P<rest>.*)$")
_ATOMIC = re.compile(
    rf"^\s*{text.NAME} = (?:atomicrmw (?:volatile )?\w+|cmpxchg(?: weak)?(?: volatile)?) (?P<rest>ptr .*)$"
)
_BLOCK = re.compile(r"call void @llvm\.(?P<kind>memcpy|memmove|memset)[.\w]*\((?P<arguments>.*)\)")
_GEP = re.compile(
    rf"^\s*(?P<result>{text.NAME}) = getelementptr (?:inbounds |nuw |nusw |inrange\([^)]*\) )*(?P<rest>.*)$"
)
_ALLOCA = re.compile(rf"^\s*(?P<result>{text.NAME}) = alloca (?P<rest>.*)$")
_COPY = re.compile(rf"^\s*(?P<result>{text.NAME}) = freeze ptr (?P<value>{text.NAME})")
# a small struct travels in registers: a tensor of one dimension, returned by value
_INSERT = re.compile(rf"^\s*(?P<result>{text.NAME}) = insertvalue (?P<rest>.*)$")
_EXTRACT = re.compile(rf"^\s*(?P<result>{text.NAME}) = extractvalue (?P<rest>.*)$")
_ANY_NAME = re.compile(text.NAME)
_RESULT = re.compile(rf"^\s*({text.NAME}) = ")
# how an access is made, as the runtime's checks.c takes it
_WRITES, _ATOMIC_BIT, _UNUSED, _MODIFIES = 1, 2, 4, 8
# leaves nothing of what was there in memory: often the first write, its result unused
_EXCHANGE = re.compile(r" atomicrmw (?:volatile )?xchg ")
_PRIVATES = "%mw.privates"
_GATHERED = text.call_pattern("__mw_gathered")
_ENGINE_LOAD = re.compile(rf"^\s*({text.NAME}) = load ptr, ptr %mw\.")
_GLOBAL = re.compile(rf"^(?P<name>{text.NAME}) = (?:[\w()]+ )*?(?P<kind>constant|global) (?P<rest>.*)$")
_EXPRESSION = re.compile(r"\b(?:getelementptr|inttoptr|bitcast|addrspacecast)\b[^(]*\(")
_ALIGN = re.compile(r", align (\d+)")
_ARGUMENT_ALIGN = re.compile(r"\balign (\d+)")
_BRANCH_TARGET = re.compile(r'label %([-\w.$]+|"[^"]*")')
_TERMINATOR = re.compile(r"^\s*(?:br|switch) ")


@dataclass(frozen=True)
class Global:
    """A variable of the program: its type as IR, and whether it is constant."""

    name: str
    type_name: str
    constant: bool


@dataclass(frozen=True)
class Root:
    """What a pointer was made from.

    ``kind`` is ``"buffer"``, ``"threadgroup"``, ``"threadgroup argument"``, ``"private"``, ``"constant"``,
    ``"exchange"`` (the values that lanes brought), ``"engine"`` (the runtime's own) or ``"anything"``; ``number`` is
    the buffer's or variable's, ``name`` is the pointer to the start of an object that has one, ``type_name`` the type
    of a private variable or constant.
    """

    kind: str
    number: int = -1
    name: str = ""
    type_name: str = ""


@dataclass(frozen=True)
class Access:
    """One access to memory: the printed pointer, how many bytes (a number or a value's name).

    ``modify``: what it writes depends on what was there.
    """

    pointer: str
    size: str
    align: int
    write: bool
    atomic: bool = False
    modify: bool = False


def globals_of(lines: list[str]) -> dict[str, Global]:
    """Return the module's variables by name."""
    found = {}
    for line in lines:
        if line.startswith("@") and (match := _GLOBAL.match(line)):
            type_name, _ = text.take_type(match["rest"])
            found[match["name"]] = Global(match["name"], type_name, match["kind"] == "constant")
    return found


def insert_checks(
    body: list[str],
    roots: dict[str, Root],
    threadgroup_bytes: dict[int, int],
    variables: dict[str, Global],
    add_site: Callable[[str | None], int],
) -> list[str]:
    """Return the function's lines with the calls of checked mode in them."""
    root_of = _RootFinder(body, roots, variables)
    order = _block_order(body)
    privates = _allocas(body)
    out: list[str] = []
    uses = Counter(name for line in body for name in _ANY_NAME.findall(line))
    block = -1
    for index, line in enumerate(body):
        if (match := text.LABEL.match(line)) is not None:
            block = order[match.group(1)]
        debug = text.DEBUG.search(line)
        location = debug.group(1) if debug else None
        suffix = debug.group(0) if debug else ""
        result = _RESULT.match(line)
        # a vector of three is copied with the hole behind it, which nobody then looks at
        unused = result is not None and uses[result.group(1)] == 1
        for access in accesses(line):
            root = root_of(access.pointer)
            call = _check_call(access, root, threadgroup_bytes, len(privates), unused, location, add_site)
            if call:
                out.append(f"  {call}{suffix}")
        if _TERMINATOR.match(line) and any(order[target] <= block for target in _targets(body, index)):
            out.append(f"  call void @__mw_loop(ptr %2, i32 {add_site(location)}){suffix}")
        out.append(line)
    if any("@__mw_check_anything(" in line for line in out):
        return _with_table(out, privates)
    return out


def _with_table(body: list[str], privates: dict[str, str]) -> list[str]:
    """Put a table of the thread's private variables behind their allocation: which a stray pointer may mean."""
    last = max((i for i, line in enumerate(body) if _ALLOCA.match(line)), default=0)
    table = [f"  {_PRIVATES} = alloca [{max(len(privates), 1)} x {{ ptr, i64 }}], align 8"]
    for index, (name, type_name) in enumerate(privates.items()):
        entry = f"%mw.private{index}"
        place = f"[{len(privates)} x {{ ptr, i64 }}], ptr {_PRIVATES}, i64 0, i64 {index}"
        table += [
            f"  {entry} = getelementptr {place}, i32 0",
            f"  store ptr {name}, ptr {entry}, align 8",
            f"  {entry}.size = getelementptr {place}, i32 1",
            f"  store i64 {text.size_expression(type_name)}, ptr {entry}.size, align 8",
        ]
    return [*body[: last + 1], *table, *body[last + 1 :]]


def private_types(body: list[str]) -> list[str]:
    """Return the types of a thread's private variables that live in memory."""
    return list(_allocas(body).values())


def _allocas(body: list[str]) -> dict[str, str]:
    found = {}
    for line in body:
        if " = alloca " in line and (match := _ALLOCA.match(line)):
            type_name, rest = text.take_type(match["rest"])
            if count := re.match(r"i(?:32|64) (\d+)", rest):
                type_name = f"[{count.group(1)} x {type_name}]"
            found[match["result"]] = type_name
    return found


def accesses(line: str) -> list[Access]:
    """Return the memory accesses of one instruction."""
    match_align = _ALIGN.search(line)
    align = int(match_align.group(1)) if match_align else 1
    if match := _LOAD.match(line):
        type_name, rest = text.take_type(match["rest"])
        atomic = " load atomic " in line
        return [Access(_pointer(rest), str(text.store_bytes(type_name)), align, False, atomic)]
    if match := _STORE.match(line):
        value, pointer = text.split_arguments(match["rest"])[:2]
        size = str(text.store_bytes(text.take_type(value)[0]))
        return [Access(_pointer(pointer), size, align, True, " store atomic " in line)]
    if match := _ATOMIC.match(line):
        pointer, value = text.split_arguments(match["rest"])[:2]
        size = str(text.store_bytes(text.take_type(value)[0]))
        return [Access(_pointer(pointer), size, align, True, True, _EXCHANGE.search(line) is None)]
    if match := _BLOCK.search(line):
        to, source, length = text.split_arguments(match["arguments"])[:3]
        size = text.value_of(length)
        read = (
            [] if match["kind"] == "memset" else [Access(_pointer(source), size, _alignment(source), False)]
        )
        return [*read, Access(_pointer(to), size, _alignment(to), True)]
    return []


def _alignment(argument: str) -> int:
    """Return what an argument says of its pointer: a copy of a vector takes it for granted, as a load does."""
    match = _ARGUMENT_ALIGN.search(argument)
    return int(match.group(1)) if match else 1


def _pointer(operand: str) -> str:
    """Return the pointer in a printed operand: a name, or a whole constant expression."""
    if (expression := _EXPRESSION.search(operand)) is not None:
        start, end = expression.start(), expression.end() - 1
        depth = 0
        for index in range(end, len(operand)):
            depth += {"(": 1, ")": -1}.get(operand[index], 0)
            if depth == 0:
                return operand[start : index + 1]
    match = re.search(text.NAME, operand)
    return match.group(0) if match else operand.split(",")[0].rsplit(" ", 1)[-1]


class _RootFinder:
    """Follows a pointer to what it was made from."""

    def __init__(self, body: list[str], roots: dict[str, Root], variables: dict[str, Global]) -> None:
        self._variables = variables
        self._known = {name: Root("engine") for name in ("%0", "%1", "%2", "%mw.arena")} | roots
        self._parents: dict[str, str] = {}
        for name, type_name in _allocas(body).items():
            self._known[name] = Root("private", name=name, type_name=type_name)
        inserted: dict[
            str, tuple[str, str, str]
        ] = {}  # of a struct: the one it is made from, the place, the value
        for line in body:
            if match := _INSERT.match(line):
                struct, value, place = text.split_arguments(match["rest"])[:3]
                inserted[match["result"]] = (text.value_of(struct), place, text.value_of(value))
        for line in body:
            if match := _GEP.match(line):
                self._parents[match["result"]] = _pointer(text.split_arguments(match["rest"])[1])
            elif match := _EXTRACT.match(line):
                whole, wanted = text.split_arguments(match["rest"])[:2]
                struct, place, value = text.value_of(whole), "", ""
                while place != wanted and struct in inserted:
                    struct, place, value = inserted[struct]
                if place == wanted:
                    self._parents[match["result"]] = value
            elif match := _COPY.match(line):
                self._parents[match["result"]] = match["value"]
            elif "@__mw_gathered(" in line and (match := _GATHERED.match(line)):
                self._known[match["result"]] = Root("exchange", name=match["result"])
            elif (match := _ENGINE_LOAD.match(line)) and match.group(1) not in self._known:
                self._known[match.group(1)] = Root("engine")

    def __call__(self, pointer: str) -> Root:
        while pointer not in self._known and pointer in self._parents:
            pointer = self._parents[pointer]
        if pointer.startswith("getelementptr"):
            pointer = _pointer(pointer.split("ptr ", 1)[1])
        if pointer in self._variables:
            variable = self._variables[pointer]
            kind = "constant" if variable.constant else "private"
            return Root(kind, name=pointer, type_name=variable.type_name)
        return self._known.get(pointer, Root("anything"))


def _check_call(
    access: Access,
    root: Root,
    threadgroup_bytes: dict[int, int],
    privates: int,
    unused: bool,
    location: str | None,
    add_site: Callable[[str | None], int],
) -> str | None:
    if root.kind == "engine":
        return None
    # most accesses take a whole variable, from its start
    whole = access.pointer == root.name and access.size.isdigit() and _fits(int(access.size), root.type_name)
    if whole and not (root.kind == "constant" and access.write):
        return None
    how = _WRITES * access.write + _ATOMIC_BIT * access.atomic + _UNUSED * unused + _MODIFIES * access.modify
    common = (
        f"ptr %2, ptr {access.pointer}, i64 {access.size}, i64 {access.align}, i32 {add_site(location)}, "
        f"i32 {how}"
    )
    if root.kind == "buffer":
        return f"call void @__mw_check_buffer({common}, i32 {root.number})"
    if root.kind == "threadgroup argument":
        return f"call void @__mw_check_threadgroup_argument({common}, i32 {root.number})"
    if root.kind == "threadgroup":
        variable = f"ptr %mw.t{root.number}, i64 {threadgroup_bytes[root.number]}, i32 {root.number}"
        return f"call void @__mw_check_object({common}, i32 {abi.FAULT_THREADGROUP}, {variable})"
    if root.kind in ("private", "constant"):
        fault = abi.FAULT_PRIVATE if root.kind == "private" else abi.FAULT_CONSTANT
        size = text.size_expression(root.type_name)
        return f"call void @__mw_check_object({common}, i32 {fault}, ptr {root.name}, i64 {size}, i32 -1)"
    if root.kind == "exchange":
        gathered = f"i32 {abi.FAULT_WILD}, ptr {root.name}, i64 {abi.GATHERED_BYTES}, i32 -1"
        return f"call void @__mw_check_object({common}, {gathered})"
    return f"call void @__mw_check_anything({common}, ptr {_PRIVATES}, i32 {privates})"


def _fits(size: int, type_name: str) -> bool:
    try:
        return size <= text.store_bytes(type_name)
    except (ValueError, KeyError):  # a type with a name of its own
        return False


def _block_order(body: list[str]) -> dict[str, int]:
    labels = [match.group(1) for line in body if (match := text.LABEL.match(line))]
    return {label: index for index, label in enumerate(labels)}


def _targets(body: list[str], index: int) -> list[str]:
    """Return the blocks that a branch or switch may go to; a switch is printed over several lines."""
    lines = [body[index]]
    while lines[0].rstrip().endswith("[") and not lines[-1].strip().startswith("]"):
        index += 1
        lines.append(body[index])
    return [target for line in lines for target in _BRANCH_TARGET.findall(line)]
