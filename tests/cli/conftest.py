"""A file of kernels as a user writes it, and a way to run commands on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from metalwright.cli import main

KERNELS = """
import torch
from metalwright import MetalKernel, MetalParameter
from metalwright.check import random


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def make(name, src):
    return MetalKernel(name, input_names=["x"], result_names=["out"], src=src, torch_defn=double,
                       metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")])


def sizes(x):
    return {"threads_per_grid": (x.shape[0], 1, 1), "threads_per_thread_group": (8, 1, 1),
            "result_shapes": [[x.shape[0]]]}


def cases():
    for size in (3, 20):
        yield {"name": f"size {size}", "inputs": [random((size,))], **sizes(random((size,)))}


good = make("good", "out[gid] = x[gid] * 2;")
good.cases = cases


class Model(torch.nn.Module):
    example_args = (torch.tensor([1.0, 2.0, 3.0]),)
    dynamic_shapes = ({0: torch.export.Dim("n", min=2, max=64)},)

    def forward(self, x):
        return good(x, **sizes(x)) + 1


module = Model()
"""


@dataclass(frozen=True)
class Outcome:
    """What a command printed and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command of the command line in this process."""

    def run(*arguments: object) -> Outcome:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return run


@pytest.fixture
def kernels(tmp_path: Path) -> Callable[[str], Path]:
    """Write the file of kernels with more lines at its end, and return its path."""

    def write(more: str = "") -> Path:
        path = tmp_path / "kernels.py"
        path.write_text(KERNELS + more)
        return path

    return write
