"""The compiled parts of artifacts on disk, beside the kernel cache and shared by all processes.

An entry is a folder named by a digest of the artifact's program and of what compiles it. It is written under another
name and moved in one step. When the folder grows past its limit, entries that were not used for longest go first.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import pickle
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from metalwright import children
from metalwright.coreai import compiling, files, interpreter
from metalwright.coreai.plan import Plan
from metalwright.engine import cache
from metalwright.errors import ArtifactError, MetalwrightError

_DEFAULT_LIMIT_BYTES = 4 * 1024**3
_SIZES = "sizes.pickle"
_SOURCES = ("compiling", "flatten", "plan", "segments", "splitting")
_QUOTED_CHARACTERS = 300


@dataclass(frozen=True)
class Compiled:
    """An artifact that has been compiled: its plan, and the folder with the interpreter's parts and the constants."""

    folder: Path
    plan: Plan

    @property
    def constants(self) -> Path:
        return self.folder / compiling.CONSTANTS


def folder() -> Path:
    """Return the folder of compiled artifacts."""
    return cache.folder() / "artifacts"


def limit() -> int:
    """Return the limit of their size in bytes: ``METALWRIGHT_ARTIFACT_CACHE_LIMIT_MB``, or 4 GiB."""
    chosen = os.environ.get("METALWRIGHT_ARTIFACT_CACHE_LIMIT_MB", "")
    return int(chosen) * 1024 * 1024 if chosen.isdecimal() else _DEFAULT_LIMIT_BYTES


def compiled(path: Path) -> Compiled:
    """Return an artifact's compiled parts, from the disk where they are there.

    Raises:
        ArtifactError: It is no artifact, is damaged, cannot be compiled or the disk is full.
    """
    digest = files.check_whole(path)
    entry = folder() / (cache.key("artifact", _identity(), digest) + interpreter.SUFFIX)
    plan = _plan(entry)
    if plan is None:
        plan = _compile(path, entry)
        trim(keep=entry)
    with contextlib.suppress(OSError):
        os.utime(entry)
    return Compiled(entry, plan)


def _plan(entry: Path) -> Plan | None:
    """Return the plan of an entry that is whole."""
    try:
        sizes = pickle.loads((entry / _SIZES).read_bytes())
        if any((entry / name).stat().st_size != size for name, size in sizes.items()):
            return None
        return pickle.loads((entry / compiling.PLAN).read_bytes())
    except (OSError, EOFError, ValueError, pickle.UnpicklingError):
        return None


def _compile(path: Path, entry: Path) -> Plan:
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        # in the same folder, so that it can be moved in one step
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=entry.parent) as scratch:
            new = Path(scratch) / f"new{interpreter.SUFFIX}"
            new.mkdir()
            _run(path, new)
            sizes = {file.name: file.stat().st_size for file in new.iterdir()}
            (new / _SIZES).write_bytes(pickle.dumps(sizes))
            try:
                new.rename(entry)
            except OSError:  # another process was faster, or what is there is damaged
                if _plan(entry) is None:
                    shutil.rmtree(entry, ignore_errors=True)
                    new.rename(entry)
    except OSError as error:
        raise ArtifactError(f"{path}: its compiled parts cannot be written: {error}") from error
    plan = _plan(entry)
    if plan is None:
        raise ArtifactError(f"{path}: its compiled parts at {entry} are gone")
    return plan


def _run(path: Path, new: Path) -> None:
    """Compile in another process."""
    with tempfile.TemporaryFile() as messages:
        child = subprocess.run(
            children.command("metalwright.coreai.compiling", "main"),
            input=pickle.dumps((str(files.program_of(path)), str(new))),
            stdout=subprocess.PIPE,
            stderr=messages,
            check=False,
        )
        messages.seek(0)
        said = " ".join(messages.read().decode("utf-8", "replace").split())[-_QUOTED_CHARACTERS:]
    try:
        error: MetalwrightError | None = pickle.loads(child.stdout)
    except (EOFError, pickle.UnpicklingError):
        error = ArtifactError(f"Core AI's reader stopped on it with status {child.returncode}: {said}")
    if error is not None:
        error.args = (f"{path}: {error}{_versions(path)}",)
        raise error


def _versions(path: Path) -> str:
    """Say so where another version of Core AI has written an artifact that this one cannot read."""
    producer, own = files.producer_of(path), f"coreai-core {_installed()}"
    if producer == own:
        return ""
    return f"; it was written by {producer or 'an unknown program'}, and {own} is installed: another version is needed"


@functools.cache
def _installed() -> str:
    return importlib.metadata.version("coreai-core")


@functools.cache
def _identity() -> str:
    """Return a text that changes with anything that the compiled parts depend on besides the artifact."""
    here = Path(__file__).parent
    return cache.key(_installed(), *((here / f"{name}.py").read_bytes() for name in _SOURCES))


def trim(keep: Path | None = None) -> None:
    """Drop the entries that were not used for longest until they are within their limit."""
    entries = sorted(_entries(), key=lambda entry: entry[2])
    total = sum(size for _, size, _ in entries)
    for path, size, _ in entries:
        if total <= limit():
            return
        if path != keep:
            shutil.rmtree(path, ignore_errors=True)
            total -= size


def stats() -> cache.CacheStats:
    """Return the folder, the number of entries and their size."""
    entries = _entries()
    return cache.CacheStats(folder(), len(entries), sum(size for _, size, _ in entries), limit())


def clear() -> int:
    """Delete every entry and return how many there were."""
    entries = _entries()
    for path, _, _ in entries:
        shutil.rmtree(path, ignore_errors=True)
    return len(entries)


def _entries() -> list[tuple[Path, int, float]]:
    found = []
    with contextlib.suppress(OSError):
        for entry in folder().iterdir():
            if entry.suffix == interpreter.SUFFIX and (entry / _SIZES).is_file():
                with contextlib.suppress(OSError):
                    size = sum(file.stat().st_size for file in entry.iterdir())
                    found.append((entry, size, entry.stat().st_mtime))
    return found
