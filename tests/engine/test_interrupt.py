"""Ctrl-C reaches a kernel that runs checked, and leaves everything usable."""

import signal
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.support import body, launch, tensor

PARAMETERS = (tensor("float", 1, "out", 0), "uint gid [[thread_position_in_grid]]")


@pytest.fixture
def interrupt_soon() -> Iterator[Callable[[], None]]:
    """Asks for a signal in a moment, whose handler does what Ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.3) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("threads", [64, 100_000], ids=["on this OS thread", "on several"])
@pytest.mark.parametrize(
    "src",
    [
        "while (true) {}\nout[gid] = 1;",
        "while (true) threadgroup_barrier(mem_flags::mem_none);",
        "while (true) out[gid % 8] += 1;",
    ],
)
def test_a_kernel_without_end_is_interrupted(
    src: str, threads: int, interrupt_soon: Callable[[], None]
) -> None:
    program = body(src, *PARAMETERS)
    interrupt_soon()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        launch(program, {}, {"out": np.zeros(threads, np.float32)}, threads, 64)
    assert time.monotonic() - began < 20, "long before a person's patience ends"

    out = np.zeros(8, np.float32)
    launch(body("out[gid] = 7;", *PARAMETERS), {}, {"out": out}, 8, 8)
    assert (out == 7).all()
