"""From a kernel's IR to machine code: link the runtime, optimise, emit an object; kept in the disk cache."""

from __future__ import annotations

import contextlib
import functools
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import llvmlite.binding as llvm

from metalwright import toolchain
from metalwright.engine import cache
from metalwright.engine.passes.prepare import prepare, strip_targets
from metalwright.engine.types import Module
from metalwright.errors import Site, ToolchainError

_RUNTIME = Path(__file__).parent / "runtime"
_SOURCES = Path(__file__).parent
# LLVM calls these by name after the last pass that could drop them
_SUPPORT = (
    "memcpy memmove memset __truncdfhf2 __truncsfhf2 __truncdfbf2 __truncsfbf2 __extendhfsf2 fmaf fma".split()
)
# an index that a first round makes constant lets the next take apart what it indexes
_ROUNDS_OF_SROA = 3
_EXPORTED = ("mw_run", "__mw_private_sizes")


@dataclass(frozen=True)
class Build:
    """Machine code of one kernel for this processor, and the facts that a launch needs."""

    machine_code: bytes
    arena_bytes: int
    threadgroup_sizes: tuple[int, ...]
    uses_fibers: bool
    private_variables: int
    sites: tuple[Site | None, ...]


def build(module: Module, symbol: str) -> Build:
    """Return the machine code of a kernel, from the disk cache where it is there."""
    name = cache.key("build", _engine_identity(), module.text, symbol, str(module.checked))
    stored = cache.fetch(name)
    if stored is not None:
        # a file of the right name and the wrong content is a miss
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return _unpack(stored)
    made = _build(module, symbol)
    cache.store(name, _pack(made))
    return made


@functools.cache
def target_machine() -> llvm.TargetMachine:
    """Return LLVM's description of this processor."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # for the inline assembly that switches stacks
    target = llvm.Target.from_triple(llvm.get_process_triple())
    cpu, features = _processor()
    return target.create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="pic", codemodel="small", jit=True
    )


@functools.cache
def _processor() -> tuple[str, str]:
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@functools.cache
def _engine_identity() -> str:
    """Return a text that changes with anything that machine code depends on besides the kernel itself."""
    files = sorted([*_RUNTIME.glob("*.[ch]"), *_SOURCES.glob("passes/*.py"), _SOURCES / "build.py"])
    contents = cache.key(*(file.read_bytes() for file in files))
    return "\n".join([toolchain.identity(), llvm.get_process_triple(), *_processor(), contents])


@functools.cache
def _runtime_text() -> str:
    """Return the runtime as IR."""
    name = cache.key("runtime", _engine_identity())
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


def _build(module: Module, symbol: str) -> Build:
    machine = target_machine()
    if module.checked:
        module = replace(module, text=_in_registers(module))
    prepared = prepare(module, symbol)
    linked = _parse(prepared.text, module.label)
    linked.link_in(_parse(_runtime_text(), "the runtime"))
    for function in linked.functions:
        if not function.is_declaration and function.name not in (*_EXPORTED, *_SUPPORT):
            function.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(linked, passes)
    return Build(
        machine.emit_object(linked),
        prepared.arena_bytes,
        prepared.threadgroup_sizes,
        prepared.uses_fibers,
        prepared.private_variables,
        prepared.sites,
    )


def _in_registers(module: Module) -> str:
    """Return a module's IR with the variables that nothing points to in registers, and otherwise as it was written.

    The checks go into what is left in memory: an access that is out of range is still there to be seen.
    """
    parsed = _parse(module.text, module.label)
    builder = llvm.create_pass_builder(target_machine(), llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_function_pass_manager()
    for _ in range(_ROUNDS_OF_SROA):
        passes.add_sroa_pass()
    for function in parsed.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return str(parsed)


def _parse(text: str, label: str) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise ToolchainError(
            f"kernel {label!r}: LLVM cannot read its IR; where `metalwright doctor` finds that clang and llvmlite "
            f"match, this is a mistake in Metalwright: {error}"
        ) from error
    module.triple = llvm.get_process_triple()
    module.data_layout = str(target_machine().target_data)
    return module


def _pack(made: Build) -> bytes:
    facts = asdict(made)
    del facts["machine_code"]
    head = json.dumps(facts).encode()
    return len(head).to_bytes(8, "little") + head + made.machine_code


def _unpack(data: bytes) -> Build:
    length = int.from_bytes(data[:8], "little")
    facts = json.loads(data[8 : 8 + length])
    facts["threadgroup_sizes"] = tuple(facts["threadgroup_sizes"])
    facts["sites"] = tuple(Site(**site) if site else None for site in facts["sites"])
    return Build(machine_code=data[8 + length :], **facts)
