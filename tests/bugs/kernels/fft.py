"""A radix-2 FFT of 128 points in threadgroup memory: a thread a butterfly."""

from __future__ import annotations

import torch

from metalwright.check import random
from tests.bugs.bug import BARRIER, Bug, Case, Subject, launch

_POINTS = 128


def _fft(
    re: torch.Tensor, im: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    # as a product with the matrix of roots: PyTorch's own transform does not run in every dtype
    n = torch.arange(_POINTS, dtype=torch.float64)
    angle = -2 * torch.pi * (n[:, None] * n % _POINTS) / _POINTS
    cos, sin = angle.cos().to(re.dtype), angle.sin().to(re.dtype)
    return re @ cos - im @ sin, re @ sin + im @ cos


def _fft_case(dtype: torch.dtype, rows: int) -> Case:
    # bounded: an infinity reaches all results, as NaN or as infinity by the order of the sums
    angle = torch.arange(_POINTS // 2, dtype=torch.float64) * (2 * torch.pi / _POINTS)
    roots = [angle.cos().to(dtype), angle.sin().to(dtype)]
    inputs = [*(random((rows, _POINTS), dtype, low=-1, high=1) for _ in range(2)), *roots]
    return {"inputs": inputs, **launch((64 * rows,), (64,), [rows, _POINTS], [rows, _POINTS])}


FFT = Subject(
    "fft",
    ("re", "im", "cosines", "sines"),
    ("real", "imaginary"),
    "row tid",
    """
    threadgroup float2 values[128];
    for (uint i = tid; i < 128; i += 64) {
        const uint from = reverse_bits(i) >> 25;
        values[i] = float2(re[from, row], im[from, row]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  // loaded
    for (uint apart = 1; apart < 128; apart *= 2) {
        const uint k = tid % apart, first = (tid / apart) * 2 * apart + k, second = first + apart;
        const uint turn = k * (64 / apart);
        const float2 root = float2(cosines[turn], -sines[turn]);
        const float2 here = values[first], there = values[second];
        const float2 turned = float2(there.x * root.x - there.y * root.y, there.x * root.y + there.y * root.x);
        values[first] = here + turned;
        values[second] = here - turned;
        threadgroup_barrier(mem_flags::mem_threadgroup);  // combined
    }
    for (uint o = tid; o < 128; o += 64) {
        real[o, row] = values[o].x;
        imaginary[o, row] = values[o].y;
    }
    """,
    _fft,
    _fft_case,
    ((1,), (2,), (3,)),
)

SUBJECTS = (FFT,)

_HERE = "const float2 here"
_LOADED = f"{BARRIER}  // loaded"
_COMBINED = f"{BARRIER}  // combined"

BUGS = (
    Bug(FFT, "loads not awaited", "barrier missing before a read", "race", _LOADED, "", (2,), _HERE),
    Bug(FFT, "steps not awaited", "barrier missing in a loop", "race", _COMBINED, "", (2,), _HERE),
    Bug(FFT, "reversed in 8 bits", "read past the end", "fault", "reverse_bits(i) >> 25", "reverse_bits(i) >> 24", (1,), "float2(re[from, row]"),
    Bug(FFT, "root not conjugated", "wrong operator", "value", "there.x * root.x - there.y * root.y", "there.x * root.x + there.y * root.y", (2,)),
    Bug(FFT, "butterflies overlap", "two threads write one element", "race", "(tid / apart) * 2 * apart", "(tid / apart) * apart", (2,), "values[second] ="),
    Bug(FFT, "second past the end", "past a threadgroup array", "fault", "second = first + apart", "second = first + 2 * apart", (2,), _HERE),
    Bug(FFT, "half of the points", "tail not written", "unwritten", "o < 128;", "o < 64;", (2,)),
    Bug(FFT, "imaginary part forgotten", "element written by nobody", "unwritten", "imaginary[o, row] = values[o].y;", "", (2,)),
    Bug(FFT, "half of the loads", "threadgroup memory read before written", "uninitialised", "i < 128; i += 64", "i < 64; i += 64", (2,), _HERE),
    Bug(FFT, "step divided first", "integer division", "value", "k * (64 / apart)", "k / apart * 64", (2,)),
    Bug(FFT, "halving in place of doubling", "integer division by zero", "fault", "apart *= 2", "apart /= 2", (2,), "const uint k = tid % apart", seconds=0.5, missing="the inliner finds that apart is the literal 1, then 0, and leaves the division by zero out before the checks go in: found as a loop that does not end"),
)  # fmt: skip
