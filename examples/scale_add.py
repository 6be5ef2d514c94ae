"""scale_add: a scalar argument, and one source for several dtypes."""

import torch

from metalwright import MetalKernel, MetalParameter, check
from metalwright.check import random


def scale_add(x: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
    return x + alpha * y


def dispatch(size: int) -> dict:
    sizes = {"threads_per_grid": (size, 1, 1), "threads_per_thread_group": (256, 1, 1)}
    return sizes | {"result_shapes": [[size]]}


def cases():
    for size in (1, 300, 1024):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            yield {"inputs": [random((size,), dtype), random((size,), dtype), 2.5], **dispatch(size)}


kernel = MetalKernel(
    "scale_add",
    input_names=["x", "y", "alpha"],
    result_names=["out"],
    src="out[gid] = x[gid] + TYPE(alpha) * y[gid];",
    torch_defn=scale_add,
    template_dtypes={"x": "TYPE"},  # TYPE becomes the Metal name of x's dtype: float, half, bfloat
    metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")],
)
kernel.cases = cases


class ScaleAdd(torch.nn.Module):
    example_args = (torch.rand(1000), torch.rand(1000))
    dynamic_shapes = ({0: torch.export.Dim("n", max=1 << 20)},) * 2

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return kernel(x, y, 2.5, **dispatch(x.shape[0]))  # Core AI bakes the scalar into the kernel's source


module = ScaleAdd()

if __name__ == "__main__":
    report = check(kernel)
    print(report, "OK" if report.ok else "WRONG", sep="\n")
    raise SystemExit(not report.ok)
