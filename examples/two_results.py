"""Two results from one kernel: a function that gives a tuple, and a thread that writes both."""

import torch

from metalwright import MetalKernel, MetalParameter, check
from metalwright.check import random


def sine_cosine(angle: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return angle.sin(), angle.cos()


def dispatch(size: int) -> dict:
    sizes = {"threads_per_grid": (size, 1, 1), "threads_per_thread_group": (64, 1, 1)}
    return sizes | {"result_shapes": [[size], [size]]}


def cases():
    for size, scale in ((1, 1.0), (64, 10.0), (777, 1e6)):
        yield {"inputs": [random((size,), low=-scale, high=scale)], **dispatch(size)}
        yield {"inputs": [random((size,))], **dispatch(size)}


kernel = MetalKernel(
    "sine_cosine",
    input_names=["angle"],
    result_names=["sine", "cosine"],
    src="""
    float c;
    sine[gid] = sincos(angle[gid], c);
    cosine[gid] = c;
    """,
    torch_defn=sine_cosine,
    metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")],
)
kernel.cases = cases


class SineCosine(torch.nn.Module):
    example_args = (torch.rand(777),)
    dynamic_shapes = ({0: torch.export.Dim("n", max=1 << 20)},)

    def forward(self, angle: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return kernel(angle, **dispatch(angle.shape[0]))


module = SineCosine()

if __name__ == "__main__":
    report = check(kernel)
    print(report, "OK" if report.ok else "WRONG", sep="\n")
    raise SystemExit(not report.ok)
