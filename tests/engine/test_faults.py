"""Checked mode: every kind of fault is reported at its place in the MSL, and Python goes on."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

from metalwright.errors import (
    BarrierFault,
    DispatchError,
    KernelFault,
    KernelTimeout,
    MemoryFault,
    MetalwrightError,
    UnsupportedFeatureError,
)
from tests.support import FILE, body, buffer, launch, tensor, whole

N = 8
PARAMETERS = (
    tensor("float", 1, "x", 0),
    tensor("float", 1, "out", 1),
    "uint gid [[thread_position_in_grid]]",
)
TABLE = "constant float TABLE[4] = {1, 2, 3, 4};"


def run(
    src: str, helper: str = "", *, apart: bool = True, threads: int = N, timeout: float | None = None
) -> np.ndarray:
    """Launch over ``threads`` threads in threadgroups of 8; ``x`` and ``out`` are 8 floats, side by side or far apart."""
    memory = np.zeros(2 * N + (4096 if apart else 0), np.float32)
    x, out = memory[:N], memory[-N:]
    x[:] = np.arange(N)
    launch(body(src, *PARAMETERS, helper=helper), {"x": x}, {"out": out}, threads, N, timeout=timeout)
    return out


@dataclass(frozen=True)
class Case:
    """A kernel with one fault. ``near`` is the piece of the faulty line in which the caret stands."""

    name: str
    src: str
    line: int
    near: str
    message: str
    thread: int
    helper: str = ""
    kind: type[KernelFault] = MemoryFault


CASES = [
    Case("a copy of a vector", "float4 v = *(device float4*)&x[1]; out[gid] = v[gid & 3];", 1, "*(device float4*)",
         r"reads 16 bytes at an address that is not a multiple of 16", 0),
    Case("on a line that is rewritten", "threadgroup float t[64]; t[gid] = 1.0; out[gid] = t[int(gid) - 1] * 2.0;", 1,
         "t[int(gid) - 1]", r"4 bytes before the start of the threadgroup variable 't'", 0),
    Case("past the end", "out[gid] = x[gid + 1];", 1, "x[gid + 1]", r"reads element 8 of 'x', which has 8 .*just past the end", 7),
    Case("before the start", "out[gid] =\n  x[int(gid) - 1];", 2, "x[int(gid) - 1]", r"reads element -1 of 'x'.* 4 bytes before", 0),
    Case("a write", "out[gid] = 1;\n\tout[gid + 2] = 2;", 2, "out[gid + 2] = 2", r"writes element 8 of 'out'.*just past", 6),
    Case("an input", "out[gid] = 1;\n  x[gid] = 2;", 2, "x[gid] = 2", r"writes to 'x', which is an input", 0),
    Case("a private array", "float a[4] = {1, 2, 3, 4};\nfor (int i = 0; i < 4; i++) a[i] += x[i];\nout[gid] = a[gid];",
         3, "a[gid]", r"reads 4 bytes, just past the end of a private variable, which has 16 bytes", 4),
    Case("a private array, written", "float a[4];\nfor (uint i = 0; i <= gid; i++)\n  a[i] = x[i];\nout[gid] = a[0];",
         3, "a[i] = x[i]", r"writes 4 bytes, just past the end of a private variable", 4),
    Case("a vector", "float3 v = x[0];\nout[gid] = 0;\nif (gid == 5) out[gid] = v[gid];",
         3, "v[gid]", r"reads 4 bytes.*a private variable", 5),
    Case("a threadgroup array", "threadgroup float a[4], b[8];\nb[gid] = 2;\na[gid] = 1;\nthreadgroup_barrier(mem_flags::mem_threadgroup);\n"
         "out[gid] = a[gid % 4] + b[gid];", 3, "a[gid] = 1", r"writes 4 bytes, just past the end of the threadgroup variable 'a', which has 16 bytes", 4),
    Case("rows of a threadgroup array", "threadgroup float a[2][4];\nif (gid == 3) out[gid] = a[gid - 1][0];",
         2, "a[gid - 1][0]", r"reads 4 bytes, just past the end of the threadgroup variable 'a', which has 32 bytes", 3),
    Case("a constant table", "out[gid] = TABLE[gid];", 1, "TABLE[gid]", r"reads 4 bytes, just past the end of a constant, which has 16", 4, TABLE),
    Case("a wild read", "device float* p = (device float*)(ulong)(gid * 8 + 4);\nout[gid] = *p;", 2, "*p", r"reads 4 bytes through a pointer to nothing", 0),
    Case("a wild write", "device float* p = (device float*)0x7000000000ul;\nif (gid == 2) p[gid] = 1;", 2, "p[gid] = 1", r"writes 4 bytes through a pointer to nothing", 2),
    Case("misaligned", "device float* p = (device float*)((device char*)&x[0] + 1);\nout[gid] = *p;", 2, "*p", r"reads 4 bytes at an address that is not a multiple of 4", 0),
    Case("pointers in a struct", "struct S { device float* p[2]; };\nS s;\ns.p[0] = &x[0];\ns.p[1] = &out[0];\nout[gid] = s.p[gid & 1][gid + 2000];",
         5, "s.p[gid & 1][gid + 2000]", r"reads element 2000 of 'x'", 0),
    Case("a pointer that was chosen", "device float* p = gid & 1 ? &x[0] : &out[0];\nout[gid] = p[gid + 2];",
         2, "p[gid + 2]", r"reads element 8 of 'out'.*just past the end", 6),
    Case("a pointer that moves", "device float* p = &x[0];\nfor (uint i = 0; i < gid; i++) p += 3;\nout[gid] = *p;", 3, "*p", r"reads element 9 of 'x'", 3),
    Case("a helper", "out[gid] = third(&x[gid]);", 1, "third", r"reads element 8 of 'x'", 6,
         "static float third(device float* p) {\n  return p[2];\n}"),
    Case("far away", "out[gid] = x[gid * 100000000];", 1, "x[gid * 100000000]", r"element 100000000 of 'x'", 1),
    Case("an overflowing index", "int i = 2147483647;\nout[gid] = x[i + int(gid) + 1];", 2, "x[i + int(gid) + 1]", r"element -2147483648 of 'x'", 0),
    Case("a slice", "out[gid] = x.slice(3)[gid];", 1, "x.slice(3)[gid]", r"reads element 8 of 'x'", 5),
    Case("ended threads", "if (gid < 3) return;\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nout[gid] = 1;", 2,
         "threadgroup_barrier", r"waits at this barrier, but other threads of its threadgroup have ended", 3, kind=BarrierFault),
    Case("two barriers", "if (gid < 3) threadgroup_barrier(mem_flags::mem_none);\nelse threadgroup_barrier(mem_flags::mem_none);", 1,
         "threadgroup_barrier", r"others of its threadgroup wait at k\.src:2:6", 0, kind=BarrierFault),
    Case("two copies of a barrier", "auto wait = [&](auto) {\n  threadgroup_barrier(mem_flags::mem_none); };\nif (gid < 3) wait(1);\nelse wait(1.0f);", 2,
         "threadgroup_barrier", r"others of its threadgroup wait at another copy of it", 0, kind=BarrierFault),
]  # fmt: skip


def assert_site(fault: KernelFault, src: str, line: int, near: str) -> None:
    assert fault.site is not None
    assert (fault.site.file, fault.site.line) == (FILE, line)
    written = src.split("\n")[line - 1]
    start = written.rindex(near)
    assert start < fault.site.column <= start + len(near), f"caret at {fault.site.column} of {written!r}"
    shown = str(fault).split("\n")
    assert shown[1] == f"    {written}"
    # the caret stands in its column, behind the same tabs
    assert shown[2].index("^") == 4 + fault.site.column - 1
    assert shown[2].count("\t") == written[: fault.site.column - 1].count("\t")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fault_names_its_place_its_object_and_its_thread(case: Case) -> None:
    with pytest.raises(case.kind) as caught:
        run(case.src, case.helper)
    assert re.search(case.message, str(caught.value)), str(caught.value)
    assert "kernel 'k': " in str(caught.value)
    assert caught.value.thread == (case.thread, 0, 0)
    if case.name != "a helper":
        assert_site(caught.value, case.src, case.line, case.near)
    # nothing is left behind: the same memory serves the next launch
    np.testing.assert_array_equal(run("out[gid] = x[gid] * 2;"), np.arange(N) * 2.0)


def test_a_fault_inside_a_helper_is_shown_there() -> None:
    helper = "static float third(device float* p) {\n  return p[2];\n}"
    with pytest.raises(MemoryFault) as caught:
        run("out[gid] = third(&x[gid]);", helper)
    assert caught.value.site is not None
    assert (caught.value.site.file, caught.value.site.line) == ("k.helper_src", 2)
    assert "return p[2];" in str(caught.value)


@pytest.mark.parametrize(
    "src",
    [
        "out[gid] = x[gid + 1];",
        "out[gid] = x[gid + 8];",
        "device float* p = &x[0];\nout[gid] = p[gid + 5];",
        "struct View { device float* p; uint n; };\nView v = {&x[0], 8};\nout[gid] = v.p[gid + 3];",
    ],
)
def test_reading_past_an_input_into_the_result_behind_it_is_found(src: str) -> None:
    with pytest.raises(MemoryFault, match=r"reads element 8 of 'x', which has 8"):
        run(src, apart=False)


def test_writing_past_a_private_array_does_not_reach_the_next() -> None:
    src = "float a[4] = {}, b[4] = {};\nfor (uint i = 0; i < 5 + gid; i++) { a[i] = 1; b[i % 4] += a[i % 4]; }\nout[gid] = b[0];"
    with pytest.raises(MemoryFault, match="private variable"):
        run(src)


@pytest.mark.parametrize(
    ("src", "near"),
    [
        ("int i = 0;\nwhile (i >= 0) { out[gid] += 1; i ^= 1; }", "while"),
        ("volatile int i = 0;\nwhile (true) { i = i + 1; }", "while"),
        ("\nwhile (true) { }", "while"),
        ("\nwhile (true) threadgroup_barrier(mem_flags::mem_none);", "while"),
        ("\nwhile (true) out[gid] = simd_sum(1.0);", "simd_sum"),
        ("\nfor (uint i = 0; i >= 0u; i++) if (i == 20u) out[gid] = i;", "for"),
        ("\nif (gid > 3) while (true) out[gid] += 1;", "while"),
    ],
)
def test_a_loop_without_end_is_stopped(src: str, near: str) -> None:
    with pytest.raises(KernelTimeout, match="stopped after 0.1 s") as caught:
        run(src, timeout=0.1)
    assert caught.value.site is not None
    written = src.split("\n")[1]
    assert caught.value.site.line == 2
    assert written[caught.value.site.column - 1 :].startswith(near)
    np.testing.assert_array_equal(run("out[gid] = x[gid];"), np.arange(N))


def test_a_fault_in_one_of_many_workers() -> None:
    text = """
kernel void k(device const int* x, device int* out, uint at [[thread_position_in_grid]]) {
  out[at] = at == 140000 ? x[at + 100000] : x[at];
}"""
    count = 200_000
    x = np.arange(count, dtype=np.int32)
    for workers in (1, 2, None):
        out = np.zeros_like(x)
        with pytest.raises(MemoryFault, match=r"element 240000 of 'x'") as caught:
            launch(whole(text), {"x": x}, {"out": out}, count, 64, max_workers=workers)
        assert caught.value.thread == (140_000, 0, 0)
    good = whole(text.replace("at == 140000", "at == 140000000"))
    out = np.zeros_like(x)
    launch(good, {"x": x}, {"out": out}, count, 64)
    np.testing.assert_array_equal(out, x)


def test_the_thread_of_a_fault_has_three_dimensions() -> None:
    text = """
kernel void k(device int* out, uint3 at [[thread_position_in_grid]], uint3 n [[threads_per_grid]]) {
  uint flat = (at.z * n.y + at.y) * n.x + at.x;
  out[all(at == uint3(5, 2, 1)) ? 1000000 : flat] = 1;
}"""
    with pytest.raises(MemoryFault, match="just|past") as caught:
        launch(whole(text), {}, {"out": np.zeros(7 * 3 * 2, np.int32)}, (7, 3, 2), (4, 2, 2))
    assert caught.value.thread == (5, 2, 1)


def test_what_is_right_runs_the_same_checked_and_unchecked() -> None:
    src = """
float mine[4];
for (int i = 0; i < 4; i++) mine[i] = x[(gid + i) % 8] * TABLE[i];
threadgroup float all[8];
all[gid] = mine[0] + mine[1] + mine[2] + mine[3];
threadgroup_barrier(mem_flags::mem_threadgroup);
device float* p = gid & 1 ? &x[0] : &out[0];
out[gid] = 0;
threadgroup_barrier(mem_flags::mem_device);
out[gid] = all[7 - gid] + (gid & 1 ? p[gid] : p[gid]);
"""
    x = np.arange(N, dtype=np.float32)
    sums = np.array([sum(x[(g + i) % 8] * (i + 1) for i in range(4)) for g in range(N)], np.float32)
    expected = sums[::-1] + np.where(np.arange(N) & 1, x, 0)
    for checked in (True, False):
        out = np.full(N, np.nan, np.float32)
        launch(body(src, *PARAMETERS, helper=TABLE, checked=checked), {"x": x}, {"out": out}, N, N)
        np.testing.assert_array_equal(out, expected)


def test_private_memory_is_bounded() -> None:
    loop = "float big[SIZE];\nfor (uint i = 0; i < SIZE; i++) big[i] = i;\nout[gid] = big[gid * (SIZE / 8)];"
    with pytest.raises(DispatchError, match=r"private variables take 1200000 bytes a thread"):
        run(loop.replace("SIZE", "300000"))
    np.testing.assert_array_equal(run(loop.replace("SIZE", "100000")), np.arange(N) * 12500.0)


@pytest.mark.parametrize(
    ("src", "message"),
    [
        ("int a[1 << 28];\na[gid] = 1;\nout[gid] = a[gid + 1];", "private variables take 1073741824 bytes"),
        (
            "struct S { char a[1 << 26]; } s;\ns.a[gid] = 1;\nout[gid] = s.a[gid];",
            "variables take 67108864 bytes",
        ),
        ("out[gid] = table[gid];", r"program-scope constants take 10737\d+ bytes; at most 67108864 run here"),
    ],
)
def test_what_no_memory_holds_is_refused_before_it_is_made(src: str, message: str) -> None:
    with pytest.raises(DispatchError, match=message):
        run(src, "constant int table[1 << 28] = {1, 2};")


def test_deep_chains_of_calls_run() -> None:
    chain = "static float f0(float v) { return v; }\n"
    chain += "".join(f"static float f{i}(float v) {{ return f{i - 1}(v + 1.0f); }}\n" for i in range(1, 200))
    np.testing.assert_array_equal(run("out[gid] = f199(x[gid]);", chain), np.arange(N) + 199.0)


@pytest.mark.parametrize(
    "helper",
    [
        "static float f(int n) { return n <= 0 ? 1.0f : n * f(n - 1); }",
        "static float g(int n);\nstatic float f(int n) { return n <= 0 ? 1.0f : g(n - 1); }\nstatic float g(int n) { return f(n) + 1; }",
        "template <typename T> T f(T n) { return n <= 0 ? T(1) : n * f(n - 1); }",
    ],
)
def test_recursion_is_an_error_of_its_own(helper: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"function '[fg]' calls itself"):
        run("out[gid] = f(int(gid));", helper)


def test_every_fault_is_under_the_root() -> None:
    for kind in (MemoryFault, BarrierFault, KernelTimeout):
        assert issubclass(kind, KernelFault)
        assert issubclass(kind, MetalwrightError)


def test_what_was_written_is_known() -> None:
    written = np.zeros(N * 4, np.uint8)
    x, out = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    program = body("if (gid % 3 == 0) out[gid] = 0;", *PARAMETERS)
    program.launch(
        [buffer("x", x, writable=False), buffer("out", out, writable=True, written=written)],
        (N, 1, 1),
        (N, 1, 1),
    )
    np.testing.assert_array_equal(written.reshape(N, 4).all(1), np.arange(N) % 3 == 0)
    np.testing.assert_array_equal(written.reshape(N, 4).any(1), np.arange(N) % 3 == 0)
