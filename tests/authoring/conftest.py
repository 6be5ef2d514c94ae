"""Kernels that several tests need, each under a name of its own: PyTorch keeps operators for the whole process."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from metalwright.authoring import MetalKernel, MetalParameter

_numbers = itertools.count()


def scale_add_reference(x: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
    return x + alpha * y


SCALE_ADD: dict[str, Any] = {
    "input_names": ["x", "y", "alpha"],
    "result_names": ["out"],
    "src": "out[gid] = x[gid] + TYPE(alpha) * y[gid];",
    "torch_defn": scale_add_reference,
    "template_dtypes": {"x": "TYPE"},
    "metal_params": [MetalParameter("gid", "uint", "thread_position_in_grid")],
}


@pytest.fixture
def unique() -> Callable[[str], str]:
    return lambda stem: f"{stem}_{next(_numbers)}"


@pytest.fixture
def make(unique: Callable[[str], str]) -> Callable[..., MetalKernel]:
    """Return a maker of kernels: ``scale_add`` with the given arguments changed."""

    def maker(stem: str = "scale_add", **changed: Any) -> MetalKernel:
        return MetalKernel(unique(stem), **{**SCALE_ADD, **changed})

    return maker


@pytest.fixture
def definition() -> dict[str, Any]:
    return dict(SCALE_ADD)


def over(*shape: int) -> dict[str, Any]:
    """Launch one thread per element, with one result of this shape."""
    count = 1
    for extent in shape:
        count *= extent
    return {
        "threads_per_grid": (count, 1, 1),
        "threads_per_thread_group": (min(count, 64), 1, 1),
        "result_shapes": [list(shape)],
    }


@pytest.fixture(name="over")
def _over() -> Callable[..., dict[str, Any]]:
    return over
