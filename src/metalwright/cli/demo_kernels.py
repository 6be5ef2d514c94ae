"""The kernels of ``metalwright demo``: element-wise, tiled with barriers, and reduced over simdgroups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from coreai_torch import MetalParameter

from metalwright.authoring import MetalKernel
from metalwright.check import random

TILE = 16
THREADS_PER_ROW = 128
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def _scale_add(x: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
    return x + alpha * y


scale_add = MetalKernel(
    "demo_scale_add",
    input_names=["x", "y", "alpha"],
    result_names=["out"],
    src="out[gid] = x[gid] + TYPE(alpha) * y[gid];",
    torch_defn=_scale_add,
    template_dtypes={"x": "TYPE"},
    metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")],
)


def scale_add_sizes(x: torch.Tensor) -> dict[str, Any]:
    """The launch for vectors like ``x``: one thread an element."""
    return {
        "threads_per_grid": (x.shape[0], 1, 1),
        "threads_per_thread_group": (256, 1, 1),
        "result_shapes": [[x.shape[0]]],
    }


def _scale_add_cases() -> Iterator[dict[str, Any]]:
    for dtype in _FLOATS:
        for size in (1, 1000):
            x = random((size,), dtype)
            yield {"name": f"{size}", "inputs": [x, x, 0.75], **scale_add_sizes(x)}  # type: ignore[arg-type]


def _matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


# A tensor's coordinates are reversed against torch: A[k, m] of a torch [M, K].
matmul = MetalKernel(
    "demo_matmul",
    input_names=["A", "B"],
    result_names=["C"],
    src="""
    threadgroup TYPE tile_a[16][16];
    threadgroup TYPE tile_b[16][16];
    uint M = A.get_extent(1), K = A.get_extent(0), N = B.get_extent(0);
    float sum = 0.0f;
    for (uint first = 0; first < K; first += 16) {
        uint ka = first + lid.x, kb = first + lid.y;
        tile_a[lid.y][lid.x] = (gid.y < M && ka < K) ? A[ka, gid.y] : TYPE(0);
        tile_b[lid.y][lid.x] = (gid.x < N && kb < K) ? B[gid.x, kb] : TYPE(0);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint k = 0; k < 16; ++k)
            sum += float(tile_a[lid.y][k]) * float(tile_b[k][lid.x]);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (gid.x < N && gid.y < M)
        C[gid.x, gid.y] = TYPE(sum);
    """,
    torch_defn=_matmul,
    template_dtypes={"A": "TYPE"},
    metal_params=[
        MetalParameter("gid", "uint2", "thread_position_in_grid"),
        MetalParameter("lid", "uint2", "thread_position_in_threadgroup"),
    ],
)


def _matmul_cases() -> Iterator[dict[str, Any]]:
    for dtype in _FLOATS:
        for m, k, n in ((16, 16, 16), (33, 50, 17)):
            yield {
                "name": f"{m}x{k}x{n}",
                "inputs": [random((m, k), dtype), random((k, n), dtype)],
                # whole threadgroups: every thread must reach the barriers, also at the ragged edge
                "threads_per_grid": (-(-n // TILE) * TILE, -(-m // TILE) * TILE, 1),
                "threads_per_thread_group": (TILE, TILE, 1),
                "result_shapes": [[m, n]],
            }


def _rmsnorm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return (wide * scale * weight).to(x.dtype)


rmsnorm = MetalKernel(
    "demo_rmsnorm",
    input_names=["x", "weight", "epsilon"],
    result_names=["out"],
    src="""
    threadgroup float partial[32];
    uint width = x.get_extent(0);
    float sum = 0.0f;
    for (uint i = lid; i < width; i += threads)
        sum += float(x[i, row]) * float(x[i, row]);
    sum = simd_sum(sum);
    if (lane == 0)
        partial[simdgroup] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float total = 0.0f;
    for (uint s = 0; s < simdgroups; ++s)
        total += partial[s];
    float scale = metal::rsqrt(total / float(width) + epsilon);
    for (uint i = lid; i < width; i += threads)
        out[i, row] = TYPE(float(x[i, row]) * scale * float(weight[i]));
    """,
    torch_defn=_rmsnorm,
    template_dtypes={"x": "TYPE"},
    metal_params=[
        MetalParameter("row", "uint", "threadgroup_position_in_grid"),
        MetalParameter("lid", "uint", "thread_position_in_threadgroup"),
        MetalParameter("threads", "uint", "threads_per_threadgroup"),
        MetalParameter("lane", "uint", "thread_index_in_simdgroup"),
        MetalParameter("simdgroup", "uint", "simdgroup_index_in_threadgroup"),
        MetalParameter("simdgroups", "uint", "simdgroups_per_threadgroup"),
    ],
)


def rmsnorm_sizes(x: torch.Tensor) -> dict[str, Any]:
    """The launch for rows like those of ``x``: one threadgroup a row."""
    rows, width = x.shape
    return {
        "threads_per_grid": (rows * THREADS_PER_ROW, 1, 1),
        "threads_per_thread_group": (THREADS_PER_ROW, 1, 1),
        "result_shapes": [[rows, width]],
    }


def _rmsnorm_cases() -> Iterator[dict[str, Any]]:
    for dtype in _FLOATS:
        for rows, width in ((1, 64), (5, 300)):
            x = random((rows, width), dtype)
            yield {"name": f"{rows}x{width}", "inputs": [x, random((width,), dtype), 1e-5],
                   **rmsnorm_sizes(x)}  # type: ignore[arg-type]  # fmt: skip


def _transpose(x: torch.Tensor) -> torch.Tensor:
    return x.T.contiguous()


transpose = MetalKernel(
    "demo_transpose",
    input_names=["x"],
    result_names=["out"],
    src="out[gid.y, gid.x] = x[gid.x, gid.y];",
    torch_defn=_transpose,
    metal_params=[MetalParameter("gid", "uint2", "thread_position_in_grid")],
)


def _transpose_cases() -> Iterator[dict[str, Any]]:
    for dtype in (torch.float32, torch.int32):
        for rows, columns in ((3, 70), (64, 33)):
            yield {
                "name": f"{rows}x{columns}",
                "inputs": [random((rows, columns), dtype)],
                "threads_per_grid": (columns, rows, 1),
                "threads_per_thread_group": (32, 4, 1),
                "result_shapes": [[columns, rows]],
            }


for _kernel, _cases in (
    (scale_add, _scale_add_cases),
    (matmul, _matmul_cases),
    (rmsnorm, _rmsnorm_cases),
    (transpose, _transpose_cases),
):
    _kernel.cases = _cases

KERNELS = (scale_add, transpose, matmul, rmsnorm)


class Model(torch.nn.Module):
    """What the demo exports: two kernels and an ordinary layer."""

    example_args = (torch.ones(4, 64), torch.ones(4, 64))

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64), requires_grad=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1)
        mixed = scale_add(flat, y.reshape(-1), 0.5, **scale_add_sizes(flat)).reshape(x.shape)
        return torch.relu(rmsnorm(mixed, self.weight, 1e-5, **rmsnorm_sizes(mixed)))
