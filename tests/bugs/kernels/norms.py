"""RMSNorm and layer norm: one threadgroup of two simdgroups a row, summed in two levels."""

from __future__ import annotations

import torch

from metalwright.check import random
from tests.bugs.bug import (
    BARRIER,
    BARRIER_DEVICE,
    BARRIER_NONE,
    BARRIER_SIMDGROUP,
    Bug,
    Case,
    Subject,
    launch,
)

_FLOATS = (torch.float32, torch.float16)
_SIZES = ((1, 1), (2, 7), (3, 31), (2, 33), (1, 63), (2, 64), (3, 65), (2, 127), (1, 257))


def _rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def _rmsnorm_case(dtype: torch.dtype, rows: int, n: int) -> Case:
    # so small that the squares fit in half as well, where PyTorch adds them
    x = random((rows, n), dtype, low=-4, high=4)
    return {"inputs": [x, random((n,), dtype), 1e-3], **launch((64 * rows,), (64,), [rows, n])}


RMSNORM = Subject(
    "rmsnorm",
    ("x", "weight", "eps"),
    ("out",),
    "row tid lane simdgroup",
    """
    threadgroup float partial[2];
    const uint n = x.get_extent(0);
    float squares = 0.0f;
    for (uint i = tid; i < n; i += 64)
        squares += float(x[i, row]) * float(x[i, row]);
    squares = simd_sum(squares);
    if (lane == 0)
        partial[simdgroup] = squares;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float total = partial[0] + partial[1];
    const float scale = rsqrt(total / n + eps);
    for (uint j = tid; j < n; j += 64)
        out[j, row] = TYPE(float(x[j, row]) * scale * float(weight[j]));
    """,
    _rmsnorm,
    _rmsnorm_case,
    _SIZES,
    _FLOATS,
    {"x": "TYPE"},
)


def _layernorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    apart = x - x.mean(-1, keepdim=True)
    return apart * torch.rsqrt((apart * apart).mean(-1, keepdim=True) + eps) * weight + bias


def _layernorm_case(dtype: torch.dtype, rows: int, n: int) -> Case:
    x = random((rows, n), dtype, low=-4, high=4)
    parameters = [random((n,), dtype), random((n,), dtype)]
    return {"inputs": [x, *parameters, 1e-3], **launch((64 * rows,), (64,), [rows, n])}


LAYERNORM = Subject(
    "layernorm",
    ("x", "weight", "bias", "eps"),
    ("out",),
    "row tid lane simdgroup",
    """
    threadgroup float partial[2];
    const uint n = x.get_extent(0);
    float sum = 0.0f;
    for (uint i = tid; i < n; i += 64)
        sum += float(x[i, row]);
    sum = simd_sum(sum);
    if (lane == 0)
        partial[simdgroup] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // sums are there
    const float mean = (partial[0] + partial[1]) / n;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // sums are read
    float squares = 0.0f;
    for (uint i = tid; i < n; i += 64) {
        const float apart = float(x[i, row]) - mean;
        squares += apart * apart;
    }
    squares = simd_sum(squares);
    if (lane == 0)
        partial[simdgroup] = squares;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // squares are there
    const float scale = rsqrt((partial[0] + partial[1]) / n + eps);
    for (uint i = tid; i < n; i += 64)
        out[i, row] = TYPE((float(x[i, row]) - mean) * scale * float(weight[i]) + float(bias[i]));
    """,
    _layernorm,
    _layernorm_case,
    _SIZES,
    _FLOATS,
    {"x": "TYPE"},
)

SUBJECTS = (RMSNORM, LAYERNORM)

_READ = "partial[0] + partial[1]"
_REUSED = "partial[simdgroup] = squares"
_THERE = f"{BARRIER}  // sums are there"
_USED = f"{BARRIER}  // sums are read"
_SQUARED = f"{BARRIER}  // squares are there"

BUGS = (
    Bug(RMSNORM, "no barrier", "barrier missing before a read", "race", BARRIER, "", (2, 65), _READ),
    Bug(
        RMSNORM, "mem_none", "barrier with mem_none", "race", BARRIER, BARRIER_NONE, (2, 65), _READ,
        public="barrier with mem_none",
    ),
    Bug(RMSNORM, "mem_device", "barrier for the wrong memory", "race", BARRIER, BARRIER_DEVICE, (2, 65), _REUSED),
    Bug(RMSNORM, "simdgroup_barrier", "barrier of a simdgroup only", "race", BARRIER, BARRIER_SIMDGROUP, (2, 65), _READ),
    Bug(
        RMSNORM, "own simdgroup", "simd_sum taken for a threadgroup sum", "value", _READ, "squares", (2, 65),
        public="simd_sum taken for a threadgroup sum",
    ),
    Bug(RMSNORM, "from the lane on", "wrong index", "value", "uint i = tid", "uint i = lane", (2, 65)),
    Bug(RMSNORM, "weight of the next", "read past the end", "fault", "weight[j]", "weight[j + 1]", (2, 65)),
    Bug(RMSNORM, "one partial sum", "past a threadgroup array", "fault", "partial[2]", "partial[1]", (2, 65), _REUSED),
    Bug(RMSNORM, "minus eps", "wrong operator", "value", "+ eps", "- eps", (2, 65)),
    Bug(
        RMSNORM, "whole steps only", "tail not written", "unwritten", "j < n;", "j < n / 64 * 64;", (2, 65),
        public="output tail not written",
    ),
    Bug(
        RMSNORM, "in place", "write to an input", "fault", "out[j, row] = TYPE(", "const_cast<device TYPE&>(x[j, row]) = TYPE(",
        (2, 65),
    ),
    Bug(
        RMSNORM, "half squares", "fp16 accumulation overflow", "value", "float squares = 0.0f", "half squares = 0.0h", (1, 28001),
        dtype=torch.float16, public="fp16 accumulation overflowing",
    ),
    Bug(
        RMSNORM, "larger threadgroup", "launch of the wrong size", "fault", "", "", (1, 65), _REUSED,
        launch={"threads_per_grid": (128, 1, 1), "threads_per_thread_group": (128, 1, 1)},
    ),
    Bug(
        RMSNORM, "threadgroup of 2048", "threadgroup larger than allowed", "refused", "", "", (1, 65),
        launch={"threads_per_grid": (2048, 1, 1), "threads_per_thread_group": (2048, 1, 1)},
        public="group size above what the kernel allows",
    ),
    Bug(RMSNORM, "one simdgroup", "launch of the wrong size", "uninitialised", "", "", (1, 33), _READ, launch={"threads_per_grid": (32, 1, 1), "threads_per_thread_group": (32, 1, 1)}),
    Bug(RMSNORM, "one row less", "launch of the wrong size", "unwritten", "", "", (3, 31), launch={"threads_per_grid": (128, 1, 1)}),
    Bug(
        LAYERNORM, "sums not awaited", "barrier missing before a read", "race", _THERE, "", (2, 65), f"mean = ({_READ}",
    ),
    Bug(
        LAYERNORM, "sums overwritten", "barrier missing before the next write", "race", _USED, "", (2, 65), _REUSED,
        public="barrier missing between a reduction's read and the next write",
    ),
    Bug(LAYERNORM, "reuse with mem_device", "barrier for the wrong memory", "race", _USED, BARRIER_DEVICE, (2, 65), _REUSED),
    Bug(LAYERNORM, "reuse in a simdgroup", "barrier of a simdgroup only", "race", _USED, BARRIER_SIMDGROUP, (2, 65), _REUSED),
    Bug(
        LAYERNORM, "threads without elements leave", "early return before a barrier", "fault",
        "float sum = 0.0f;", "if (tid >= n) return;\n    float sum = 0.0f;", (2, 33), "// sums are there",
    ),
    Bug(
        LAYERNORM, "first lanes wait", "barrier in a divergent branch", "fault",
        f"if (lane == 0)\n        partial[simdgroup] = sum;\n    {_THERE}",
        f"if (lane == 0) {{\n        partial[simdgroup] = sum;\n        {_THERE}\n    }}", (2, 65), "// sums are there",
    ),
    Bug(LAYERNORM, "sample variance", "wrong constant", "value", f"rsqrt(({_READ}) / n", f"rsqrt(({_READ}) / (n - 1)", (2, 65)),
    Bug(LAYERNORM, "sums are kept", "wrong operator", "value", _REUSED, "partial[simdgroup] += squares", (2, 65)),
    Bug(LAYERNORM, "one lane too far", "lane that takes no part", "uninitialised", "if (lane == 0)\n        partial[simdgroup] = sum;", "if (lane == 1 && simdgroup == 0)\n        partial[simdgroup] = sum;", (2, 65), f"mean = ({_READ}"),
)  # fmt: skip
