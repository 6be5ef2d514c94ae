"""What the benchmarks share: the kernels, the clock, the table."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from metalwright import MetalKernel, MetalParameter

_SECONDS_IN_A_TURN = 0.2


@dataclass(frozen=True)
class Row:
    """One figure; ``goal`` is what the project asks of it."""

    what: str
    value: float
    unit: str
    goal: str = ""


def arguments(description: str | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is measured (default 5)")
    return parser.parse_args()


def median_seconds(actions: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """Return each action's median time. They take turns, so that a change of the machine's speed meets them all."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds):
        for action, taken in zip(actions, times, strict=True):
            began = time.perf_counter()
            action()
            taken.append(time.perf_counter() - began)
    return [statistics.median(taken) for taken in times]


def best_seconds(actions: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """Return each action's shortest time; they take turns, and a short action is repeated within its turn.

    The shortest, because work that takes every core is slowed down most by whatever else runs.
    """
    best = [math.inf] * len(actions)
    for _ in range(rounds):
        for index, action in enumerate(actions):
            ends = time.perf_counter() + _SECONDS_IN_A_TURN
            while (began := time.perf_counter()) < ends:
                action()
                best[index] = min(best[index], time.perf_counter() - began)
    return best


def print_rows(rows: Sequence[Row], as_json: bool) -> None:
    """Print the figures."""
    if as_json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
        return
    width = max(len(row.what) for row in rows)
    for row in rows:
        goal = f"  ({row.goal})" if row.goal else ""
        print(f"{row.what.ljust(width)}  {row.value:10.4g} {row.unit}{goal}")


def _scale_add(x: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
    return x + alpha * y


def scale_add() -> MetalKernel:
    """Return ``out = x + alpha * y``, one thread an element."""
    return MetalKernel(
        "bench_scale_add",
        input_names=["x", "y", "alpha"],
        result_names=["out"],
        src="out[gid] = x[gid] + TYPE(alpha) * y[gid];",
        torch_defn=_scale_add,
        template_dtypes={"x": "TYPE"},
        metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")],
    )


def scale_add_sizes(elements: int) -> dict[str, Any]:
    """Return the launch sizes of ``scale_add``."""
    return {
        "threads_per_grid": (elements, 1, 1),
        "threads_per_thread_group": (256, 1, 1),
        "result_shapes": [[elements]],
    }


def _matmul(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    return A @ B


def matmul() -> MetalKernel:
    """Return ``C = A @ B`` in tiles of 16x16, through threadgroup memory."""
    return MetalKernel(
        "bench_matmul",
        input_names=["A", "B"],
        result_names=["C"],
        src="""
        threadgroup float tile_a[16][16];
        threadgroup float tile_b[16][16];
        uint M = A.get_extent(1), K = A.get_extent(0), N = B.get_extent(0);
        float sum = 0.0f;
        for (uint first = 0; first < K; first += 16) {
            tile_a[lid.y][lid.x] = (gid.y < M && first + lid.x < K) ? A[first + lid.x, gid.y] : 0.0f;
            tile_b[lid.y][lid.x] = (gid.x < N && first + lid.y < K) ? B[gid.x, first + lid.y] : 0.0f;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            for (uint k = 0; k < 16; ++k)
                sum += tile_a[lid.y][k] * tile_b[k][lid.x];
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        if (gid.x < N && gid.y < M)
            C[gid.x, gid.y] = sum;
        """,
        torch_defn=_matmul,
        metal_params=[
            MetalParameter("gid", "uint2", "thread_position_in_grid"),
            MetalParameter("lid", "uint2", "thread_position_in_threadgroup"),
        ],
    )


def matmul_sizes(rows: int, columns: int) -> dict[str, Any]:
    """Return the launch sizes of ``matmul``: whole threadgroups, since every thread must reach the barriers."""
    return {
        "threads_per_grid": (-(-columns // 16) * 16, -(-rows // 16) * 16, 1),
        "threads_per_thread_group": (16, 16, 1),
        "result_shapes": [[rows, columns]],
    }
