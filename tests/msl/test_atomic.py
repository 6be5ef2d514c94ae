"""Atomic functions: every operation in device and threadgroup memory, from many threads and OS threads."""

from __future__ import annotations

import numpy as np
import pytest

from metalwright.errors import CompileError
from tests.support import body, launch, tensor, whole

THREADS = 40_000  # over two OS threads' worth
OPERATIONS = {
    # name: the operand of thread i, and what the cell must hold in the end
    "add": ("i + 1", lambda start, v: (start + v.sum()) % 2**32),
    "sub": ("i + 1", lambda start, v: (start - v.sum()) % 2**32),
    "and": ("~(1u << (i % 24))", lambda start, v: np.bitwise_and.reduce(v) & start),
    "or": ("1u << (i % 24)", lambda start, v: np.bitwise_or.reduce(v) | start),
    "xor": ("i * 2654435761u", lambda start, v: np.bitwise_xor.reduce(v) ^ start),
    "min": ("(i * 2654435761u) ^ 0x80000000u", None),
    "max": ("(i * 2654435761u) ^ 0x80000000u", None),
}


def operands(expression: str, count: int) -> np.ndarray:
    i = np.arange(count, dtype=np.uint64)
    value = {
        "i + 1": i + 1,
        "~(1u << (i % 24))": ~(np.uint64(1) << (i % 24)),
        "1u << (i % 24)": np.uint64(1) << (i % 24),
        "i * 2654435761u": i * 2654435761,
        "(i * 2654435761u) ^ 0x80000000u": (i * 2654435761) ^ 0x80000000,
    }[expression]
    return value & 0xFFFFFFFF


@pytest.mark.parametrize("kind", ["uint", "int"])
@pytest.mark.parametrize("checked", [True, False])
def test_every_operation_from_every_thread_counts_once(kind: str, checked: bool) -> None:
    dtype = np.dtype(np.int32 if kind == "int" else np.uint32)
    lines = [
        f"atomic_fetch_{name}_explicit(&cells[{number}], {kind}({expression}), memory_order_relaxed);"
        for number, (name, (expression, _)) in enumerate(OPERATIONS.items())
    ]
    text = f"""
kernel void k(device atomic_{kind}* cells [[buffer(0)]], uint i [[thread_position_in_grid]]) {{
  {chr(10).join(lines)}
}}"""
    start = np.array([7, 7, 0xFFFFFFFF, 0, 5, 0x7FFFFFF0, 0x00000011], np.uint32)
    cells = start.copy().view(dtype)
    launch(whole(text, checked=checked), {}, {"cells": cells}, THREADS, 64)
    for number, (name, (expression, model)) in enumerate(OPERATIONS.items()):
        values = operands(expression, THREADS)
        if model is not None:
            expected = int(
                model(int(start[number]), values.astype(object) if name in ("add", "sub") else values)
            )
            assert cells.view(np.uint32)[number] == expected, name
        else:
            typed = values.astype(np.uint32).view(dtype)
            fold = getattr(np, name)
            assert cells[number] == fold([fold(typed), start.view(dtype)[number]]), name


@pytest.mark.parametrize("kind", ["uint", "int", "float"])
def test_what_a_read_modify_write_returns(kind: str) -> None:
    # one thread, one operation after another: each returns what was there before
    integer = kind != "float"
    operations = ["add", "sub", *(["min", "max", "and", "or", "xor"] if integer else [])]
    lines = [
        f"out[{i}] = atomic_fetch_{n}_explicit(cell, {kind}(6), memory_order_relaxed);"
        for i, n in enumerate(operations)
    ]
    n = len(operations)
    text = f"""
kernel void k(device atomic_{kind}* cell [[buffer(0)]], device {kind}* out [[buffer(1)]]) {{
  {" ".join(lines)}
  out[{n}] = atomic_exchange_explicit(cell, {kind}(9), memory_order_relaxed);
  out[{n + 1}] = atomic_load_explicit(cell, memory_order_relaxed);
  atomic_store_explicit(cell, {kind}(11), memory_order_relaxed);
  {kind} expected = 12;
  out[{n + 2}] = atomic_compare_exchange_weak_explicit(cell, &expected, {kind}(13), memory_order_relaxed, memory_order_relaxed);
  out[{n + 3}] = expected;
  while (!atomic_compare_exchange_weak_explicit(cell, &expected, {kind}(14), memory_order_relaxed, memory_order_relaxed)) {{ }}
  out[{n + 4}] = expected;
}}"""
    dtype = {"uint": np.uint32, "int": np.int32, "float": np.float32}[kind]
    cell, out = np.array([10], dtype), np.zeros(n + 5, dtype)
    launch(whole(text), {}, {"cell": cell, "out": out}, 1, 1)
    # add 6: 10 → 16; sub: 16 → 10; min: 10 → 6; max: 6 → 6; and: 6 → 6; or: 6 → 6; xor: 6 → 0
    before = [10, 16, *([10, 6, 6, 6, 6] if integer else [])]
    assert out.tolist() == [*before, 0 if integer else 10, 9, 0, 11, 11]
    assert cell[0] == 14


def test_arithmetic_wraps_around() -> None:
    text = """
kernel void k(device atomic_int* a [[buffer(0)]], device atomic_uint* b [[buffer(1)]]) {
  atomic_fetch_add_explicit(a, 1, memory_order_relaxed);
  atomic_fetch_sub_explicit(b, 1u, memory_order_relaxed);
}"""
    a, b = np.array([2**31 - 1], np.int32), np.zeros(1, np.uint32)
    launch(whole(text), {}, {"a": a, "b": b}, 1, 1)
    assert a[0] == -(2**31)
    assert b[0] == 2**32 - 1


@pytest.mark.parametrize("checked", [True, False])
def test_floats_add_exchange_and_compare(checked: bool) -> None:
    text = """
kernel void k(device atomic_float* cells [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(&cells[0], 0.5, memory_order_relaxed);
  atomic_fetch_sub_explicit(&cells[1], float(i % 4), memory_order_relaxed);
  float seen = atomic_load_explicit(&cells[2], memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&cells[2], &seen, seen + 2, memory_order_relaxed, memory_order_relaxed)) { }
  atomic_exchange_explicit(&cells[3], float(i), memory_order_relaxed);
}"""
    cells = np.array([1, 0, 0, -1], np.float32)
    launch(whole(text, checked=checked), {}, {"cells": cells}, THREADS, 128)
    assert cells[:3].tolist() == [1 + THREADS / 2, -1.5 * THREADS, 2 * THREADS]
    assert 0 <= cells[3] < THREADS


@pytest.mark.parametrize("checked", [True, False])
def test_64_bits_have_min_and_max(checked: bool) -> None:
    text = """
kernel void k(device atomic_ulong* cells [[buffer(0)]], device const ulong* x [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  atomic_min_explicit(&cells[0], x[i], memory_order_relaxed);
  atomic_max_explicit(&cells[1], x[i], memory_order_relaxed);
}"""
    x = np.random.default_rng(0).integers(2**20, 2**64 - 2**20, 5000, np.uint64)
    cells = np.array([2**64 - 1, 0], np.uint64)
    launch(whole(text, checked=checked), {}, {"cells": cells, "x": x}, x.size, 64)
    assert cells.tolist() == [x.min(), x.max()]


@pytest.mark.parametrize("checked", [True, False])
def test_bools_are_stored_exchanged_and_compared(checked: bool) -> None:
    # one thread finds the flag down and raises it
    text = """
kernel void k(device atomic_bool* flags [[buffer(0)]], device uint* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  threadgroup atomic_bool taken;
  if (i == 0) atomic_store_explicit(&taken, false, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = !atomic_exchange_explicit(&flags[0], true, memory_order_relaxed);
  bool expected = false;
  out[i] += 2 * atomic_compare_exchange_weak_explicit(&taken, &expected, true, memory_order_relaxed, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] += 4 * atomic_load_explicit(&taken, memory_order_relaxed);
}"""
    flags, out = np.zeros(1, np.bool_), np.zeros(64, np.uint32)
    launch(whole(text, checked=checked), {}, {"flags": flags, "out": out}, 64, 64)
    assert flags[0]
    assert (out & 1).sum() == 1
    assert (out & 2).sum() == 2
    assert (out & 4).all()


@pytest.mark.parametrize(
    ("statement", "types"),
    [
        ("device atomic_float* p; atomic_fetch_max_explicit(p, 1.0, memory_order_relaxed)", "atomic_uint"),
        ("device atomic_bool* p; atomic_fetch_or_explicit(p, true, memory_order_relaxed)", "atomic_uint"),
        ("device atomic_ulong* p; atomic_fetch_add_explicit(p, 1ul, memory_order_relaxed)", "atomic_float"),
        ("device atomic_ulong* p; atomic_load_explicit(p, memory_order_relaxed)", "atomic_bool"),
        ("device atomic_uint* p; atomic_min_explicit(p, 1u, memory_order_relaxed)", "atomic_ulong"),
        ("device atomic<short>* p; atomic_load_explicit(p, memory_order_relaxed)", "uint, bool, float"),
    ],
)
def test_types_that_an_operation_lacks_are_named(statement: str, types: str) -> None:
    with pytest.raises(CompileError) as caught:
        whole(f"kernel void k() {{ {statement}; }}")
    assert types in caught.value.diagnostics[0].message
    assert caught.value.diagnostics[0].site is not None


@pytest.mark.parametrize("checked", [True, False])
def test_threadgroup_memory_is_one_for_each_threadgroup(checked: bool) -> None:
    text = """
kernel void k(device uint* out [[buffer(0)]], device float* sums [[buffer(1)]], uint i [[thread_position_in_grid]],
              uint l [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]]) {
  threadgroup atomic_uint count, bins[4];
  threadgroup atomic_float sum;
  if (l == 0) { atomic_store_explicit(&count, 0u, memory_order_relaxed); atomic_store_explicit(&sum, 0, memory_order_relaxed); }
  if (l < 4) atomic_store_explicit(&bins[l], 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(&count, 1u, memory_order_relaxed);
  atomic_fetch_add_explicit(&bins[i % 4], 1u, memory_order_relaxed);
  atomic_fetch_add_explicit(&sum, float(l), memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (l == 0) {
    out[group * 5] = atomic_load_explicit(&count, memory_order_relaxed);
    for (int b = 0; b < 4; b++) out[group * 5 + 1 + b] = atomic_load_explicit(&bins[b], memory_order_relaxed);
    sums[group] = atomic_load_explicit(&sum, memory_order_relaxed);
  }
}"""
    size, group = 40_010, 96
    groups = -(-size // group)
    out, sums = np.zeros((groups, 5), np.uint32), np.zeros(groups, np.float32)
    launch(whole(text, checked=checked), {}, {"out": out, "sums": sums}, size, group)
    threads = [np.arange(g * group, min((g + 1) * group, size)) for g in range(groups)]
    assert out[:, 0].tolist() == [t.size for t in threads]
    np.testing.assert_array_equal(out[:, 1:], [np.bincount(t % 4, minlength=4) for t in threads])
    np.testing.assert_array_equal(sums, [np.arange(t.size).sum() for t in threads])


def test_a_counter_gives_every_thread_its_own_number() -> None:
    text = """
kernel void k(device atomic_uint* next [[buffer(0)]], device uint* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  out[i] = atomic_fetch_add_explicit(next, 1u, memory_order_relaxed);
}"""
    next_, out = np.zeros(1, np.uint32), np.zeros(THREADS, np.uint32)
    launch(whole(text), {}, {"next": next_, "out": out}, THREADS, 32)
    assert next_[0] == THREADS
    np.testing.assert_array_equal(np.sort(out), np.arange(THREADS))


def test_a_tensors_element_is_used_as_an_atomic_through_its_address() -> None:
    src = "atomic_fetch_add_explicit((device atomic_int*)&bins[x[gid]], 1, memory_order_relaxed);"
    parameters = (
        tensor("int", 1, "x", 0),
        tensor("int", 1, "bins", 1),
        "uint gid [[thread_position_in_grid]]",
    )
    x = np.random.default_rng(0).integers(0, 10, 50_000, np.int32)
    bins = np.zeros(10, np.int32)
    launch(body(src, *parameters), {"x": x}, {"bins": bins}, x.size, 256)
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=10))


def test_flags_between_threadgroups_and_fences() -> None:
    # the last threadgroup to finish adds up what the others left in device memory
    text = """
kernel void k(device uint* parts [[buffer(0)]], device atomic_uint* done [[buffer(1)]], device uint* total [[buffer(2)]],
              uint l [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]]) {
  if (l != 0) return;
  parts[group] = group + 1;
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
  if (atomic_fetch_add_explicit(done, 1u, memory_order_relaxed) == groups - 1) {
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    uint sum = 0;
    for (uint g = 0; g < groups; g++) sum += parts[g];
    total[0] = sum;
  }
}"""
    groups = 1000
    parts, done, total = np.zeros(groups, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    launch(whole(text), {}, {"parts": parts, "done": done, "total": total}, groups * 64, 64)
    assert total[0] == groups * (groups + 1) // 2
