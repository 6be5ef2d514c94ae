"""``metalwright cache``: the compiled kernels and artifacts on disk."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Annotated, Any

import typer

from metalwright.cli.output import console, readable_size, show_json

app = typer.Typer(help="Show or clear what is compiled and kept on disk.", invoke_without_command=True)


@app.callback()
def show(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show or clear the compiled kernels and artifacts that are kept on disk."""
    if context.invoked_subcommand is not None:
        return
    kernels, artifacts = (part.stats() for part in _parts())
    if as_json:
        # the kernels' numbers stand at the top, as before there were artifacts
        show_json({**_plain(kernels), "artifacts": _plain(artifacts)})
        return
    screen = console()
    for what, stats in (("kernels", kernels), ("artifacts", artifacts)):
        screen.print(what)
        screen.print(f"  path     {stats.path}")
        screen.print(f"  entries  {stats.entries}")
        screen.print(f"  size     {readable_size(stats.bytes)} of at most {readable_size(stats.limit)}")


@app.command()
def clear() -> None:
    """Delete every compiled kernel and artifact; the next run compiles again."""
    kernels, artifacts = _parts()
    for what, part in (("kernels", kernels), ("artifacts", artifacts)):
        folder, removed = part.folder(), part.clear()
        console().print(f"removed {removed} {'entry' if removed == 1 else 'entries'} ({what}) from {folder}")


def _parts() -> tuple[ModuleType, ModuleType]:
    from metalwright.coreai import compiled
    from metalwright.engine import cache

    return cache, compiled


def _plain(stats: Any) -> dict[str, Any]:
    return {**dataclasses.asdict(stats), "path": str(stats.path)}
