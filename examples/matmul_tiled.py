"""16x16-tiled matrix product: threadgroup memory, barriers, ragged sizes, six dtypes."""

import torch

from metalwright import MetalKernel, MetalParameter, check
from metalwright.check import random


def matmul(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    return A @ B if A.is_floating_point() else A.to(torch.int32) @ B.to(torch.int32)


def dispatch(m: int, n: int) -> dict:
    # whole threadgroups: every thread must meet the barriers, those past the edge write nothing
    sizes = {
        "threads_per_grid": ((n + 15) // 16 * 16, (m + 15) // 16 * 16, 1),
        "threads_per_thread_group": (16, 16, 1),
    }
    return sizes | {"result_shapes": [[m, n]]}


def case_for(m: int = 33, k: int = 19, n: int = 50, *, dtype=torch.float32) -> dict:
    return {"inputs": [random((m, k), dtype), random((k, n), dtype)], **dispatch(m, n)}


def cases():
    for m, k, n in ((1, 1, 1), (32, 16, 48), (33, 19, 50)):
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32):
            yield case_for(m, k, n, dtype=dtype)


kernel = MetalKernel(
    "matmul_tiled",
    input_names=["A", "B"],
    result_names=["C"],
    helper_src="""
    // half and bfloat add up in float; integers modulo 2^32, as torch's int32 product does
    using sum_t = conditional_t<is_floating_point_v<TYPE>, float, uint>;
    using out_t = conditional_t<is_floating_point_v<TYPE>, TYPE, int>;
    """,
    src="""
    threadgroup sum_t a[16][16], b[16][16];
    const uint N = C.get_extent(0), M = C.get_extent(1), K = A.get_extent(0);
    sum_t sum = 0;
    for (uint k0 = 0; k0 < K; k0 += 16) {
        a[tid.y][tid.x] = gid.y < M && k0 + tid.x < K ? sum_t(A[k0 + tid.x, gid.y]) : sum_t(0);
        b[tid.y][tid.x] = gid.x < N && k0 + tid.y < K ? sum_t(B[gid.x, k0 + tid.y]) : sum_t(0);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint k = 0; k < 16; ++k) sum += a[tid.y][k] * b[k][tid.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (gid.x < N && gid.y < M) C[gid.x, gid.y] = out_t(sum);
    """,
    torch_defn=matmul,
    template_dtypes={"A": "TYPE"},
    metal_params=[
        MetalParameter("gid", "uint2", "thread_position_in_grid"),
        MetalParameter("tid", "uint2", "thread_position_in_threadgroup"),
    ],
)
kernel.cases, kernel.case_for = cases, case_for


class Matmul(torch.nn.Module):
    example_args = (torch.rand(33, 19), torch.rand(19, 50))
    dynamic_shapes = ({0: torch.export.Dim("m", max=4096)}, {})

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return kernel(A, B, **dispatch(A.shape[0], B.shape[1]))


module = Matmul()

if __name__ == "__main__":
    report = check(kernel)
    print(report, "OK" if report.ok else "WRONG", sep="\n")
    raise SystemExit(not report.ok)
