"""What it costs to run an artifact with kernels here: beside Core AI's interpreter, per kernel, in memory, at the start.

    python benchmarks/bench_artifacts.py [--json] [--rounds N]

The decoder is the Llama-style one of the tests (two blocks, 26 kernels), one token a step; its peer is the same graph
with each kernel's reference in its place, which Core AI's interpreter runs whole. What the split costs is what is left
when the kernels' own time is taken off: that is the engine's, at lane width 1, beside matrix products of the
interpreter's. A boundary is the way into a kernel
and out of it again: what a chain of operations takes longer when a kernel of 1 MB follows each, the kernels' own time
(as the engine reports it) taken off. Memory is the largest resident size of fresh processes, mapped files included, for
an artifact of 1 GB of weights.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import Row, arguments, median_seconds, print_rows

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the models of the tests

from metalwright import MetalKernel, MetalParameter, coreai, export
from metalwright.coreai.execute import KernelRun
from tests.models import llama
from tests.models.case import references

_CALLS_IN_A_ROUND = 20
_LINKS = 8
_MEGABYTE = 1 << 20
_LAYERS, _WIDTH = 16, 4096  # of float32: 1 GB


def main() -> None:
    options = arguments(__doc__)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["METALWRIGHT_CACHE_DIR"] = str(Path(scratch) / "cache")
        folder = Path(scratch)
        rows = [*_decoder(folder, options.rounds), *_boundary(folder, options.rounds), *_large(folder)]
    print_rows(rows, options.json)


def _decoder(folder: Path, rounds: int) -> list[Row]:
    split = llama.case(dynamic=False).export(folder / "kernels.aimodel")
    with references():
        whole = llama.case(dynamic=False).export(folder / "references.aimodel")
    inputs = llama.inputs([3], 0)
    models = coreai.load(split, checked=False), coreai.load(split), coreai.load(whole)
    runs = [functools.partial(model, **inputs) for model in models]
    plain, checked, interpreter = (run()["logits"] for run in runs)
    assert torch.allclose(plain, interpreter, atol=1e-4) and torch.allclose(checked, interpreter, atol=1e-4)
    taken = median_seconds(runs, rounds * _CALLS_IN_A_ROUND)
    kernels = statistics.median(_kernels_seconds(models[0], inputs) for _ in range(_CALLS_IN_A_ROUND))
    return [
        Row("Llama block, a step of one token, unchecked", taken[0] * 1e3, "ms"),
        Row("  of it kernels, as the engine says", kernels * 1e3, "ms"),
        Row("the same, checked", taken[1] * 1e3, "ms"),
        Row("Core AI's interpreter on the references", taken[2] * 1e3, "ms"),
        Row(
            "  ratio, all but the kernels / interpreter", (taken[0] - kernels) / taken[2], "x", "at most 1.3"
        ),
        Row("  ratio, unchecked / interpreter", taken[0] / taken[2], "x"),
        Row("  ratio, checked / interpreter", taken[1] / taken[2], "x"),
    ]


def _boundary(folder: Path, rounds: int) -> list[Row]:
    x = torch.rand(_MEGABYTE // 4)
    models = [
        coreai.load(export(module, (x,), folder / name, output_names=["y"]), checked=False)
        for name, module in (("with.aimodel", _Chain(_half)), ("without.aimodel", _Chain(lambda x: x)))
    ]
    runs = [functools.partial(model, x=x) for model in models]
    half = x
    for _ in range(_LINKS):
        half = torch.sin(half) * 0.5
    assert torch.allclose(runs[0]()["y"], torch.sin(half), atol=1e-6)
    with_kernels, without = median_seconds(runs, rounds * _CALLS_IN_A_ROUND)
    kernels = statistics.median(_kernels_seconds(models[0], {"x": x}) for _ in range(_CALLS_IN_A_ROUND))
    cost = (with_kernels - kernels - without) / _LINKS
    return [Row("one kernel boundary, 1 MB in and out", cost * 1e6, "us", "under 200 us")]


class _Chain(torch.nn.Module):
    """Plain operations with something after each but the last."""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(_LINKS):
            x = self._between(torch.sin(x))
        return torch.sin(x)


def _halved(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5


_halving = MetalKernel(
    "bench_half",
    input_names=["x"],
    result_names=["out"],
    src="out[gid] = x[gid] * 0.5f;",
    torch_defn=_halved,
    metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")],
)


def _half(x: torch.Tensor) -> torch.Tensor:
    elements = x.shape[0]
    sizes = {"threads_per_grid": (elements, 1, 1), "threads_per_thread_group": (256, 1, 1)}
    return _halving(x, **sizes, result_shapes=[[elements]])


def _kernels_seconds(model: coreai.Model, inputs: dict[str, torch.Tensor]) -> float:
    """Return how long the kernels of one call took, as the engine says."""
    seen: list[float] = []
    model.run(
        "main", inputs, observer=lambda run: seen.append(run.seconds if isinstance(run, KernelRun) else 0.0)
    )
    return sum(seen)


def _large(folder: Path) -> list[Row]:
    path = folder / "large.aimodel"
    _child("export", path)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    cold, warm = _child("run", path), _child("run", path)
    return [
        Row("an artifact of 1 GB, its size", size / 1e9, "GB"),
        Row("  first process: load and run", cold["seconds"], "s"),
        Row("  next process, from the cache", warm["seconds"], "s"),
        Row("  memory of the process, per byte", cold["own"] / size, "x", "at most 2.5"),
        Row("  memory of the compiler, per byte", cold["children"] / size, "x", "at most 2.5"),
    ]


class _Large(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for layer in range(_LAYERS):
            weight = torch.randn(_WIDTH, _WIDTH, generator=generator) * _WIDTH**-0.5
            self.register_buffer(f"weight_{layer}", weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in range(_LAYERS):
            x = _half(self.get_buffer(f"weight_{layer}") @ x)
        return x


def _child(work: str, path: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, work, str(path)], stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def _export_large(path: Path) -> dict[str, float]:
    export(_Large(), (torch.ones(_WIDTH),), path, output_names=["y"])
    return {}


def _run_large(path: Path) -> dict[str, float]:
    began = time.perf_counter()
    coreai.load(path, checked=False)(x=torch.ones(_WIDTH))
    seconds = time.perf_counter() - began
    own, children = (
        resource.getrusage(who).ru_maxrss * 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {"seconds": seconds, "own": own, "children": children}


_WORK = {"export": _export_large, "run": _run_large}

if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in _WORK:
        print(json.dumps(_WORK[sys.argv[1]](Path(sys.argv[2]))))
    else:
        main()
