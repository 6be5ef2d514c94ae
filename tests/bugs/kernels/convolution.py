"""Convolutions: along one axis with a tile and its halo, and in a plane through a private window."""

from __future__ import annotations

import torch

from metalwright.check import random
from tests.bugs.bug import BARRIER, Bug, Case, Subject, launch, up


def _along(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(x, (1, 1))
    return padded[:-2] * w[0] + padded[1:-1] * w[1] + padded[2:] * w[2]


def _along_case(dtype: torch.dtype, n: int) -> Case:
    return {"inputs": [random((n,), dtype), random((3,), dtype)], **launch((up(n, 64),), (64,), [n])}


ALONG = Subject(
    "convolution_1d",
    ("x", "w"),
    ("out",),
    "gid tid",
    """
    threadgroup float tile[66];
    const int n = x.get_extent(0), i = gid;
    tile[tid + 1] = i < n ? float(x[i]) : 0.0f;
    if (tid == 0)
        tile[0] = i > 0 ? float(x[i - 1]) : 0.0f;
    if (tid == 63)
        tile[65] = i + 1 < n ? float(x[i + 1]) : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (i < n)
        out[i] = TYPE(tile[tid] * float(w[0]) + tile[tid + 1] * float(w[1]) + tile[tid + 2] * float(w[2]));
    """,
    _along,
    _along_case,
    ((1,), (2,), (61,), (63,), (64,), (65,), (131,)),
    (torch.float32, torch.float16),
    {"x": "TYPE"},
)


def _plane(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
    height, width = x.shape
    return sum(padded[r : r + height, c : c + width] * w[r, c] for r in range(3) for c in range(3))  # type: ignore


def _plane_case(dtype: torch.dtype, height: int, width: int) -> Case:
    x, w = random((height, width), dtype), random((3, 3), dtype)
    return {"inputs": [x, w], **launch((width, height), (8, 8), [height, width])}


PLANE = Subject(
    "convolution_2d",
    ("x", "w"),
    ("out",),
    "at",
    """
    float window[9];
    const int width = x.get_extent(0), height = x.get_extent(1);
    for (int r = 0; r < 3; ++r)
        for (int c = 0; c < 3; ++c) {
            const int column = int(at.x) + c - 1, line = int(at.y) + r - 1;
            const bool inside = column >= 0 && column < width && line >= 0 && line < height;
            window[r * 3 + c] = inside ? float(x[column, line]) : 0.0f;
        }
    float sum = 0.0f;
    for (int t = 0; t < 9; ++t)
        sum += window[t] * float(w[t % 3, t / 3]);
    out[at.x, at.y] = TYPE(sum);
    """,
    _plane,
    _plane_case,
    ((1, 1), (2, 3), (7, 5), (8, 8), (9, 7), (3, 17)),
    (torch.float32, torch.float16),
    {"x": "TYPE"},
)

SUBJECTS = (ALONG, PLANE)

_SUM = "out[i] = TYPE(tile"

BUGS = (
    Bug(ALONG, "no barrier", "barrier missing before a read", "race", BARRIER, "", (65,), _SUM),
    Bug(ALONG, "no left halo", "threadgroup memory read before written", "uninitialised", "if (tid == 0)\n        tile[0] = i > 0 ? float(x[i - 1]) : 0.0f;", "", (65,), _SUM),
    Bug(ALONG, "halo of the wrong thread", "threadgroup memory read before written", "uninitialised", "tid == 63", "tid == 64", (131,), _SUM),
    Bug(ALONG, "before the first", "index before the start", "fault", "i > 0 ? float(x[i - 1]) : 0.0f", "float(x[i - 1])", (65,)),
    Bug(ALONG, "after the last", "read past the end", "fault", "i + 1 < n ? float(x[i + 1]) : 0.0f", "float(x[i + 1])", (64,)),
    Bug(ALONG, "halo not counted", "past a threadgroup array", "fault", "tile[66]", "tile[64]", (65,), "tile[tid + 1] ="),
    Bug(ALONG, "store unguarded", "write past the end", "fault", "if (i < n)\n", "\n", (65,), _SUM),
    Bug(ALONG, "last element not stored", "tail not written", "unwritten", "if (i < n)\n", "if (i + 1 < n)\n", (65,)),
    Bug(ALONG, "smaller threadgroups", "launch of the wrong size", "uninitialised", "", "", (65,), _SUM, launch={"threads_per_grid": (96, 1, 1), "threads_per_thread_group": (32, 1, 1)}),
    Bug(ALONG, "outside threads leave", "early return before a barrier", "fault", "tile[tid + 1] =", "if (i >= n) return;\n    tile[tid + 1] =", (65,), BARRIER),
    Bug(PLANE, "window of eight", "past a private array", "fault", "window[9]", "window[8]", (7, 5), "window[r * 3 + c] ="),
    Bug(PLANE, "one step too far", "past a private array", "fault", "t < 9", "t <= 9", (7, 5), "sum += window[t]"),
    Bug(PLANE, "right edge", "off by one", "fault", "column < width", "column <= width", (7, 5), "x[column, line]"),
    Bug(PLANE, "top edge", "index before the start", "fault", "line >= 0", "line >= -1", (7, 5), "x[column, line]"),
    Bug(PLANE, "not centred", "shifted by one", "value", "int(at.y) + r - 1", "int(at.y) + r", (7, 5)),
    Bug(PLANE, "edge clamped", "wrong operator", "value", "inside ? float(x[column, line]) : 0.0f", "float(x[clamp(column, 0, width - 1), clamp(line, 0, height - 1)])", (7, 5)),
    Bug(PLANE, "window not filled", "private variable read before written", "uninitialised", "window[r * 3 + c] = inside ? float(x[column, line]) : 0.0f;", "if (inside) window[r * 3 + c] = float(x[column, line]);", (7, 5), "sum += window[t]", missing="private arrays are not observed"),
)  # fmt: skip
