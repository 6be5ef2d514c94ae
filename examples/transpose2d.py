"""Transpose: what reversed coordinates look like. A torch [R, C] tensor is read as x[c, r]."""

import torch

from metalwright import MetalKernel, MetalParameter, check
from metalwright.check import random


def transpose2d(x: torch.Tensor) -> torch.Tensor:
    return x.t().clone(memory_format=torch.contiguous_format)


def dispatch(rows: int, columns: int) -> dict:
    sizes = {"threads_per_grid": (columns, rows, 1), "threads_per_thread_group": (16, 16, 1)}
    return sizes | {"result_shapes": [[columns, rows]]}


def case_for(rows: int = 37, columns: int = 5, *, dtype=torch.float32) -> dict:
    return {"inputs": [random((rows, columns), dtype)], **dispatch(rows, columns)}


def cases():
    for rows, columns in ((1, 1), (16, 32), (37, 5)):
        for dtype in (torch.float32, torch.float16, torch.int64, torch.bool):
            yield case_for(rows, columns, dtype=dtype)


kernel = MetalKernel(
    "transpose2d",
    input_names=["x"],
    result_names=["out"],
    # gid.x runs along the contiguous axis of x, gid.y over its rows
    src="out[gid.y, gid.x] = x[gid.x, gid.y];",
    torch_defn=transpose2d,
    metal_params=[MetalParameter("gid", "uint2", "thread_position_in_grid")],
)
kernel.cases, kernel.case_for = cases, case_for


class Transpose(torch.nn.Module):
    example_args = (torch.rand(37, 5),)
    dynamic_shapes = ({0: torch.export.Dim("rows", max=4096), 1: torch.export.Dim("columns", max=4096)},)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return kernel(x, **dispatch(*x.shape))


module = Transpose()

if __name__ == "__main__":
    report = check(kernel)
    print(report, "OK" if report.ok else "WRONG", sep="\n")
    raise SystemExit(not report.ok)
