"""How long a kernel of MLX's ``quantized.h`` takes to be there: cold, and from the disk cache.

    python benchmarks/bench_large_headers.py [--json] [--rounds N]

One instantiation of a template, with the 5800 lines that MLX puts before it; its headers are downloaded once, as the
tests of MLX's kernels have them. Cold and warm are measured in fresh processes, from the call of ``compile_shader`` to
the kernel's result, imports apart; the result is compared with the exact one. A product of a matrix and a vector is a
light kernel, one of two matrices a heavy one. Processor time is that of all processes that take part, clang's and
LLVM's among them: on a machine that does other work, it says more.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import Row, arguments, print_rows

import metalwright
from metalwright.engine import builder

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "thirdparty" / "mlx"))

from headers import NAME, UnavailableError, include_folder  # noqa: E402 - found by the line above
from products import Case, multiply, unit  # noqa: E402
from quantizing import affine  # noqa: E402

KERNELS = {
    case.name: case
    for case in (
        Case("qmv_fast", "half", 64, 4, (False,), ((1, 8, 512),)),
        Case("qmm_t", "half", 64, 4, (True, False), ((32, 32, 64),)),
    )
}


def main() -> None:
    options = arguments(__doc__)
    rows = []
    for name, case in KERNELS.items():
        rounds = [_cold_and_warm(name) for _ in range(options.rounds)]
        cold, processor, warm = (statistics.median(figure) for figure in zip(*rounds, strict=True))
        kernel = f"affine_{name}<{case.arguments}>"
        rows += [
            Row(f"{kernel}, cold", cold, "s", "under 4 s"),
            Row("  processor time of it", processor, "s"),
            Row("  warm from the disk cache", warm * 1e3, "ms", "under 100 ms"),
        ]
    print_rows(rows, options.json)


def _cold_and_warm(name: str) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as cache:
        cold, processor = _first_result(name, cache)
        warm, _ = _first_result(name, cache)
        return cold, processor, warm


def _first_result(name: str, cache: str) -> tuple[float, float]:
    """Return the seconds from the call of ``compile_shader`` to the result, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, "--child", name],
        env={**os.environ, "METALWRIGHT_CACHE_DIR": cache},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds, processor = map(float, done.stdout.split())
    return seconds, processor


def _processor_seconds() -> float:
    """Return the processor time of this process and of those that it started and that ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


@dataclass
class Stopwatch:
    """Compiles a unit and launches its kernel, as the bench of MLX's tests does, and keeps the times."""

    headers: Path
    seconds: float = 0
    processor: float = 0

    def run(self, code: Any, host: str, *values: Any, threads: Any, group: Any, checked: bool = True) -> None:
        compile_shader = metalwright.compile_shader  # the first look at this name imports what is behind it
        began, used = time.perf_counter(), _processor_seconds()
        library = compile_shader(
            code.source, include_dirs=[self.headers], constants=dict(code.constants), checked=checked
        )
        library[host](*values, threads=threads, group_size=group)
        self.seconds = time.perf_counter() - began
        builder.end()  # its time counts when it is over
        self.processor = _processor_seconds() - used


def _child(name: str) -> None:
    case = KERNELS[name]
    rows, columns, summed = case.sizes[0]
    watch = Stopwatch(_headers())
    weights = affine(case.matrix_shape(columns, summed), case.group, case.bits, case.kind)
    multiply(watch, unit("quantized.h", "affine", [case]), case, (rows, columns, summed), weights)
    print(watch.seconds, watch.processor)


def _headers() -> Path:
    try:
        return include_folder(ROOT / ".pytest_cache" / "d" / NAME)
    except UnavailableError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    if "--child" in sys.argv:
        _child(sys.argv[-1])
    else:
        _headers()
        main()
