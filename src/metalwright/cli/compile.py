"""``metalwright compile``: is a file of MSL right, and which kernels are in it?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metalwright.cli.output import console
from metalwright.cli.progress import waiting
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


def compile_(
    file: Annotated[Path, typer.Argument(metavar="FILE.metal", help="A file of MSL.")],
    include: Includes = None,
    define: Defines = None,
    constant: Constants = None,
) -> None:
    """Compile a file of MSL and list its kernels and their parameters; exit code 1 if it is not right."""
    from metalwright.authoring import shader

    with waiting(f"compiling {file.name}"):
        library = shader.compile_shader(
            file, include_dirs=include or (), defines=defines(define), constants=constants(constant)
        )
    screen = console()
    for signature in library.signatures:
        screen.print(shader.describe(signature))
    if not library.signatures:
        screen.print(f"{file}: no kernels (a template needs an instantiation with [[host_name]])")
    if library.unset_constants:
        screen.print(f"function constants without a value: {', '.join(library.unset_constants)}")


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
