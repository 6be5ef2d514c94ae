"""Matrix product, one thread an element of C: coordinates run the other way round than in torch."""

import torch

from metalwright import MetalKernel, MetalParameter, check
from metalwright.check import random


def matmul(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    return A @ B


def dispatch(rows: int, columns: int) -> dict:
    sizes = {"threads_per_grid": (columns, rows, 1), "threads_per_thread_group": (16, 16, 1)}
    return sizes | {"result_shapes": [[rows, columns]]}


def case_for(m: int = 33, k: int = 19, n: int = 50, *, dtype=torch.float32) -> dict:
    return {"inputs": [random((m, k), dtype), random((k, n), dtype)], **dispatch(m, n)}


def cases():
    for m, k, n in ((1, 1, 1), (16, 32, 16), (33, 19, 50)):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            yield case_for(m, k, n, dtype=dtype)


kernel = MetalKernel(
    "matmul_naive",
    input_names=["A", "B"],
    result_names=["C"],
    src="""
    float sum = 0.0f;  // half and bfloat add up in float and round once, at the end
    for (int k = 0; k < A.get_extent(0); ++k)
        sum += float(A[k, gid.y]) * float(B[gid.x, k]);  // torch: A[m, k] * B[k, n]
    C[gid.x, gid.y] = TYPE(sum);
    """,
    torch_defn=matmul,
    template_dtypes={"A": "TYPE"},
    metal_params=[MetalParameter("gid", "uint2", "thread_position_in_grid")],
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
