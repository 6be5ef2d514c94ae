"""``metalwright demo``: the whole way, on kernels of our own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metalwright.cli.inspect import show_artifact
from metalwright.cli.output import console, show_table
from metalwright.cli.progress import track, waiting

if TYPE_CHECKING:
    from metalwright.check import Report


def demo(
    output: Annotated[
        Path | None,
        typer.Option(metavar="OUT.aimodel", help="Keep the artifact here; thrown away by default."),
    ] = None,
) -> None:
    """Run the built-in kernels, check them against PyTorch, export a model that uses them, and look into it."""
    screen = console()
    screen.print("Executing the MSL of the built-in kernels and comparing it with PyTorch")
    reports = [_check(kernel) for kernel in _kernels()]
    for report in reports:
        if not report.ok:
            report.print_report(screen)
    with tempfile.TemporaryDirectory(prefix="metalwright-demo-") as folder:
        path = output or Path(folder) / "demo.aimodel"
        screen.print("Exporting a model that uses two of them through Core AI's converter")
        artifact = _export(path)
        screen.print()
        show_artifact(screen, artifact)
        screen.print()
    rows = [_row(report) for report in reports]
    rows.append((path.name, "ok", "-", f"{len(artifact.kernels)} kernels embedded", "-", "-", "-"))
    show_table(screen, ("what", "verdict", "runs", "types", "max abs", "max ulp", "seconds"), rows)
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


def _kernels() -> tuple:
    from metalwright.cli.demo_kernels import KERNELS

    return KERNELS


def _check(kernel) -> Report:
    from metalwright.check import check_cases, report_of

    return report_of(kernel, track(check_cases(kernel), kernel.name))


def _export(path: Path):
    from metalwright import coreai
    from metalwright.cli.demo_kernels import Model

    with waiting("exporting"):
        coreai.export(Model(), Model.example_args, path)
        return coreai.inspect(path)


def _row(report: Report) -> tuple[str, ...]:
    results = [result for case in report.cases for result in case.results]
    types = ", ".join(dict.fromkeys(result.dtype for result in results))
    return (
        report.kernel,
        "ok" if report.ok else "wrong",
        str(len(report.cases)),
        types,
        # only of inputs where the size of an error means something
        f"{max((r.max_abs for r in _normal(report)), default=0.0):.3g}",
        str(max((r.max_ulp for r in _normal(report)), default=0)),
        f"{sum(case.seconds for case in report.cases):.2f}",
    )


def _normal(report: Report) -> list:
    return [result for case in report.cases if case.variant in ("given", "normal") for result in case.results]
