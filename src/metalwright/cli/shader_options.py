"""The options of commands that take a ``.metal`` file: folders, macros and function constants."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metalwright.errors import ArgumentError

Includes = Annotated[
    list[Path] | None, typer.Option("--include", "-I", help="Folder whose files can be included; repeatable.")
]
Defines = Annotated[
    list[str] | None, typer.Option("--define", "-D", metavar="NAME[=VALUE]", help="A macro; repeatable.")
]
Constants = Annotated[
    list[str] | None,
    typer.Option("--constant", metavar="NAME=VALUE", help="A function constant's value; repeatable."),
]
Recursion = Annotated[
    int | None,
    typer.Option("--recursion", min=0, help="How many calls of a function that calls itself may be nested."),
]


def defines(given: list[str] | None) -> dict[str, str | None]:
    """Return ``NAME=VALUE`` options as macros."""
    return {
        name: value if equals else None for name, equals, value in (one.partition("=") for one in given or ())
    }


def constants(given: list[str] | None) -> dict[str | int, bool | int | float]:
    """Return ``NAME=VALUE`` options as function constants.

    Raises:
        ArgumentError: a value is not true, false or a number.
    """
    found: dict[str | int, bool | int | float] = {}
    for one in given or ():
        name, _, text = one.partition("=")
        found[int(name) if name.isdigit() else name] = _value(one, text)
    return found


def _value(option: str, text: str) -> bool | int | float:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ArgumentError(f"--constant {option}: expected NAME=true, false or a number")
