"""The compiled parts of artifacts on disk, beside the kernel cache and shared by all processes.

An entry is a folder named by a digest of the artifact's program and of what compiles it. It is written under another
name and moved in one step, and has a list of its files: damage reads as a miss, since Core AI's interpreter ends the
process over a damaged file. When the folder grows past its limit, entries that were not used for longest go first.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import pickle
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from metalwright.coreai import apart, compiling, files, interpreter
from metalwright.coreai.plan import Plan
from metalwright.engine import cache
from metalwright.errors import ArtifactError

_DEFAULT_LIMIT_BYTES = 4 * 1024**3
_FILES = "files.json"
# a larger file, which holds weights, would take longer to read than all else takes: its size has to do
_DIGESTED_BYTES = 32 * 1024**2
_SOURCES = "arrays artifact compiling elements flatten inspect interpreter plan segments splitting".split()
_ENTRY = re.compile(rf"[0-9a-f]{{64}}{re.escape(interpreter.SUFFIX)}")
_TEMPORARY = ".tmp-"
# a temporary folder this old belongs to a process that died
_STALE_SECONDS = 3600.0


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
        plan = _compile(path, entry) if _writable(entry.parent) else None
        trim(keep=entry)
    if plan is None:
        return compiled_for_now(path)
    with contextlib.suppress(OSError):
        os.utime(entry)
    return Compiled(entry, plan)


def _plan(entry: Path) -> Plan | None:
    """Return the plan of an entry that is whole."""
    try:
        listed = json.loads((entry / _FILES).read_bytes())
        if not isinstance(listed, dict) or compiling.PLAN not in listed:
            return None
        if any(list(_described(entry / name)) != known for name, known in listed.items()):
            return None
        return pickle.loads((entry / compiling.PLAN).read_bytes())
    except (OSError, ValueError):
        return None


def _described(file: Path) -> tuple[int, str]:
    """Return a file's size, and its digest unless it is large."""
    size = file.stat().st_size
    return size, hashlib.sha256(file.read_bytes()).hexdigest() if size <= _DIGESTED_BYTES else ""


def _writable(target: Path) -> bool:
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=target):
            return True
    except OSError:
        return False


def compiled_for_now(path: Path) -> Compiled:
    """Compile into a folder that goes with the result.

    A cache that cannot be written, or that somebody clears just now, is no error.

    Raises:
        ArtifactError: As :func:`compiled`.
    """
    with _as_artifact_error(path):
        new = Path(tempfile.mkdtemp(prefix="metalwright-", suffix=interpreter.SUFFIX))
        try:
            _run(path, new)
            parts = Compiled(new, pickle.loads((new / compiling.PLAN).read_bytes()))
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
    weakref.finalize(parts, _remove_own, new, os.getpid())
    return parts


def _remove_own(target: Path, process: int) -> None:
    # a forked child inherits this, and its parent still needs the folder
    if os.getpid() == process:
        shutil.rmtree(target, ignore_errors=True)


def _compile(path: Path, entry: Path) -> Plan | None:
    """Compile into an entry of the cache; ``None`` where it did not get there, or is gone again."""
    with (
        _as_artifact_error(path),
        # in the same folder, so that it can be moved in one step
        tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=entry.parent) as scratch,
    ):
        new = Path(scratch) / f"new{interpreter.SUFFIX}"
        new.mkdir()
        _run(path, new)
        listed = {file.name: _described(file) for file in new.iterdir()}
        (new / _FILES).write_text(json.dumps(listed), encoding="utf-8")
        try:
            new.rename(entry)
        except OSError:  # another process was faster, or what is there is damaged
            if _plan(entry) is None:
                _remove(entry)
                with contextlib.suppress(OSError):
                    new.rename(entry)
    return _plan(entry)


@contextmanager
def _as_artifact_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArtifactError(f"{path}: its compiled parts cannot be written: {error}") from error


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            entry.unlink()


def _run(path: Path, new: Path) -> None:
    """Compile in another process."""
    apart.call(path, "metalwright.coreai.compiling", (str(files.program_of(path)), str(new)))


@functools.cache
def _identity() -> str:
    """Return a text that changes with anything that the compiled parts depend on besides the artifact."""
    here = Path(__file__).parent
    return cache.key(apart.installed(), *((here / f"{name}.py").read_bytes() for name in _SOURCES))


def trim(keep: Path | None = None) -> None:
    """Drop the entries that were not used for longest until they are within their limit."""
    entries = sorted(_entries(), key=lambda entry: entry[2])
    total = sum(size for _, size, _ in entries)
    for path, size, used in entries:
        temporary = path.name.startswith(_TEMPORARY)
        if not _at_work(path, used) and (temporary or (total > limit() and path != keep)):
            _remove(path)
            total -= size


def stats() -> cache.CacheStats:
    """Return the folder, the number of entries and their size."""
    entries = _entries()
    return cache.CacheStats(folder(), len(entries), sum(size for _, size, _ in entries), limit())


def clear() -> int:
    """Delete every entry and return how many there were. What a process is writing stays."""
    entries = [path for path, _, used in _entries() if not _at_work(path, used)]
    for path in entries:
        _remove(path)
    return len(entries)


def _at_work(path: Path, used: float) -> bool:
    """Whether somebody may be writing to an entry."""
    return path.name.startswith(_TEMPORARY) and time.time() - used <= _STALE_SECONDS


def _entries() -> list[tuple[Path, int, float]]:
    """Return what is ours in the folder, unfinished work too, with its size and the time of its last use."""
    found = []
    with contextlib.suppress(OSError):
        for entry in folder().iterdir():
            if _ENTRY.fullmatch(entry.name) or entry.name.startswith(_TEMPORARY):
                with contextlib.suppress(OSError):
                    size = sum(file.stat().st_size for file in entry.rglob("*"))
                    found.append((entry, size, entry.stat().st_mtime))
    return found
