"""Every kernel of every header compiles: one instantiation of each at least."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from nax_units import ALL as NAX
from nax_units import BROKEN
from units import ALL, KERNELS, Unit

from metalwright.errors import CompileError

_KERNEL = re.compile(
    r"^\[\[kernel(?:, max_total_threads_per_threadgroup\([^\n]*\))?\]\]\s+void\s+(\w+)\(", re.MULTILINE
)


@pytest.mark.parametrize(
    "unit",
    (*ALL, *NAX),
    ids=lambda unit: f"{unit.file}:{unit.kernels[0][0] if unit.kernels else 'no-kernels'}",
)
def test_compiles(unit: Unit, bench, score: Callable[..., None]) -> None:
    library = bench.library(unit)
    assert {host for host, _, _ in unit.kernels} <= set(library)
    for _, template, _ in unit.kernels:
        score("MLX", unit.file, template, "compiled")


@pytest.mark.parametrize("unit", BROKEN, ids=lambda unit: unit.kernels[0][1])
def test_what_compiles_nowhere_is_said_to_be_wrong(unit: Unit, bench, score: Callable[..., None]) -> None:
    message, reason = BROKEN[unit]
    with pytest.raises(CompileError, match=re.escape(message)):
        bench.library(unit)
    score("MLX", unit.file, unit.kernels[0][1], "unsupported", reason)


def test_every_kernel_is_listed(headers: Path, score: Callable[..., None]) -> None:
    listed = {(unit.file, template) for unit in (*ALL, *NAX, *BROKEN) for _, template, _ in unit.kernels}
    found = set()
    for path in sorted((headers / KERNELS).rglob("*.h")):
        file = path.relative_to(headers / KERNELS).as_posix()
        for name in _KERNEL.findall(path.read_text()):
            found.add((file, name))
            score("MLX", file, name, "found")
    assert len(found) > 150
    assert listed <= found, listed - found
    missing = found - listed
    assert not missing, missing
