"""MLX's kernel headers, from its wheel for macOS: downloaded once, never installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

KERNELS = "mlx/backend/metal/kernels"
PIN = "mlx-metal==0.32.4"
NAME = PIN.replace("==", "-")  # of the folder that keeps them, in pytest's cache
_PLATFORM = "macosx_15_0_arm64"


class UnavailableError(Exception):
    """The wheel cannot be had; says why."""


def include_folder(kept: Path) -> Path:
    """Return the folder to include MLX's headers from, inside ``kept``, where they are put the first time.

    Raises:
        UnavailableError: they are not there, and cannot be downloaded.
    """
    ready = kept / "include"
    if not (ready / KERNELS).is_dir():
        kept.mkdir(parents=True, exist_ok=True)
        own = Path(tempfile.mkdtemp(prefix="download-", dir=kept))
        try:
            _download(own)
            # another process may have been quicker
            try:
                (own / "mlx" / "include").rename(ready)
            except OSError:
                assert (ready / KERNELS).is_dir()
        finally:
            shutil.rmtree(own, ignore_errors=True)
    return ready


def _download(folder: Path) -> None:
    options = ["--no-deps", "--only-binary=:all:", "--platform", _PLATFORM, "--quiet", "--dest", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", PIN, *options], capture_output=True, text=True
    )
    if done.returncode:
        raise UnavailableError(f"{PIN} cannot be had: {done.stderr.strip()[-300:]}")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        names = [name for name in wheel.namelist() if name.startswith(f"mlx/include/{KERNELS}/")]
        wheel.extractall(folder, names)
