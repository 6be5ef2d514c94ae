"""A progress bar for whatever takes longer than a second."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

Item = TypeVar("Item")

_SECONDS_BEFORE_IT_SHOWS = 0.5


def track(items: Iterable[Item], label: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items and show how many there were; only on a terminal, and only if it takes its time.

    The bar is on standard error, so that standard output holds results alone.
    """
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield from items
        return
    bar = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=screen, transient=True,
    )  # fmt: skip
    task = bar.add_task(label, total=total)
    began = time.monotonic()
    try:
        for item in items:
            bar.advance(task)
            if not bar.live.is_started and time.monotonic() - began > _SECONDS_BEFORE_IT_SHOWS:
                bar.start()
            yield item
    finally:
        bar.stop()


@contextmanager
def waiting(label: str) -> Iterator[None]:
    """Show on a terminal that one long step is running."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield
        return
    with screen.status(label):
        yield
