"""``metalwright diff``: in which functions and kernels two artifacts differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from metalwright.cli.output import console, show_json

_REMOVED, _ADDED, _PLACE = "red", "green", "cyan"


def diff(
    first: Annotated[Path, typer.Argument(metavar="A.aimodel", help="An artifact.")],
    second: Annotated[Path, typer.Argument(metavar="B.aimodel", help="Another one.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show which functions and kernels of two artifacts differ: signatures, launch sizes, MSL.

    Kernels are matched by name, without the random suffix that Core AI appends, in the order of their launches.
    Plain operations and weights are not compared. Exit code 1 if there are differences.
    """
    from metalwright import coreai
    from metalwright.coreai.diff import diff as compare

    found = compare(coreai.inspect(first), coreai.inspect(second))
    if as_json:
        show_json({"same": not found, **dataclasses.asdict(found)})
    else:
        _show(console(), first, second, found)
    if found:
        raise typer.Exit(1)


def _show(screen: Console, first: Path, second: Path, found: Any) -> None:
    paths = {"first": first, "second": second}
    for function in found.functions:
        _show_entry(screen, f"function {function.name}", paths, function)
    shown: dict[tuple[str, ...], str] = {}
    for kernel in found.kernels:
        what = f"kernel {kernel.name}, launch {kernel.launch} in function {kernel.function}"
        _show_entry(screen, what, paths, kernel)
        if not kernel.source:
            continue
        if kernel.source in shown:
            screen.print(f"  source: differs as in {shown[kernel.source]}")
            continue
        shown[kernel.source] = f"launch {kernel.launch} in function {kernel.function}"
        _show_source(screen, kernel.source)
    if not found:
        screen.print("the functions and kernels are the same")


def _show_entry(screen: Console, what: str, paths: dict[str, Path], entry: Any) -> None:
    if entry.only_in is not None:
        style = _REMOVED if entry.only_in == "first" else _ADDED
        screen.print(Text(f"{what}: only in {paths[entry.only_in]}", style))
        return
    screen.print(Text(what, "bold"))
    for change in entry.changes:
        screen.print(f"  {change.what}")
        screen.print(Text(f"  - {change.before}", _REMOVED))
        screen.print(Text(f"  + {change.after}", _ADDED))


def _show_source(screen: Console, lines: Iterable[str]) -> None:
    styles = {"-": _REMOVED, "+": _ADDED, "@": _PLACE}
    for line in lines:
        screen.print(Text(f"  {line}", styles.get(line[:1], "")))
