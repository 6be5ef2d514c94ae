"""``metalwright lint``: known pitfalls in kernels, found without running them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from metalwright.cli import loading
from metalwright.cli.output import console, show_json


def lint(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py[:NAME]", help="A kernel, or every kernel of a file.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    sarif: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the findings to a SARIF 2.1.0 file.")
    ] = None,
) -> None:
    """Look for known pitfalls in kernels without running them.

    The file is imported and the kernels' cases are asked for their shapes and launch sizes; nothing else of it runs.
    Exit code 1 if there is an error or a warning, 2 if a kernel could not be linted.
    """
    from metalwright import lint as linting

    where = loading.parse_target(target)
    found = loading.kernels(where)
    with loading.user_code(where.path):
        report = linting.lint_kernels(
            found.values(),
            path=str(where.path),
            namespace=vars(loading.load(where.path)),
            whole_file=where.name is None,
        )
    if sarif is not None:
        _write(
            sarif, json.dumps(linting.sarif(report, target.removesuffix(f":{where.name}")), indent=2) + "\n"
        )
    if as_json:
        show_json(report.to_dict())
    else:
        report.print_report(console())
    if not report.ok:
        raise typer.Exit(1)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise loading.TargetError(f"cannot write {path}: {error.strerror}") from error
