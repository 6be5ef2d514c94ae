"""Everything is inlined, so calls multiply: what would become too large is refused before it is made."""

from __future__ import annotations

import time

import pytest
import torch

from metalwright import UnsupportedFeatureError, compile_shader
from metalwright.msl import inlined_size
from metalwright.msl.inlined_size import inlined_sizes

both = pytest.mark.parametrize("checked", [True, False])


def tower(levels: int) -> str:
    """Return a kernel whose functions call each other five times a level."""
    lines = ["int f0(int n) { return n * n + 1; }"]
    for j in range(levels):
        calls = " + ".join(f"f{j}(n + {k})" for k in range(5))
        lines.append(f"int f{j + 1}(int n) {{ return {calls}; }}")
    lines.append("kernel void calls_many(device int* x, uint i [[thread_position_in_grid]]) {")
    return "\n".join([*lines, f"  x[i] = f{levels}(x[i]);", "}"])


@both
def test_calls_that_multiply_are_refused(checked: bool) -> None:
    began = time.monotonic()
    with pytest.raises(
        UnsupportedFeatureError, match=r"function 'f\d+' \(in kernel 'calls_many'\) has \d+ instructions"
    ):
        _ = compile_shader(tower(40), checked=checked).calls_many
    # 5 ** 40 copies would take for ever; one run of clang takes a second or two
    assert time.monotonic() - began < 60


@both
def test_a_few_levels_run(checked: bool) -> None:
    x = torch.arange(4, dtype=torch.int32)
    compile_shader(tower(3), checked=checked).calls_many(x)

    def f(level: int, n: int) -> int:
        return n * n + 1 if level == 0 else sum(f(level - 1, n + k) for k in range(5))

    assert x.tolist() == [f(3, n) for n in range(4)]


def test_sizes_are_those_of_the_copies() -> None:
    calls = {"k": ["g", "f", "g"], "f": ["g", "g", "h"], "g": ["h"], "h": [], "lone": ["f"]}
    own = {"k": 100, "f": 10, "g": 5, "h": 1, "lone": 7}
    # by hand: g = 5 + 1, f = 10 + 2 * 6 + 1, k = 100 + 2 * 6 + 23
    assert inlined_sizes(calls, own) == {"h": 1, "g": 6, "f": 23, "k": 135, "lone": 30}


def test_functions_that_call_themselves_are_counted_once() -> None:
    sizes = inlined_sizes({"k": ["even"], "even": ["odd"], "odd": ["even"]}, {"k": 1, "even": 10, "odd": 20})
    assert sizes["k"] == 31


def test_a_kernel_that_is_itself_too_large_is_named() -> None:
    ir = "define void @entry() {\n  call void @f()\n  call void @f()\n}\ndefine void @f() {\n  ret void\n}\n"
    inlined_size.check("file", ir, {"entry": "k"}, {}, most=7)
    with pytest.raises(UnsupportedFeatureError, match="kernel 'k' has 7 instructions"):
        inlined_size.check("file", ir, {"entry": "k"}, {}, most=6)
