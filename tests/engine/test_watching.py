"""Watched kernels: races found from one execution, in any order of the threads, and silence where there is none."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from metalwright.engine import BadNumber, Buffer, Race, Seen, Uninitialised, load
from metalwright.msl import CompileOptions, Section, compile_msl

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
PARAMETERS = (
    "device const float* x [[buffer(0)]], device float* y [[buffer(1)]], device atomic_uint* count [[buffer(2)]], "
    "device half* h [[buffer(3)]], threadgroup float* given [[threadgroup(0)]], "
    "uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]], "
    "uint g [[threadgroup_position_in_grid]], uint n [[threads_per_threadgroup]], "
    "uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]]"
)
THREADS, GROUP = 256, 128


@functools.cache
def program(body: str) -> Any:
    text = f"{HEAD}kernel void k({PARAMETERS}) {{\n{body}\n}}\n"
    return load(
        compile_msl((Section(text, "k.metal"),), CompileOptions(watched=True), "k"), "k", watched=True
    )


def seen(body: str, *, reverse: bool = False, fresh: bool = False) -> list[Seen]:
    x, y = np.arange(THREADS, dtype=np.float32), np.zeros(THREADS, np.float32)
    count, h = np.zeros(4, np.uint32), np.zeros(THREADS + 1, np.float16)
    arguments = [
        Buffer("x", x.ctypes.data, "f32", x.shape, x.nbytes, False),
        Buffer("y", y.ctypes.data, "f32", y.shape, y.nbytes, True, fresh=fresh),
        Buffer("count", count.ctypes.data, "ui32", count.shape, count.nbytes, True),
        Buffer("h", h.ctypes.data, "f16", h.shape, h.nbytes, True),
    ]
    report = program(body).launch(
        arguments, (THREADS, 1, 1), (GROUP, 1, 1), threadgroup_memory=[4 * GROUP], reverse=reverse
    )
    assert report.workers == 1
    return list(report.seen)


def races(body: str, **options: Any) -> list[Race]:
    return [one for one in seen(body, **options) if isinstance(one, Race)]


def lines(race: Race) -> set[int]:
    """Return the lines of the body, from 1, where a race's accesses are."""
    assert race.now.site is not None and race.before.site is not None
    return {race.now.site.line - 3, race.before.site.line - 3}


any_order = pytest.mark.parametrize("reverse", [False, True])

REDUCTION = """
threadgroup float partial[4];
float sum = simd_sum(x[i]);
if (lane == 0) partial[simd] = sum;
{first}
float total = partial[0] + partial[1] + partial[2] + partial[3];
{second}
if (lane == 0) partial[simd] = total * x[i];
threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = partial[simd];
"""
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


@any_order
@pytest.mark.parametrize(
    ("first", "second", "lines_raced"),
    [
        (BARRIER, BARRIER, set()),
        ("", BARRIER, {4, 6}),
        # the bug of many shipped reductions: the next write may come before another simdgroup's read
        (BARRIER, "", {6, 8}),
        ("threadgroup_barrier(mem_flags::mem_none);", BARRIER, {4, 6}),
        ("threadgroup_barrier(mem_flags::mem_device);", BARRIER, {4, 6}),
        ("threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);", BARRIER, set()),
        ("simdgroup_barrier(mem_flags::mem_threadgroup);", BARRIER, {4, 6}),
    ],
)
def test_a_reduction_and_its_barriers(first: str, second: str, lines_raced: set[int], reverse: bool) -> None:
    found = races(REDUCTION.format(first=first, second=second), reverse=reverse)
    assert {frozenset(lines(race)) for race in found} == ({frozenset(lines_raced)} if lines_raced else set())
    for race in found:
        assert (race.memory, race.space, race.other_threadgroup) == ("partial", "threadgroup", False)
        assert race.offset in (0, 4, 8, 12)
        assert race.barrier_between == (first.startswith("threadgroup") and "mem_threadgroup" not in first)


def test_a_race_tells_both_threads_and_values() -> None:
    (race,) = races("threadgroup float s[2];\nif (i < 2) s[1] = x[i] + 1;")
    assert (race.memory, race.offset, race.count) == ("s", 4, 1)
    assert (race.before.thread, race.before.how) == ((0, 0, 0), "writes")
    assert (race.now.thread, race.now.how) == ((1, 0, 0), "writes")
    assert np.frombuffer(race.before.value, np.float32) == 1
    assert np.frombuffer(race.now.value, np.float32) == 2
    assert race.now.excerpt == "if (i < 2) s[1] = x[i] + 1;"
    assert str(race.now.site).startswith("k.metal:5:")


@any_order
@pytest.mark.parametrize(
    "body",
    [
        "y[i] = x[i];",
        "threadgroup float s[128]; s[t] = x[i]; y[i] = s[t];",
        "threadgroup float s[128]; s[t] = x[i]; simdgroup_barrier(mem_flags::mem_threadgroup); y[i] = s[t ^ 1];",
        "threadgroup float s[128]; s[t] = x[i]; float all = simd_sum(1.0f); y[i] = s[t ^ 31] + all;",
        f"given[t] = x[i]; {BARRIER} y[i] = given[n - 1 - t];",
        "atomic_fetch_add_explicit(&count[0], 1u, memory_order_relaxed);",
        "threadgroup atomic_uint c; if (t == 0) atomic_store_explicit(&c, 0u, memory_order_relaxed);"
        f"{BARRIER} atomic_fetch_add_explicit(&c, 1u, memory_order_relaxed); {BARRIER}"
        "y[i] = atomic_load_explicit(&c, memory_order_relaxed);",
        # everyone writes the same: what is read afterwards does not depend on who did
        f"threadgroup float s; s = 3; {BARRIER} y[i] = s;",
        # neighbours write halves of one word
        "h[i] = half(x[i]);",
        f"threadgroup half s[128]; s[t] = half(x[i]); {BARRIER} y[i] = s[t ^ 1];",
        f"threadgroup uchar s[128]; s[t] = uchar(t); {BARRIER} y[i] = s[t ^ 1];",
        # many rounds, memory used again and again
        f"threadgroup float s[128]; float sum = 0; for (uint k = 0; k < 5000; k += 100) {{ s[t] = x[i] + k; {BARRIER}"
        f" sum += s[t ^ 64]; {BARRIER} }} y[i] = sum;",
        # in device memory, with a barrier for it
        "y[i] = x[i]; threadgroup_barrier(mem_flags::mem_device); float other = y[i ^ 1];"
        "threadgroup_barrier(mem_flags::mem_device); y[i] = other;",
        # part of the threads only
        f"threadgroup float s[128]; if (t < 7) s[t] = x[i]; {BARRIER} y[i] = s[t % 7];",
        "threadgroup float3 s[128]; s[t].x = x[i]; s[t].y = 1; s[t].z = 2; y[i] = s[t].x + float3(s[t]).z;",
    ],
)  # fmt: skip
def test_silent_on_what_is_right(body: str, reverse: bool) -> None:
    assert seen(body, reverse=reverse, fresh=True) == []


@any_order
@pytest.mark.parametrize(
    ("body", "memory"),
    [
        (f"given[t] = x[i]; y[i] = given[n - 1 - t]; {BARRIER}", "given"),
        ("y[i] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup); y[i] += y[i ^ 1];", "y"),
        ("threadgroup half s[128]; s[t] = half(x[i]); y[i] = s[t ^ 2];", "s"),
        (
            "threadgroup float s[128]; s[t] = x[i]; simdgroup_barrier(mem_flags::mem_threadgroup); y[i] = s[t ^ 32];",
            "s",
        ),
        ("threadgroup float4 s[32]; s[t % 32] = float4(x[i]); y[i] = 1;", "s"),
        ("if (t == 0) y[0] = x[i];", "y"),
        ("y[0] += x[i];", "y"),
        ("device uint* c = (device uint*)count; c[1] = i;", "count"),
        # plain beside atomic
        (
            "atomic_fetch_add_explicit(&count[0], 1u, memory_order_relaxed); y[i] = ((device uint*)count)[0];",
            "count",
        ),
    ],
)
def test_other_races(body: str, memory: str, reverse: bool) -> None:
    found = races(body, reverse=reverse)
    assert {race.memory for race in found} == {memory}


@any_order
def test_threadgroups_have_no_order(reverse: bool) -> None:
    """One threadgroup's sum in the other's, read through device memory after a barrier that orders neither."""
    body = "y[i] = x[i];\nthreadgroup_barrier(mem_flags::mem_device);\ny[i] = y[(i + 128) % 256] * 0 + x[i];"
    found = races(body, reverse=reverse)
    assert found
    assert all(race.other_threadgroup and race.memory == "y" for race in found)
    assert {1, 3} in [lines(race) for race in found]


def test_programs_with_fences_order_their_threadgroups() -> None:
    fence = "atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);"
    assert races("if (t == 0) y[0] = x[i];")
    assert not races(f"if (t == 0) y[0] = x[i]; {fence}")


def test_reads_of_what_nobody_wrote() -> None:
    body = f"threadgroup float s[128];\nif (t < 100) s[t] = x[i];\n{BARRIER}\ny[i] = s[t];"
    (found,) = seen(body)
    assert isinstance(found, Uninitialised)
    assert (found.memory, found.space, found.offset, found.count) == ("s", "threadgroup", 400, 56)
    assert (found.now.thread, found.now.how) == ((100, 0, 0), "reads")
    assert str(found.now.site).startswith("k.metal:7:")


@any_order
def test_an_atomic_sum_of_what_nobody_wrote(reverse: bool) -> None:
    """What is added to is read: the counters of a histogram that were not set to zero."""
    add = "atomic_fetch_add_explicit(&c[t % 4], 1u, memory_order_relaxed);"
    (found,) = seen(f"threadgroup atomic_uint c[4];\n{add}", reverse=reverse)
    assert isinstance(found, Uninitialised)
    # each bin once a threadgroup: what the first addition leaves has been written
    assert (found.memory, found.now.how, found.count) == ("c", "writes atomically", 8)
    assert str(found.now.site).startswith("k.metal:5:")
    exchange = "atomic_exchange_explicit(&c[t % 4], 1u, memory_order_relaxed);"
    assert seen(f"threadgroup atomic_uint c[4]; {exchange}", reverse=reverse) == []


def test_threadgroup_memory_begins_anew_with_each_threadgroup() -> None:
    (found,) = seen("threadgroup float s[128];\nif (g == 0) s[t] = x[i];\ny[i] = s[t];")
    assert isinstance(found, Uninitialised)
    assert (found.now.thread, found.count) == ((128, 0, 0), 128)
    # nor does it hold what an earlier launch left
    assert seen("threadgroup float s[128];\nif (g == 0) s[t] = x[i];\ny[i] = s[t];") == [found]


def test_results_hold_nothing_at_first_and_other_buffers_do() -> None:
    body = "y[i] += x[i];"
    (found,) = seen(body, fresh=True)
    assert isinstance(found, Uninitialised)
    assert (found.memory, found.space, found.count) == ("y", "device", THREADS)
    assert seen(body) == []


def test_a_partial_threadgroup_at_the_grids_edge() -> None:
    text = f"{HEAD}kernel void k(device float* y [[buffer(0)]], uint2 i [[thread_position_in_grid]]) {{ y[0] = i.y; }}\n"
    kernel = load(compile_msl((Section(text, "k.metal"),), CompileOptions(watched=True), "k"), watched=True)
    y = np.zeros(1, np.float32)
    report = kernel.launch([Buffer("y", y.ctypes.data, "f32", (1,), 4, True)], (3, 5, 1), (2, 4, 1))
    found = [(race.before.thread, race.now.thread) for race in report.seen if isinstance(race, Race)]
    # the first pair inside a threadgroup and the first across two, each in the place where it is in the grid
    assert found == [((1, 0, 0), (0, 1, 0)), ((1, 3, 0), (2, 0, 0))]


# Arithmetic -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "what", "threads"),
    [
        ("y[i] = 1 << (int(i) - 3);", "a shift by a negative number, or by the width", 3 + 256 - 35),
        ("uint one = 1; y[i] = one << i;", "a shift by a negative number, or by the width", 256 - 32),
        ("int big = 2147483647 - 100; y[i] = big + int(i);", "a signed integer that its type", 155),
        ("int big = 65536; y[i] = big * int(i * 256);", "a signed integer that its type", 128),
        ("int low = -2147483647 - 1; y[i] = low / (int(i) * 2 - 1);", "a signed integer that its type", 1),
        ("int low = -2147483647 - 1; y[i] = -(low + int(i));", "a signed integer that its type", 1),
        ("int top = 2147483647; y[i] = int(i) - 11 - top;", "a signed integer that its type", 10),
        ("y[i] = int(x[i] * 1e8f);", "a float turned into an integer", 256 - 22),
        ("y[i] = uchar(x[i] - 1);", "a float turned into an integer", 1),
    ],
)
def test_arithmetic_that_gives_anything(body: str, what: str, threads: int) -> None:
    (found,) = seen(body)
    assert isinstance(found, BadNumber)
    assert found.what.startswith(what)
    assert found.count == threads
    assert found.site is not None and found.site.line == 4
    assert found.excerpt == body


@pytest.mark.parametrize(
    "body",
    [
        "uint mixed = i * 2654435761u; mixed ^= mixed << 13; y[i] = mixed + 4000000000u;",
        "y[i] = 1 << (i % 31);",
        "y[i] = int(x[i] * 1e6f);",
        "y[i] = saturate(x[i]) + popcount(i) + float(int(i) - 7);",
        "int4 v = int4(i); y[i] = float((v * 3 + (v << 2)).x);",
    ],
)
def test_arithmetic_that_is_right(body: str) -> None:
    assert seen(body) == []
