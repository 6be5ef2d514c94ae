"""Functions that call themselves, directly or through others.

Everything is inlined into the kernel, so such a function is copied as often as its calls may be nested: each copy
calls the next, and where the last one would go on, the thread stops with a fault. What follows sees no recursion.
This works on the IR as clang first writes it, where each call is one that the source has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter

from metalwright.columns import original_column
from metalwright.engine.passes import text
from metalwright.engine.passes.sites import DebugLocations
from metalwright.errors import CompileError, Diagnostic, Site, UnsupportedFeatureError
from metalwright.msl.program import LineMap
from metalwright.msl.symbols import plain_name
from metalwright.msl.verify import first_mention

# that copies may add, before anything is optimised: LLVM takes some ten seconds for so many
MOST_INSTRUCTIONS = 100_000
_CALL = re.compile(r'\bcall\b(?P<before>[^@\n]*?)@(?P<name>[-\w.$]+|"[^"]*")\(')
_RESULT = re.compile(rf"^\s*({text.NAME}) = ")
_LINKAGE = re.compile(r"^define (?:(?:linkonce_odr|weak_odr|internal|private|dso_local|hidden|protected) )*")
_COMDAT = re.compile(r" comdat(?:\([^)]*\))?(?= |$)")
_DEBUG = re.compile(r"!dbg !(\d+)")
_NODE = re.compile(r"^!(\d+) = (.*)$")
_SCOPE = re.compile(r"\bscope: !(\d+)")
_CLOSING = {">": "<", "}": "{", "]": "["}
_DECLARATIONS = {
    "__mw_context": "declare ptr @__mw_context()",
    "__mw_too_deep": "declare void @__mw_too_deep(ptr, i32, i32, i32) noreturn nounwind",
}


@dataclass(frozen=True)
class Unrolled:
    """A program without recursion; ``functions`` are those that called themselves, by the number in their faults."""

    ir: str
    functions: tuple[str, ...]


class Program:
    """The IR of a program: its functions, whom they call, and which of them call themselves."""

    def __init__(self, ir: str, entries: tuple[str, ...]) -> None:
        self.lines = ir.splitlines()
        self.functions = {function.name: function for function in text.functions(self.lines)}
        self.callees = {name: {callee for callee, _ in self.calls(name)} for name in self.functions}
        called = set(entries).union(*(self._reached(entry) for entry in entries))
        self.callees = {name: callees for name, callees in self.callees.items() if name in called}
        self.group_of = self._groups()

    def calls(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield the calls of functions of the program: whose, and in which line."""
        function = self.functions[name]
        for index in range(function.first + 1, function.last):
            match = _CALL.search(self.lines[index])
            if match and (callee := match["name"].strip('"')) in self.functions:
                yield callee, index

    def _reached(self, name: str) -> set[str]:
        """Return the functions that a call of this one may lead to: itself only if it calls itself."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            new = self.callees[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    def _groups(self) -> dict[str, frozenset[str]]:
        """Return, for each function that calls itself, the functions that it does so through, with itself."""
        left = dict(self.callees)
        # what calls nothing that is left is on no way back to itself
        while ends := [name for name, callees in left.items() if not callees & left.keys()]:
            for name in ends:
                del left[name]
        reached = {name: self._reached(name) for name in left}
        return {
            name: frozenset(other for other in reached[name] if name in reached.get(other, ()))
            for name in left
            if name in reached[name]
        }


def allow(
    label: str, ir: str, entries: tuple[str, ...], depth: int, compiled: LineMap, user: Mapping[str, str]
) -> Unrolled | None:
    """Return the program with each function that calls itself run up to ``depth`` calls deep.

    Args:
        label: the kernel's name, for messages.
        ir: the program as clang first writes it, with lines for debuggers if they are to be in messages.
        entries: the kernels.
        depth: how many calls of such a function may be nested; 0 allows none.
        compiled: the lines that clang was given.
        user: the user's files.

    Returns:
        None where no function calls itself.

    Raises:
        UnsupportedFeatureError: a function calls itself, which ``depth`` does not allow.
        CompileError: the copies together are too large.
    """
    program = Program(ir, entries)
    if not program.group_of:
        return None
    if depth == 0:
        sentence = "allow N nested calls of it with recursion=N, or --recursion N of the command line"
        raise _error(UnsupportedFeatureError, label, program, sentence, compiled, user)
    if (added := _size(program, depth) - _size(program, 1)) > MOST_INSTRUCTIONS:
        sentence = (
            f"{depth} nested calls of it add {added} instructions to the kernel, more than {MOST_INSTRUCTIONS}: "
            "allow fewer"
        )
        raise _error(CompileError, label, program, sentence, compiled, user)
    return _unroll(program, depth)


def _error(
    kind: type[CompileError],
    label: str,
    program: Program,
    sentence: str,
    compiled: LineMap,
    user: Mapping[str, str],
) -> CompileError:
    """Return the error for a function that calls itself, at the call; the first one in the user's own files."""
    locations = DebugLocations(program.lines, user)
    told: tuple[str, str, Site | None] | None = None
    for name, group in program.group_of.items():
        for callee, index in program.calls(name):
            debug = _DEBUG.search(program.lines[index])
            site = locations.resolve(debug.group(1)) if debug else None
            if callee in group and (told is None or (told[2] is None and site is not None)):
                told = name, callee, site
    assert told is not None
    name, callee, site = told
    through = f" through {plain_name(callee)!r}" if callee != name else ""
    site, excerpt = _as_written(site, compiled, user) if site else first_mention(plain_name(name), user)
    message = f"function {plain_name(name)!r} calls itself{through}: {sentence}"
    return kind(label, (Diagnostic("error", message, site, excerpt),))


def _as_written(site: Site, compiled: LineMap, user: Mapping[str, str]) -> tuple[Site | None, str | None]:
    lines = user[site.file].split("\n")
    if not 0 < site.line <= len(lines):
        return None, None
    line = lines[site.line - 1]
    column = original_column(compiled.content(site.file, site.line), line, site.column)
    return Site(site.file, site.line, column), line


def _size(program: Program, depth: int) -> int:
    """Return how many instructions the largest function has when everything is inlined into it."""
    sizes: dict[str, int] = {}
    calls = {name: [callee for callee, _ in program.calls(name)] for name in program.callees}
    own = {name: program.functions[name].last - program.functions[name].first for name in program.callees}
    order = TopologicalSorter[frozenset[str]]()
    for name in program.callees:
        group = program.group_of.get(name, frozenset({name}))
        others = {program.group_of.get(callee, frozenset({callee})) for callee in calls[name]}
        order.add(group, *(others - {group}))
    for group in order.static_order():
        recursive = next(iter(group)) in program.group_of
        inner = dict.fromkeys(group, 0)
        for _ in range(depth if recursive else 1):
            inner = {
                name: own[name] + sum(inner[c] if c in group else sizes[c] for c in calls[name])
                for name in group
            }
        sizes |= inner
    return max(sizes.values())


def _unroll(program: Program, depth: int) -> Unrolled:
    numbers = {name: number for number, name in enumerate(program.group_of)}
    debug = _DebugCopies(program.lines)
    out: list[str] = []
    position = 0
    for function in sorted(program.functions.values(), key=lambda function: function.first):
        if function.name not in numbers:
            continue
        group = program.group_of[function.name]
        inside = {index: callee for callee, index in program.calls(function.name) if callee in group}
        body = program.lines[function.first : function.last + 1]
        out += program.lines[position : function.first]
        for level in range(1, depth + 1):
            copy = []
            for index, line in enumerate(body, function.first):
                if index not in inside:
                    copy.append(line)
                elif level < depth:
                    copy.append(_calling(line, _copy_name(inside[index], level + 1)))
                else:
                    copy += _too_deep(line, numbers[inside[index]], depth, index)
            if level > 1:
                copy = debug.copied(copy)
                copy[0] = _copied_head(copy[0], _copy_name(function.name, level))
            out += copy
        position = function.last + 1
    out += program.lines[position:]
    whole = "\n".join(out)
    missing = [text for name, text in _DECLARATIONS.items() if f" @{name}(" not in _declared(program.lines)]
    return Unrolled(
        "\n".join([whole, *missing, *debug.nodes, ""]), tuple(plain_name(name) for name in numbers)
    )


def _declared(lines: list[str]) -> str:
    return "\n".join(line for line in lines if line.startswith("declare"))


def _copy_name(name: str, level: int) -> str:
    return f'"{name}.deep{level}"'


def _calling(line: str, name: str) -> str:
    match = _CALL.search(line)
    assert match is not None
    return f"{line[: match.start('name')]}{name}{line[match.end('name') :]}"


def _copied_head(line: str, name: str) -> str:
    match = text.DEFINE.match(line)
    assert match is not None
    line = f"{line[: match.start(1)]}{name}{line[match.end(1) :]}"
    return _LINKAGE.sub("define internal ", _COMDAT.sub("", line))


def _too_deep(line: str, function: int, depth: int, index: int) -> list[str]:
    """Return what stands for a call that is nested too deep."""
    debug = f", {match.group()}" if (match := _DEBUG.search(line)) else ""
    context = f"%mw.deep{index}"
    stop = [
        f"  {context} = call ptr @__mw_context(){debug}",
        f"  call void @__mw_too_deep(ptr {context}, i32 {function}, i32 {depth}, i32 -1){debug}",
    ]
    result, call = _RESULT.match(line), _CALL.search(line)
    assert call is not None
    if result is not None:
        # nothing is returned there, but the name must be known
        stop.append(f"  {result.group(1)} = freeze {_last_type(call['before'])} zeroinitializer{debug}")
    return stop


def _last_type(before: str) -> str:
    """Return the type that a call's words before its function end with."""
    before = before.strip()
    start = before.rfind(" ") + 1
    if (opening := _CLOSING.get(before[-1])) is not None:
        level = 0
        for start in range(len(before) - 1, -1, -1):
            level += (before[start] == before[-1]) - (before[start] == opening)
            if level == 0:
                break
    return before[start:]


class _DebugCopies:
    """Copies of the locations in a function: each function must have its own."""

    def __init__(self, lines: list[str]) -> None:
        self._known = {match[1]: match[2] for line in lines if (match := _NODE.match(line))}
        self._next = max((int(number) for number in self._known), default=0) + 1
        self.nodes: list[str] = []

    def copied(self, body: list[str]) -> list[str]:
        """Return a function's lines with locations of their own."""
        head = _DEBUG.search(body[0])
        if head is None:
            return body
        new: dict[str, str] = {}
        self._copy(head.group(1), new)
        return [_DEBUG.sub(lambda match: f"!dbg !{self._copy(match.group(1), new)}", line) for line in body]

    def _copy(self, number: str, new: dict[str, str]) -> str:
        chain = []
        while number not in new:
            chain.append(number)
            self.nodes.append("")
            new[number] = str(self._next)
            self._next += 1
            scope = _SCOPE.search(self._known[number])
            # a function's own scope is its file or namespace, which is no part of it
            if scope is None or "!DISubprogram(" in self._known[number]:
                break
            number = scope.group(1)
        for place, old in enumerate(chain, len(self.nodes) - len(chain)):
            node = self._known[old]
            if "!DISubprogram(" not in node:
                node = _SCOPE.sub(lambda match: f"scope: !{new.get(match.group(1), match.group(1))}", node)
            self.nodes[place] = f"!{new[old]} = {node}"
        return new[chain[0]] if chain else new[number]
