"""How long a kernel takes to be there: cold, from the disk cache, and launched again.

    python benchmarks/bench_compile.py [--json] [--rounds N]

Cold and warm are measured in fresh processes, from the start of the call to its result, imports apart. The launch is
measured on a grid of 64 threads, beside PyTorch doing the same work, and the kernel's own time (as the engine
reports it) is taken off.
"""

from __future__ import annotations

import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import torch
from common import Row, arguments, median_seconds, print_rows, scale_add, scale_add_sizes

from metalwright.authoring import execute

_LAUNCHES = 2000
_SMALL = 64


def main() -> None:
    options = arguments(__doc__)
    rounds = [_cold_and_warm() for _ in range(options.rounds)]
    cold, warm, imports = (statistics.median(figure) for figure in zip(*rounds, strict=True))
    rows = [
        Row("cold compile, to result", cold, "s", "under 1.5 s"),
        Row("warm from the disk cache", warm * 1e3, "ms", "under 50 ms"),
        Row("the rest of a process that calls one kernel: imports", imports, "s"),
        *_launch(),
    ]
    print_rows(rows, options.json)


def _cold_and_warm() -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as cache:
        cold, _ = _first_call(cache)
        warm, imports = _first_call(cache)
        return cold, warm, imports


def _first_call(cache: str) -> tuple[float, float]:
    """Return the seconds of a process's first call, and of everything else in it."""
    environment = {**os.environ, "METALWRIGHT_CACHE_DIR": cache}
    command = [sys.executable, "-W", "ignore", __file__, "--child"]
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    whole = time.perf_counter() - began
    call = float(done.stdout)
    return call, whole - call


def _child() -> None:
    """Time the first call in this process, everything imported."""
    # PyTorch imports this, a thousand modules, when the first fake tensor of a process is made
    importlib.import_module("torch._dynamo")
    kernel = scale_add()
    x, y = torch.rand(1000), torch.rand(1000)
    began = time.perf_counter()
    result = kernel(x, y, 2.0, **scale_add_sizes(1000))
    seconds = time.perf_counter() - began
    assert torch.allclose(result, x + 2.0 * y)
    print(seconds)


def _launch() -> list[Row]:
    kernel = scale_add()
    x, y = torch.rand(_SMALL), torch.rand(_SMALL)
    sizes = scale_add_sizes(_SMALL)

    def call() -> Any:
        return kernel(x, y, 2.0, **sizes)

    def peer() -> Any:
        return torch.add(x, y, alpha=2.0)

    assert torch.allclose(call(), peer())
    # what the engine itself says that the threads took; the rest of a call is overhead
    run = [sizes["threads_per_grid"], sizes["threads_per_thread_group"], sizes["result_shapes"]]
    own = statistics.median(execute(kernel, (x, y, 2.0), *run).report.seconds for _ in range(_LAUNCHES))
    called, torch_alone = median_seconds([call, peer], _LAUNCHES)
    return [
        Row("repeated call, 64 threads", called * 1e6, "us"),
        Row("  of it the kernel's own work", own * 1e6, "us"),
        Row("  of it overhead", (called - own) * 1e6, "us", "under 100 us"),
        Row("PyTorch doing the same", torch_alone * 1e6, "us"),
        Row("  ratio, call / PyTorch", called / torch_alone, "x"),
    ]


if __name__ == "__main__":
    if "--child" in sys.argv:
        _child()
    else:
        main()
