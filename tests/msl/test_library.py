"""Programs of many kernels: checked as a whole, compiled one kernel at a time."""

from __future__ import annotations

import numpy as np
import pytest

from metalwright.engine import load
from metalwright.errors import CompileError, RefusedSourceError
from metalwright.msl import CompileOptions, Library, Section, compiler
from tests.support import launch

X = np.arange(8, dtype=np.float32)
SCALE = """
template <typename T, int N>
kernel void scale(device T* out [[buffer(1)]], constant T* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = N * x[i];
}
#define MAKE(T, N) template [[host_name("scale_" #N)]] kernel void scale<T, N>(device T*, constant T*, uint);
"""
PLAIN = "kernel void add_{0}(constant float* x, device float* out, uint i [[thread_position_in_grid]]) {{ out[i] = x[i] + {0}; }}"


def library(text: str, checked: bool = True) -> Library:
    return Library((Section(text, "k.metal"),), CompileOptions(checked=checked), "k")


def run(made: Library, name: str) -> np.ndarray:
    out = np.zeros(8, np.float32)
    launch(load(made.module(name), name), {"x": X}, {"out": out}, 8, 8)
    return out


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("count", [compiler.FEW, compiler.FEW + 1, 40])
def test_each_of_many_kernels(count: int, checked: bool) -> None:
    text = SCALE + "\n".join(f"MAKE(float, {n})" for n in range(count - 1)) + "\n" + PLAIN.format(7)
    made = library(text, checked)
    assert [kernel.name for kernel in made.kernels] == [*(f"scale_{n}" for n in range(count - 1)), "add_7"]
    for factor in (0, count - 2):
        np.testing.assert_array_equal(run(made, f"scale_{factor}"), factor * X)
    np.testing.assert_array_equal(run(made, "add_7"), X + 7)


def test_plain_kernels() -> None:
    made = library("\n".join(PLAIN.format(n) for n in range(20)))
    np.testing.assert_array_equal(run(made, "add_13"), X + 13)


def test_the_code_is_that_of_one_kernel() -> None:
    made = library(SCALE + "\n".join(f"MAKE(float, {n})" for n in range(20)))
    one = made.module("scale_3")
    assert [kernel.name for kernel in one.kernels] == ["scale_3"]
    assert "@__mw_entry_0(" in one.text and "@__mw_entry_1(" not in one.text
    assert "@_Z5scaleIfLi4E" not in one.text  # no other instance of the template
    with pytest.raises(KeyError, match="no kernel 'scale_99'"):
        made.signature("scale_99")


def test_all_of_it_is_checked_at_once() -> None:
    many = "\n".join(f"MAKE(float, {n})" for n in range(20))
    with pytest.raises(CompileError, match=r"k.metal:4:14: error: invalid operands to binary expression"):
        library(SCALE + "struct Odd { float a; };\n" + many + "\nMAKE(Odd, 99)")
    with pytest.raises(RefusedSourceError):
        library(SCALE + many + '\nkernel void k(device float* x) { asm("nop"); }')


def test_a_function_that_is_nowhere_is_refused_when_its_kernel_is_asked_for() -> None:
    text = SCALE + "\n".join(f"MAKE(float, {n})" for n in range(20))
    text += "\nfloat outside(float x);\nkernel void k(device float* x) { *x = outside(*x); }"
    made = library(text)
    np.testing.assert_array_equal(run(made, "scale_3"), 3 * X)
    with pytest.raises((CompileError, RefusedSourceError), match="outside"):
        made.module("k")


def test_a_function_of_metal_comes_before_a_template_of_the_same_name() -> None:
    """Metal's functions are no templates, so ``::pow`` of floats is Metal's, whatever template is in sight."""
    text = """
namespace mine { template <typename T, typename U, int = 0> float pow(T, U) { return -1; }
                 template <typename T> T exp2(T) { return -1; } }
using namespace mine;
using namespace metal;
kernel void k(constant float* x [[buffer(0)]], device float* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  out[i] = ::pow(x[i], 2.0f) + float(::exp2(half(x[i])));
}"""
    np.testing.assert_array_equal(run(library(text), "k"), X * X + np.exp2(X))
