"""This processor, as LLVM sees it, and the name of everything that machine code made here depends on."""

from __future__ import annotations

import functools
from pathlib import Path

import llvmlite.binding as llvm

from metalwright import toolchain
from metalwright.engine import cache

_SOURCES = Path(__file__).parent


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
def identity() -> str:
    """Return a text that changes with anything that machine code depends on besides the kernel itself."""
    steps = [_SOURCES / f"{name}.py" for name in ("codegen", "inlining", "outside", "registers")]
    files = sorted([*_SOURCES.glob("runtime/*.[ch]"), *_SOURCES.glob("passes/*.py"), *steps])
    contents = cache.key(*(file.read_bytes() for file in files))
    return "\n".join([toolchain.identity(), llvm.get_process_triple(), *_processor(), contents])


@functools.cache
def _processor() -> tuple[str, str]:
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
