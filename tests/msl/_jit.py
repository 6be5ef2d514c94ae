"""Compiles C++ that includes our Metal headers and runs it in this process, with no outside symbols but memory ones.

A small harness of the header tests: it stands apart from the package's own driver and engine (all but the choice of
processor), so that a fault in either cannot hide one in the headers.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
import subprocess
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import llvmlite.binding as llvm
import ziglang

from metalwright.engine.target import target_machine

INCLUDE = Path(__file__).parents[2] / "src" / "metalwright" / "msl" / "include"
COMPILER = Path(str(ziglang.__file__)).parent / (
    "zig.exe" if sysconfig.get_platform().startswith("win") else "zig"
)
FLAGS = (
    *("-x", "c++", "-std=c++23", "-ffreestanding", "-nostdinc", "-nostdlib", "-fno-exceptions", "-fno-rtti"),
    *("-fdeclspec", "-ffp-contract=off", "-O2", "-Wall", "-Wextra", "-Werror"),
    *("-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-fbfloat16-excess-precision=none"),
    *("-S", "-emit-llvm"),
)


class CompileError(Exception):
    """clang refused the source; the message is clang's."""


def compile_ir(source: str, flags: Sequence[str] = ()) -> str:
    """The LLVM IR text of a C++ source, compiled as kernels are, with warnings as errors."""
    command = [str(COMPILER), "clang", *FLAGS, *flags, f"-I{INCLUDE}", "-", "-o", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(done.stderr)
    # Code is generated for the host, not for the baseline that clang wrote down.
    return re.sub(r'"(target-cpu|target-features|tune-cpu)"="[^"]*"', "", done.stdout)


def outside_symbols(ir: str) -> set[str]:
    """Names that the IR declares and does not define, LLVM's intrinsics aside."""
    return {
        name for name in re.findall(r"^declare .*?@\"?([\w.$]+)", ir, re.M) if not name.startswith("llvm.")
    }


@functools.cache
def _jit() -> llvm.LLJIT:
    return llvm.create_lljit_compiler(target_machine(), use_jit_link=False, suppress_errors=False)


def _memory_functions() -> dict[str, int]:
    process = ctypes.CDLL(None)
    found: dict[str, int] = {}
    for name in ("memcpy", "memset", "memmove"):
        found[name] = ctypes.cast(getattr(process, name), ctypes.c_void_p).value or 0
    return found


@dataclass(frozen=True)
class Library:
    """Compiled functions; `tracker` keeps their code alive."""

    tracker: llvm.ResourceTracker

    def __call__(self, name: str, *arguments: object) -> None:
        """Calls `void name(...)` with pointers (NumPy arrays) and 64-bit integers."""
        kinds = [ctypes.c_int64 if isinstance(a, int) else ctypes.c_void_p for a in arguments]
        values = [a if isinstance(a, int) else a.ctypes.data for a in arguments]  # type: ignore[attr-defined]
        ctypes.CFUNCTYPE(None, *kinds)(self.tracker[name])(*values)


def load(source: str, names: Sequence[str], flags: Sequence[str] = ()) -> Library:
    """Compiles and links; raises if anything outside but memory functions is needed, at IR level or below."""
    ir = compile_ir(source, flags)
    needed = outside_symbols(ir) - {"memcpy", "memset", "memmove"}
    if needed:
        raise CompileError(f"outside symbols: {sorted(needed)}")
    builder = llvm.JITLibraryBuilder().add_ir(ir)
    for name in names:
        builder.export_symbol(name)
    for name, address in _memory_functions().items():
        builder.import_symbol(name, address)
    # Resolved now, so that a call the code generator made up (a libm function) fails here.
    digest = hashlib.sha256((source + repr(flags)).encode()).hexdigest()[:16]
    return Library(builder.link(_jit(), f"snippet_{digest}"))
