"""Models with kernels, each kernel under a name of its own: PyTorch keeps operators for the whole process."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from metalwright.authoring import MetalKernel, MetalParameter

_numbers = itertools.count()
GID = MetalParameter("gid", "uint", "thread_position_in_grid")


def scaled(x: torch.Tensor, a: float) -> torch.Tensor:
    return x * a


@pytest.fixture
def make() -> Callable[..., Any]:
    """Return a maker of kernels that multiply by ``a``; ``kind`` is the class, ``changed`` other arguments."""

    def maker(kind: type = MetalKernel, name: str | None = None, **changed: Any) -> Any:
        arguments: dict[str, Any] = {
            "input_names": ["x", "a"], "result_names": ["out"], "src": "out[gid] = x[gid] * TYPE(a);",
            "torch_defn": scaled, "template_dtypes": {"x": "TYPE"}, "metal_params": [GID],
        }  # fmt: skip
        return kind(name or f"exported_{next(_numbers)}", **{**arguments, **changed})

    return maker


def call(kernel: Any, x: torch.Tensor, *scalars: Any) -> torch.Tensor:
    count = x.numel()
    return kernel(x, *scalars, threads_per_grid=(count, 1, 1), threads_per_thread_group=(32, 1, 1),
                  result_shapes=[list(x.shape)])  # fmt: skip


class Calls(torch.nn.Module):
    """Calls each of its kernels in turn, each with its own scalars."""

    def __init__(self, *steps: tuple[Any, ...]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for kernel, *scalars in self.steps:
            x = call(kernel, x, *scalars)
        return x


@pytest.fixture
def calls() -> type[Calls]:
    return Calls
