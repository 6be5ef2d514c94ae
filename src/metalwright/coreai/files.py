"""An ``.aimodel`` on disk: is it one, is it whole, replacing it in one step."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from metalwright.errors import ArtifactError

SUFFIX = ".aimodel"
_PROGRAM, _HASH, _METADATA = "main.mlirb", "main.hash", "metadata.json"
_MAGIC = b"ML\xefR"  # of MLIR bytecode


def is_artifact(path: Path) -> bool:
    """True if ``path`` looks like an ``.aimodel``, whole or not."""
    return path.is_dir() and ((path / _PROGRAM).is_file() or (path / _METADATA).is_file())


def check_whole(path: Path) -> None:
    """Check that an artifact's files are there and unchanged since they were written.

    Core AI's reader ends the process on damaged bytecode, so this comes before it. Raises :class:`ArtifactError`.
    """
    if not path.exists():
        raise ArtifactError(f"{path}: does not exist")
    if path.suffix != SUFFIX or not path.is_dir():
        raise ArtifactError(f"{path}: expected a directory with the suffix {SUFFIX}")
    for name in (_PROGRAM, _HASH, _METADATA):
        if not (path / name).is_file():
            raise ArtifactError(f"{path}: not a whole artifact: {name} is missing")
    program = (path / _PROGRAM).read_bytes()
    if not program.startswith(_MAGIC):
        raise ArtifactError(f"{path}: {_PROGRAM} is damaged: it does not begin as MLIR bytecode does")
    if hashlib.sha256(program).digest() != (path / _HASH).read_bytes():
        raise ArtifactError(f"{path}: {_PROGRAM} is damaged: it does not match {_HASH}")


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
