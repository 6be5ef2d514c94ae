"""Kernels that more than one of the models uses: normalisation with the residual sum, SwiGLU."""

from __future__ import annotations

from typing import Any

import torch

from metalwright import MetalKernel, MetalParameter

SIMD_WIDTH = 32
ROWS_PER_GROUP = 8  # of a matvec: one simdgroup computes one row
NORM_THREADS = 64


def silu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


def _add_norm(
    x: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + delta
    wide = total.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return (wide * scale * weight.float()).to(x.dtype), total


add_norm = MetalKernel(
    "models_add_norm",
    input_names=["x", "delta", "weight", "epsilon"],
    result_names=["normed", "total"],
    src="""
    threadgroup float partial[32];
    uint width = x.get_extent(0);
    float sum = 0.0f;
    for (uint i = lid; i < width; i += threads) {
        TYPE value = x[i, row] + delta[i, row];
        total[i, row] = value;
        sum += float(value) * float(value);
    }
    sum = simd_sum(sum);
    if (lane == 0)
        partial[simdgroup] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float square = 0.0f;
    for (uint s = 0; s < simdgroups; ++s)
        square += partial[s];
    float scale = metal::rsqrt(square / float(width) + epsilon);
    for (uint i = lid; i < width; i += threads)
        normed[i, row] = TYPE(float(x[i, row] + delta[i, row]) * scale * float(weight[i]));
    """,
    torch_defn=_add_norm,
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


def normalised(
    x: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, epsilon: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the RMSNorm of ``x + delta``, and ``x + delta`` itself."""
    rows, width = x.shape
    return add_norm(
        x, delta, weight, epsilon,
        threads_per_grid=(rows * NORM_THREADS, 1, 1),
        threads_per_thread_group=(NORM_THREADS, 1, 1),
        result_shapes=[[rows, width], [rows, width]],
    )  # fmt: skip


def _swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return (silu(gate.float()) * up.float()).to(gate.dtype)


swiglu = MetalKernel(
    "models_swiglu",
    input_names=["gate", "up"],
    result_names=["out"],
    src="""
    float g = float(gate[gid.x, gid.y]);
    out[gid.x, gid.y] = TYPE(g / (1.0f + metal::exp(-g)) * float(up[gid.x, gid.y]));
    """,
    torch_defn=_swiglu,
    template_dtypes={"gate": "TYPE"},
    metal_params=[MetalParameter("gid", "uint2", "thread_position_in_grid")],
)


def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return ``silu(gate) * up``."""
    rows, width = gate.shape
    return swiglu(
        gate, up,
        threads_per_grid=(width, rows, 1), threads_per_thread_group=(64, 4, 1), result_shapes=[[rows, width]],
    )  # fmt: skip


def matvec_sizes(features: int, *outer: Any) -> dict[str, Any]:
    """The launch of a matvec: a simdgroup for each of ``features`` rows, once for each index of ``outer``."""
    y, z = (*outer, 1)[:2]
    groups = -(-features // ROWS_PER_GROUP)
    threads = SIMD_WIDTH * ROWS_PER_GROUP
    return {"threads_per_grid": (groups * threads, y, z), "threads_per_thread_group": (threads, 1, 1)}


# Which row a simdgroup computes: the parameters of every matvec.
MATVEC_PARAMETERS = [
    MetalParameter("group", "uint3", "threadgroup_position_in_grid"),
    MetalParameter("simdgroup", "uint", "simdgroup_index_in_threadgroup"),
    MetalParameter("simdgroups", "uint", "simdgroups_per_threadgroup"),
    MetalParameter("lane", "uint", "thread_index_in_simdgroup"),
]
