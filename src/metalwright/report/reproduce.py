"""A program that runs one case again."""

from __future__ import annotations

import json
from pathlib import Path

from metalwright.check import CaseReport, InputData, Report

_FLOATS = ("float32", "float16", "bfloat16")


def snippet(report: Report, case: CaseReport) -> str:
    """Return a Python program that checks one case again, from the folder that this runs in.

    Inputs that were drawn from the seed are drawn again, in each variant. Tensors that were given are in no report:
    then the program takes the case out of ``kernel.cases`` by its name.
    """
    whole = all(value.drawn is not None or value.value is not None for value in case.inputs)
    tolerances = _tolerances(case)
    body = [*_kernel(report), *(_case(case) if whole else _named(case))]
    options = [f"seed={report.seed}", f"math_mode={_literal(report.math_mode)}"]
    options += [f"tolerances={tolerances}"] if tolerances else []
    body.append(f"metalwright.check(kernel, cases, {', '.join(options)}).print_report()")
    text = "\n".join(body)
    imports = ["import runpy"] * ("runpy." in text) + ["import sys"] * ("sys." in text)
    imports += [""] * bool(imports) + ["import torch"] * ("torch." in text) + ["import metalwright"]
    imports += ["from metalwright.check import random"] * ("random(" in text)
    imports += ["from metalwright.check import cases_of"] * ("cases_of(" in text)
    return "\n".join([*imports, "", text]) + "\n"


def _kernel(report: Report) -> list[str]:
    if report.origin is None:
        return [f"kernel = ...  # the kernel {_literal(report.kernel)}"]
    path = Path(report.origin.file)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    folder = path.parent.as_posix()
    return [
        # for what the file imports from beside it
        *([f"sys.path.insert(0, {_literal(folder)})"] if folder != "." else []),
        f"kernel = runpy.run_path({_literal(path.as_posix())})[{_literal(report.origin.name)}]",
    ]


def _case(case: CaseReport) -> list[str]:
    return [
        "cases = [",
        "    {",
        f'        "name": {_literal(case.name)},',
        f'        "inputs": [{", ".join(map(_input, case.inputs))}],',
        f'        "threads_per_grid": {case.threads_per_grid},',
        f'        "threads_per_thread_group": {case.threads_per_thread_group},',
        f'        "result_shapes": {[list(shape) for shape in case.result_shapes]},',
        "    }",
        "]",
    ]


def _input(value: InputData) -> str:
    if value.drawn is not None:
        return value.drawn
    # inf and nan are no literals
    return f'float("{value.value}")' if str(value.value).strip("-") in ("inf", "nan") else repr(value.value)


def _named(case: CaseReport) -> list[str]:
    return [
        "# tensors of this case were given: take the case from where they come from",
        f"cases = [case for case in cases_of(kernel, None) if case.name == {_literal(case.name)}]",
    ]


def _tolerances(case: CaseReport) -> str:
    given = {
        result.dtype: (result.tolerance.rtol, result.tolerance.atol)
        for result in case.results
        if result.dtype in _FLOATS and not result.tolerance.measured
    }
    listed = ", ".join(f"torch.{dtype}: {values}" for dtype, values in given.items())
    return f"{{{listed}}}" if listed else ""


def _literal(text: str) -> str:
    """Return a text in double quotes, with everything that is not ASCII escaped."""
    return json.dumps(text)
