"""How results, times and logs of a run are shown."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console

_VALUES_SHOWN = 8


@contextmanager
def collecting_log() -> Iterator[list[str]]:
    """Give a list to which what kernels log inside the block is appended."""
    from metalwright.authoring.kernel_log import LOGGER

    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.levelname.lower()}: {record.getMessage()}")

    handler, level, propagate = Collector(), LOGGER.level, LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    LOGGER.propagate = False  # shown here, and not again by the user's own handlers
    try:
        yield lines
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
        LOGGER.propagate = propagate


def show(screen: Console, names: Sequence[str], values: Sequence[Any], everything: bool) -> None:
    """Print results, each in a line with its first values, or in full."""
    for name, value in zip(names, values, strict=True):
        kind = str(value.dtype).removeprefix("torch.")
        if everything:
            screen.print(f"  {name}  {kind}{list(value.shape)}\n{value.tolist()}")
            continue
        first = value.reshape(-1)[:_VALUES_SHOWN].tolist()
        shown = ", ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in first)
        more = ", ..." if value.numel() > _VALUES_SHOWN else ""
        screen.print(f"  {name}  {kind}{list(value.shape)}  {shown}{more}")


def milliseconds(seconds: float) -> str:
    """Return a time as seconds or milliseconds, whichever reads better."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
