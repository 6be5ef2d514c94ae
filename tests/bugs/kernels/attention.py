"""Attention of one head: a threadgroup a query, its scores in threadgroup memory."""

from __future__ import annotations

import torch

from metalwright.check import random
from tests.bugs.bug import BARRIER, Bug, Case, Subject, launch


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(0, 1) * q.shape[1] ** -0.5
    later = torch.ones(scores.shape, dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(later, -torch.inf), -1).nan_to_num(0.0) @ v


def _attention_case(dtype: torch.dtype, keys: int, width: int) -> Case:
    # bounded: infinities make NaN of what the mask hides, and how is not the point here
    q, k, v = (random((keys, width), dtype, low=-3, high=3) for _ in range(3))
    return {"inputs": [q, k, v], **launch((64 * keys,), (64,), [keys, width])}


ATTENTION = Subject(
    "attention",
    ("q", "k", "v"),
    ("out",),
    "row tid lane simdgroup",
    """
    threadgroup float scores[128];
    threadgroup float partial[2];
    const uint keys = row + 1, width = q.get_extent(0);  // no key after the query
    float top = -INFINITY;
    for (uint i = tid; i < keys; i += 64) {
        float dot = 0.0f;
        for (uint d = 0; d < width; ++d)
            dot += float(q[d, row]) * float(k[d, i]);
        dot *= rsqrt(float(width));
        scores[i] = dot;
        top = max(top, dot);
    }
    top = simd_max(top);
    if (lane == 0)
        partial[simdgroup] = top;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // maxima are there
    top = max(partial[0], partial[1]);
    threadgroup_barrier(mem_flags::mem_threadgroup);  // maxima are read
    float sum = 0.0f;
    for (uint i = tid; i < keys; i += 64) {
        scores[i] = exp(scores[i] - top);
        sum += scores[i];
    }
    sum = simd_sum(sum);
    if (lane == 0)
        partial[simdgroup] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // weights are there
    const float total = partial[0] + partial[1];
    for (uint d = tid; d < width; d += 64) {
        float mixed = 0.0f;
        for (uint i = 0; i < keys; ++i)
            mixed += scores[i] * float(v[d, i]);
        out[d, row] = TYPE(mixed / total);
    }
    """,
    _attention,
    _attention_case,
    ((1, 1), (2, 3), (5, 8), (17, 4), (33, 2), (65, 3), (3, 65)),
    (torch.float32, torch.float16),
    {"q": "TYPE"},
)

SUBJECTS = (ATTENTION,)

_MAXIMA = f"{BARRIER}  // maxima are there"
_READ = f"{BARRIER}  // maxima are read"
_WEIGHTS = f"{BARRIER}  // weights are there"

BUGS = (
    Bug(ATTENTION, "maxima not awaited", "barrier missing before a read", "race", _MAXIMA, "", (5, 8), "top = max(partial"),
    Bug(ATTENTION, "maxima overwritten", "barrier missing before the next write", "race", _READ, "", (5, 8), "partial[simdgroup] = sum", public="barrier missing between a reduction's read and the next write"),
    Bug(ATTENTION, "weights not awaited", "barrier missing before a read", "race", _WEIGHTS, "", (65, 3), "mixed += scores[i]"),
    Bug(ATTENTION, "one key more", "threadgroup memory read before written", "uninitialised", "for (uint i = 0; i < keys; ++i)", "for (uint i = 0; i < min(keys + 1, uint(k.get_extent(1))); ++i)", (5, 8), "mixed += scores[i]"),
    Bug(ATTENTION, "scores of 64 keys", "past a threadgroup array", "fault", "scores[128]", "scores[64]", (65, 3), "scores[i] = dot"),
    Bug(ATTENTION, "scale of the width", "wrong constant", "value", "rsqrt(float(width))", "(1.0f / float(width))", (5, 8)),
    Bug(ATTENTION, "no key at all", "integer underflow of a bound", "fault", "keys = row + 1", "keys = row - 1", (5, 8), "* float(k[d, i])"),
    Bug(ATTENTION, "first simdgroup's sum", "simd_sum taken for a threadgroup sum", "value", "const float total = partial[0] + partial[1]", "const float total = sum", (65, 3)),
    Bug(ATTENTION, "threads without keys leave", "early return before a barrier", "fault", "float top = -INFINITY;", "if (tid >= keys && tid >= width) return;\n    float top = -INFINITY;", (5, 8), "// maxima are there"),
    Bug(ATTENTION, "query of the thread", "read past the end", "fault", "q[d, row]", "q[d, row + i]", (5, 8)),
)  # fmt: skip
