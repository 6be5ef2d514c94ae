"""``metalwright compile``: is a file of MSL right, and which kernels are in it?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metalwright.cli import shader_options
from metalwright.cli.output import console, show_error
from metalwright.cli.progress import waiting
from metalwright.errors import CompileError, RefusedSourceError, UnsupportedFeatureError


def compile_(
    file: Annotated[Path, typer.Argument(metavar="FILE.metal", help="A file of MSL.")],
    include: shader_options.Includes = None,
    define: shader_options.Defines = None,
    constant: shader_options.Constants = None,
    recursion: shader_options.Recursion = None,
) -> None:
    """Compile a file of MSL and list its kernels and their parameters; exit code 1 if it is not right."""
    from metalwright.authoring import shader

    try:
        with waiting(f"compiling {file.name}"):
            library = shader.compile_shader(
                file,
                include_dirs=include or (),
                defines=shader_options.defines(define),
                constants=shader_options.constants(constant),
                recursion=recursion or 0,
            )
    except (CompileError, RefusedSourceError, UnsupportedFeatureError) as error:
        show_error(error)
        raise typer.Exit(1) from None
    screen = console()
    for signature in library.signatures:
        screen.print(shader.describe(signature))
    if not library.signatures:
        screen.print(f"{file}: no kernels (a template needs an instantiation with [[host_name]])")
    if library.unset_constants:
        screen.print(f"function constants without a value: {', '.join(library.unset_constants)}")
