"""Softmax: with a tree in threadgroup memory, and in one pass by one simdgroup a row."""

from __future__ import annotations

import torch

from metalwright.check import random
from tests.bugs.bug import BARRIER, BARRIER_NONE, BARRIER_SIMDGROUP, Bug, Case, Subject, launch

_FLOATS = (torch.float32, torch.float16)


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def _tree_case(dtype: torch.dtype, rows: int, n: int) -> Case:
    return {"inputs": [random((rows, n), dtype)], **launch((64 * rows,), (64,), [rows, n])}


TREE = Subject(
    "softmax_tree",
    ("x",),
    ("out",),
    "row tid",
    """
    threadgroup float scratch[64];
    const uint n = x.get_extent(0);
    float top = -INFINITY;
    for (uint i = tid; i < n; i += 64)
        top = max(top, float(x[i, row]));
    scratch[tid] = top;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // maxima are there
    for (uint width = 32; width > 0; width /= 2) {
        if (tid < width)
            scratch[tid] = max(scratch[tid], scratch[tid + width]);
        threadgroup_barrier(mem_flags::mem_threadgroup);  // half as many maxima
    }
    top = scratch[0];
    threadgroup_barrier(mem_flags::mem_threadgroup);  // the maximum is read
    float sum = 0.0f;
    for (uint i = tid; i < n; i += 64)
        sum += exp(float(x[i, row]) - top);
    scratch[tid] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // sums are there
    for (uint count = 32; count > 0; count /= 2) {
        if (tid < count)
            scratch[tid] += scratch[tid + count];
        threadgroup_barrier(mem_flags::mem_threadgroup);  // half as many sums
    }
    for (uint i = tid; i < n; i += 64)
        out[i, row] = TYPE(exp(float(x[i, row]) - top) / scratch[0]);
    """,
    _softmax,
    _tree_case,
    ((1, 1), (2, 2), (3, 31), (2, 63), (1, 64), (3, 65), (2, 131)),
    _FLOATS,
    {"x": "TYPE"},
)


def _online_case(dtype: torch.dtype, rows: int, n: int) -> Case:
    return {"inputs": [random((rows, n), dtype)], **launch((32 * rows,), (32,), [rows, n])}


ONLINE = Subject(
    "softmax_online",
    ("x",),
    ("out",),
    "row lane",
    """
    const uint n = x.get_extent(0);
    float top = -INFINITY, sum = 0.0f;
    for (uint i = lane; i < n; i += 32) {
        const float value = float(x[i, row]);
        const float higher = max(top, value);
        // -INFINITY - -INFINITY is NaN
        const float before = top == -INFINITY ? sum : sum * exp(top - higher);
        sum = before + (value == -INFINITY ? 0.0f : exp(value - higher));
        top = higher;
    }
    const float highest = simd_max(top);
    const float total = simd_sum(top == -INFINITY ? sum : sum * exp(top - highest));
    for (uint j = lane; j < n; j += 32)
        out[j, row] = TYPE(exp(float(x[j, row]) - highest) / total);
    """,
    _softmax,
    _online_case,
    ((1, 1), (2, 2), (3, 17), (2, 31), (1, 32), (3, 33), (2, 101)),
    _FLOATS,
    {"x": "TYPE"},
)

SUBJECTS = (TREE, ONLINE)

_MAX_THERE = f"{BARRIER}  // maxima are there"
_MAX_HALVED = f"{BARRIER}  // half as many maxima"
_MAX_READ = f"{BARRIER}  // the maximum is read"
_SUM_THERE = f"{BARRIER}  // sums are there"
_SUM_HALVED = f"{BARRIER}  // half as many sums"
_MAX_STEP = "scratch[tid] = max("
_SUM_STEP = "scratch[tid] += scratch[tid + count]"

BUGS = (
    Bug(TREE, "maxima not awaited", "barrier missing before a read", "race", _MAX_THERE, "", (2, 65), _MAX_STEP),
    Bug(TREE, "no barrier between steps", "barrier missing in a loop", "race", _MAX_HALVED, "", (2, 65), _MAX_STEP),
    Bug(
        TREE, "maximum overwritten", "barrier missing before the next write", "race", _MAX_READ, "", (2, 65), "scratch[tid] = sum",
        public="barrier missing between a reduction's read and the next write",
    ),
    Bug(TREE, "steps with mem_none", "barrier with mem_none", "race", _SUM_HALVED, BARRIER_NONE, (2, 65), _SUM_STEP),
    Bug(TREE, "steps in simdgroups", "barrier of a simdgroup only", "race", _MAX_THERE, BARRIER_SIMDGROUP, (2, 65), _MAX_STEP),
    Bug(TREE, "one thread too many", "past a threadgroup array", "fault", "if (tid < count)", "if (tid <= count)", (2, 65), _SUM_STEP),
    Bug(TREE, "all threads add", "past a threadgroup array", "fault", "if (tid < width)", "if (tid < 64)", (2, 65), _MAX_STEP),
    Bug(TREE, "half of the maxima", "wrong constant", "value", "uint count = 32", "uint count = 16", (2, 65)),
    Bug(
        # what is read was written by the first reduction: a stale value, not an uninitialised one
        TREE, "only threads with elements", "stale value in threadgroup memory", "value",
        "scratch[tid] = sum;", "if (tid < n) scratch[tid] = sum;", (2, 31),
    ),
    Bug(
        TREE, "only threads with values", "threadgroup memory read before written", "uninitialised",
        "scratch[tid] = top;", "if (tid < n) scratch[tid] = top;", (2, 31), _MAX_STEP,
    ),
    Bug(
        TREE, "barrier in the branch", "barrier in a divergent branch", "fault",
        f"if (tid < count)\n            scratch[tid] += scratch[tid + count];\n        {_SUM_HALVED}",
        f"if (tid < count) {{\n            scratch[tid] += scratch[tid + count];\n            {_SUM_HALVED}\n        }}", (2, 65),
        "// half as many sums",
    ),
    Bug(TREE, "maximum not subtracted from sums", "wrong operator", "value", "sum += exp(float(x[i, row]) - top)", "sum += exp(float(x[i, row]))", (2, 65)),
    Bug(TREE, "maximum left out", "overflow of an exponential", "not-finite", "top = scratch[0];", "top = 0.0f;", (2, 65)),
    Bug(TREE, "endless halving", "endless loop", "fault", "width /= 2", "width = (width + 1) / 2", (1, 7), "uint width = 32", seconds=0.4),
    Bug(ONLINE, "sum not rescaled", "wrong operator", "value", "? sum : sum * exp(top - higher)", "? sum : sum", (2, 101)),
    Bug(ONLINE, "own maximum", "lane's value taken for the simdgroup's", "value", "= simd_max(top)", "= top", (2, 101)),
    Bug(ONLINE, "infinities unguarded", "NaN made of infinities", "not-finite", "(value == -INFINITY ? 0.0f : exp(value - higher))", "exp(value - higher)", (2, 101)),
    Bug(ONLINE, "overlapping steps", "off by one", "value", "i += 32", "i += 31", (2, 101)),
    Bug(ONLINE, "one element too far", "off by one", "fault", "j < n;", "j <= n;", (1, 33), "out[j, row] = "),
    Bug(ONLINE, "missing lanes", "simdgroup operation with inactive lanes", "value", "const float highest = simd_max(top);", "float highest = top;\n    if (lane >= 8) highest = simd_max(top);", (2, 33)),
    Bug(
        ONLINE, "two rows in a threadgroup", "launch of the wrong size", "unwritten", "", "", (2, 33),
        launch={"threads_per_thread_group": (64, 1, 1)},
    ),
)  # fmt: skip
