"""What a model is to a test: the module, example inputs, which extents are dynamic, what its outputs are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from metalwright import MetalKernel, export

BOUNDS = {torch.float32: 1e-3, torch.float16: 1e-2}
"""How far an output may be from PyTorch's, relative to the largest element of PyTorch's."""


@dataclass(frozen=True)
class Case:
    """A model to export. ``dynamic_shapes`` is None where every extent is fixed."""

    module: torch.nn.Module
    example: Mapping[str, torch.Tensor]
    outputs: tuple[str, ...]
    states: tuple[str, ...] = ()
    dynamic_shapes: Mapping[str, Any] | None = None

    def export(self, path: Path) -> Path:
        return export(
            self.module, (), path,
            kwargs=self.example,
            dynamic_shapes=self.dynamic_shapes,
            output_names=self.outputs,
            state_names=self.states or None,
        )  # fmt: skip

    def eager(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Run the module as it is: the MSL of its kernels is executed."""
        with torch.no_grad():
            values = self.module(**inputs)
        return dict(zip(self.outputs, values if isinstance(values, tuple) else (values,), strict=True))

    def torch(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Run the module in plain PyTorch: each kernel is its reference."""
        with references():
            return self.eager(**inputs)


@contextmanager
def references() -> Iterator[None]:
    """Let kernels that are called in the block run their references instead of their MSL."""

    def reference(kernel: MetalKernel, *inputs: Any, **sizes: Any) -> Any:
        return kernel.reference(*inputs)

    with mock.patch.object(MetalKernel, "__call__", reference):
        yield


def distance(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest element that is expected."""
    assert got.shape == expected.shape and got.dtype == expected.dtype
    difference = (got.double() - expected.double()).abs().max()
    return (difference / expected.double().abs().max()).item()


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def weights(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return random weights of a projection from the last dimension, which keep the size of what they project."""
    return (torch.randn(shape, generator=generator) * shape[-1] ** -0.5).to(dtype)
