"""The disk cache: hits across processes, damage, read-only folders, concurrent writers, the bound on its size."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from metalwright import toolchain
from metalwright.engine import Program, cache, load
from metalwright.msl import CompileOptions, Section, compile_msl
from tests.support import launch

TEXT = """#include <metal_stdlib>
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) { out[i] = SCALE * x[i]; }
"""
CHILD = """
import numpy as np
from tests.engine.test_cache import compiled, doubles
from metalwright import toolchain

calls = []
real = toolchain.clang
toolchain.clang = lambda *a: calls.append(a) or real(*a)
assert doubles(compiled())
print(len(calls))
"""
ROOT = Path(__file__).parents[2]


def compiled(scale: str = "2.0", file: str = "k.metal", **options: object) -> Program:
    text = TEXT.replace("SCALE", scale)
    return load(compile_msl((Section(text, file),), CompileOptions(**options), "k"))  # type: ignore[arg-type]


def doubles(program: Program) -> bool:
    x, out = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    launch(program, {"x": x}, {"out": out}, 5, 5)
    return out.tolist() == [0, 2, 4, 6, 8]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("METALWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def clang_runs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The runs of clang so far; there is none where the cache answered."""
    runs: list[object] = []
    real = toolchain.clang

    def counted(arguments: list[str], source: bytes) -> toolchain.ClangResult:
        runs.append(arguments)
        return real(arguments, source)

    monkeypatch.setattr(toolchain, "clang", counted)
    return runs


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def start_child(folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"METALWRIGHT_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD],
        env=environment,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_the_second_compilation_runs_no_compiler(folder: Path, clang_runs: list[object]) -> None:
    assert doubles(compiled())
    assert clang_runs
    clang_runs.clear()
    assert doubles(compiled())
    assert not clang_runs


def test_other_processes_hit_what_one_stored_even_when_they_start_together(folder: Path) -> None:
    together = [start_child(folder) for _ in range(2)]
    for child in together:
        output, errors = child.communicate(timeout=60)
        assert child.returncode == 0, errors
    assert not [path for path in entries(folder) if path.name.startswith(".tmp-")]
    later = start_child(folder)
    output, errors = later.communicate(timeout=60)
    assert later.returncode == 0, errors
    assert output.strip() == "0"


@pytest.mark.parametrize(
    "change",
    [
        {"scale": "2.0 "},
        {"file": "other.metal"},
        {"math_mode": "fast"},
        {"checked": False},
    ],
    ids=str,
)
def test_whatever_the_result_depends_on_is_part_of_the_key(
    folder: Path, clang_runs: list[object], change: dict[str, object]
) -> None:
    compiled()
    clang_runs.clear()
    assert doubles(compiled(**change))  # type: ignore[arg-type]
    assert clang_runs


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
        lambda data: data + b"\0",
        lambda data: b"\0" * len(data),
    ],
    ids=["empty", "short", "half", "a bit", "long", "zeros"],
)
def test_a_damaged_entry_is_a_miss_and_is_replaced(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    assert doubles(compiled())
    before = {path: path.read_bytes() for path in entries(folder)}
    assert before
    for path, data in before.items():
        path.write_bytes(damage(data))
    assert doubles(compiled())
    for path, data in before.items():
        if path.exists():  # the runtime's IR may be kept in memory: then nothing reads its entry again
            assert path.read_bytes() in (data, damage(data))
    assert sum(path.read_bytes() == data for path, data in before.items()) >= 2


def test_an_entry_that_is_a_folder_is_a_miss(folder: Path) -> None:
    assert doubles(compiled())
    for path in entries(folder):
        path.unlink()
        path.mkdir()
    assert doubles(compiled())


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocking = tmp_path / "file"
    blocking.write_text("")
    monkeypatch.setenv("METALWRIGHT_CACHE_DIR", str(blocking / "cache"))
    assert doubles(compiled())
    assert cache.stats().entries == 0
    assert cache.clear() == 0


def test_a_read_only_folder_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(mode=0o500)

    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")  # root may write anywhere: say no for it

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    assert doubles(compiled())
    assert entries(folder) == []


def test_the_size_is_bounded_and_what_was_used_last_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METALWRIGHT_CACHE_LIMIT_MB", "1")
    names = [cache.key(str(i)) for i in range(200)]
    for number, name in enumerate(names):
        cache.store(name, bytes([number]) * 20_000)
        os.utime(folder / name, (number, number)) if (folder / name).exists() else None
    # the bound may be passed between two looks at the folder, by no more than what was stored meanwhile
    assert cache.stats().bytes <= 1024 * 1024 + 64 * 20_032
    assert cache.fetch(names[-30]) == bytes([170]) * 20_000  # its use makes it the newest
    cache.trim()
    assert cache.stats().bytes <= 1024 * 1024
    assert cache.fetch(names[-30]) is not None
    assert cache.fetch(names[-1]) is not None
    assert cache.fetch(names[0]) is None


@pytest.mark.parametrize("text", ["", "many", "-1", "1.5"])
def test_a_limit_that_is_no_number_means_the_usual_one(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METALWRIGHT_CACHE_LIMIT_MB", text)
    assert cache.limit() == 512 * 1024 * 1024


def test_clear_deletes_entries_and_nothing_else(folder: Path) -> None:
    folder.mkdir()
    others = ["notes.txt", "a" * 63, "A" * 64, "." + "a" * 64, "a" * 64 + ".txt"]
    for name in others:
        (folder / name).write_text("mine")
    (folder / "sub").mkdir()
    (folder / "sub" / ("a" * 64)).write_text("mine")
    for i in range(3):
        cache.store(cache.key(str(i)), b"entry")
    (folder / ".tmp-left").write_bytes(b"torn")
    assert cache.stats().path == folder
    assert cache.clear() == 4
    assert sorted(path.name for path in folder.iterdir()) == sorted([*others, "sub"])
    assert (folder / "sub" / ("a" * 64)).read_text() == "mine"
    assert cache.stats().entries == 0


def test_a_key_depends_on_where_its_parts_end() -> None:
    assert cache.key("ab", "c") != cache.key("a", "bc")
    assert cache.key("a") == cache.key(b"a")
    assert cache.key("a", "") != cache.key("a")


FORKED = """
import os, sys
from tests.support import body, tensor
parameters = (tensor("float", 1, "out", 0), "uint gid [[thread_position_in_grid]]")
body("out[gid] = 1;", *parameters)
if os.fork() == 0:
    sys.exit(0)
assert os.wait()[1] == 0
body("out[gid] = 2;", *parameters)
"""


def test_a_forked_child_leaves_what_its_parent_compiles_with(tmp_path: Path) -> None:
    environment = os.environ | {"METALWRIGHT_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", FORKED], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("content", [b"{}", b"[]", b"\0" * 64, b"not json"])
def test_an_entry_with_a_true_digest_and_wrong_content_is_a_miss(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METALWRIGHT_CACHE_DIR", str(tmp_path))
    assert doubles(compiled())
    names = [path.name for path in tmp_path.iterdir()]
    assert len(names) >= 2
    for name in names:
        stored = cache.fetch(name)
        assert stored is not None
        if not stored.startswith(b"; ModuleID"):  # the runtime's IR, which has no structure to be wrong
            cache.store(name, content)
    assert doubles(compiled())
