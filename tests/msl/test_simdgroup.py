"""SIMD-group and quad-group functions against a model of 32 lanes: whole and partial simdgroups, under divergence."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from metalwright.errors import CompileError, Site
from tests.support import body, launch, tensor, whole

LANES = 32
# the lanes that take part, by a condition on the lane and on the thread
CONDITIONS: dict[str, tuple[str, Callable[[int, int], bool]]] = {
    "all": ("true", lambda lane, thread: True),
    "odd": ("lane % 2 == 1", lambda lane, thread: lane % 2 == 1),
    "a few": (
        "lane == 3 || lane > 28 || at == 40",
        lambda lane, thread: lane == 3 or lane > 28 or thread == 40,
    ),
    "the first": ("lane < 7", lambda lane, thread: lane < 7),
}
# a whole grid of whole simdgroups, and partial ones
SIZES = [(64, 64), (100, 64), (33, 33), (5, 8), (1, 1), (70, 35)]
INTEGERS = {"int": np.int32, "uint": np.uint32, "short": np.int16, "uchar": np.uint8}
FLOATS = {"float": np.float32, "half": np.float16}

Values = Sequence[Any]
Model = Callable[[Values, Sequence[bool], int], Any]


def members(active: Sequence[bool], quad_of: int | None = None) -> list[int]:
    lanes = range(LANES) if quad_of is None else range(quad_of & ~3, (quad_of & ~3) + 4)
    return [lane for lane in lanes if active[lane]]


def reduction(combine: Callable[[Any, Any], Any], quad: bool) -> Model:
    return lambda v, active, lane: functools.reduce(
        combine, [v[i] for i in members(active, lane if quad else None)]
    )


def scan(combine: Callable[[Any, Any], Any], start: int, inclusive: bool, quad: bool) -> Model:
    def model(v: Values, active: Sequence[bool], lane: int) -> Any:
        before = [v[i] for i in members(active, lane if quad else None) if i < lane + inclusive]
        return functools.reduce(combine, before) if before else v[0].dtype.type(start)

    return model


def reads(source: Callable[[int, int], int], quad: bool) -> Model:
    """The value of the lane at ``source(first, lane)``; the own where that one takes no part or is elsewhere."""

    def model(v: Values, active: Sequence[bool], lane: int) -> Any:
        first, size = (lane & ~3, 4) if quad else (0, LANES)
        other = source(first, lane)
        return v[other] if first <= other < first + size and active[other] else v[lane]

    return model


def wrapped(dtype: type, combine: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    """Integer arithmetic that wraps around."""
    return lambda a, b: np.array(combine(int(a), int(b)) & 0xFFFFFFFFFFFFFFFF, np.uint64).astype(dtype)[()]


def functions(dtype: type) -> dict[str, Model]:
    """Each MSL expression over ``v`` and ``lane`` with its model."""
    integer = np.issubdtype(dtype, np.integer)
    add = wrapped(dtype, operator.add) if integer else operator.add
    multiply = wrapped(dtype, operator.mul) if integer else operator.mul
    found: dict[str, Model] = {}
    for prefix, quad in (("simd", False), ("quad", True)):
        size = 4 if quad else LANES
        found |= {
            f"{prefix}_sum(v)": reduction(add, quad),
            f"{prefix}_product(v)": reduction(multiply, quad),
            f"{prefix}_min(v)": reduction(min, quad),
            f"{prefix}_max(v)": reduction(max, quad),
            f"{prefix}_prefix_inclusive_sum(v)": scan(add, 0, True, quad),
            f"{prefix}_prefix_exclusive_sum(v)": scan(add, 0, False, quad),
            f"{prefix}_prefix_inclusive_product(v)": scan(multiply, 1, True, quad),
            f"{prefix}_prefix_exclusive_product(v)": scan(multiply, 1, False, quad),
            f"{prefix}_broadcast(v, 3)": reads(lambda first, lane: first + 3, quad),
            f"{prefix}_shuffle(v, {size - 1} - lane % {size})": reads(
                lambda first, lane, n=size: first + n - 1 - lane % n, quad
            ),
            f"{prefix}_shuffle_xor(v, 1)": reads(lambda first, lane: lane ^ 1, quad),
            f"{prefix}_shuffle_xor(v, 2)": reads(lambda first, lane: lane ^ 2, quad),
            f"{prefix}_shuffle_up(v, 1)": reads(lambda first, lane: lane - 1, quad),
            f"{prefix}_shuffle_up(v, 3)": reads(lambda first, lane: lane - 3, quad),
            f"{prefix}_shuffle_down(v, 1)": reads(lambda first, lane: lane + 1, quad),
            f"{prefix}_shuffle_down(v, 2)": reads(lambda first, lane: lane + 2, quad),
            f"{prefix}_shuffle_rotate_up(v, 3)": reads(
                lambda first, lane, n=size: first + (lane - first - 3) % n, quad
            ),
            f"{prefix}_shuffle_rotate_down(v, 3)": reads(
                lambda first, lane, n=size: first + (lane - first + 3) % n, quad
            ),
            f"{prefix}_broadcast_first(v)": lambda v, active, lane, q=quad: v[
                members(active, lane if q else None)[0]
            ],
        }
        if integer:
            found |= {
                f"{prefix}_and(v)": reduction(operator.and_, quad),
                f"{prefix}_or(v)": reduction(operator.or_, quad),
                f"{prefix}_xor(v)": reduction(operator.xor, quad),
            }
    return found


def expected_of(
    models: Sequence[Model], x: np.ndarray, group: int, takes_part: Callable[[int, int], bool]
) -> np.ndarray:
    out = np.full((x.size, len(models)), 77, x.dtype)
    for begin in range(0, x.size, group):
        end = min(begin + group, x.size)
        for simd in range(begin, end, LANES):
            count = min(LANES, end - simd)
            v = [x[simd + i] if i < count else x.dtype.type(0) for i in range(LANES)]
            active = [i < count and takes_part(i, simd + i) for i in range(LANES)]
            for lane in range(count):
                if active[lane]:
                    out[simd + lane] = [model(v, active, lane) for model in models]
    return out


def values(dtype: type, size: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, size, dtype, endpoint=True)
    # small powers of two and small whole numbers: sums and products are exact in any order
    return rng.choice(np.array([1, -1, 2, 0.5, 1, 1], dtype), size)


@pytest.mark.parametrize("metal", [*INTEGERS, *FLOATS])
def test_every_function_of_every_scalar(metal: str) -> None:
    dtype = (INTEGERS | FLOATS)[metal]
    all_functions = functions(dtype)
    lines = "\n".join(f"  o[{i}] = {text};" for i, text in enumerate(all_functions))
    text = f"""
kernel void k(device const {metal}* x, device const uchar* takes_part, device {metal}* out,
              uint at [[thread_position_in_grid]], ushort lane [[thread_index_in_simdgroup]]) {{
  device {metal}* o = out + at * {len(all_functions)};
  const {metal} v = x[at];
  if (takes_part[at]) {{
{lines}
  }}
}}"""
    program = whole(text, checked=metal in ("int", "float"))
    for name, (_, takes_part) in CONDITIONS.items():
        for number, (size, group) in enumerate(SIZES):
            x = values(dtype, size, number)
            chosen = np.array([takes_part(t % group % LANES, t) for t in range(size)], np.uint8)
            out = np.full((size, len(all_functions)), 77, dtype)
            launch(program, {"x": x, "takes_part": chosen}, {"out": out}, size, group)
            with np.errstate(all="ignore"):
                expected = expected_of(list(all_functions.values()), x, group, takes_part)
            for column, text_of in enumerate(all_functions):
                np.testing.assert_array_equal(
                    out[:, column], expected[:, column], err_msg=f"{text_of}, {name}, {size} in {group}"
                )


def test_sums_of_floats_are_close_and_the_same_for_every_lane() -> None:
    x = np.random.default_rng(0).normal(size=96).astype(np.float32)
    out = np.zeros_like(x)
    parameters = (
        tensor("float", 1, "x", 0),
        tensor("float", 1, "out", 1),
        "uint gid [[thread_position_in_grid]]",
    )
    launch(body("out[gid] = simd_sum(x[gid]);", *parameters), {"x": x}, {"out": out}, 96, 96)
    exact = x.reshape(3, 32).astype(np.float64).sum(1)
    assert (out.reshape(3, 32) == out.reshape(3, 32)[:, :1]).all()
    np.testing.assert_allclose(out.reshape(3, 32)[:, 0], exact, atol=1e-5)


def run_uint(src: str, size: int, group: int, columns: int = 1, checked: bool = True) -> np.ndarray:
    """Run a body that writes ``o[0]`` … for each thread; ``at``, ``lane``, ``n`` (threads of the simdgroup's group)."""
    text = f"""
kernel void k(device uint* out, uint at [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {{
  device uint* o = out + at * {columns};
  {src}
}}"""
    out = np.full((size, columns), 9999, np.uint32)
    launch(whole(text, checked=checked), {}, {"out": out}, size, group)
    return out


@pytest.mark.parametrize("condition", CONDITIONS)
def test_votes(condition: str) -> None:
    text, takes_part = CONDITIONS[condition]
    src = f"""
if ({text}) {{
  const bool p = at % 3 == 0;
  o[0] = ulong(simd_ballot(p)); o[1] = ulong(simd_active_threads_mask()); o[2] = simd_any(p); o[3] = simd_all(p);
  o[4] = simd_all(at < 1000); o[5] = simd_any(at > 1000); o[6] = simd_is_first(); o[7] = quad_any(p);
  o[8] = quad_all(at % 4 != 0 || at < 8); o[9] = quad_is_first(); o[10] = uint(ulong(simd_ballot(p)) >> 32);
  o[11] = simd_ballot(at < 1000).any(); o[12] = simd_ballot(at > 1000).any(); o[13] = simd_is_helper_thread();
  o[14] = quad_vote::vote_t(quad_ballot(p)); o[15] = uint(quad_active_threads_mask());
  o[16] = quad_ballot(p).all(); o[17] = quad_ballot(p).any(); o[18] = quad_is_helper_thread();
}}"""
    for size, group in SIZES:
        out = run_uint(src, size, group, 19)
        for begin in range(0, size, group):
            end = min(begin + group, size)
            for simd in range(begin, end, LANES):
                threads = [t for t in range(simd, min(simd + LANES, end)) if takes_part(t - simd, t)]
                for t in threads:
                    quad = [u for u in threads if (u - simd) // 4 == (t - simd) // 4]
                    assert out[t].tolist() == [
                        sum(1 << (u - simd) for u in threads if u % 3 == 0),
                        sum(1 << (u - simd) for u in threads),
                        any(u % 3 == 0 for u in threads),
                        all(u % 3 == 0 for u in threads),
                        1, 0, t == threads[0],
                        any(u % 3 == 0 for u in quad),
                        all(u % 4 != 0 or u < 8 for u in quad),
                        t == quad[0], 0, 1, 0, 0,
                        sum(1 << (u - simd) % 4 for u in quad if u % 3 == 0),
                        sum(1 << (u - simd) % 4 for u in quad),
                        len(quad) == 4 and all(u % 3 == 0 for u in quad),
                        any(u % 3 == 0 for u in quad), 0,
                    ], (size, group, t)  # fmt: skip


def test_vectors_go_component_by_component() -> None:
    src = """
float4 v = float4(x[gid], 2 * x[gid], -x[gid], 1);
float4 s = simd_sum(v), u = simd_shuffle_down(v, 1);
half2 h = simd_max(half2(half(gid), half(-int(gid))));
uint4 w = simd_broadcast(uint4(gid, gid + 1, gid + 2, gid << 20), 5);
ulong4 q = quad_broadcast(ulong4(gid, gid + 1, gid + 2, ulong(gid) << 40), 1);
for (int i = 0; i < 4; i++) { out[i, gid] = s[i]; out[4 + i, gid] = u[i]; }
out[8, gid] = h.x; out[9, gid] = h.y; out[10, gid] = w.z; out[11, gid] = float(w.w >> 20);
out[12, gid] = q.z; out[13, gid] = float(q.w >> 40);
"""
    parameters = (
        tensor("float", 1, "x", 0),
        tensor("float", 2, "out", 1),
        "uint gid [[thread_position_in_grid]]",
    )
    x = np.arange(32, dtype=np.float32)
    for checked in (True, False):
        out = np.zeros((32, 14), np.float32)
        launch(body(src, *parameters, checked=checked), {"x": x}, {"out": out}, 32, 32)
        v = np.stack([x, 2 * x, -x, np.ones(32)], 1)
        np.testing.assert_array_equal(out[:, :4], np.broadcast_to(v.sum(0), (32, 4)))
        np.testing.assert_array_equal(out[:, 4:8], np.concatenate([v[1:], v[-1:]]))
        np.testing.assert_array_equal(out[:, 8:12], np.broadcast_to([31, 0, 7, 5], (32, 4)))
        one = np.arange(32) // 4 * 4 + 1  # the second lane of each quadgroup
        np.testing.assert_array_equal(out[:, 12:], np.stack([one + 2, one], 1))


@pytest.mark.parametrize("modulo", [32, 8, 4])
@pytest.mark.parametrize("delta", [0, 1, 3])
def test_shuffles_with_a_filling(modulo: int, delta: int) -> None:
    # lanes of a block of `modulo` lanes form a window; what comes in from outside is the filling's other end
    down = run_uint(f"o[0] = simd_shuffle_and_fill_down(lane, 100 + lane, {delta}, {modulo});", 32, 32)
    up = run_uint(f"o[0] = simd_shuffle_and_fill_up(lane, 100 + lane, {delta}, {modulo});", 32, 32)
    for block in range(0, 32, modulo):
        data, filling = list(range(block, block + modulo)), list(range(100 + block, 100 + block + modulo))
        assert down[block : block + modulo, 0].tolist() == (data + filling)[delta : delta + modulo]
        assert up[block : block + modulo, 0].tolist() == (filling + data)[modulo - delta : 2 * modulo - delta]


@pytest.mark.parametrize(("modulo", "delta"), [(4, 0), (4, 1), (4, 3), (2, 1)])
def test_shuffles_with_a_filling_in_quadgroups(modulo: int, delta: int) -> None:
    given = "" if modulo == 4 else f", {modulo}"
    src = f"""
o[0] = quad_shuffle_and_fill_down(lane, 100 + lane, {delta}{given});
o[1] = quad_shuffle_and_fill_up(ulong(lane), ulong(100 + lane), {delta}{given});"""
    out = run_uint(src, 36, 36, 2)
    for block in range(0, 32, modulo):
        data, filling = list(range(block, block + modulo)), list(range(100 + block, 100 + block + modulo))
        assert out[block : block + modulo, 0].tolist() == (data + filling)[delta : delta + modulo]
        assert (
            out[block : block + modulo, 1].tolist() == (filling + data)[modulo - delta : 2 * modulo - delta]
        )


@pytest.mark.parametrize(
    ("call", "takes"),
    [
        ("simd_sum(1l)", "up to 32 bits"),
        ("simd_shuffle_xor(true, 1)", "no bool"),
        ("simd_broadcast_first(ulong2(1))", "up to 32 bits"),
        ("simd_and(1.0)", "integer scalars"),
        ("quad_or(half2(1))", "integer scalars"),
        ("quad_shuffle_and_fill_up(true, false, 1)", "no bool"),
    ],
)
def test_types_that_an_operation_lacks_are_named(call: str, takes: str) -> None:
    with pytest.raises(CompileError) as caught:
        whole(f"kernel void k() {{ {call}; }}")
    assert takes in caught.value.diagnostics[0].message
    assert caught.value.diagnostics[0].site == Site("k.metal", 1, 19)


def test_a_program_may_bring_its_own_for_other_types() -> None:
    text = """
inline ulong simd_shuffle_down(ulong data, uint16_t delta) {
  return as_type<ulong>(metal::simd_shuffle_down(as_type<uint2>(data), delta));
}
kernel void k(device ulong* o [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  o[i] = simd_shuffle_down(ulong(i) << 33, 1);
}"""
    out = np.zeros(32, np.uint64)
    launch(whole(text), {}, {"o": out}, 32, 32)
    assert out.tolist() == [min(i + 1, 31) << 33 for i in range(32)]


@pytest.mark.parametrize("checked", [True, False])
def test_lanes_that_leave_a_loop_early_take_no_more_part(checked: bool) -> None:
    src = "uint rounds = 0;\nfor (uint i = 0; i <= lane % 5; i++) rounds += simd_sum(1u);\no[0] = rounds;"
    out = run_uint(src, 40, 40, checked=checked)[:, 0]
    for lane in range(40):
        peers = [p for p in range(40) if p // 32 == lane // 32]
        expected = sum(sum(p % 32 % 5 >= i for p in peers) for i in range(lane % 32 % 5 + 1))
        assert out[lane] == expected


@pytest.mark.parametrize("checked", [True, False])
def test_lanes_meet_again_after_a_branch(checked: bool) -> None:
    src = """
uint v = 0;
if (lane < 10) v = simd_sum(1u); else if (lane < 15) v = simd_sum(2u);
o[0] = v;
o[1] = simd_sum(1u);
if (lane & 1) return;
o[2] = simd_sum(1u);
"""
    out = run_uint(src, 32, 32, 3, checked=checked)
    assert out[:, 0].tolist() == [10] * 10 + [10] * 5 + [0] * 17
    assert (out[:, 1] == 32).all()
    assert (out[::2, 2] == 16).all()
    assert (out[1::2, 2] == 9999).all()


@pytest.mark.parametrize("checked", [True, False])
def test_a_threadgroup_reduction_over_simdgroups(checked: bool) -> None:
    text = """
kernel void k(device const float* x, device float* out, uint at [[thread_position_in_grid]],
              uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
              uint simds [[simdgroups_per_threadgroup]], uint group [[threadgroup_position_in_grid]]) {
  threadgroup float partial[32];
  float s = simd_sum(x[at]);
  if (lane == 0) partial[simd] = s;
  simdgroup_barrier(mem_flags::mem_none);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  s = simd_sum(lane < simds ? partial[lane] : 0);
  out[at] = s;
}"""
    x = np.random.default_rng(1).integers(-50, 50, 1500).astype(np.float32)
    for group in (256, 1024, 100, 33):
        out = np.zeros_like(x)
        launch(whole(text, checked=checked), {"x": x}, {"out": out}, x.size, group)
        for begin in range(0, x.size, group):
            part = x[begin : begin + group]
            if part.size >= -(-part.size // 32):  # the last simdgroup must hold a lane for each partial sum
                last = part.size % 32 or 32
                whole_simds = part.size - (last if last < -(-part.size // 32) else 0)
                np.testing.assert_array_equal(
                    out[begin : begin + whole_simds], np.full(whole_simds, part.sum())
                )


def test_the_order_of_threads_changes_nothing() -> None:
    text = """
kernel void k(device const int* x, device int* out, uint i [[thread_position_in_grid]]) {
  out[i] = simd_prefix_exclusive_sum(x[i]) + 1000 * simd_broadcast_first(x[i]);
}"""
    x = np.arange(1, 101, dtype=np.int32)
    expected = np.concatenate([np.cumsum(p) - p + 1000 * p[0] for p in (x[:32], x[32:64], x[64:96], x[96:])])
    for reverse in (False, True):
        out = np.zeros_like(x)
        launch(whole(text), {"x": x}, {"out": out}, 100, 64, reverse=reverse)
        np.testing.assert_array_equal(out, expected)
