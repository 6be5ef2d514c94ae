"""How much work the engine does in a second, beside PyTorch and NumPy doing the same in the same run.

    python benchmarks/bench_throughput.py [--json] [--rounds N]

``scale_add`` on 16 M float32 elements beside PyTorch, and a 16x16-tiled 256x256x256 float32 matmul beside NumPy;
both with the checks (as a call does by default) and without. The engine and PyTorch use every core. NumPy has one
thread: with two, its threads waited for each other on a shared machine and took 40 times as long, and a ratio to that
would flatter us. Of each side the shortest time counts.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when NumPy is imported

import numpy as np
import torch
from common import (
    Row,
    arguments,
    best_seconds,
    matmul,
    matmul_sizes,
    print_rows,
    scale_add,
    scale_add_sizes,
)

from metalwright.authoring import MetalKernel, execute

_ELEMENTS = 1 << 24
_SIDE = 256


def main() -> None:
    options = arguments(__doc__)
    print_rows([*_scale_add(options.rounds), *_matmul(options.rounds)], options.json)


def _scale_add(rounds: int) -> list[Row]:
    x, y = torch.rand(_ELEMENTS), torch.rand(_ELEMENTS)
    runs = _launches(scale_add(), (x, y, 2.0), scale_add_sizes(_ELEMENTS))

    def peer() -> torch.Tensor:
        return torch.add(x, y, alpha=2.0)

    for run in runs:
        assert torch.allclose(run().results[0], peer())
    plain, checked, torch_alone = best_seconds([*runs, peer], rounds)
    return [
        Row("scale_add, 16 M, unchecked", _ELEMENTS / plain / 1e6, "M threads/s"),
        Row("scale_add, 16 M, checked", _ELEMENTS / checked / 1e6, "M threads/s"),
        Row("PyTorch doing the same", _ELEMENTS / torch_alone / 1e6, "M elements/s"),
        Row("  ratio of times, unchecked / PyTorch", plain / torch_alone, "x"),
        Row("  ratio of times, checked / PyTorch", checked / torch_alone, "x"),
    ]


def _matmul(rounds: int) -> list[Row]:
    a, b = (np.random.default_rng(seed).random((_SIDE, _SIDE), np.float32) for seed in (1, 2))
    runs = _launches(matmul(), (a, b), matmul_sizes(_SIDE, _SIDE))

    def peer() -> np.ndarray:
        return a @ b

    for run in runs:
        assert np.allclose(run().results[0], peer(), rtol=1e-4)
    plain, checked, numpy_alone = best_seconds([*runs, peer], rounds)
    operations = 2.0 * _SIDE**3
    return [
        Row("tiled matmul 256^3, unchecked", operations / plain / 1e9, "GFLOP/s"),
        Row("tiled matmul 256^3, checked", operations / checked / 1e9, "GFLOP/s"),
        Row("NumPy doing the same, one thread", operations / numpy_alone / 1e9, "GFLOP/s"),
        Row("  ratio of times, unchecked / NumPy", plain / numpy_alone, "x"),
        Row("  ratio of times, checked / NumPy", checked / numpy_alone, "x"),
    ]


def _launches(kernel: MetalKernel, inputs: tuple[Any, ...], sizes: dict[str, Any]) -> list[Callable[[], Any]]:
    """Return the launch without and with checks."""
    where = sizes["threads_per_grid"], sizes["threads_per_thread_group"], sizes["result_shapes"]
    return [functools.partial(execute, kernel, inputs, *where, checked=checked) for checked in (False, True)]


if __name__ == "__main__":
    main()
