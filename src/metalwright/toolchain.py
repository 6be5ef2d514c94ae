"""The compiler that Metalwright is built on: clang from the ``ziglang`` package, matched with llvmlite's LLVM.

clang's text IR is read by llvmlite, so the two must come from the same major version of LLVM.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from metalwright.errors import ToolchainError

_CLANG_TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class Toolchain:
    """What was found: the clang driver, its version, and the version of LLVM inside llvmlite."""

    clang: Path
    clang_version: str
    llvm_version: str

    @property
    def matched(self) -> bool:
        """Whether IR printed by this clang can be read by this LLVM: the major versions are equal."""
        return self.clang_version.split(".")[0] == self.llvm_version.split(".")[0]


@dataclass(frozen=True)
class ClangResult:
    """What one run of clang gave."""

    ok: bool
    output: bytes
    messages: str


@functools.cache
def driver() -> Path:
    """Return the path of the zig binary, whose ``clang`` command is the plain clang driver.

    Raises:
        ToolchainError: the ``ziglang`` package is not installed.
    """
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise ToolchainError("clang is missing: install the 'ziglang' package (pip install ziglang)")
    folder = Path(spec.origin).parent
    for name in ("zig", "zig.exe"):
        if (folder / name).is_file():
            return folder / name
    raise ToolchainError(
        "the 'ziglang' package holds no zig binary: reinstall it (pip install --force-reinstall ziglang)"
    )


@functools.cache
def identity() -> str:
    """Return a text that changes whenever the compiler or LLVM changes; part of every cache key."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("ziglang", "llvmlite")]
    return ", ".join(versions)


def clang(arguments: Sequence[str], source: bytes) -> ClangResult:
    """Run clang on ``source``, given on standard input, and return what it wrote on standard output.

    The binary is started directly: a Python process in between would cost more than the compilation.
    """
    command = [str(driver()), "clang", *arguments, "-"]
    try:
        done = subprocess.run(
            command, input=source, capture_output=True, timeout=_CLANG_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as expired:
        raise ToolchainError(f"clang did not finish within {_CLANG_TIMEOUT_SECONDS} s") from expired
    except OSError as error:
        raise ToolchainError(f"clang could not be started: {error}") from error
    return ClangResult(done.returncode == 0, done.stdout, done.stderr.decode("utf-8", "replace"))


@functools.cache
def find() -> Toolchain:
    """Return the installed toolchain with its versions.

    Raises:
        ToolchainError: clang or llvmlite is missing or cannot be started.
    """
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise ToolchainError(
            "LLVM is missing: install the 'llvmlite' package (pip install llvmlite)"
        ) from error
    done = subprocess.run([str(driver()), "clang", "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"clang version (\d+\.\d+\.\d+)", done.stdout)
    if version is None:
        raise ToolchainError(f"clang does not tell its version: {(done.stdout + done.stderr).strip()[:200]}")
    return Toolchain(driver(), version.group(1), ".".join(map(str, llvm.llvm_version_info)))
