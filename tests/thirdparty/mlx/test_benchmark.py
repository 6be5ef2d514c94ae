"""The benchmark of large headers stands on the helpers of these tests: it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "bench_large_headers.py"


def test_a_round_of_the_benchmark_gives_two_times(headers: Path) -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARK, "--child", "qmv_fast"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    seconds, processor = map(float, done.stdout.split())
    assert seconds > 0 and processor > 0
