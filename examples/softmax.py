"""Softmax over an axis chosen when the kernel is called, of a tensor of any rank: one thread a row."""

import math
from collections.abc import Sequence

import torch

from metalwright import MetalKernel, MetalParameter, check
from metalwright.check import random


def softmax(x: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.softmax(x, axis)


def dispatch(shape: Sequence[int], axis: int) -> dict:
    sizes = {
        "threads_per_grid": (math.prod(shape) // shape[axis], 1, 1),
        "threads_per_thread_group": (64, 1, 1),
    }
    return sizes | {"result_shapes": [list(shape)]}


def cases():
    for shape in ((7,), (5, 33), (2, 3, 4, 65)):
        for axis in range(-1, len(shape)):
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                yield {"inputs": [random(shape, dtype), axis], **dispatch(shape, axis)}


def case_for(rows: int = 5, columns: int = 33, *, dtype=torch.float32) -> dict:
    return {"inputs": [random((rows, columns), dtype), 1], **dispatch((rows, columns), 1)}


kernel = MetalKernel(
    "softmax",
    input_names=["x", "axis"],
    result_names=["out"],
    src="""
    constexpr uint rank = x.get_rank();
    const uint along = axis < 0 ? -axis - 1 : rank - 1 - axis;  // torch counts axes from the other end
    const uint length = x.get_extent(along);
    metal::array<uint, rank> at;
    for (uint d = 0, rest = row; d < rank; ++d) {
        at[d] = d == along ? 0 : rest % x.get_extent(d);
        rest /= d == along ? 1 : x.get_extent(d);
    }
    float top = -INFINITY, sum = 0.0f;
    for (at[along] = 0; at[along] < length; ++at[along]) top = max(top, float(x[at]));
    for (at[along] = 0; at[along] < length; ++at[along]) sum += exp(float(x[at]) - top);
    for (at[along] = 0; at[along] < length; ++at[along]) out[at] = TYPE(exp(float(x[at]) - top) / sum);
    """,
    torch_defn=softmax,
    template_dtypes={"x": "TYPE"},
    metal_params=[MetalParameter("row", "uint", "thread_position_in_grid")],
)
kernel.cases, kernel.case_for = cases, case_for


class Softmax(torch.nn.Module):
    example_args = (torch.rand(3, 4, 65),)
    dynamic_shapes = ({0: torch.export.Dim("batch", max=4096)},)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return kernel(x, -1, **dispatch(x.shape, -1))


module = Softmax()

if __name__ == "__main__":
    report = check(kernel)
    print(report, "OK" if report.ok else "WRONG", sep="\n")
    raise SystemExit(not report.ok)
