"""A 3-D grid whose size no threadgroup divides: the Laplacian of a volume, its edges repeated."""

import torch

from metalwright import MetalKernel, MetalParameter, check
from metalwright.check import random


def laplacian(x: torch.Tensor) -> torch.Tensor:
    p = torch.nn.functional.pad(x[None], (1,) * 6, mode="replicate")[0]
    c = slice(1, -1)
    sides = p[:-2, c, c] + p[2:, c, c] + p[c, :-2, c] + p[c, 2:, c] + p[c, c, :-2] + p[c, c, 2:]
    return sides - 6 * x


def dispatch(depth: int, height: int, width: int) -> dict:
    sizes = {"threads_per_grid": (width, height, depth), "threads_per_thread_group": (8, 4, 4)}
    return sizes | {"result_shapes": [[depth, height, width]]}


def cases():
    for shape in ((1, 1, 1), (4, 4, 8), (5, 9, 13)):
        yield {"inputs": [random(shape)], **dispatch(*shape)}


kernel = MetalKernel(
    "laplacian",
    input_names=["x"],
    result_names=["out"],
    src="""
    const uint3 last = uint3(x.get_extent(0), x.get_extent(1), x.get_extent(2)) - 1;
    const uint3 lo = max(gid, uint3(1)) - 1, hi = min(gid + 1, last);
    const float sides = x[lo.x, gid.y, gid.z] + x[hi.x, gid.y, gid.z]
                      + x[gid.x, lo.y, gid.z] + x[gid.x, hi.y, gid.z]
                      + x[gid.x, gid.y, lo.z] + x[gid.x, gid.y, hi.z];
    out[gid.x, gid.y, gid.z] = sides - 6.0f * x[gid.x, gid.y, gid.z];
    """,
    torch_defn=laplacian,
    metal_params=[MetalParameter("gid", "uint3", "thread_position_in_grid")],
)
kernel.cases = cases


class Laplacian(torch.nn.Module):
    example_args = (torch.rand(5, 9, 13),)
    dynamic_shapes = ({0: torch.export.Dim("depth", max=512)},)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return kernel(x, **dispatch(*x.shape))


module = Laplacian()

if __name__ == "__main__":
    report = check(kernel)
    print(report, "OK" if report.ok else "WRONG", sep="\n")
    raise SystemExit(not report.ok)
