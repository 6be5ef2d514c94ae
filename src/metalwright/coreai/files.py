"""An ``.aimodel`` on disk: is it one, is it whole, replacing it in one step."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from metalwright.errors import ArtifactError

SUFFIX = ".aimodel"
_PROGRAM, _HASH, _METADATA = "main.mlirb", "main.hash", "metadata.json"
_MAGIC = b"ML\xefR"  # of MLIR bytecode
_ASSET_VERSION = "2"  # the part of it that other programs must agree on


def is_artifact(path: Path) -> bool:
    """True if ``path`` looks like an ``.aimodel``, whole or not."""
    return path.is_dir() and ((path / _PROGRAM).is_file() or (path / _METADATA).is_file())


def program_of(path: Path) -> Path:
    """Return where an artifact's program is."""
    return path / _PROGRAM


def producer_of(path: Path) -> str:
    """Return what wrote an artifact, as it says itself (``"coreai-core 1.0.0b3"``), or an empty text."""
    return str(_metadata(path).get("producer", ""))


def check_whole(path: Path) -> bytes:
    """Check that an artifact's files are there and unchanged since they were written; return the program's digest.

    Core AI's reader ends the process on damaged bytecode, so this comes before it. Raises :class:`ArtifactError`.
    """
    if not path.exists():
        raise ArtifactError(f"{path}: does not exist")
    if path.suffix != SUFFIX or not path.is_dir():
        raise ArtifactError(f"{path}: expected a directory with the suffix {SUFFIX}")
    inside = path.resolve()
    for name in (_PROGRAM, _HASH, _METADATA):
        if not (path / name).is_file():
            raise ArtifactError(f"{path}: not a whole artifact: {name} is missing")
        if (path / name).resolve().parent != inside:
            raise ArtifactError(f"{path}: {name} is a link to a file outside the artifact")
    version = str(_metadata(path).get("assetVersion", ""))
    if version.partition(".")[0] != _ASSET_VERSION:
        raise ArtifactError(
            f"{path}: it has asset version {version or 'none'!r} and was written by "
            f"{producer_of(path) or 'an unknown program'}; this version of Metalwright reads {_ASSET_VERSION}.x"
        )
    with (path / _PROGRAM).open("rb") as program:
        if program.read(len(_MAGIC)) != _MAGIC:
            raise ArtifactError(f"{path}: {_PROGRAM} is damaged: it does not begin as MLIR bytecode does")
        program.seek(0)
        digest = hashlib.file_digest(program, "sha256").digest()
    if digest != (path / _HASH).read_bytes():
        raise ArtifactError(f"{path}: {_PROGRAM} is damaged: it does not match {_HASH}")
    return digest


def _metadata(path: Path) -> dict[str, Any]:
    try:
        found = json.loads((path / _METADATA).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path}: {_METADATA} is damaged: {error}") from error
    if not isinstance(found, dict):
        raise ArtifactError(f"{path}: {_METADATA} is damaged: it is no JSON object")
    return found


def check_target(path: Path) -> None:
    """Check that an artifact may be written to ``path``. Raises :class:`ArtifactError`."""
    if path.suffix != SUFFIX:
        raise ArtifactError(
            f"{path}: an artifact's name ends in {SUFFIX}, got {path.suffix or 'no suffix'!r}"
        )
    if (path.exists() or path.is_symlink()) and not is_artifact(path):
        raise ArtifactError(f"{path}: exists and is not an artifact; it is left as it is")
    if not path.absolute().parent.is_dir():
        raise ArtifactError(f"{path}: the directory {path.absolute().parent} does not exist")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to; on success it takes the place of ``path``, on an error it goes."""
    path = path.absolute()
    with tempfile.TemporaryDirectory(prefix=f".{path.stem}-", dir=path.parent) as scratch:
        new = Path(scratch) / f"new{SUFFIX}"
        yield new
        if not path.exists():
            os.rename(new, path)
            return
        old = Path(scratch) / f"old{SUFFIX}"
        os.rename(path, old)
        try:
            os.rename(new, path)
        except OSError:
            os.rename(old, path)
            raise
        shutil.rmtree(old, ignore_errors=True)
