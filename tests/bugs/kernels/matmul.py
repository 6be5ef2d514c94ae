"""Matrix products: tiles of 8x8 in threadgroup memory, and the same with simdgroup matrices."""

from __future__ import annotations

import torch

from metalwright.check import random
from tests.bugs.bug import (
    BARRIER,
    BARRIER_DEVICE,
    BARRIER_SIMDGROUP,
    Bug,
    Case,
    Subject,
    launch,
    up,
)

_SIZES = ((1, 1, 1), (2, 3, 5), (7, 7, 7), (8, 8, 8), (9, 9, 9), (8, 16, 8), (5, 17, 11), (16, 7, 13))


def _matmul(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    return A @ B


def _tiled_case(dtype: torch.dtype, m: int, k: int, n: int) -> Case:
    return {
        "inputs": [random((m, k), dtype), random((k, n), dtype)],
        **launch((up(n, 8), up(m, 8)), (8, 8), [m, n]),
    }


TILED = Subject(
    "matmul_tiled",
    ("A", "B"),
    ("C",),
    "at local",
    """
    threadgroup float a[8][8], b[8][8];
    const uint N = C.get_extent(0), M = C.get_extent(1), K = A.get_extent(0);
    float sum = 0.0f;
    for (uint first = 0; first < K; first += 8) {
        const uint ka = first + local.x, kb = first + local.y;
        if (at.y < M && ka < K)
            a[local.y][local.x] = float(A[ka, at.y]);
        else
            a[local.y][local.x] = 0.0f;
        if (at.x < N && kb < K)
            b[local.y][local.x] = float(B[at.x, kb]);
        else
            b[local.y][local.x] = 0.0f;
        threadgroup_barrier(mem_flags::mem_threadgroup);  // loaded
        for (uint k = 0; k < min(8u, K - first); ++k)
            sum += a[local.y][k] * b[k][local.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);  // used
    }
    if (at.x < N && at.y < M)
        C[at.x, at.y] = TYPE(sum);
    """,
    _matmul,
    _tiled_case,
    _SIZES,
    (torch.float32, torch.float16),
    {"A": "TYPE"},
)


def _simdgroup_case(dtype: torch.dtype, m: int, k: int, n: int) -> Case:
    grid = (up(n, 8) * 8, up(m, 8) // 8)
    return {"inputs": [random((m, k), dtype), random((k, n), dtype)], **launch(grid, (64, 1), [m, n])}


# the second simdgroup multiplies the odd tiles: their products are added at the end
SIMDGROUP = Subject(
    "matmul_simdgroup",
    ("A", "B"),
    ("C",),
    "tile tid lane simdgroup",
    """
    threadgroup float a[2][64], b[2][64], products[2][64];
    const uint N = C.get_extent(0), M = C.get_extent(1), K = A.get_extent(0);
    simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint first = 0; first < K; first += 16) {
        for (uint i = lane; i < 64; i += 32) {
            const uint x = i % 8, y = i / 8, k = first + simdgroup * 8;
            const uint row = tile.y * 8 + y, column = tile.x * 8 + x;
            a[simdgroup][i] = row < M && k + x < K ? A[k + x, row] : 0.0f;
            b[simdgroup][i] = column < N && k + y < K ? B[column, k + y] : 0.0f;
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);  // loaded
        simdgroup_float8x8 left, right;
        simdgroup_load(left, a[simdgroup], 8);
        simdgroup_load(right, b[simdgroup], 8);
        simdgroup_multiply_accumulate(sum, left, right, sum);
        simdgroup_barrier(mem_flags::mem_threadgroup);  // used
    }
    simdgroup_store(sum, products[simdgroup], 8);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint column = tile.x * 8 + tid % 8, row = tile.y * 8 + tid / 8;
    if (column < N && row < M)
        C[column, row] = products[0][tid] + products[1][tid];
    """,
    _matmul,
    _simdgroup_case,
    tuple(size for size in _SIZES if size != (8, 8, 8)),
)

SUBJECTS = (TILED, SIMDGROUP)

_LOADED = f"{BARRIER}  // loaded"
_USED = f"{BARRIER}  // used"
_PRODUCT = "sum += a[local.y][k]"
_STORE_A = "a[local.y][local.x] = float("
_FULL = (9, 9, 9)

BUGS = (
    Bug(TILED, "loads not awaited", "barrier missing before a read", "race", _LOADED, "", _FULL, _PRODUCT),
    Bug(TILED, "tile overwritten", "barrier missing before the next write", "race", _USED, "", _FULL, _STORE_A),
    Bug(TILED, "mem_device", "barrier for the wrong memory", "race", _LOADED, BARRIER_DEVICE, _FULL, _PRODUCT),
    Bug(TILED, "reuse in simdgroups", "barrier of a simdgroup only", "race", _USED, BARRIER_SIMDGROUP, _FULL, "b[local.y][local.x] = float("),
    Bug(
        TILED, "outside threads leave", "early return before a barrier", "fault", "float sum = 0.0f;",
        "if (at.x >= N || at.y >= M) return;\n    float sum = 0.0f;", _FULL, "// loaded",
    ),
    Bug(
        TILED, "outside rows skip", "barrier in a divergent branch", "fault", _LOADED, f"if (at.y < M) {BARRIER}  // loaded",
        _FULL, "// loaded",
    ),
    Bug(
        TILED, "each its own steps", "barrier in a loop with uneven trip counts", "fault", "first < K;", "first < K && first <= at.x + at.y;",
        (8, 17, 8), "// loaded",
    ),
    Bug(TILED, "column past the end", "read past the end", "fault", "if (at.x < N && kb < K)", "if (kb < K)", (8, 9, 9), "B[at.x, kb]"),
    Bug(TILED, "store unguarded", "write past the end", "fault", "if (at.x < N && at.y < M)", "if (at.x < N)", _FULL, "C[at.x, at.y] ="),
    Bug(
        TILED, "elements outside not zeroed", "threadgroup memory read before written", "uninitialised",
        "else\n            b[local.y][local.x] = 0.0f;", "", (5, 7, 3), _PRODUCT,
    ),
    Bug(TILED, "tile too narrow", "past a threadgroup array", "fault", "float a[8][8], b[8][8]", "float a[8][8], b[7][8]", _FULL, "b[local.y][local.x] = float("),
    Bug(TILED, "last product left out", "off by one", "value", "k < min(8u, K - first)", "k + 1 < min(8u, K - first)", _FULL),
    Bug(TILED, "last tile left out", "tail left out of a sum", "value", "first < K;", "first + 8 <= K;", _FULL),
    Bug(TILED, "no sum", "wrong operator", "value", "sum += a", "sum = a", _FULL),
    Bug(TILED, "B transposed", "transposed index", "value", "B[at.x, kb]", "B[kb, at.x]", (9, 9, 9)),
    Bug(TILED, "tile transposed", "transposed index", "value", "sum += a[local.y][k]", "sum += a[k][local.y]", (8, 16, 8)),
    Bug(TILED, "C transposed, not square", "transposed index", "race", "C[at.x, at.y]", "C[at.y, at.x]", (16, 7, 13)),
    Bug(TILED, "grid rounded down", "launch of the wrong size", "unwritten", "", "", _FULL, launch={"threads_per_grid": (8, 8, 1)}),
    Bug(
        TILED, "half sum", "accumulation in fp16", "value", "float sum = 0.0f", "half sum = 0.0h", (8, 400, 8), dtype=torch.float16,
    ),
    Bug(SIMDGROUP, "loads not awaited", "barrier missing before a read", "race", f"{BARRIER_SIMDGROUP}  // loaded", "", _FULL, "simdgroup_load(left"),
    Bug(SIMDGROUP, "products not awaited", "barrier missing before a read", "race", BARRIER, "", _FULL, "products[0][tid]"),
    Bug(SIMDGROUP, "products in simdgroups", "barrier of a simdgroup only", "race", BARRIER, BARRIER_SIMDGROUP, _FULL, "products[0][tid]"),
    Bug(SIMDGROUP, "one tile for both", "two threads write one element", "race", "simdgroup_store(sum, products[simdgroup], 8)", "simdgroup_store(sum, products[0], 8)", _FULL),
    Bug(SIMDGROUP, "A transposed", "transposed index", "value", "simdgroup_load(left, a[simdgroup], 8)", "simdgroup_load(left, a[simdgroup], 8, 0, true)", _FULL),
    Bug(SIMDGROUP, "wide rows", "past a threadgroup array", "fault", "simdgroup_load(right, b[simdgroup], 8)", "simdgroup_load(right, b[simdgroup], 16)", _FULL),
    Bug(SIMDGROUP, "one simdgroup multiplies", "simdgroup operation with inactive lanes", "fault", "simdgroup_multiply_accumulate(sum, left, right, sum);", "if (lane < 16) simdgroup_multiply_accumulate(sum, left, right, sum);", _FULL),
)  # fmt: skip
