"""Histograms: bins in threadgroup memory, added to atomically."""

from __future__ import annotations

import torch

from metalwright.check import random
from tests.bugs.bug import BARRIER, BARRIER_NONE, Bug, Case, Subject, launch

_BINS = 64


def _histogram(x: torch.Tensor) -> torch.Tensor:
    ones = torch.ones_like(x, dtype=torch.int32)
    return torch.zeros(_BINS, dtype=torch.int32).scatter_add(0, x.long(), ones)


def _histogram_case(dtype: torch.dtype, n: int) -> Case:
    return {"inputs": [random((n,), dtype, low=0, high=_BINS)], **launch((_BINS,), (_BINS,), [_BINS])}


HISTOGRAM = Subject(
    "histogram",
    ("x",),
    ("bins",),
    "tid",
    """
    threadgroup atomic_int counts[64];
    const uint n = x.get_extent(0);
    atomic_store_explicit(&counts[tid], 0, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);  // zeroed
    for (uint i = tid; i < n; i += 64)
        atomic_fetch_add_explicit(&counts[x[i]], 1, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);  // counted
    bins[tid] = atomic_load_explicit(&counts[tid], memory_order_relaxed);
    """,
    _histogram,
    _histogram_case,
    ((1,), (2,), (63,), (64,), (65,), (401,)),
    (torch.uint8, torch.int32),
)

SUBJECTS = (HISTOGRAM,)

_ZEROED = f"{BARRIER}  // zeroed"
_COUNTED = f"{BARRIER}  // counted"
_ADD = "atomic_fetch_add_explicit(&counts[x[i]], 1, memory_order_relaxed)"
_LOAD = "atomic_load_explicit(&counts[tid], memory_order_relaxed)"
_STORE = "atomic_store_explicit(&counts[tid], 0, memory_order_relaxed)"

BUGS = (
    Bug(HISTOGRAM, "added without atomics", "non-atomic histogram", "race", _ADD, "++((threadgroup int*)counts)[x[i]]", (401,)),
    Bug(HISTOGRAM, "read without atomics", "plain read beside atomic", "race", f"{_COUNTED}\n    bins[tid] = {_LOAD}", "bins[tid] = ((threadgroup int*)counts)[tid]", (401,), "bins[tid] ="),
    Bug(HISTOGRAM, "zeroed without a barrier", "plain write beside atomic", "race", f"{_STORE};\n    {_ZEROED}", "((threadgroup int*)counts)[tid] = 0;", (401,), "((threadgroup int*)counts)[tid] = 0"),
    Bug(HISTOGRAM, "zeroing not awaited", "atomics without a barrier", "value", _ZEROED, "", (401,)),
    Bug(HISTOGRAM, "counting not awaited", "atomics without a barrier", "value", _COUNTED, "", (401,)),
    Bug(HISTOGRAM, "not zeroed", "uninitialised accumulator in threadgroup memory", "uninitialised", f"{_STORE};", "", (401,), _ADD),
    Bug(HISTOGRAM, "half zeroed", "uninitialised accumulator in threadgroup memory", "uninitialised", f"{_STORE};", f"if (tid < 32) {_STORE};", (401,), _ADD),
    Bug(HISTOGRAM, "bins of the next", "past a threadgroup array", "fault", "&counts[x[i]]", "&counts[x[i] + 1]", (401,)),
    Bug(HISTOGRAM, "fewer bins", "past a threadgroup array", "fault", "counts[64]", "counts[32]", (401,), _STORE),
    Bug(HISTOGRAM, "counts of 8 bits", "integer overflow", "value", f"bins[tid] = {_LOAD}", f"bins[tid] = uchar({_LOAD})", (40001,)),
    Bug(HISTOGRAM, "counted with mem_none", "barrier with mem_none", "race", f"{_COUNTED}\n    bins[tid] = {_LOAD}", f"{BARRIER_NONE}\n    bins[tid] = ((threadgroup int*)counts)[tid]", (401,), "bins[tid] ="),
)  # fmt: skip
