"""``metalwright cache``: the compiled kernels on disk."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from metalwright.cli.output import console, readable_size, show_json

app = typer.Typer(help="Show or clear the disk cache of compiled kernels.", invoke_without_command=True)


@app.callback()
def show(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show or clear the disk cache of compiled kernels."""
    if context.invoked_subcommand is not None:
        return
    from metalwright.engine import cache

    stats = cache.stats()
    if as_json:
        show_json({**dataclasses.asdict(stats), "path": str(stats.path)})
        return
    screen = console()
    screen.print(f"path     {stats.path}")
    screen.print(f"entries  {stats.entries}")
    screen.print(f"size     {readable_size(stats.bytes)} of at most {readable_size(stats.limit)}")


@app.command()
def clear() -> None:
    """Delete every compiled kernel; the next run compiles again."""
    from metalwright.engine import cache

    removed = cache.clear()
    console().print(f"removed {removed} {'entry' if removed == 1 else 'entries'} from {cache.folder()}")
