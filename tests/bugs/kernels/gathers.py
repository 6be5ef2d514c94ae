"""Gathers: rows of a table, the weights of one expert, strided views, a walk with large steps."""

from __future__ import annotations

import torch

from metalwright.check import random
from tests.bugs.bug import Bug, Case, Subject, launch


def _embedding(table: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    return torch.index_select(table, 0, idx)


def _embedding_case(dtype: torch.dtype, rows: int, width: int, count: int) -> Case:
    # the last row is asked for, by the first
    idx = (rows - 1 - torch.arange(count) * 3) % rows
    return {
        "inputs": [random((rows, width), dtype), idx.to(torch.int32)],
        **launch((width, count), (8, 4), [count, width]),
    }


EMBEDDING = Subject(
    "embedding",
    ("table", "idx"),
    ("out",),
    "at",
    """
    const int from = idx[at.y];
    out[at.x, at.y] = table[at.x, from];
    """,
    _embedding,
    _embedding_case,
    ((1, 1, 1), (5, 7, 3), (9, 8, 4), (11, 9, 5), (7, 13, 17)),
    (torch.float32, torch.float16),
    {"table": "TYPE"},
)


def _expert(W: torch.Tensor, x: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    return (torch.index_select(W, 0, idx) * x[:, None, :]).sum(-1)


def _expert_case(dtype: torch.dtype, experts: int, n: int, m: int, slots: int) -> Case:
    idx = (experts - 1 - torch.arange(slots) * 2) % experts
    inputs = [random((experts, n, m), dtype), random((slots, m), dtype), idx.to(torch.int32)]
    return {"inputs": inputs, **launch((n, slots), (8, 1), [slots, n])}


EXPERT = Subject(
    "expert_matvec",
    ("W", "x", "idx"),
    ("out",),
    "at",
    """
    const int m = W.get_extent(0);
    const int expert = idx[at.y];
    float sum = 0.0f;
    for (int i = 0; i < m; ++i)
        sum += float(W[i, at.x, expert]) * float(x[i, at.y]);
    out[at.x, at.y] = TYPE(sum);
    """,
    _expert,
    _expert_case,
    ((1, 1, 1, 1), (3, 7, 5, 2), (5, 8, 8, 3), (4, 9, 11, 5)),
    (torch.float32, torch.float16),
    {"W": "TYPE"},
)


def _crop(x: torch.Tensor, width: int) -> torch.Tensor:
    return 2 * x[:, :width]


def _crop_case(dtype: torch.dtype, rows: int, pitch: int, width: int) -> Case:
    return {"inputs": [random((rows, pitch), dtype), width], **launch((width, rows), (8, 4), [rows, width])}


# rows of a wider tensor, by flat addresses
CROP = Subject(
    "crop",
    ("x", "width"),
    ("out",),
    "at",
    """
    const device TYPE* from = &x[0, 0];
    device TYPE* to = &out[0, 0];
    const uint pitch = x.get_extent(0), columns = width;
    const uint source = at.y * pitch + at.x;
    const uint place = at.y * columns + at.x;
    to[place] = TYPE(2) * from[source];
    """,
    _crop,
    _crop_case,
    ((1, 1, 1), (3, 9, 7), (5, 8, 8), (4, 17, 9), (7, 12, 5)),
    (torch.float32, torch.int32),
    {"x": "TYPE"},
)


def _walk(x: torch.Tensor, stride: int) -> torch.Tensor:
    return x[torch.arange(x.shape[0]) * stride % x.shape[0]]


def _walk_case(dtype: torch.dtype, n: int) -> Case:
    return {"inputs": [random((n,), dtype), 100_000_007], **launch((n,), (32,), [n])}


WALK = Subject(
    "walk",
    ("x", "stride"),
    ("out",),
    "gid",
    """
    const ulong n = x.get_extent(0);
    const ulong offset = ulong(gid) * ulong(stride);
    out[gid] = x[uint(offset % n)];
    """,
    _walk,
    _walk_case,
    ((1,), (31,), (33,), (101,), (257,)),
    (torch.float32, torch.int8),
)

SUBJECTS = (EMBEDDING, EXPERT, CROP, WALK)

BUGS = (
    Bug(EMBEDDING, "the row after", "off by one", "fault", "table[at.x, from]", "table[at.x, from + 1]", (5, 7, 3)),
    Bug(EMBEDDING, "counted from one", "index before the start", "fault", "table[at.x, from]", "table[at.x, from - 1]", (1, 1, 1)),
    Bug(EMBEDDING, "the first index for all", "one row shared", "value", "idx[at.y]", "idx[0]", (9, 8, 4)),
    Bug(EMBEDDING, "index of the column", "read past the end", "fault", "idx[at.y]", "idx[at.x]", (9, 8, 4)),
    Bug(EMBEDDING, "result transposed", "transposed index", "fault", "out[at.x, at.y]", "out[at.y, at.x]", (9, 8, 4)),
    Bug(EMBEDDING, "column past the row", "past a tensor's extent", "fault", "table[at.x, from]", "table[at.x + 1, from % 5]", (7, 13, 17), missing="a tensor's extents are not checked where the address is inside its buffer: found by the value only"),
    Bug(EMBEDDING, "grid in threadgroups", "launch of the wrong size", "unwritten", "", "", (9, 8, 4), launch={"threads_per_grid": (1, 1, 1)}),
    Bug(EMBEDDING, "grid rounded up", "launch of the wrong size", "fault", "", "", (11, 9, 5), "table[at.x, from]", launch={"threads_per_grid": (16, 8, 1)}),
    Bug(EXPERT, "weights of the slot", "wrong index", "value", "W[i, at.x, expert]", "W[i, at.x, at.y]", (5, 8, 8, 3)),
    Bug(EXPERT, "one x for all", "one row shared", "value", "x[i, at.y]", "x[i, 0]", (5, 8, 8, 3)),
    Bug(EXPERT, "weights transposed", "transposed index", "value", "W[i, at.x, expert]", "W[at.x, i, expert]", (5, 8, 8, 3)),
    Bug(EXPERT, "one term more", "off by one", "fault", "i < m", "i <= m", (3, 7, 5, 2), "sum += "),
    Bug(CROP, "dense input", "strided input treated as dense", "value", "at.y * pitch", "at.y * columns", (4, 17, 9), public="strided input treated as dense"),
    Bug(CROP, "result as wide as the input", "write past the end", "fault", "at.y * columns", "at.y * pitch", (4, 17, 9), "to[place] =", public="write past the output's end for a non-contiguous view"),
    Bug(CROP, "from one row later", "read past the end", "fault", "at.y * pitch", "(at.y + 1) * pitch", (4, 17, 9), "from[source]"),
    Bug(CROP, "one before", "index before the start", "fault", "from[source]", "from[int(source) - 1]", (4, 17, 9)),
    Bug(CROP, "one word for all rows", "two threads write one element", "race", "at.y * columns + at.x", "at.x", (4, 17, 9), "to[place] ="),
    Bug(WALK, "product of 32 bits", "32-bit index overflow", "value", "ulong(gid) * ulong(stride)", "gid * uint(stride)", (257,), public="32-bit index overflow on large tensors"),
    Bug(WALK, "signed product of 32 bits", "32-bit index overflow", "fault", "ulong offset = ulong(gid) * ulong(stride);\n    out[gid] = x[uint(offset % n)]", "int offset = int(gid) * stride;\n    out[gid] = x[offset % int(n)]", (257,), "x[offset % int(n)]"),
    Bug(WALK, "rounded to float", "index rounded to a float", "value", "ulong(gid) * ulong(stride)", "ulong(float(gid) * float(stride))", (257,)),
    Bug(WALK, "modulo nothing", "integer division by zero", "fault", "offset % n", "offset % (n / 512)", (257,)),
)  # fmt: skip
