"""From a compiled module to the IR of one kernel, ready to be linked with the runtime."""

from __future__ import annotations

import re
from dataclasses import dataclass

from metalwright.engine.passes import arithmetic, bfloat, checks, intrinsics, text
from metalwright.engine.passes.sites import DebugLocations, SiteTable
from metalwright.engine.types import Module
from metalwright.errors import Site

# clang writes the processor that it was built for; the engine compiles for the one it runs on
_TARGET_ATTRIBUTES = re.compile(r' "(?:target-cpu|target-features|tune-cpu|min-legal-vector-width)"="[^"]*"')
_CHECK_DECLARATIONS = """
declare void @__mw_check_buffer(ptr, ptr, i64, i64, i32, i32, i32)
declare void @__mw_check_object(ptr, ptr, i64, i64, i32, i32, i32, ptr, i64, i32)
declare void @__mw_check_threadgroup_argument(ptr, ptr, i64, i64, i32, i32, i32)
declare void @__mw_check_anything(ptr, ptr, i64, i64, i32, i32, ptr, i32)
declare void @__mw_check_divisor(ptr, i32, i32)
declare void @__mw_loop(ptr, i32)
declare void @__mw_number(ptr, i32, i32)
"""
# what clang found out about the parameters was true of the intrinsics, not of the loads that they have become
_ENTRY = 'define void @__mw_entry(ptr %0, ptr %1, ptr %2) nounwind "no-builtins"{} {{'
_NAMED_NODE = re.compile(r"^!llvm\.(?:ident|linker)")


@dataclass(frozen=True)
class PreparedKernel:
    """A kernel's IR and the facts that a launch needs.

    ``threadgroup_sizes`` and ``threadgroup_offsets`` are in bytes, by the variables' ids.
    """

    text: str
    arena_bytes: int
    threadgroup_sizes: tuple[int, ...]
    threadgroup_offsets: tuple[int, ...]
    uses_fibers: bool
    private_variables: int
    sites: tuple[Site | None, ...]


def strip_targets(line: str) -> str:
    """Return a line of IR without the attributes that name a processor."""
    return _TARGET_ATTRIBUTES.sub("", line) if line.startswith("attributes ") else line


def prepare(module: Module, symbol: str) -> PreparedKernel:
    """Cut one kernel out of a module, lower its intrinsics and insert the checks that the module asks for."""
    lines = bfloat.as_integers(module.text.splitlines())
    entry = next(function for function in text.functions(lines) if function.name == symbol)
    variables = checks.globals_of(lines)
    table = SiteTable(DebugLocations(lines, module.sources), module)
    body = lines[entry.first : entry.last + 1]

    arena = intrinsics.lay_out_arena(body)
    body, roots = intrinsics.lower_addresses(body, arena)
    body = intrinsics.with_context(intrinsics.stop_at_traps(body))
    body = intrinsics.number_sites(body, table.add)
    body = arithmetic.guard_divisions(body, module.checked, table.add)
    private = checks.private_types(body)
    uses_fibers = module.checked or intrinsics.needs_fibers(body)
    if module.checked:
        sizes = {number: size for number, (_, size) in arena.variables.items()}
        body = checks.insert_checks(body, roots, sizes, variables, table.add)
    debug = text.DEBUG.search(body[0].replace(" !dbg", ", !dbg"))
    body[0] = _ENTRY.format(f" !dbg !{debug.group(1)}" if debug else "")

    outside = [
        strip_targets(line)
        for line in _without_functions(lines)
        if not (line.startswith("declare") and ("@__mw_check" in line or "@__mw_number" in line))
    ]
    facts = _facts(module, uses_fibers, arena.bytes, private, variables)
    declarations = _CHECK_DECLARATIONS if module.checked else ""
    if not any("@__mw_trap(" in line for line in outside if line.startswith("declare")):
        declarations += "declare void @__mw_trap(ptr, i32)\n"
    whole = "\n".join([*outside, *body, declarations, facts, ""])
    sizes = tuple(arena.variables.get(i, (0, 0))[1] for i in range(len(module.threadgroup_variables)))
    offsets = tuple(arena.variables.get(i, (0, 0))[0] for i in range(len(module.threadgroup_variables)))
    return PreparedKernel(whole, arena.bytes, sizes, offsets, uses_fibers, len(private), tuple(table.sites))


def _without_functions(lines: list[str]) -> list[str]:
    kept: list[str] = []
    position = 0
    for function in text.functions(lines):
        kept += lines[position : function.first]
        position = function.last + 1
    return [line for line in [*kept, *lines[position:]] if not _NAMED_NODE.match(line)]


def _facts(
    module: Module,
    uses_fibers: bool,
    arena_bytes: int,
    private: list[str],
    variables: dict[str, checks.Global],
) -> str:
    """Return the constants that the runtime asks for (``runtime/context.h``)."""
    constants = [
        f"{{ ptr, i64 }} {{ ptr {v.name}, i64 {text.size_expression(v.type_name)} }}"
        for v in variables.values()
    ]
    sizes = [f"i64 {text.size_expression(type_name)}" for type_name in private]
    return "\n".join(
        [
            f"@__mw_checked = constant i32 {int(module.checked)}",
            f"@__mw_watched = constant i32 {int(module.watched)}",
            f"@__mw_uses_fibers = constant i32 {int(uses_fibers)}",
            f"@__mw_arena_bytes = constant i32 {arena_bytes}",
            f"@__mw_constants = constant [{len(constants)} x {{ ptr, i64 }}] [{', '.join(constants)}]",
            f"@__mw_constant_count = constant i32 {len(constants)}",
            f"@__mw_private_sizes = constant [{len(sizes)} x i64] [{', '.join(sizes)}]",
        ]
    )
