"""Launching: sizes and memory that a GPU refuses, arguments, threadgroup memory, reports, concurrent launches."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

from metalwright.errors import ArgumentError, DispatchError, MemoryFault
from tests.support import body, buffer, launch, tensor, whole

COPY = """
kernel void copy(device const float* x, device float* out, uint i [[thread_position_in_grid]]) { out[i] = x[i]; }
"""


def copied(grid: object, group: object) -> None:
    x, out = np.zeros(4, np.float32), np.zeros(4, np.float32)
    arguments = [buffer("x", x, writable=False), buffer("out", out, writable=True)]
    whole(COPY).launch(arguments, grid, group)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("grid", "group", "message"),
    [
        ((0, 1, 1), (1, 1, 1), r"threads_per_grid must be from 1 .* got x = 0 in \(0, 1, 1\)"),
        ((4, -1, 1), (1, 1, 1), r"threads_per_grid must be from 1 .* got y = -1"),
        ((4, 1, 2**32), (1, 1, 1), r"threads_per_grid must be from 1 to 4294967295 .* got z = 4294967296"),
        ((4, 1), (1, 1, 1), r"threads_per_grid must be three whole numbers, got 2: \(4, 1\)"),
        ((4, 1, 1), (1, 1, 1, 1), r"threads_per_threadgroup must be three whole numbers, got 4"),
        ((4.0, 1, 1), (1, 1, 1), r"threads_per_grid must be three whole numbers, got \(4.0, 1, 1\)"),
        (4, (1, 1, 1), r"threads_per_grid must be three whole numbers, got 4"),
        ((4, 1, 1), (0, 1, 1), r"threads_per_threadgroup must be from 1 .* got x = 0"),
        ((4, 1, 1), (1025, 1, 1), r"threads_per_threadgroup \(1025, 1, 1\) is 1025 threads; .* at most 1024"),
        ((4, 1, 1), (32, 33, 1), r".* is 1056 threads; .* at most 1024"),
        ((4, 1, 1), (2**16, 2**16, 1), r".* is 4294967296 threads; .* at most 1024"),
    ],
)
def test_sizes_that_no_gpu_takes(grid: object, group: object, message: str) -> None:
    with pytest.raises(DispatchError, match="kernel 'k': " + message):
        copied(grid, group)


def test_sizes_may_be_any_whole_numbers() -> None:
    copied(np.array([4, 1, 1], np.int32), [np.int64(1024), True, 1])


def test_the_number_of_arguments_is_that_of_the_kernels_buffers() -> None:
    x = np.zeros(4, np.float32)
    with pytest.raises(ArgumentError, match=r"kernel 'k' takes 2 arguments \(x, out\), got 1"):
        whole(COPY).launch([buffer("x", x, writable=False)], (1, 1, 1), (1, 1, 1))


def test_the_report_counts_threads_and_workers() -> None:
    x = np.arange(300_000, dtype=np.float32)
    out = np.zeros_like(x)
    report = launch(whole(COPY), {"x": x}, {"out": out}, x.size, 64, max_workers=1)
    assert (report.threads, report.workers, report.log) == (300_000, 1, ())
    assert report.seconds > 0
    np.testing.assert_array_equal(out, x)


def test_a_limit_that_the_kernel_declares() -> None:
    text = COPY.replace("kernel void", "[[max_total_threads_per_threadgroup(64)]] kernel void")
    for program in (whole(text), whole(text.replace("kernel void copy", "[[kernel]] void copy"))):
        x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
        launch(program, {"x": x}, {"out": out}, 4, 64)
        np.testing.assert_array_equal(out, x)
        with pytest.raises(DispatchError, match=r"is 65 threads; .*max_total_threads_per_threadgroup\(64\)"):
            launch(program, {"x": x}, {"out": out}, 4, 65)


def test_threadgroup_memory_may_fill_32_kib_and_no_more() -> None:
    src = """
threadgroup float tile[SIZE];
for (uint i = gid; i < SIZE; i += 64) tile[i] = i;
threadgroup_barrier(mem_flags::mem_threadgroup);
out[gid] = tile[SIZE - 1 - gid];
"""
    parameters = (tensor("float", 1, "out", 0), "uint gid [[thread_position_in_grid]]")
    out = np.zeros(64, np.float32)
    launch(body(src.replace("SIZE", "8192"), *parameters), {}, {"out": out}, 64, 64)
    np.testing.assert_array_equal(out, 8191 - np.arange(64))
    with pytest.raises(
        DispatchError, match=r"needs 32772 bytes of threadgroup memory \(tile 32772\);.*32768 \(32 KiB\)"
    ) as caught:
        body(src.replace("SIZE", "8193"), *parameters)
    assert "kernel 'k': k.src:2:19: " in str(caught.value)
    assert str(caught.value).endswith("\n    threadgroup float tile[8193];\n                      ^")


REVERSED = """
kernel void k(device const int* x, device int* out, threadgroup int* a [[threadgroup(0)]],
              threadgroup long* b [[threadgroup(1)]], uint i [[thread_position_in_grid]],
              uint l [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup int own[64];
  a[l] = x[i]; b[l] = 2 * x[i]; own[l] = 3 * x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = a[n - 1 - l] + b[n - 1 - l] + own[n - 1 - l];
}
"""


@pytest.mark.parametrize("checked", [True, False])
def test_threadgroup_arguments_are_memory_of_the_size_that_the_launch_gives(checked: bool) -> None:
    x, out = np.arange(100, dtype=np.int32), np.zeros(100, np.int32)
    program = whole(REVERSED, checked=checked)
    launch(program, {"x": x}, {"out": out}, 100, 64, threadgroup_memory=(256, 512))
    expected = np.concatenate([6 * x[:64][::-1], 6 * x[64:][::-1]])
    np.testing.assert_array_equal(out, expected)


def test_threadgroup_arguments_are_bounded() -> None:
    x, out = np.arange(100, dtype=np.int32), np.zeros(100, np.int32)
    with pytest.raises(DispatchError, match="threadgroup memory"):
        launch(whole(REVERSED), {"x": x}, {"out": out}, 100, 64, threadgroup_memory=(256, 40_000))
    with pytest.raises(DispatchError, match=r"\[\[threadgroup\(1\)\]\] needs a positive size, got 0"):
        launch(whole(REVERSED), {"x": x}, {"out": out}, 100, 64, threadgroup_memory=(256, 0))


def test_a_threadgroup_argument_without_a_size_is_named() -> None:
    x, out = np.arange(100, dtype=np.int32), np.zeros(100, np.int32)
    with pytest.raises(
        ArgumentError, match=r"kernel 'k': parameter 'b' \[\[threadgroup\(1\)\]\] has no size"
    ):
        launch(whole(REVERSED), {"x": x}, {"out": out}, 100, 64, threadgroup_memory=(256,))


def test_reading_past_all_threadgroup_memory_is_found() -> None:
    text = """
kernel void k(device int* out, threadgroup int* a [[threadgroup(0)]], uint i [[thread_position_in_grid]]) {
  a[i + 4] = 1;
  out[i] = 0;
}"""
    with pytest.raises(MemoryFault) as caught:
        launch(whole(text), {}, {"out": np.zeros(8, np.int32)}, 8, 8, threadgroup_memory=(32,))
    assert caught.value.thread == (4, 0, 0)


@pytest.mark.parametrize(
    ("metal", "value"),
    [
        ("bool", np.bool_(True)),
        ("char", np.int8(-7)),
        ("uchar", np.uint8(200)),
        ("short", np.int16(-30000)),
        ("ushort", np.uint16(60000)),
        ("int", np.int32(-(2**31))),
        ("uint", np.uint32(2**32 - 1)),
        ("long", np.int64(-(2**62))),
        ("ulong", np.uint64(2**63)),
        ("half", np.float16(1.5)),
        ("bfloat", ml_dtypes.bfloat16(-2.5)),
        ("float", np.float32(0.1)),
    ],
)
def test_scalars_of_every_type_arrive(metal: str, value: np.generic) -> None:
    text = "kernel void k(constant TYPE& a [[buffer(0)]], constant TYPE* b [[buffer(1)]], device TYPE* out [[buffer(2)]]) { out[0] = a; out[1] = *b; }"
    out = np.zeros(2, value.dtype)
    launch(whole(text.replace("TYPE", metal)), {"a": value, "b": value}, {"out": out}, 1, 1)
    assert out.tobytes() == value.tobytes() * 2


def test_buffers_may_be_declared_in_any_order_and_without_attributes() -> None:
    text = """
kernel void k(device int* c [[buffer(2)]], uint i [[thread_position_in_grid]], device const int* a, constant int& b) {
  c[i] = a[i] * b;
}"""
    out = np.zeros(3, np.int32)
    launch(whole(text), {"a": np.array([1, 2, 3], np.int32), "b": np.int32(10)}, {"c": out}, 3, 3)
    assert out.tolist() == [10, 20, 30]


def test_empty_threadgroups_do_not_run() -> None:
    # the last threadgroup is partial: only the threads of the grid exist
    text = "kernel void k(device atomic_uint* n) { atomic_fetch_add_explicit(n, 1u, memory_order_relaxed); }"
    count = np.zeros(1, np.uint32)
    for grid, group in (((100, 7, 3), (64, 4, 2)), ((1, 1, 1), (1024, 1, 1)), ((5, 1000, 1), (2, 3, 4))):
        count[0] = 0
        launch(whole(text), {}, {"n": count}, grid, group)
        assert count[0] == np.prod(grid)


@pytest.mark.parametrize("checked", [True, False])
def test_one_program_is_launched_from_many_threads_at_once(checked: bool) -> None:
    program = whole(REVERSED, checked=checked)
    ready = threading.Barrier(8)

    def one(number: int) -> bool:
        ready.wait(30)
        for _ in range(20):
            x = np.arange(128, dtype=np.int32) * number
            out = np.zeros_like(x)
            launch(program, {"x": x}, {"out": out}, 128, 64, threadgroup_memory=(256, 512))
            if not np.array_equal(out, 6 * np.concatenate([x[:64][::-1], x[64:][::-1]])):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(8)))


def test_reverse_runs_threads_from_last_to_first() -> None:
    text = """
kernel void k(device atomic_uint* next, device uint* out, uint i [[thread_position_in_grid]]) {
  out[i] = atomic_fetch_add_explicit(next, 1u, memory_order_relaxed);
}"""
    for reverse in (False, True):
        out = np.zeros(10, np.uint32)
        launch(
            whole(text),
            {},
            {"next": np.zeros(1, np.uint32), "out": out},
            10,
            4,
            reverse=reverse,
            max_workers=1,
        )
        assert out.tolist() == (list(range(10))[::-1] if reverse else list(range(10)))


def test_a_missing_barrier_gives_two_answers_in_two_orders() -> None:
    text = """
kernel void k(device const int* x, device int* out, uint i [[thread_position_in_grid]]) {
  threadgroup int t[8];
  t[i] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  t[i] = x[i];
  out[i] = t[7 - i];
}"""
    x = np.arange(1, 9, dtype=np.int32)
    forward, backward = np.zeros_like(x), np.zeros_like(x)
    launch(whole(text), {"x": x}, {"out": forward}, 8, 8)
    launch(whole(text), {"x": x}, {"out": backward}, 8, 8, reverse=True)
    assert not np.array_equal(forward, backward)


def test_safe_math_keeps_the_order_and_fast_math_may_not() -> None:
    src = "out[gid] = (x[gid] + 1e8) - 1e8;"
    parameters = (
        tensor("float", 1, "x", 0),
        tensor("float", 1, "out", 1),
        "uint gid [[thread_position_in_grid]]",
    )
    x = np.array([1.0, 3.0, -5.0, 100.0], np.float32)
    for mode in ("safe", "fast"):
        out = np.zeros_like(x)
        launch(body(src, *parameters, math_mode=mode), {"x": x}, {"out": out}, 4, 4)
        rounded = (x + np.float32(1e8)) - np.float32(1e8)
        if mode == "safe":
            np.testing.assert_array_equal(out, rounded)
        else:
            assert all(o in (r, v) for o, r, v in zip(out, rounded, x, strict=True))


def test_half_and_bfloat_round_after_every_operation() -> None:
    src = "out[gid] = x[gid] * x[gid] + x[gid] - TYPE(1);"
    for metal, dtype in (("half", np.float16), ("bfloat", ml_dtypes.bfloat16)):
        parameters = (
            tensor(metal, 1, "x", 0),
            tensor(metal, 1, "out", 1),
            "uint gid [[thread_position_in_grid]]",
        )
        x = np.linspace(-3, 3, 101).astype(dtype)
        for checked in (True, False):
            out = np.zeros_like(x)
            launch(
                body(src.replace("TYPE", metal), *parameters, checked=checked),
                {"x": x},
                {"out": out},
                101,
                32,
            )
            np.testing.assert_array_equal(out, (x * x + x) - dtype(1))


def test_a_kernel_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(KeyError, match=r"no kernel 'paste' in 'k'; there are: copy"):
        whole(COPY, "paste")
