"""A bitonic sort in threadgroup memory, and one by counting."""

from __future__ import annotations

import torch

from metalwright.check import random
from tests.bugs.bug import BARRIER, BARRIER_SIMDGROUP, Bug, Case, Subject, launch


def _sort(x: torch.Tensor) -> torch.Tensor:
    return torch.sort(x).values


def _bitonic_case(dtype: torch.dtype, n: int) -> Case:
    return {"inputs": [random((n,), dtype)], **launch((64,), (64,), [n])}


BITONIC = Subject(
    "bitonic_sort",
    ("x",),
    ("out",),
    "tid",
    """
    threadgroup int values[64];
    const uint n = x.get_extent(0);
    values[tid] = tid < n ? x[tid] : INT_MAX;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // filled
    for (uint size = 2; size <= 64; size *= 2)
        for (uint apart = size / 2; apart > 0; apart /= 2) {
            const uint other = tid ^ apart;
            if (other > tid) {
                const int here = values[tid], there = values[other];
                const bool rising = (tid & size) == 0;
                if ((here > there) == rising) {
                    values[tid] = there;
                    values[other] = here;
                }
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);  // exchanged
        }
    if (tid < n)
        out[tid] = values[tid];
    """,
    _sort,
    _bitonic_case,
    ((1,), (2,), (31,), (33,), (61,), (63,), (64,)),
    (torch.int32,),
)


def _rank_case(dtype: torch.dtype, n: int) -> Case:
    return {"inputs": [random((n,), dtype)], **launch((n,), (32,), [n])}


# each element's place is the number of those before it: a permutation, so no two threads write one element
RANK = Subject(
    "rank_sort",
    ("x",),
    ("out",),
    "gid",
    """
    const uint n = x.get_extent(0);
    uint place = 0;
    for (uint i = 0; i < n; ++i)
        if (x[i] < x[gid] || (x[i] == x[gid] && i < gid)) ++place;
    out[place] = x[gid];
    """,
    _sort,
    _rank_case,
    ((1,), (2,), (31,), (32,), (33,), (67,)),
    (torch.int32, torch.int8),
)

SUBJECTS = (BITONIC, RANK)

_FILLED = f"{BARRIER}  // filled"
_EXCHANGED = f"{BARRIER}  // exchanged"
_HERE = "const int here"

BUGS = (
    Bug(BITONIC, "filling not awaited", "barrier missing before a read", "race", _FILLED, "", (63,), _HERE),
    Bug(BITONIC, "exchange not awaited", "barrier missing in a loop", "race", _EXCHANGED, "", (63,), _HERE),
    Bug(BITONIC, "exchange in simdgroups", "barrier of a simdgroup only", "race", _EXCHANGED, BARRIER_SIMDGROUP, (63,), _HERE),
    Bug(BITONIC, "both exchange", "two threads write one element", "race", "if (other > tid)", "if (other != tid)", (63,), "values[tid] = there"),
    Bug(BITONIC, "barrier where it is exchanged", "barrier in a divergent branch", "fault", f"}}\n            {_EXCHANGED}\n", f"{BARRIER}  // exchanged\n            }}\n", (63,), "// exchanged"),
    Bug(BITONIC, "falling", "wrong operator", "value", "(tid & size) == 0", "(tid & size) != 0", (63,)),
    Bug(BITONIC, "a round less", "off by one", "value", "size <= 64", "size < 64", (63,)),
    Bug(BITONIC, "padded with zeros", "wrong constant", "value", "INT_MAX", "0", (33,)),
    Bug(BITONIC, "halving stands still", "endless loop", "fault", "apart /= 2", "apart /= 1", (63,), "for (uint apart", seconds=0.4),
    Bug(BITONIC, "one thread's neighbour", "past a threadgroup array", "fault", "tid ^ apart", "tid + apart", (63,), _HERE),
    Bug(BITONIC, "idle threads leave", "early return before a barrier", "fault", "values[tid] = tid < n ? x[tid] : INT_MAX;", "values[tid] = tid < n ? x[tid] : INT_MAX;\n    if (tid >= n) return;", (33,), "// filled"),
    Bug(RANK, "equal elements in one place", "element written by nobody", "unwritten", "(x[i] == x[gid] && i < gid)", "false", (67,), dtype=torch.int8),
    Bug(RANK, "after equal ones", "off by one", "fault", "x[i] < x[gid] ||", "x[i] <= x[gid] ||", (67,), "out[place] ="),
    Bug(RANK, "to the last and one more", "read past the end", "fault", "i < n;", "i <= n;", (67,), "if (x[i] < x[gid]"),
)  # fmt: skip
