"""What every command prints with: colour on a terminal, plain unwrapped text everywhere else."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_VERDICT_STYLES = {"ok": "green", "wrong": "bold red", "not ok": "bold red"}


def console() -> Console:
    """Return the console on standard output as it is now."""
    return Console(soft_wrap=True, highlight=False, markup=False, emoji=False)


def show_error(error: Exception) -> None:
    """Print an error for a person, on standard error: its text, no traceback."""
    text = Text.assemble(("error: ", "bold red"), str(error))
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False).print(text)


def show_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def show_table(screen: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table. Off a terminal its columns are aligned with spaces and no cell is wrapped or cut."""
    if screen.is_terminal:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in header:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell, _VERDICT_STYLES.get(cell, "")) for cell in row))
        screen.print(table, soft_wrap=False)
        return
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        screen.print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def readable_size(count: int) -> str:
    """Return a number of bytes as MiB, or as KiB where that says more."""
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"
