"""Prefix sums: of one threadgroup by doubling steps, and of long rows chunk by chunk."""

from __future__ import annotations

import torch

from metalwright.check import random
from tests.bugs.bug import BARRIER, BARRIER_DEVICE, Bug, Case, Subject, launch


def _prefix_sum(x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x, -1, dtype=x.dtype)


def _short_case(dtype: torch.dtype, n: int) -> Case:
    return {"inputs": [random((n,), dtype, low=-100, high=100)], **launch((64,), (64,), [n])}


SHORT = Subject(
    "prefix_sum",
    ("x",),
    ("out",),
    "tid",
    """
    threadgroup int values[64];
    const uint n = x.get_extent(0);
    values[tid] = tid < n ? x[tid] : 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // filled
    for (uint by = 1; by < 64; by *= 2) {
        const int before = tid >= by ? values[tid - by] : 0;
        threadgroup_barrier(mem_flags::mem_threadgroup);  // read
        values[tid] += before;
        threadgroup_barrier(mem_flags::mem_threadgroup);  // added
    }
    if (tid < n)
        out[tid] = values[tid];
    """,
    _prefix_sum,
    _short_case,
    ((1,), (2,), (31,), (32,), (33,), (61,), (63,), (64,)),
    (torch.int32,),
)


def _long_case(dtype: torch.dtype, rows: int, n: int) -> Case:
    return {"inputs": [random((rows, n), dtype, low=-50, high=50)], **launch((64 * rows,), (64,), [rows, n])}


LONG = Subject(
    "scan_chunks",
    ("x",),
    ("out",),
    "row tid lane simdgroup",
    """
    threadgroup TYPE totals[2];
    const uint n = x.get_extent(0);
    TYPE carry = 0;
    for (uint base = 0; base < n; base += 64) {
        const uint i = base + tid;
        const TYPE value = i < n ? x[i, row] : TYPE(0);
        const TYPE inside = simd_prefix_inclusive_sum(value);
        if (lane == 31)
            totals[simdgroup] = inside;
        threadgroup_barrier(mem_flags::mem_threadgroup);  // totals are there
        const TYPE before = simdgroup == 0 ? TYPE(0) : totals[0];
        if (i < n)
            out[i, row] = carry + before + inside;
        carry += totals[0] + totals[1];
        threadgroup_barrier(mem_flags::mem_threadgroup);  // totals are read
    }
    """,
    _prefix_sum,
    _long_case,
    ((1, 1), (2, 31), (1, 63), (2, 64), (3, 65), (2, 127), (1, 131), (2, 193)),
    (torch.int32, torch.float32),
    {"x": "TYPE"},
)

SUBJECTS = (SHORT, LONG)

_FILLED = f"{BARRIER}  // filled"
_READ = f"{BARRIER}  // read"
_ADDED = f"{BARRIER}  // added"
_THERE = f"{BARRIER}  // totals are there"
_TOTALS_READ = f"{BARRIER}  // totals are read"
_BEFORE = "const int before"

BUGS = (
    Bug(SHORT, "filling not awaited", "barrier missing before a read", "race", _FILLED, "", (61,), _BEFORE),
    Bug(SHORT, "added before read", "barrier missing before the next write", "race", _READ, "", (61,), "values[tid] += before"),
    Bug(SHORT, "sums not awaited", "barrier missing in a loop", "race", _ADDED, "", (61,), _BEFORE),
    Bug(SHORT, "filled with mem_device", "barrier for the wrong memory", "race", _FILLED, BARRIER_DEVICE, (61,), _BEFORE),
    Bug(SHORT, "strictly later", "off by one", "value", "tid >= by", "tid > by", (61,)),
    Bug(SHORT, "before the first", "index before the start", "fault", "tid >= by ? values[tid - by] : 0", "values[int(tid) - int(by)]", (61,)),
    Bug(SHORT, "a step less", "off by one", "value", "by < 64", "by < 32", (64,)),
    Bug(SHORT, "threads without elements", "write past the end", "fault", "if (tid < n)\n", "\n", (61,), "out[tid] = values"),
    Bug(SHORT, "tail not zeroed", "threadgroup memory read before written", "uninitialised", "values[tid] = tid < n ? x[tid] : 0;", "if (tid < n) values[tid] = x[tid];", (33,), _BEFORE),
    Bug(SHORT, "elements past the end", "read past the end", "fault", "tid < n ? x[tid] : 0", "x[tid]", (61,)),
    Bug(SHORT, "read only where needed", "barrier in a divergent branch", "fault", f"const int before = tid >= by ? values[tid - by] : 0;\n        {_READ}", f"int before = 0;\n        if (tid >= by) {{\n            before = values[tid - by];\n            {_READ}\n        }}", (61,), "// read"),
    Bug(SHORT, "step stands still", "endless loop", "fault", "by *= 2", "by *= 1", (61,), "for (uint by", seconds=0.4),
    Bug(LONG, "totals not awaited", "barrier missing before a read", "race", _THERE, "", (2, 127), "const TYPE before"),
    Bug(LONG, "totals overwritten", "barrier missing before the next write", "race", _TOTALS_READ, "", (2, 127), "totals[simdgroup] = inside", public="barrier missing between a reduction's read and the next write"),
    Bug(LONG, "each as far as it has elements", "barrier in a loop with uneven trip counts", "fault", "base < n;", "base + tid < n;", (2, 127), "// totals are there"),
    Bug(LONG, "no carry", "term left out", "value", "carry + before + inside", "before + inside", (2, 127)),
    Bug(LONG, "carry of the second simdgroup", "simd_sum taken for a threadgroup sum", "value", "carry += totals[0] + totals[1]", "carry += totals[1]", (2, 127)),
    Bug(LONG, "first lane's total", "wrong lane", "value", "lane == 31", "lane == 0", (2, 127)),
    Bug(LONG, "no lane's total", "wrong lane", "uninitialised", "lane == 31", "lane == 32", (2, 127), "const TYPE before"),
    Bug(LONG, "elements past the end", "read past the end", "fault", "i < n ? x[i, row] : TYPE(0)", "x[i, row]", (1, 131)),
    Bug(LONG, "exclusive", "shifted by one", "value", "simd_prefix_inclusive_sum", "simd_prefix_exclusive_sum", (2, 63)),
    Bug(LONG, "row of the chunk", "wrong index", "value", "x[i, row]", "x[tid, row]", (2, 127)),
)  # fmt: skip
