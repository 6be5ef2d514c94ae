"""The headers before a program are compiled once, and kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import metalwright
from metalwright import toolchain
from metalwright.engine import cache
from metalwright.msl import headers

SOURCE = "using namespace metal;\nkernel void k(device float* x, uint i [[thread_position_in_grid]]) {{ x[i] += {}; }}"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Return what clang was run on, of a process that starts with an empty cache."""
    monkeypatch.setenv("METALWRIGHT_CACHE_DIR", str(tmp_path))
    headers._precompiled.cache_clear()
    seen: list[str] = []
    clang = toolchain.clang

    def spy(arguments: Sequence[str], source: bytes) -> toolchain.ClangResult:
        seen.append("headers" if "c++-header" in arguments else "program")
        return clang(arguments, source)

    monkeypatch.setattr(toolchain, "clang", spy)
    return seen


def add(number: int, **options: bool) -> float:
    x = torch.zeros(1)
    metalwright.compile_shader(SOURCE.format(number), **options).k(x, threads=1, group_size=1)
    return x.item()


def test_kernels_share_the_compiled_headers(runs: list[str]) -> None:
    assert [add(1), add(2)] == [1, 2]
    assert runs == ["headers", "program", "program"]


def test_another_process_finds_them(runs: list[str]) -> None:
    add(1)
    headers._precompiled.cache_clear()
    add(2)
    assert runs == ["headers", "program", "program"]


def test_other_options_have_their_own(runs: list[str]) -> None:
    assert [add(1), add(1, checked=False)] == [1, 1]
    # without checks clang optimises what it wrote in one more run, after its size is known
    assert runs == [*["headers", "program"] * 2, "program"]


def test_damage_is_a_miss(runs: list[str], tmp_path: Path) -> None:
    add(1)
    largest = max(tmp_path.iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1] + b"?")
    headers._precompiled.cache_clear()
    assert add(2) == 2
    assert runs == ["headers", "program"] * 2


def test_a_folder_that_cannot_be_written(
    runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("METALWRIGHT_CACHE_DIR", str(tmp_path / "file"))
    assert [add(1), add(2)] == [1, 2]
    assert runs == ["headers", "program", "program"]
    assert cache.stats().entries == 0
