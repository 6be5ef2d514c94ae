"""Reductions: maxima that keep NaN, the first largest element, sums of many elements a thread."""

from __future__ import annotations

import torch

from metalwright.check import random
from tests.bugs.bug import BARRIER, Bug, Case, Subject, launch


def _row_max(x: torch.Tensor) -> torch.Tensor:
    return x.amax(-1)


def _row_case(dtype: torch.dtype, rows: int, n: int) -> Case:
    return {"inputs": [random((rows, n), dtype)], **launch((64 * rows,), (64,), [rows])}


ROW_MAX = Subject(
    "row_max",
    ("x",),
    ("out",),
    "row tid",
    """
    threadgroup float tops[64];
    const uint n = x.get_extent(0);
    float top = -INFINITY;
    for (uint i = tid; i < n; i += 64) {
        const float value = float(x[i, row]);
        top = isnan(value) || isnan(top) ? NAN : max(top, value);
    }
    tops[tid] = top;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // filled
    if (tid == 0) {
        for (uint t = 1; t < 64; ++t)
            top = isnan(tops[t]) || isnan(top) ? NAN : max(top, tops[t]);
        out[row] = TYPE(top);
    }
    """,
    _row_max,
    _row_case,
    ((1, 1), (2, 3), (3, 63), (2, 64), (3, 65), (1, 131)),
    (torch.float32, torch.float16),
    {"x": "TYPE"},
)


def _argmax(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[-1]
    first = torch.where(x == x.amax(-1, keepdim=True), torch.arange(n), n)
    return first.amin(-1).to(torch.int32)


ARGMAX = Subject(
    "argmax",
    ("x",),
    ("out",),
    "row tid",
    """
    threadgroup float tops[64];
    threadgroup int places[64];
    const int n = x.get_extent(0);
    float top = -INFINITY;
    int place = INT_MAX;
    for (int i = tid; i < n; i += 64) {
        const float value = float(x[i, row]);
        if (value > top) {
            top = value;
            place = i;
        }
    }
    tops[tid] = top;
    places[tid] = place;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // filled
    for (uint width = 32; width > 0; width /= 2) {
        if (tid < width) {
            const float other = tops[tid + width];
            const int there = places[tid + width];
            if (other > tops[tid] || (other == tops[tid] && there < places[tid])) {
                tops[tid] = other;
                places[tid] = there;
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);  // halved
    }
    if (tid == 0)
        out[row] = places[0];
    """,
    _argmax,
    lambda dtype, rows, n: {
        # many elements are equal
        "inputs": [random((rows, n), dtype, low=0, high=3)],
        **launch((64 * rows,), (64,), [rows]),
    },
    ((1, 1), (2, 3), (3, 63), (2, 64), (3, 65), (4, 131)),
    (torch.int32, torch.float16),
)


def _strided_sums(x: torch.Tensor, count: int) -> torch.Tensor:
    padded = torch.nn.functional.pad(x, (0, -x.shape[0] % count))
    return padded.reshape(-1, count).sum(0)


def _strided_case(dtype: torch.dtype, n: int, count: int) -> Case:
    return {"inputs": [random((n,), dtype), count], **launch((count,), (32,), [count])}


# each thread adds every grid-th element
STRIDED = Subject(
    "strided_sums",
    ("x", "count"),
    ("out",),
    "gid grid threads",
    """
    const uint n = x.get_extent(0);
    float sum = 0.0f;
    for (uint i = gid; i < n; i += grid)
        sum += float(x[i]);
    out[gid] = TYPE(sum);
    """,
    _strided_sums,
    _strided_case,
    ((1, 1), (7, 64), (127, 64), (128, 64), (129, 64), (601, 96)),
    (torch.float32, torch.float16),
    {"x": "TYPE"},
)


def _group_sums(x: torch.Tensor, groups: int) -> torch.Tensor:
    total = x.reshape(groups, 64).sum(-1)
    return torch.stack([total, total.reshape(groups)], -1)


def _group_case(dtype: torch.dtype, groups: int) -> Case:
    x = random((64 * groups,), dtype)
    return {"inputs": [x, groups], **launch((64 * groups,), (64,), [groups, 2])}


# through device memory, inside one threadgroup
DEVICE = Subject(
    "sums_through_device_memory",
    ("x", "groups"),
    ("out",),
    "gid row tid lane simdgroup",
    """
    const float sum = simd_sum(x[gid]);
    if (lane == 0)
        out[simdgroup, row] = sum;
    threadgroup_barrier(mem_flags::mem_device);  // sums are there
    const float total = out[0, row] + out[1, row];
    threadgroup_barrier(mem_flags::mem_device);  // sums are read
    if (lane == 0)
        out[simdgroup, row] = total;
    """,
    _group_sums,
    _group_case,
    ((1,), (2,), (3,), (5,)),
)

SUBJECTS = (ROW_MAX, ARGMAX, STRIDED, DEVICE)

_FILLED = f"{BARRIER}  // filled"
_HALVED = f"{BARRIER}  // halved"
_THERE = "threadgroup_barrier(mem_flags::mem_device);  // sums are there"
_READ = "threadgroup_barrier(mem_flags::mem_device);  // sums are read"
_TOTAL = "const float total"

BUGS = (
    Bug(ROW_MAX, "NaN lost", "NaN lost in max", "not-finite", "top = isnan(value) || isnan(top) ? NAN : max(top, value)", "top = max(top, value)", (3, 65), public="NaN lost in max/min"),
    Bug(ROW_MAX, "NaN lost between threads", "NaN lost in max", "not-finite", "isnan(tops[t]) || isnan(top) ? NAN : max(top, tops[t])", "tops[t] > top ? tops[t] : top", (3, 65)),
    Bug(ROW_MAX, "filling not awaited", "barrier missing before a read", "race", _FILLED, "", (3, 65), "isnan(tops[t])"),
    Bug(ROW_MAX, "from zero", "wrong constant", "value", "float top = -INFINITY", "float top = 100.0f", (2, 3)),
    Bug(ROW_MAX, "all threads write", "two threads write one element", "race", "if (tid == 0) {", "out[row] = TYPE(top);\n    if (tid == 0) {", (3, 65), "out[row] ="),
    Bug(ROW_MAX, "one thread too far", "past a threadgroup array", "fault", "t < 64", "t <= 64", (3, 65), "isnan(tops[t])"),
    Bug(ROW_MAX, "smallest", "wrong operator", "not-finite", "NAN : max(top, value)", "NAN : min(top, value)", (3, 65)),
    Bug(ARGMAX, "filling not awaited", "barrier missing before a read", "race", _FILLED, "", (3, 65), "const float other"),
    Bug(ARGMAX, "steps not awaited", "barrier missing in a loop", "race", _HALVED, "", (3, 65), "const int there"),
    Bug(ARGMAX, "last of equal ones", "wrong operator", "value", "value > top", "value >= top", (4, 131)),
    Bug(ARGMAX, "any of equal ones", "wrong operator", "value", " || (other == tops[tid] && there < places[tid])", "", (4, 131)),
    Bug(ARGMAX, "places not written", "threadgroup memory read before written", "uninitialised", "places[tid] = place;", "if (tid == 0) places[tid] = place;", (3, 65), "const int there"),
    Bug(ARGMAX, "place in the step", "wrong index", "value", "place = i;", "place = i / 64;", (3, 65)),
    Bug(STRIDED, "stride of the threadgroup", "stride by group instead of grid", "value", "i += grid", "i += threads", (601, 96), public="stride by group instead of grid"),
    Bug(STRIDED, "no stride", "endless loop", "fault", "i += grid", "i += 0", (129, 64), "for (uint i", seconds=0.4),
    Bug(STRIDED, "division by zero", "integer division by zero", "fault", "i < n; i += grid)", "i < n; i += grid / (n / 64 - 1) * 1)", (127, 64)),
    Bug(STRIDED, "one element too far", "off by one", "fault", "i < n;", "i <= n;", (128, 64), "sum += float(x[i])"),
    Bug(STRIDED, "half sum", "accumulation in fp16", "value", "float sum = 0.0f", "half sum = 0.0h", (40000, 4), dtype=torch.float16),
    Bug(STRIDED, "more results than threads", "element written by nobody", "unwritten", "", "", (601, 96), launch={"threads_per_grid": (64, 1, 1)}),
    Bug(DEVICE, "sums not awaited", "barrier missing before a read", "race", _THERE, "", (3,), _TOTAL),
    Bug(DEVICE, "sums overwritten", "barrier missing before the next write", "race", _READ, "", (3,), "out[simdgroup, row] = total"),
    Bug(DEVICE, "mem_threadgroup", "barrier for the wrong memory", "race", _THERE, BARRIER, (3,), _TOTAL),
    Bug(DEVICE, "reuse with mem_threadgroup", "barrier for the wrong memory", "race", _READ, BARRIER, (3,), "out[simdgroup, row] = total"),
    Bug(DEVICE, "the next threadgroup's", "read across threadgroups", "race", "+ out[1, row]", "+ out[1, (row + 1) % uint(groups)]", (3,), _TOTAL, public="cross-threadgroup read of another group's write in one dispatch"),
    Bug(DEVICE, "one place for all", "two threads write one element", "race", "if (lane == 0)\n        out[simdgroup, row] = sum;", "if (lane == 0)\n        out[simdgroup, 0] = sum;", (3,), "out[simdgroup, 0] ="),
    Bug(DEVICE, "only the first writes", "result read before written", "uninitialised", "if (lane == 0)\n        out[simdgroup, row] = sum;", "if (tid == 0)\n        out[simdgroup, row] = sum;", (3,), _TOTAL),
    Bug(DEVICE, "added in place", "result read before written", "uninitialised", "out[simdgroup, row] = sum", "out[simdgroup, row] += sum", (3,)),
)  # fmt: skip
