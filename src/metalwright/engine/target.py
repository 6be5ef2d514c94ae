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
    """Return LLVM's name for this processor and the extensions to use: all that it has but AVX-512.

    LLVM 22 writes wrong AVX-512 code: where a masked VPTERNLOG has its operands put in another order, the
    immediate is that of another order still, so that `select(x, copysign(y, x), c)` over vectors is wrong
    (llvm/llvm-project#157929, fixed for LLVM 23).
    """
    features = llvm.get_host_cpu_features()
    for name in features:
        if name.startswith(("avx512", "avx10")):
            features[name] = False
    return llvm.get_host_cpu_name(), features.flatten()
