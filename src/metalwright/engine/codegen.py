"""Kernels' IR to machine code, through LLVM: link the runtime, optimise, emit an object.

This runs in a process of its own (see ``builder``): a failed assertion inside LLVM ends the process that it is in.
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm

from metalwright import toolchain
from metalwright.engine import cache, registers
from metalwright.engine.limits import check_constants
from metalwright.engine.outside import writes_outside
from metalwright.engine.passes import indices, text
from metalwright.engine.passes.prepare import prepare, strip_targets
from metalwright.engine.target import identity, target_machine
from metalwright.engine.types import Build, Module
from metalwright.errors import ToolchainError

_RUNTIME = Path(__file__).parent / "runtime"
# LLVM calls these by name after the last pass that could drop them
_SUPPORT = "memcpy memmove memset __truncdfhf2 __truncsfhf2 __extendhfsf2 fmaf fma".split()
# what `#pragma unroll` leaves behind, and a node that says nothing
_UNROLL = re.compile(r'!\{!"llvm\.loop\.unroll\.(?:full|enable|count)"(?:, i32 \d+)?\}')
_NO_WISH = '!{!"metalwright.no.wish"}'
# A kernel with more checks than this is made small instead of fast: inlined and unrolled, they would take minutes.
_MANY_CHECKS = 200
_CHECK = "call void @__mw_check_"
_FOR_CHECKS = (
    "__mw_check_",
    "__mw_loop",
    "__mw_exchange",
    "__mw_lane",
    "__mw_gathered",
    "__mw_folded",
    "__mw_whole_simdgroup",
)
_EXPORTED = ("mw_run", "__mw_private_sizes")


def generate(module: Module, symbol: str) -> Build:
    """Return the machine code of a kernel."""
    machine = target_machine()
    module = replace(module, text="\n".join(text.alone(module.text.splitlines(), symbol)))
    if module.checked:
        module = replace(module, text=_in_registers(module))
    prepared = prepare(module, symbol)
    large = prepared.text.count(_CHECK) > _MANY_CHECKS
    context = llvm.create_context()
    linked = registers.parse(prepared.text, module.label, context)
    linked.link_in(registers.parse(runtime_text(), "the runtime", context))
    for function in linked.functions:
        if not function.is_declaration and function.name not in (*_EXPORTED, *_SUPPORT):
            function.linkage = "internal"
            if large and function.name.startswith(_FOR_CHECKS):
                function.add_function_attribute("noinline")
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_unrolling = not large
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(linked, passes)
    constants = sum(
        machine.target_data.get_abi_size(variable.global_value_type)
        for variable in linked.global_variables
        if not variable.is_declaration
    )
    check_constants(module.label, constants)
    return Build(
        machine.emit_object(linked),
        prepared.arena_bytes,
        prepared.threadgroup_sizes,
        prepared.threadgroup_offsets,
        prepared.uses_fibers,
        prepared.private_variables,
        prepared.sites,
    )


@functools.cache
def runtime_text() -> str:
    """Return the runtime as IR."""
    name = cache.key("runtime", identity())
    stored = cache.fetch(name)
    if stored is not None:
        return stored.decode()
    arguments = [
        f"--target={llvm.get_process_triple()}",
        *"-x c -std=c23 -ffreestanding -nostdinc -fno-builtin -ffp-contract=off -O2 -w".split(),
        *["-I", str(_RUNTIME), "-S", "-emit-llvm", "-o", "-"],
    ]
    done = toolchain.clang(arguments, b'#include "runtime.c"\n')
    if not done.ok:
        raise ToolchainError(f"the engine's runtime does not compile here:\n{done.messages}")
    text = "\n".join(strip_targets(line) for line in done.output.decode().splitlines())
    cache.store(name, text.encode())
    return text


def _in_registers(module: Module) -> str:
    """Return a kernel's IR with the variables that nothing points to in registers, and otherwise as it was written.

    The checks go into what is left in memory: an access that is out of range is still there to be seen. With them a
    round of a loop is so long that unrolled loops cost more time to compile than they save.
    """
    lines = _UNROLL.sub(_NO_WISH, module.text).splitlines()
    if not indices.leaves_an_array(lines) and not writes_outside("\n".join(lines), module.label):
        moved = _promoted("\n".join(lines), module.label)
        if indices.uses_of_nothing(moved.splitlines()) <= indices.uses_of_nothing(lines):
            return moved
    return _promoted("\n".join(indices.hidden(lines)), module.label)


def _promoted(ir: str, label: str) -> str:
    parsed = registers.parse(ir, label)
    registers.promote(parsed)
    return str(parsed)
