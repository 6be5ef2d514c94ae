"""The positions, sizes and indices that a thread is given, against a model of the grid in plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.support import launch, triple, whole

VECTORS = (
    "thread_position_in_grid threads_per_grid thread_position_in_threadgroup threads_per_threadgroup "
    "dispatch_threads_per_threadgroup threadgroup_position_in_grid threadgroups_per_grid"
).split()
SCALARS = (
    "thread_index_in_threadgroup thread_index_in_simdgroup thread_index_in_quadgroup simdgroup_index_in_threadgroup "
    "quadgroup_index_in_threadgroup simdgroups_per_threadgroup quadgroups_per_threadgroup threads_per_simdgroup "
    "thread_execution_width dispatch_simdgroups_per_threadgroup dispatch_quadgroups_per_threadgroup"
).split()
COLUMNS = 3 * len(VECTORS) + len(SCALARS)
SIZES = [
    ((1,), (1,)),
    ((100,), (64,)),
    ((1000,), (33,)),
    ((7,), (1024,)),
    ((37, 21), (16, 8)),
    ((5, 70), (5, 32)),
    ((40, 3), (32, 32)),
    ((9, 7, 5), (4, 4, 4)),
    ((33, 2, 3), (32, 2, 2)),
    ((3, 5, 70), (1, 2, 64)),
]


def kernel_text(scalar: str) -> str:
    """A kernel that writes every attribute: vectors with three components, in the given integer type."""
    declared = [f"{scalar}3 v{i} [[{name}]]" for i, name in enumerate(VECTORS)]
    declared += [f"{scalar} s{i} [[{name}]]" for i, name in enumerate(SCALARS)]
    written = [f"o[{3 * i + j}] = v{i}[{j}];" for i in range(len(VECTORS)) for j in range(3)]
    written += [f"o[{3 * len(VECTORS) + i}] = s{i};" for i in range(len(SCALARS))]
    place = "((ulong(at.z) * size.y + at.y) * size.x + at.x)"
    return (
        f"kernel void k(device uint* out [[buffer(0)]], uint3 at [[thread_position_in_grid]],\n"
        f"uint3 size [[threads_per_grid]], {', '.join(declared)}) {{\n"
        f"device uint* o = out + {place} * {COLUMNS};\n{' '.join(written)}\n}}"
    )


def model(grid: tuple[int, int, int], full: tuple[int, int, int]) -> np.ndarray:
    """What each thread must see: shape (z, y, x, COLUMNS)."""
    seen = np.zeros((*grid[::-1], COLUMNS), np.uint32)
    groups = tuple(-(-g // f) for g, f in zip(grid, full, strict=True))

    def parts(threads: int, size: int) -> int:
        return -(-threads // size)

    for group in itertools.product(*map(range, groups)):
        here = tuple(min(f, g - b * f) for g, f, b in zip(grid, full, group, strict=True))
        count, full_count = here[0] * here[1] * here[2], full[0] * full[1] * full[2]
        for index in range(count):
            local = (index % here[0], index // here[0] % here[1], index // (here[0] * here[1]))
            at = tuple(b * f + i for b, f, i in zip(group, full, local, strict=True))
            seen[at[::-1]] = [
                *at, *grid, *local, *here, *full, *group, *groups,
                index, index % 32, index % 4, index // 32, index // 4, parts(count, 32), parts(count, 4), 32, 32,
                parts(full_count, 32), parts(full_count, 4),
            ]  # fmt: skip
    return seen


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("scalar", ["uint", "ushort"])
def test_every_attribute_over_whole_and_partial_threadgroups(scalar: str, checked: bool) -> None:
    program = whole(kernel_text(scalar), checked=checked)
    for grid, group in SIZES:
        expected = model(triple(grid), triple(group))
        for reverse in (False, True):
            out = np.full_like(expected, 0xDEADBEEF)
            launch(program, {}, {"out": out}, grid, group, reverse=reverse)
            np.testing.assert_array_equal(out, expected, err_msg=f"{grid} in {group}, reverse={reverse}")


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("barrier", [False, True])
def test_many_workers_see_what_one_sees(checked: bool, reverse: bool, barrier: bool) -> None:
    text = """
kernel void k(device uint* out, uint2 at [[thread_position_in_grid]], uint2 size [[threads_per_grid]],
              ushort2 local [[thread_position_in_threadgroup]], uint2 group [[threadgroup_position_in_grid]]) {
  BARRIER
  out[at.y * size.x + at.x] = (group.y << 24) + (group.x << 16) + (local.y << 8) + local.x;
}""".replace("BARRIER", "threadgroup_barrier(mem_flags::mem_threadgroup);" if barrier else "")
    program = whole(text, checked=checked)
    grid, group = (403, 201), (16, 15)  # over 65536 threads: enough for several OS threads
    y, x = np.mgrid[: grid[1], : grid[0]].astype(np.uint32)
    expected = (y // 15 << 24) + (x // 16 << 16) + (y % 15 << 8) + x % 16
    for workers in (1, 2, None):
        out = np.zeros_like(expected)
        report = launch(program, {}, {"out": out}, grid, group, max_workers=workers, reverse=reverse)
        np.testing.assert_array_equal(out, expected)
        assert report.threads == grid[0] * grid[1]


def test_shorter_vectors_and_scalars_take_the_first_components() -> None:
    text = """
kernel void k(device uint* out [[buffer(0)]], uint x [[thread_position_in_grid]],
              ushort2 xy [[thread_position_in_threadgroup]], ushort n [[threads_per_grid]],
              uint2 nn [[threads_per_threadgroup]], uint3 at [[thread_position_in_grid]]) {
  device uint* o = out + ((at.z * 3 + at.y) * 5 + at.x) * 6;
  o[0] = x; o[1] = xy.x; o[2] = xy.y; o[3] = n; o[4] = nn.x; o[5] = nn.y;
}"""
    out = np.zeros((2, 3, 5, 6), np.uint32)
    launch(whole(text), {}, {"out": out}, (5, 3, 2), (4, 2, 2))
    _, y, x = np.mgrid[:2, :3, :5]
    columns = [x, x % 4, y % 2, np.full_like(x, 5), np.where(x < 4, 4, 1), np.where(y < 2, 2, 1)]
    np.testing.assert_array_equal(out, np.stack(columns, -1))


def test_grid_origin_is_zero_and_grid_size_is_the_grid() -> None:
    text = """
kernel void k(device uint* out, uint i [[thread_position_in_grid]], uint3 o [[grid_origin]], uint3 n [[grid_size]]) {
  if (i == 2) { out[0] = o.x + o.y + o.z; out[1] = n.x; out[2] = n.y; out[3] = n.z; }
}"""
    out = np.full(4, 99, np.uint32)
    launch(whole(text), {}, {"out": out}, (5, 1, 1), (2, 1, 1))
    assert out.tolist() == [0, 5, 1, 1]


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("group", [(64, 1), (8, 8), (33, 3), (1, 1), (7, 5)])
def test_barriers_hand_values_over_in_whole_and_partial_threadgroups(
    group: tuple[int, int], checked: bool
) -> None:
    # each thread reads what the opposite thread of its threadgroup wrote, in three rounds
    text = """
kernel void k(device uint* out, uint2 at [[thread_position_in_grid]], uint2 size [[threads_per_grid]],
              uint i [[thread_index_in_threadgroup]], uint2 n [[threads_per_threadgroup]]) {
  threadgroup uint shared[1024];
  uint value = at.y * size.x + at.x;
  for (int round = 0; round < 3; round++) {
    shared[i] = value;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    value = 3 * shared[n.x * n.y - 1 - i] + 1;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  out[at.y * size.x + at.x] = value;
}"""
    grid = (70, 13)
    values = np.arange(grid[0] * grid[1], dtype=np.uint32).reshape(grid[::-1])
    expected = values.copy()
    for _ in range(3):
        for y, x in itertools.product(range(0, grid[1], group[1]), range(0, grid[0], group[0])):
            block = expected[y : y + group[1], x : x + group[0]]
            block[:] = 3 * block[::-1, ::-1] + 1
    for reverse in (False, True):
        out = np.zeros_like(values)
        launch(whole(text, checked=checked), {}, {"out": out}, grid, group, reverse=reverse)
        np.testing.assert_array_equal(out, expected)
