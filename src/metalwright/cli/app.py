"""The commands, put together. Nothing heavy is imported before a command runs: ``--help`` is instant."""

from __future__ import annotations

from typing import Annotated

import typer

from metalwright.cli import (
    cache,
    check,
    compile,
    demo,
    diff,
    doctor,
    explain,
    export,
    inspect,
    lint,
    run,
    source,
    verify,
)

app = typer.Typer(
    help="Write a Metal kernel in Python, run its MSL here, prove it against PyTorch, ship it in a Core AI artifact.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from metalwright import __version__

        typer.echo(f"metalwright {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command()(demo.demo)
app.command()(run.run)
app.command()(check.check)
app.command()(lint.lint)
app.command()(explain.explain)
app.command("compile")(compile.compile_)
app.command()(export.export)
app.command()(inspect.inspect)
app.command()(verify.verify)
app.command()(diff.diff)
app.command()(source.source)
app.command()(doctor.doctor)
app.add_typer(cache.app, name="cache")
