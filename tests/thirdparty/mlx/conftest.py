"""MLX's kernel headers, from its wheel for macOS: downloaded once, never installed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from units import KERNELS, Unit

import metalwright

PIN = "mlx-metal==0.32.4"
_PLATFORM = "macosx_15_0_arm64"
_libraries: dict[tuple[Unit, bool], metalwright.ShaderLibrary] = {}


@pytest.fixture(scope="session")
def headers(request: pytest.FixtureRequest) -> Path:
    """Return the folder to include MLX's headers from."""
    folder = Path(request.config.cache.mkdir(PIN.replace("==", "-")))  # type: ignore[union-attr]
    ready = folder / "include"
    if not (ready / KERNELS).is_dir():
        own = (
            folder
            / f"download-{request.config.workerinput['workerid'] if hasattr(request.config, 'workerinput') else 'main'}"
        )  # type: ignore[attr-defined]
        options = ["--no-deps", "--only-binary=:all:", "--platform", _PLATFORM, "--quiet", "--dest", str(own)]
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", PIN, *options], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"{PIN} cannot be had: {done.stderr.strip()[-300:]}")
        with zipfile.ZipFile(next(own.glob("*.whl"))) as wheel:
            wheel.extractall(own, [n for n in wheel.namelist() if n.startswith(f"mlx/include/{KERNELS}/")])
        if not ready.exists():
            # the other worker may have been quicker
            try:
                (own / "mlx" / "include").rename(ready)
            except OSError:
                assert (ready / KERNELS).is_dir()
    return ready


class Bench:
    """Compiles units and launches their kernels, and notes both for the scoreboard."""

    def __init__(self, headers: Path, score: Callable[..., None]) -> None:
        self.headers = headers
        self.score = score

    def library(self, unit: Unit, checked: bool = True) -> Any:
        if (unit, checked) not in _libraries:
            _libraries[unit, checked] = metalwright.compile_shader(
                unit.source,
                include_dirs=[self.headers],
                constants=dict(unit.constants),
                checked=checked,
                recursion=unit.recursion,
            )
        return _libraries[unit, checked]

    def run(
        self, unit: Unit, host: str, *arguments: Any, threads: Any, group: Any, checked: bool = True
    ) -> None:
        """Launch a kernel; ``threads`` are those of the whole grid."""
        template, values = next((template, values) for name, template, values in unit.kernels if name == host)
        self.score("MLX", unit.file, template, "ran", f"{values} {unit.constants}")
        self.library(unit, checked)[host](*arguments, threads=threads, group_size=group)


@pytest.fixture
def bench(headers: Path, score: Callable[..., None]) -> Bench:
    return Bench(headers, score)
