"""The headers that stand before every program, compiled once, and what clang sees of files at all.

Reading Metal's headers takes clang longer than the kernel does, so their compiled form is kept in the disk cache.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from metalwright import toolchain
from metalwright.engine import cache
from metalwright.errors import ToolchainError
from metalwright.toolchain import ClangResult

INCLUDE = Path(__file__).parent / "include"
ROOT = "/metalwright"
_PRECOMPILED = "precompiled"
# everything becomes part of the kernel: the engine's intrinsics need its context
_PUSH = "#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)\n"
_POP = "\n#pragma clang attribute pop\n"
_HEADERS = "#include <metal_stdlib>\n{}\n#include <metalwright/entry.h>"
# large, and few kernels use it, though many open its namespace
_TENSOR_OPERATIONS = "#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>"
_NO_TENSOR_OPERATIONS = "namespace mpp { namespace tensor_ops {} }"
# two threads would make two folders, and look for a file in the wrong one
_lock = threading.Lock()


def _forget() -> None:
    """In a forked child no thread holds the lock, whatever it says."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def clang(
    options: Sequence[str], output: Sequence[str], text: str, tensor_operations: bool, identity: str
) -> ClangResult:
    """Run clang over a program in plain C++ with Metal's headers before it.

    Args:
        options: those that decide what a header means: language, target, level of optimisation.
        output: what to do with the program.
        text: the program.
        tensor_operations: whether it needs Metal Performance Primitives.
        identity: changes with the compiler and the headers.
    """
    with _lock:
        name = _precompiled(tuple(options), tensor_operations, identity)
        arguments = ["-x", "c++", *options, *confined("include")]
    # the name says what it was made of, so clang need not look at each file's date
    headers = ["-include-pch", f"{ROOT}/{_PRECOMPILED}/{name}", "-Xclang", "-fno-validate-pch"]
    return toolchain.clang([*arguments, *headers, *output, "-o", "-"], f"{_PUSH}{text}{_POP}".encode())


@functools.cache
def _precompiled(options: tuple[str, ...], tensor_operations: bool, identity: str) -> str:
    """Return the file's name in this process's folder."""
    text = _HEADERS.format(_TENSOR_OPERATIONS if tensor_operations else _NO_TENSOR_OPERATIONS)
    name = cache.key("headers", identity, json.dumps(options), text)
    content = cache.fetch(name)
    if content is None:
        arguments = ["-x", "c++-header", *options, *confined("include"), "-o", "-"]
        done = toolchain.clang(arguments, f"{_PUSH}{text}{_POP}".encode())
        if not done.ok:
            raise ToolchainError(f"the Metal headers do not compile: {done.messages.strip()}")
        content = done.output
        cache.store(name, content)
    # a forked process writes into the same folder
    handle, temporary = tempfile.mkstemp(dir=_folder())
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(temporary, _folder() / _PRECOMPILED / name)
    return name


def confined(view: str, folders: tuple[str, ...] = ()) -> list[str]:
    """Return the options under which clang sees Metal's headers (or stubs of them), these folders and nothing else."""
    roots = [part for index in range(len(folders)) for part in ("-I", f"{ROOT}/user{index}")]
    return ["-ivfsoverlay", str(_overlay(view, folders)), "-I", f"{ROOT}/{view}", *roots]


def _remove_own(folder: Path, process: int) -> None:
    # a forked child inherits this, and its parent still needs the folder
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _folder() -> Path:
    """Return this process's own folder, for files that clang reads."""
    folder = Path(tempfile.mkdtemp(prefix="metalwright-"))
    atexit.register(_remove_own, folder, os.getpid())
    (folder / _PRECOMPILED).mkdir()
    return folder


@functools.lru_cache(maxsize=64)
def _overlay(view: str, folders: tuple[str, ...]) -> Path:
    headers = [path.relative_to(INCLUDE).as_posix() for path in sorted(INCLUDE.rglob("*")) if path.is_file()]
    if view == "stubs":
        # at the preprocessing step Metal's headers are their macros alone, so the lowering never sees our C++
        files = {
            header: "metalwright/macros.h"
            for header in headers
            if not header.startswith("metalwright/") or "macros" in header
        }
    else:
        files = {header: header for header in headers}
    roots: list[dict[str, str]] = [
        {"type": "file", "name": f"{ROOT}/{view}/{name}", "external-contents": str(INCLUDE / target)}
        for name, target in files.items()
    ]
    seen = {_PRECOMPILED: str(_folder() / _PRECOMPILED)}
    seen |= {f"user{index}": folder for index, folder in enumerate(folders)}
    roots += [
        {"type": "directory-remap", "name": f"{ROOT}/{name}", "external-contents": folder}
        for name, folder in seen.items()
    ]
    overlay = {
        "version": 0,
        "case-sensitive": True,
        "use-external-names": False,
        "redirecting-with": "redirect-only",
        "roots": roots,
    }
    name = f"{view}-{cache.key(*folders)[:16]}.yaml" if folders else f"{view}.yaml"
    path = _folder() / name
    path.write_text(json.dumps(overlay))
    return path
