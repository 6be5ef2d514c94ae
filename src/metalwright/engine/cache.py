"""The disk cache of compiled kernels: content-addressed files, safe under concurrent processes, bounded in size.

An entry is one file named by the SHA-256 of everything that its content depends on. It begins with the digest
of its payload, so a torn or damaged file reads as a miss. Writers write a temporary sibling and rename it, which
is atomic; two processes that compile the same kernel write the same content. When the folder grows past its
limit, the files that were not used for longest go first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs

_DEFAULT_LIMIT_BYTES = 512 * 1024 * 1024
_DIGEST_BYTES = 32
# a temporary file this old belongs to a process that died
_STALE_SECONDS = 3600.0
# looking at every file on every store would cost more than the store: look once in this many
_STORES_BETWEEN_TRIMS = 64

_OURS = re.compile(r"[0-9a-f]{64}|\.tmp-.*")

_stores_since_trim = _STORES_BETWEEN_TRIMS


@dataclass(frozen=True)
class CacheStats:
    """The disk cache as it is now: its folder, number of entries, their size and the limit, in bytes."""

    path: Path
    entries: int
    bytes: int
    limit: int


def folder() -> Path:
    """Return the cache's folder: ``METALWRIGHT_CACHE_DIR``, or the user's cache folder."""
    chosen = os.environ.get("METALWRIGHT_CACHE_DIR")
    return (
        Path(chosen)
        if chosen
        else Path(platformdirs.user_cache_dir("metalwright", appauthor=False)) / "kernels"
    )


def limit() -> int:
    """Return the size limit in bytes: ``METALWRIGHT_CACHE_LIMIT_MB``, or 512 MiB."""
    chosen = os.environ.get("METALWRIGHT_CACHE_LIMIT_MB", "")
    return int(chosen) * 1024 * 1024 if chosen.isdecimal() else _DEFAULT_LIMIT_BYTES


def key(*parts: str | bytes) -> str:
    """Return the cache key of these parts; their boundaries count."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def fetch(name: str) -> bytes | None:
    """Return the payload stored under a key, or ``None``."""
    path = folder() / name
    try:
        data = path.read_bytes()
    except OSError:
        return None
    payload = data[_DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != data[:_DIGEST_BYTES]:
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the time of last use, which decides what is dropped first
    return payload


def store(name: str, payload: bytes) -> None:
    """Store a payload under a key. A cache that cannot be written is no error: the kernel was compiled anyway."""
    global _stores_since_trim
    target = folder()
    try:
        target.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=target)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(payload).digest())
                file.write(payload)
            os.replace(temporary, target / name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError:
        return
    _stores_since_trim += 1
    if _stores_since_trim >= _STORES_BETWEEN_TRIMS:
        _stores_since_trim = 0
        trim()


def trim() -> None:
    """Drop the entries that were not used for longest until the cache is within its limit."""
    entries = sorted(_entries(), key=lambda entry: entry[2])
    total = sum(size for _, size, _ in entries)
    newest = entries[-1][2] if entries else 0.0
    for path, size, used in entries:
        stale = path.name.startswith(".tmp-") and newest - used > _STALE_SECONDS
        if total <= limit() and not stale:
            continue
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size


def stats() -> CacheStats:
    """Return the cache's folder, entries and size."""
    entries = _entries()
    return CacheStats(folder(), len(entries), sum(size for _, size, _ in entries), limit())


def clear() -> int:
    """Delete every entry and return how many there were."""
    removed = 0
    for path, _, _ in _entries():
        with contextlib.suppress(OSError):
            path.unlink()
            removed += 1
    return removed


def _entries() -> list[tuple[Path, int, float]]:
    found = []
    try:
        with os.scandir(folder()) as scan:
            for entry in scan:
                if not _OURS.fullmatch(entry.name):
                    continue  # the folder may be one that the user chose: touch nothing that is not ours
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    found.append((Path(entry.path), status.st_size, status.st_mtime))
    except OSError:
        return []
    return found
