"""Transposes: tiles through threadgroup memory, with elements of four and of two bytes."""

from __future__ import annotations

import torch

from metalwright.check import random
from tests.bugs.bug import (
    BARRIER,
    BARRIER_DEVICE,
    Bug,
    Case,
    Subject,
    launch,
    up,
)


def _transpose(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1).contiguous()


def _transpose_case(dtype: torch.dtype, rows: int, columns: int) -> Case:
    grid = (up(columns, 8), up(rows, 8))
    return {"inputs": [random((rows, columns), dtype)], **launch(grid, (8, 8), [columns, rows])}


TRANSPOSE = Subject(
    "transpose",
    ("x",),
    ("out",),
    "at tile local",
    """
    threadgroup TYPE block[8][9];  // a column more, so that columns lie in different banks
    const uint columns = x.get_extent(0), rows = x.get_extent(1);
    if (at.x < columns && at.y < rows)
        block[local.y][local.x] = x[at.x, at.y];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint row = tile.x * 8 + local.y, column = tile.y * 8 + local.x;
    if (column < rows && row < columns)
        out[column, row] = block[local.x][local.y];
    """,
    _transpose,
    _transpose_case,
    ((1, 1), (2, 3), (7, 9), (8, 8), (9, 7), (16, 5), (3, 17)),
    (torch.float32, torch.float16, torch.int8),
    {"x": "TYPE"},
)

SUBJECTS = (TRANSPOSE,)

_STORE = "out[column, row] ="
_FULL = (9, 15)

BUGS = (
    Bug(TRANSPOSE, "no barrier", "barrier missing before a read", "race", BARRIER, "", _FULL, _STORE),
    Bug(TRANSPOSE, "mem_device", "barrier for the wrong memory", "race", BARRIER, BARRIER_DEVICE, _FULL, _STORE),
    Bug(TRANSPOSE, "no barrier, two bytes", "barrier missing before a read", "race", BARRIER, "", _FULL, _STORE, dtype=torch.float16),
    Bug(TRANSPOSE, "barrier inside", "barrier in a divergent branch", "fault", f"block[local.y][local.x] = x[at.x, at.y];\n    {BARRIER}", f"{{ block[local.y][local.x] = x[at.x, at.y];\n    {BARRIER} }}", _FULL, BARRIER),
    Bug(TRANSPOSE, "outside threads leave", "early return before a barrier", "fault", "if (at.x < columns && at.y < rows)\n", "if (at.x >= columns || at.y >= rows) return;\n", _FULL, BARRIER),
    Bug(TRANSPOSE, "tiles not exchanged", "transposed index", "value", "tile.x * 8 + local.y, column = tile.y * 8", "tile.y * 8 + local.y, column = tile.x * 8", (16, 16)),
    Bug(TRANSPOSE, "block not transposed", "transposed index", "value", "block[local.x][local.y]", "block[local.y][local.x]", (8, 8)),
    Bug(TRANSPOSE, "load unguarded", "read past the end", "fault", "if (at.x < columns && at.y < rows)", "if (at.x < columns)", _FULL, "x[at.x, at.y]"),
    Bug(TRANSPOSE, "store unguarded", "write past the end", "fault", "if (column < rows && row < columns)", "if (column < rows)", _FULL, _STORE),
    Bug(TRANSPOSE, "store guarded as the load", "tail not written", "unwritten", "if (column < rows && row < columns)", "if (at.x < columns && at.y < rows && column < rows && row < columns)", (3, 17)),
    Bug(TRANSPOSE, "block of seven rows", "past a threadgroup array", "fault", "block[8][9]", "block[7][9]", _FULL, "block[local.y][local.x] ="),
    Bug(TRANSPOSE, "rows of seven", "two threads write one element", "race", "block[8][9]", "block[10][7]", (8, 8), "block[local.y][local.x] ="),
    Bug(TRANSPOSE, "threadgroups of one row", "launch of the wrong size", "uninitialised", "", "", (8, 8), _STORE, launch={"threads_per_grid": (8, 8, 1), "threads_per_thread_group": (8, 4, 1)}),
)  # fmt: skip
