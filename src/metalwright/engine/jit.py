"""Machine code in memory: one linked library for each kernel."""

from __future__ import annotations

import ctypes
import functools
import itertools
from dataclasses import dataclass

import llvmlite.binding as llvm

from metalwright.engine import abi
from metalwright.engine.target import target_machine
from metalwright.engine.types import Build

_serial = itertools.count()


@dataclass(frozen=True)
class LoadedCode:
    """A kernel that can be called. ``keep`` holds what must live as long as the code does."""

    run: ctypes._CFuncPtr  # type: ignore[name-defined]
    private_bytes: int
    keep: tuple[object, ...]


@functools.cache
def _compiler() -> llvm.LLJIT:
    return llvm.create_lljit_compiler(target_machine())


def load_code(build: Build) -> LoadedCode:
    """Link a kernel's machine code into this process. Nothing of the process is visible to it."""
    library = llvm.JITLibraryBuilder().add_object_img(build.machine_code)
    library.export_symbol("mw_run").export_symbol("__mw_private_sizes")
    tracker = library.link(_compiler(), f"metalwright-{next(_serial)}")
    sizes = (ctypes.c_uint64 * build.private_variables).from_address(tracker["__mw_private_sizes"])
    return LoadedCode(abi.Run(tracker["mw_run"]), sum(sizes), (tracker,))
