"""RMSNorm: one threadgroup a row, summed first within simdgroups, then across them."""

import torch

from metalwright import MetalKernel, MetalParameter, check
from metalwright.check import random


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)


def dispatch(rows: int, n: int) -> dict:
    sizes = {"threads_per_grid": (256, rows, 1), "threads_per_thread_group": (256, 1, 1)}
    return sizes | {"result_shapes": [[rows, n]]}


def case_for(rows: int = 3, n: int = 1000, *, dtype=torch.float32) -> dict:
    return {"inputs": [random((rows, n), dtype), random((n,), dtype), 1e-5], **dispatch(rows, n)}


def cases():
    for rows, n in ((1, 1), (4, 256), (3, 1000)):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            yield case_for(rows, n, dtype=dtype)


kernel = MetalKernel(
    "rmsnorm",
    input_names=["x", "weight", "eps"],
    result_names=["out"],
    src="""
    threadgroup float partial[32];
    const uint n = x.get_extent(0), row = group.y;
    float squares = 0.0f;
    for (uint i = tid; i < n; i += 256) squares += float(x[i, row]) * float(x[i, row]);
    squares = simd_sum(squares);  // over 32 lanes, not over the threadgroup
    if (lane == 0) partial[simdgroup] = squares;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float total = simd_sum(lane < 8 ? partial[lane] : 0.0f);
    const float scale = rsqrt(total / n + eps);
    for (uint i = tid; i < n; i += 256) out[i, row] = TYPE(float(x[i, row]) * scale * float(weight[i]));
    """,
    torch_defn=rmsnorm,
    template_dtypes={"x": "TYPE"},
    metal_params=[
        MetalParameter("group", "uint2", "threadgroup_position_in_grid"),
        MetalParameter("tid", "uint", "thread_index_in_threadgroup"),
        MetalParameter("lane", "uint", "thread_index_in_simdgroup"),
        MetalParameter("simdgroup", "uint", "simdgroup_index_in_threadgroup"),
    ],
)
kernel.cases, kernel.case_for = cases, case_for


class RMSNorm(torch.nn.Module):
    example_args = (torch.rand(3, 1000), torch.rand(1000))
    dynamic_shapes = ({0: torch.export.Dim("rows", max=4096)}, {})

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return kernel(x, weight, 1e-5, **dispatch(*x.shape))


module = RMSNorm()

if __name__ == "__main__":
    report = check(kernel)
    print(report, "OK" if report.ok else "WRONG", sep="\n")
    raise SystemExit(not report.ok)
