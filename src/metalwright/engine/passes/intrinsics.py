"""Turns the intrinsics that stand for an address or the context into plain address arithmetic.

By now everything is inlined into the kernel's entry, whose parameters are the thread (%0), the buffers (%1) and the
context (%2), so an intrinsic deep inside a helper function needs no context passed down to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from metalwright.engine import abi
from metalwright.engine.passes import order, text
from metalwright.engine.passes.checks import Root

_ADDRESSES = {
    name: text.call_pattern(name)
    for name in (
        "__mw_context",
        "__mw_thread",
        "__mw_buffer",
        "__mw_buffer_extent",
        "__mw_threadgroup_variable",
        "__mw_threadgroup_argument",
    )
}
_EXCHANGE = "__mw_exchange"
_MEETINGS = ("__mw_barrier", _EXCHANGE)
# calls that do not return
_ENDINGS = ("__mw_trap", "__mw_too_deep")
# calls that need a fiber under the thread, or its position
NEED_FIBERS = (
    *(*_MEETINGS, *_ENDINGS),
    *("__mw_lane", "__mw_gathered", "__mw_folded", "__mw_log", "__mw_whole_simdgroup"),
)
_SITED = {
    name: text.call_pattern(name)
    for name in (*_MEETINGS, *_ENDINGS, "__mw_whole_simdgroup", "__mw_scope", "__mw_number")
}
_ARENA = "%mw.arena"
_PHI = re.compile(rf"^\s*{text.NAME} = phi ")


@dataclass(frozen=True)
class Arena:
    """Where each threadgroup variable lies: id -> (offset, bytes)."""

    variables: dict[int, tuple[int, int]]
    bytes: int


def lay_out_arena(body: list[str]) -> Arena:
    """Give each threadgroup variable of a kernel its place, in the order of the ids."""
    wanted: dict[int, tuple[int, int]] = {}
    pattern = _ADDRESSES["__mw_threadgroup_variable"]
    for line in body:
        if "__mw_threadgroup_variable" in line and (match := pattern.match(line)):
            number, size, align = (
                int(text.value_of(part)) for part in text.split_arguments(match["arguments"])
            )
            wanted[number] = (size, align)
    variables: dict[int, tuple[int, int]] = {}
    offset = 0
    for number, (size, align) in sorted(wanted.items()):
        offset = -(-offset // align) * align
        variables[number] = (offset, size)
        offset += size
    return Arena(variables, offset)


def lower_addresses(body: list[str], arena: Arena) -> tuple[list[str], dict[str, Root]]:
    """Replace the address intrinsics; also return what each pointer made is a pointer to."""
    out: list[str] = []
    roots: dict[str, Root] = {}
    for line in body:
        name = next((name for name in _ADDRESSES if f"@{name}(" in line), None)
        match = _ADDRESSES[name].match(line) if name else None
        if name is None or match is None:
            out.append(line)
            continue
        result = match["result"]
        temporary = f"%mw.a{result.strip('%').strip(chr(34))}"
        debug = text.DEBUG.search(match["rest"])
        suffix = debug.group(0) if debug else ""
        arguments = [text.value_of(part) for part in text.split_arguments(match["arguments"])]
        if name == "__mw_context":
            out.append(f"  {result} = getelementptr i8, ptr %2, i64 0{suffix}")
        elif name == "__mw_thread":
            out.append(f"  {result} = getelementptr i8, ptr %0, i64 0{suffix}")
        elif name == "__mw_buffer":
            number = int(arguments[0])
            out.append(
                f"  {temporary} = getelementptr i8, ptr %1, i64 {abi.BUFFER_SIZE * number + abi.BUFFER_DATA}{suffix}"
            )
            out.append(f"  {result} = load ptr, ptr {temporary}, align 8, !invariant.load !{{}}{suffix}")
            roots[result] = Root("buffer", number)
        elif name == "__mw_buffer_extent":
            number, dimension = int(arguments[0]), int(arguments[1])
            offset = abi.BUFFER_SIZE * number + abi.BUFFER_EXTENTS
            out.append(f"  {temporary} = getelementptr i8, ptr %1, i64 {offset}{suffix}")
            out.append(f"  {temporary}.e = load ptr, ptr {temporary}, align 8, !invariant.load !{{}}{suffix}")
            out.append(f"  {temporary}.i = getelementptr i32, ptr {temporary}.e, i64 {dimension}{suffix}")
            out.append(f"  {result} = load i32, ptr {temporary}.i, align 4, !invariant.load !{{}}{suffix}")
        elif name == "__mw_threadgroup_variable":
            number = int(arguments[0])
            out.append(f"  {result} = getelementptr i8, ptr %mw.t{number}, i64 0{suffix}")
            roots[result] = Root("threadgroup", number)
        else:
            number = int(arguments[0])
            out.append(
                f"  {temporary} = getelementptr i8, ptr %2, i64 {abi.CONTEXT_DYNAMIC + 8 * number}{suffix}"
            )
            out.append(f"  {result} = load ptr, ptr {temporary}, align 8, !invariant.load !{{}}{suffix}")
            roots[result] = Root("threadgroup argument", number)
    # the variables' addresses are wanted everywhere: make them where everything begins
    entry = [
        f"  %mw.arena.p = getelementptr i8, ptr %2, i64 {abi.CONTEXT_ARENA}",
        f"  {_ARENA} = load ptr, ptr %mw.arena.p, align 8, !invariant.load !{{}}",
        *(
            f"  %mw.t{number} = getelementptr i8, ptr {_ARENA}, i64 {offset}"
            for number, (offset, _) in arena.variables.items()
        ),
    ]
    # the first block has a label where clang has put one function's blocks in place of another's
    begins = 2 if text.LABEL.match(out[1]) else 1
    return [*out[:begins], *entry, *out[begins:]], roots


def stop_at_traps(body: list[str]) -> list[str]:
    """Turn what would end the process, or run into whatever code comes next, into a fault of the thread."""
    out: list[str] = []
    for line in body:
        debug = text.DEBUG.search(line)
        call = f"  call void @__mw_trap(ptr %2, i32 -1){debug.group(0) if debug else ''}"
        if "call void @llvm.trap()" in line:
            out.append(call)
        elif line.strip().startswith("unreachable") and not any(f"@{name}(" in out[-1] for name in _ENDINGS):
            out += [call, line]
        else:
            out.append(line)
    return out


def with_context(body: list[str]) -> list[str]:
    """Hand the context to calls that clang's own checks were made of."""
    return [line.replace("@__mw_number(i32", "@__mw_number(ptr %2, i32") for line in body]


def number_sites(body: list[str], add_site: Callable[[str | None], int]) -> list[str]:
    """Give each meeting point its number, which is its last argument: lanes that wait at a lower one go on first.

    In a loop where lanes exchange values they also meet before each round, behind everything else in the loop.
    """
    out = list(body)
    rounds: dict[int, str] = {}  # what is to be inserted before a line
    exchanges = 0
    exchanges_before: dict[int, int] = {}
    blocks = order.find_blocks(body)
    for step in order.in_order(blocks):
        block = blocks[step.block]
        if step.ends:
            if exchanges > exchanges_before[step.block]:
                first = next(i for i in range(block.first + 1, len(body)) if not _PHI.match(body[i]))
                rounds[first] = (
                    f"  %mw.round{step.block} = call i32 @{_EXCHANGE}(ptr %2, ptr %2, i32 0, i32 {add_site(None)})"
                )
            continue
        exchanges_before[step.block] = exchanges
        for index in range(block.first, block.last + 1):
            line = body[index]
            name = next((name for name in _SITED if f"@{name}(" in line), None)
            if name and _SITED[name].match(line):
                debug = text.DEBUG.search(line)
                site = add_site(debug.group(1) if debug else None)
                out[index] = re.sub(r"(i32 (?:noundef )?)-1\)", rf"\g<1>{site})", line, count=1)
                exchanges += name == _EXCHANGE
    return [
        line
        for index, old in enumerate(out)
        for line in ((rounds[index], old) if index in rounds else (old,))
    ]


def needs_fibers(body: list[str]) -> bool:
    """Whether threads of this kernel meet, or may have to be stopped where they stand."""
    return any(f"@{name}(" in line for line in body for name in NEED_FIBERS)
