"""Functions are inlined with their variables in registers: less code, and the same faults."""

from __future__ import annotations

import re

import numpy as np
import pytest

from metalwright.engine import builder, codegen
from metalwright.errors import MemoryFault, MetalwrightError
from tests.support import launch, whole

CHOICES = """#include <metal_stdlib>
using namespace metal;
template <class F> void choose(bool what, F f) { if (what) f(3); else f(4); }
kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  choose(false, [&](int a) { choose(true, [&](int b) { choose(false, [&](int c) {
    for (int j = 0; j < 4; ++j) out[i] = out[i] * 10 + a * b + c;
  }); }); });
}
"""


def test_branches_that_arguments_rule_out_are_no_code() -> None:
    kernel = whole(CHOICES)
    # one loop is left of the eight that the choices write down: each has one product of a float
    assert len(re.findall(r"\bfmul\b", kernel.module.text)) == 1
    out = np.zeros(2, np.float32)
    launch(kernel, {}, {"out": out}, 2, 2)
    assert out.tolist() == [16 * 1111.0] * 2


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("out[i] = divide(7, 0);", "zero"),
        ("int a[3] = {1, 2, 3}; out[i] = at(a, 5);", "past the end of a private variable"),
        ("int a[3] = {1, 2, 3}; set(a, 4); out[i] = a[1];", "past the end of a private variable"),
        ("out[i] = at(table, 9);", "past the end of a constant"),
    ],
)
def test_what_inlining_shows_to_be_wrong_is_still_a_fault(line: str, what: str) -> None:
    source = f"""#include <metal_stdlib>
using namespace metal;
constant int table[4] = {{1, 2, 3, 4}};
int divide(int a, int b) {{ return a / b; }}
int at(thread const int* a, int index) {{ return a[index]; }}
int at(constant int* a, int index) {{ return a[index]; }}
void set(thread int* a, int index) {{ a[index] = 1; }}
kernel void k(device float* out, uint i [[thread_position_in_grid]]) {{ {line} }}
"""
    with pytest.raises(MetalwrightError, match=what):
        launch(whole(source), {}, {"out": np.zeros(2, np.float32)}, 2, 2)


def test_the_same_program_gives_the_same_ir_every_time() -> None:
    """The cache is addressed by it."""
    text = whole(CHOICES).module.text
    assert builder.inline(text, "k") == builder.inline(text, "k")


def test_a_kernel_of_very_many_checks_finds_the_one_that_fails() -> None:
    count = codegen._MANY_CHECKS // 2 + 1
    lines = "\n".join(f"  x[{n} + 2 * i] = x[{n + 1} + i] + {n};" for n in range(count))
    source = f"#include <metal_stdlib>\nkernel void k(device float* x, uint i [[thread_position_in_grid]]) {{\n{lines}\n}}\n"
    kernel = whole(source)
    x = np.arange(count + 2, dtype=np.float32)
    expected = x.copy()
    for n in range(count):
        expected[n] = expected[n + 1] + np.float32(n)
    launch(kernel, {}, {"x": x}, 1, 1)
    assert (x == expected).all()
    with pytest.raises(MemoryFault, match="just past the end") as caught:
        launch(kernel, {}, {"x": np.zeros(count + 1, np.float32)}, 2, 2)
    assert caught.value.site is not None


@pytest.mark.parametrize(
    "body",
    [
        "int a[4] = {1, 2, 3, 4}; out[i] = a[4];",
        "int a[4] = {1, 2, 3, 4}; out[i] = a[-1];",
        "int a[4] = {1, 2, 3, 4}; a[4] = 5; out[i] = a[0];",
        "int a[2][2] = {{1, 2}, {3, 4}}; out[i] = a[2][0];",
        "int4 v = 1; out[i] = v[4];",
    ],
)
def test_an_index_that_the_compiler_knows_is_checked_too(body: str) -> None:
    head = "#include <metal_stdlib>\nusing namespace metal;\n"
    kernel = whole(f"{head}kernel void k(device float* out, uint i [[thread_position_in_grid]]) {{ {body} }}")
    with pytest.raises(MemoryFault, match="a private variable, which has 16 bytes"):
        launch(kernel, {}, {"out": np.zeros(1, np.float32)}, 1, 1)


@pytest.mark.parametrize(
    ("body", "helper"),
    [
        ("int b[4]; thread int* p = b; *p++ = 1; *p++ = 2; *p++ = 3; *p++ = 4; *p++ = 5; out[i] = b[3];", ""),
        (
            "float4 v; uint n = 0; v[n++] = 1; v[n++] = 2; v[n++] = 3; v[n++] = 4; v[n++] = 5; out[i] = v[3];",
            "",
        ),
        ("S s = {}; f(&s.b); out[i] = s.a;", "struct S { int a, b; }; void f(thread int* p) { p[1] = 9; }"),
        ("int a[4] = {}; size_t j = 4; a[j] = 1; out[i] = a[0];", ""),
        ("int a[4] = {}; size_t j = 4; auto f = [&]() { a[j] = i; }; f(); out[i] = a[0];", ""),
        ("half h[8] = {}; thread half4* p = (thread half4*)h; p++; p++; *p = half4(1); out[i] = h[0];", ""),
        ("int a[4] = {}; struct { thread int* at; } it = {a}; it.at += 4; *it.at = 1; out[i] = a[0];", ""),
    ],
)
def test_a_write_that_the_compiler_works_out_to_be_outside_is_no_write_that_never_was(
    body: str, helper: str
) -> None:
    head = f"#include <metal_stdlib>\nusing namespace metal;\n{helper}\n"
    kernel = whole(f"{head}kernel void k(device float* out, uint i [[thread_position_in_grid]]) {{ {body} }}")
    with pytest.raises(MemoryFault, match="just past the end of a private variable"):
        launch(kernel, {}, {"out": np.zeros(1, np.float32)}, 1, 1)
