"""``metalwright doctor``: is everything here that a kernel needs?"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from metalwright.cli.output import console, readable_size, show_json, show_table
from metalwright.errors import MetalwrightError

_PYTHON = (3, 11)
_PROCESSORS = {"x86_64": "x86-64", "amd64": "x86-64", "arm64": "arm64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Finding:
    """One part: whether it is there, what was found, and what to do if it is not."""

    part: str
    ok: bool
    found: str
    advice: str = ""


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False) -> None:
    """Look for the compiler, LLVM, Core AI, PyTorch and the cache, and run one small kernel.

    Exit code 1 if something is missing; the last column says what to do.
    """
    findings = list(examine())
    ok = all(finding.ok for finding in findings)
    if as_json:
        show_json({"ok": ok, "parts": [dataclasses.asdict(finding) for finding in findings]})
    else:
        rows = [(f.part, "ok" if f.ok else "not ok", f.found, f.advice or "-") for f in findings]
        show_table(console(), ("part", "state", "found", "what to do"), rows)
    if not ok:
        raise typer.Exit(1)


def examine() -> Iterator[Finding]:
    """Yield what is found about each part."""
    yield _python()
    yield _processor()
    yield from _toolchain()
    yield _package("torch", "torch", "pip install torch")
    yield _package("numpy", "numpy", "pip install numpy")
    yield _package("Core AI", "coreai-core", "pip install coreai-core")
    yield _package("Core AI for PyTorch", "coreai-torch", "pip install coreai-torch")
    yield _cache()
    yield _trial()


def _python() -> Finding:
    needed = ".".join(map(str, _PYTHON))
    found = f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})"
    return Finding("Python", sys.version_info >= _PYTHON, found, _unless(sys.version_info >= _PYTHON,
                   f"install Python {needed} or newer"))  # fmt: skip


def _processor() -> Finding:
    machine = platform.machine()
    known = machine.lower() in _PROCESSORS
    found = f"{machine}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"
    return Finding("processor", known, found, _unless(known, "kernels run on x86-64 and arm64 processors"))


def _toolchain() -> Iterator[Finding]:
    from metalwright import toolchain

    try:
        tools = toolchain.find()
    except MetalwrightError as error:
        yield Finding("compiler", False, "-", str(error))
        return
    yield Finding("compiler", True, f"clang {tools.clang_version} ({tools.clang})")
    advice = "install the pair that belongs together: pip install --force-reinstall metalwright"
    found = f"LLVM {tools.llvm_version} beside clang {tools.clang_version}"
    yield Finding("LLVM", tools.matched, found, _unless(tools.matched, advice))


def _package(part: str, distribution: str, advice: str) -> Finding:
    try:
        return Finding(part, True, f"{distribution} {importlib.metadata.version(distribution)}")
    except importlib.metadata.PackageNotFoundError:
        return Finding(part, False, f"no {distribution}", advice)


def _cache() -> Finding:
    from metalwright.engine import cache

    stats = cache.stats()
    found = (
        f"{stats.path}, {stats.entries} entries, {readable_size(stats.bytes)} of {readable_size(stats.limit)}"
    )
    try:
        stats.path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=stats.path).close()
    except OSError as error:
        return Finding(
            "cache", False, found, f"set METALWRIGHT_CACHE_DIR to a folder that can be written ({error})"
        )
    return Finding("cache", True, found)


def _trial() -> Finding:
    return _tried("a kernel", _run_a_kernel)


def _tried(part: str, action: Callable[[], str]) -> Finding:
    try:
        return Finding(part, True, action())
    except Exception as error:
        # whatever goes wrong here is what the doctor was asked about
        return Finding(
            part,
            False,
            f"{type(error).__name__}: {error}",
            "see the lines above; if they are all ok, report it",
        )


def _run_a_kernel() -> str:
    from metalwright.check import check, random
    from metalwright.cli.demo_kernels import scale_add

    case = {
        "inputs": [random((100,)), random((100,)), 0.5],
        "threads_per_grid": (100, 1, 1),
        "threads_per_thread_group": (32, 1, 1),
        "result_shapes": [[100]],
    }
    report = check(scale_add, [case])
    if not report.ok:
        raise RuntimeError(f"scale_add is wrong here:\n{report}")
    seconds = sum(case.seconds for case in report.cases)
    return f"scale_add compiled, ran and was right in {seconds:.2f} s"


def _unless(ok: bool, advice: str) -> str:
    return "" if ok else advice
