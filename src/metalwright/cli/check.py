"""``metalwright check``: kernels against their references."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metalwright.cli import loading, shapes
from metalwright.cli.output import console, show_error, show_json
from metalwright.cli.progress import track
from metalwright.errors import MetalwrightError, ToolchainError

if TYPE_CHECKING:
    from metalwright.check import Report


def check(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py[:NAME]", help="A kernel, or every kernel of a file.")
    ],
    shape: shapes.Shapes = None,
    dtype: shapes.Dtypes = None,
    seed: Annotated[int, typer.Option(help="Seed of generated inputs.", min=0)] = 0,
    math: Annotated[str | None, typer.Option(help="safe or fast; the kernel's own by default.")] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds after which a launch that does not end is stopped.")
    ] = 60.0,
    edges: Annotated[
        bool,
        typer.Option("--edges", help="Check shapes at the edges of tiles and threadgroups too."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the reports as JSON.")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page for a browser too.", dir_okay=False)
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Annotate what is wrong in a pull request, in GitHub Actions.")
    ] = False,
) -> None:
    """Run kernels on their cases and compare them with PyTorch.

    The cases are the kernel's own (kernel.cases), or come from --shape and --dtype: then every tensor input has
    that shape and dtype, scalars get a value from the seed, and the grid has one thread for each element of the
    result. With --edges, cases with extents of 1, primes, and one below, at and above each tile and threadgroup size
    follow: how they are launched says kernel.case_for; an element-wise kernel needs none. Exit code 1
    if a kernel is wrong, 2 if one could not be checked.
    """
    where = loading.parse_target(target)
    options = {"seed": seed, "math_mode": math, "timeout": timeout, "edges": edges}
    reports: list[Report] = []
    errors: list[dict[str, str]] = []
    annotations: list[str] = []
    for name, kernel in loading.kernels(where).items():
        try:
            report = _check(where, name, kernel, shape, dtype, options)
        except ToolchainError:
            raise
        except MetalwrightError as error:
            # one kernel that cannot be checked does not keep the others from it
            errors.append({"kernel": kernel.name, "error": str(error)})
            if github:
                annotations.append(_not_checked(kernel, error))
            if not as_json:
                show_error(error)
            continue
        reports.append(report)
        if github:
            annotations += _annotations(report, kernel)
        if not as_json:
            if len(reports) > 1:
                console().print()
            report.print_report(console())
    right = all(report.ok for report in reports)
    if as_json:
        plain = [report.to_dict() for report in reports]
        show_json({"ok": right and not errors, "kernels": plain, "errors": errors})
    # GitHub reads both streams; beside JSON, standard output is for that alone
    for line in annotations:
        typer.echo(line, err=as_json)
    if html is not None:
        _write(html, reports, errors)
    if not right:
        raise typer.Exit(1)
    if errors:
        raise typer.Exit(2)


def _annotations(report: Report, kernel: Any) -> list[str]:
    from metalwright.report import to_github

    return list(to_github(report, kernel))


def _not_checked(kernel: Any, error: MetalwrightError) -> str:
    from metalwright.report.github import error_command

    return error_command(kernel, f"{kernel.name}: not checked", str(error))


def _write(path: Path, reports: list[Report], errors: list[dict[str, str]]) -> None:
    from metalwright.report import to_html

    page = to_html(reports, {entry["kernel"]: entry["error"] for entry in errors})
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise loading.TargetError(f"cannot write {path}: {error.strerror}") from error


def _check(
    where: loading.Target, name: str, kernel: Any, shape: Any, dtype: Any, options: dict[str, Any]
) -> Report:
    from metalwright.check import check_cases, report_of

    with loading.user_code(where.path):
        cases = shapes.cases_for(kernel, shape, dtype, options["seed"])
        done = track(check_cases(kernel, cases, **options), f"checking {name}")
        return report_of(kernel, done, seed=options["seed"], math_mode=options["math_mode"])
