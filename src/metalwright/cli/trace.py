"""``--trace``: the parts of an artifact's function in the order in which they ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich.console import Console

from metalwright.cli import results
from metalwright.cli.output import readable_size, show_table

_HEADER = ("step", "what", "inputs", "outputs", "grid", "threadgroup", "time", "bytes")


class Trace:
    """Notes each step of a run; :meth:`show` prints the table."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, ...]] = []

    def __call__(self, step: Any) -> None:
        from metalwright.coreai.execute import KernelRun
        from metalwright.coreai.names import plain

        if isinstance(step, KernelRun):
            what = f"kernel {plain(step.kernel.name)}"
            read, written = step.operands, step.results
            grid, group = _size(step.threads_per_grid), _size(step.threads_per_threadgroup)
        else:
            what = _operations(step.operations)
            read, written = step.inputs, step.outputs
            grid = group = "-"
        moved = sum(values.nbytes for values in (*read, *written))
        self._rows.append(
            (
                str(len(self._rows) + 1), what, _shapes(read), _shapes(written), grid, group,
                results.milliseconds(step.seconds), readable_size(moved),
            )
        )  # fmt: skip

    def show(self, screen: Console) -> None:
        """Print what has run so far."""
        if self._rows:
            show_table(screen, _HEADER, self._rows)
        else:
            screen.print("no Metal kernels: Core AI's interpreter ran the whole function as one step")


def _operations(names: Iterable[str]) -> str:
    counted = Counter(name.removeprefix("coreai.") for name in names)
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in counted.items())


def _shapes(values: Iterable[Any]) -> str:
    return " ".join(f"{one.dtype}{list(one.shape)}".replace(" ", "") for one in values) or "-"


def _size(size: Iterable[int]) -> str:
    return "x".join(map(str, size))
