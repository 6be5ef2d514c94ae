"""Histogram: atomics in threadgroup memory. Results start undefined, so no bin may be added to in place."""

import torch

from metalwright import MetalKernel, MetalParameter, check
from metalwright.check import random


def histogram(x: torch.Tensor) -> torch.Tensor:
    ones = torch.ones_like(x, dtype=torch.int32)
    return torch.zeros(256, dtype=torch.int32).scatter_add(0, x.long(), ones)


# one threadgroup with a thread a bin: nothing orders one threadgroup's zeroing before another's adding
SIZES = {"threads_per_grid": (256, 1, 1), "threads_per_thread_group": (256, 1, 1), "result_shapes": [[256]]}


def case_for(size: int = 5000) -> dict:
    return {"inputs": [random((size,), torch.uint8, low=0, high=256)], **SIZES}


def cases():
    for size in (1, 256, 5000):
        yield case_for(size)


kernel = MetalKernel(
    "histogram",
    input_names=["x"],
    result_names=["bins"],
    src="""
    threadgroup atomic_int counts[256];
    atomic_store_explicit(&counts[tid], 0, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = tid; i < uint(x.get_extent(0)); i += 256)
        atomic_fetch_add_explicit(&counts[x[i]], 1, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    bins[tid] = atomic_load_explicit(&counts[tid], memory_order_relaxed);
    """,
    torch_defn=histogram,
    metal_params=[MetalParameter("tid", "uint", "thread_position_in_threadgroup")],
)
kernel.cases, kernel.case_for = cases, case_for


class Histogram(torch.nn.Module):
    example_args = (torch.randint(256, (5000,), dtype=torch.uint8),)
    dynamic_shapes = ({0: torch.export.Dim("n", max=1 << 20)},)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return kernel(x, **SIZES)


module = Histogram()

if __name__ == "__main__":
    report = check(kernel)
    print(report, "OK" if report.ok else "WRONG", sep="\n")
    raise SystemExit(not report.ok)
