"""What the tests of MLX's kernels share: its headers, and a bench to compile and launch kernels on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headers import NAME, UnavailableError, include_folder
from units import Unit

import metalwright

_libraries: dict[tuple[Unit, bool], metalwright.ShaderLibrary] = {}


@pytest.fixture(scope="session")
def headers(request: pytest.FixtureRequest) -> Path:
    """Return the folder to include MLX's headers from."""
    try:
        return include_folder(Path(request.config.cache.mkdir(NAME)))  # type: ignore[union-attr]
    except UnavailableError as error:
        pytest.skip(str(error))


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
