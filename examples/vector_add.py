"""Vector add: one thread an element."""

import torch

from metalwright import MetalKernel, MetalParameter, check
from metalwright.check import random


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def dispatch(size: int) -> dict:
    # threads, not threadgroups: the last group may be partial
    sizes = {"threads_per_grid": (size, 1, 1), "threads_per_thread_group": (256, 1, 1)}
    return sizes | {"result_shapes": [[size]]}


def cases():
    for size in (1, 256, 1000):
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32):
            x, y = random((size,), dtype), random((size,), dtype)
            yield {"inputs": [x, y], **dispatch(size)}


kernel = MetalKernel(
    "vector_add",
    input_names=["x", "y"],
    result_names=["out"],
    src="out[gid] = x[gid] + y[gid];",
    torch_defn=vector_add,
    metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")],
)
kernel.cases = cases


class VectorAdd(torch.nn.Module):
    example_args = (torch.rand(1000), torch.rand(1000))
    dynamic_shapes = ({0: torch.export.Dim("n", max=1 << 20)},) * 2

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return kernel(x, y, **dispatch(x.shape[0]))


module = VectorAdd()

if __name__ == "__main__":
    report = check(kernel)
    print(report, "OK" if report.ok else "WRONG", sep="\n")
    raise SystemExit(not report.ok)
