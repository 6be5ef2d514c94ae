"""Element by element: vectors of four with a tail, a guarded division, a median in a private array, a loop of unknown length."""

from __future__ import annotations

import torch

from metalwright.check import random
from tests.bugs.bug import Bug, Case, Subject, launch


def _square(x: torch.Tensor) -> torch.Tensor:
    return x * x


def _square_case(dtype: torch.dtype, n: int) -> Case:
    return {"inputs": [random((n,), dtype)], **launch((-(-n // 4),), (32,), [n])}


SQUARE = Subject(
    "square_by_four",
    ("x",),
    ("out",),
    "gid",
    """
    const uint n = x.get_extent(0), first = gid * 4;
    if (first + 4 <= n) {
        const float4 four = *reinterpret_cast<device const float4*>(&x[first]);
        *reinterpret_cast<device float4*>(&out[first]) = four * four;
    } else {
        for (uint i = first; i < n; ++i)
            out[i] = x[i] * x[i];
    }
    """,
    _square,
    _square_case,
    ((1,), (3,), (4,), (5,), (127,), (128,), (129,)),
)


def _divide(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = x.to(torch.int32), y.to(torch.int32)  # the quotient of two shorts need not be one
    quotient = torch.div(x, torch.where(y == 0, 1, y), rounding_mode="trunc")
    return torch.where(y == 0, 0, quotient).to(torch.int32)


def _divide_case(dtype: torch.dtype, n: int) -> Case:
    inputs = [random((n,), dtype), random((n,), dtype, low=-2, high=3)]
    return {"inputs": inputs, **launch((n,), (32,), [n])}


DIVIDE = Subject(
    "divide",
    ("x", "y"),
    ("out",),
    "gid",
    """
    const int a = x[gid], b = y[gid];
    out[gid] = b == 0 ? 0 : a / b;
    """,
    _divide,
    _divide_case,
    ((1,), (31,), (33,), (101,)),
    (torch.int32, torch.int16),
)


def _median(x: torch.Tensor) -> torch.Tensor:
    return x.median(0).values


def _median_case(dtype: torch.dtype, n: int) -> Case:
    return {"inputs": [random((5, n), dtype)], **launch((n,), (32,), [n])}


MEDIAN = Subject(
    "median_of_five",
    ("x",),
    ("out",),
    "gid",
    """
    TYPE sorted[5];
    for (int i = 0; i < 5; ++i) {
        const TYPE value = x[gid, i];
        int place = i;
        while (place > 0 && sorted[place - 1] > value) {
            sorted[place] = sorted[place - 1];
            --place;
        }
        sorted[place] = value;
    }
    out[gid] = sorted[2];
    """,
    _median,
    _median_case,
    ((1,), (31,), (33,), (67,)),
    (torch.int32, torch.int8),
    {"x": "TYPE"},
)


def _bit_length(x: torch.Tensor) -> torch.Tensor:
    return sum((x >= 2**bit).to(torch.int32) for bit in range(31))  # type: ignore[return-value]


def _bits_case(dtype: torch.dtype, n: int) -> Case:
    return {"inputs": [random((n,), dtype, low=0, high=2**20)], **launch((n,), (32,), [n])}


BITS = Subject(
    "bit_length",
    ("x",),
    ("out",),
    "gid",
    """
    uint left = x[gid];
    int count = 0;
    while (left != 0) {
        left >>= 1;
        ++count;
    }
    out[gid] = count;
    """,
    _bit_length,
    _bits_case,
    ((1,), (31,), (33,), (101,)),
    (torch.int32,),
)

SUBJECTS = (SQUARE, DIVIDE, MEDIAN, BITS)

BUGS = (
    Bug(SQUARE, "misaligned read", "misaligned vector access", "fault", "float4*>(&x[first])", "float4*>(&x[first + 1 < n ? first + 1 : 0])", (129,)),
    Bug(SQUARE, "four past the end", "read past the end", "fault", "if (first + 4 <= n)", "if (first < n)", (127,), "const float4 four"),
    Bug(SQUARE, "no tail", "tail not written", "unwritten", "i < n; ++i", "i < n / 4 * 4; ++i", (127,), public="output tail not written"),
    Bug(SQUARE, "tail one too far", "off by one", "fault", "i < n; ++i", "i <= n; ++i", (127,), "out[i] = x[i]"),
    Bug(SQUARE, "every four by all", "two threads write one element", "race", "(&out[first])", "(&out[0])", (128,)),
    Bug(SQUARE, "written to x", "write to an input", "fault", "*reinterpret_cast<device float4*>(&out[first])", "*const_cast<device float4*>(reinterpret_cast<device const float4*>(&x[first]))", (128,), "= four * four"),
    Bug(SQUARE, "step of three", "overlapping tiles", "fault", "first = gid * 4", "first = gid * 3", (128,), "const float4 four"),
    Bug(SQUARE, "rounded down", "launch of the wrong size", "unwritten", "", "", (129,), launch={"threads_per_grid": (32, 1, 1)}),
    Bug(DIVIDE, "unguarded", "integer division by zero", "fault", "b == 0 ? 0 : a / b", "a / b", (101,)),
    Bug(DIVIDE, "unguarded remainder", "integer division by zero", "fault", "b == 0 ? 0 : a / b", "(a - a % b) / (b == 0 ? 1 : b)", (101,)),
    Bug(DIVIDE, "rounded down", "wrong rounding", "value", "a / b", "int(floor(float(a) / float(b)))", (101,)),
    Bug(DIVIDE, "divided by shifts", "shift past the width", "value", "a / b", "a >> (b + 30)", (101,)),
    Bug(DIVIDE, "quotient of the wrong pair", "wrong index", "value", "b = y[gid]", "b = y[0]", (101,)),
    Bug(MEDIAN, "before the array", "past a private array", "fault", "place > 0 && ", "place > -2 && ", (67,), "while (place"),
    Bug(MEDIAN, "six values", "past a private array", "fault", "sorted[place] = value", "sorted[place + 1] = value", (67,)),
    Bug(MEDIAN, "last not sorted in", "private variable read before written", "uninitialised", "sorted[place] = value", "if (i < 2) sorted[place] = value", (67,), "out[gid] = sorted[2]", missing="private arrays are not observed"),
    Bug(MEDIAN, "six rows", "read past the end", "fault", "x[gid, i]", "x[gid, i + 1]", (67,)),
    Bug(BITS, "never less", "endless loop", "fault", "left >>= 1", "left >>= 0", (33,), "while (left != 0)", seconds=0.4),
    Bug(BITS, "signed", "endless loop", "fault", "uint left = x[gid]", "int left = -x[gid]", (33,), "while (left != 0)", seconds=0.4),
    Bug(BITS, "own place doubled", "write past the end", "fault", "out[gid]", "out[gid * 2]", (101,)),
    Bug(BITS, "narrow", "integer overflow", "value", "uint left", "ushort left", (101,)),
)  # fmt: skip
