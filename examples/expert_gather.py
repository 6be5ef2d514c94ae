"""Mixture of experts: each slot reads only the weights of the expert routed to it."""

import torch

from metalwright import MetalKernel, MetalParameter, check
from metalwright.check import random


def expert_gather(W: torch.Tensor, x: torch.Tensor, IDX: torch.Tensor) -> torch.Tensor:
    return torch.index_select(W, 0, IDX) @ x  # [slots, N, M] @ [M]; int(IDX[i]) would not export


def dispatch(n: int, slots: int) -> dict:
    sizes = {"threads_per_grid": (n, slots, 1), "threads_per_thread_group": (32, 1, 1)}
    return sizes | {"result_shapes": [[slots, n]]}


def case_for(experts: int = 5, n: int = 45, m: int = 70, slots: int = 3, *, dtype=torch.float32) -> dict:
    W, x = random((experts, n, m), dtype), random((m,), dtype)
    IDX = random((slots,), torch.int32, low=0, high=experts)
    return {"inputs": [W, x, IDX], **dispatch(n, slots)}


def cases():
    for experts, n, m, slots in ((1, 1, 1, 1), (8, 64, 32, 2), (5, 45, 70, 3)):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            yield case_for(experts, n, m, slots, dtype=dtype)


kernel = MetalKernel(
    "expert_gather",
    input_names=["W", "x", "IDX"],
    result_names=["out"],
    src="""
    const uint n = gid.x, slot = gid.y;
    const uint e = uint(IDX[slot]);
    float sum = 0.0f;
    for (int m = 0; m < W.get_extent(0); ++m) sum += float(W[m, n, e]) * float(x[m]);  // torch: W[e, n, m]
    out[n, slot] = TYPE(sum);
    """,
    torch_defn=expert_gather,
    template_dtypes={"W": "TYPE"},
    metal_params=[MetalParameter("gid", "uint2", "thread_position_in_grid")],
)
kernel.cases, kernel.case_for = cases, case_for


class Experts(torch.nn.Module):
    example_args = (torch.rand(5, 45, 70), torch.rand(70), torch.tensor([4, 0, 2], dtype=torch.int32))
    dynamic_shapes = ({}, {}, {0: torch.export.Dim("slots", max=64)})

    def forward(self, W: torch.Tensor, x: torch.Tensor, IDX: torch.Tensor) -> torch.Tensor:
        return kernel(W, x, IDX, **dispatch(W.shape[1], IDX.shape[0]))


module = Experts()

if __name__ == "__main__":
    report = check(kernel)
    print(report, "OK" if report.ok else "WRONG", sep="\n")
    raise SystemExit(not report.ok)
