"""How a check is shown: as text, on a terminal, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from metalwright.check.data import InputData, ResultData
from metalwright.check.origin import Origin
from metalwright.check.verdict import Finding, show
from metalwright.errors import excerpt_lines

_OTHERS_NAMED = 3
_STYLES = {"ok": "green", "wrong": "bold red"}


@dataclass(frozen=True)
class CaseReport:
    """One case: what was run, what was seen, and what is wrong with it.

    ``variant`` is ``"given"`` for a case whose inputs are all given, else what the generated inputs hold:
    ``"normal"``, ``"extreme"`` or ``"non-finite"`` values. ``results`` is empty where the kernel or the reference
    could not be run: ``findings`` says why. ``seconds`` is the time that the case took. ``reproduce`` is, for a wrong
    case, a program that checks these inputs again (``None`` if they are too large to be written down); ``smallest``
    says for which extents and values, where the case was shrunk.
    """

    name: str
    variant: str
    inputs: tuple[InputData, ...]
    threads_per_grid: tuple[int, ...]
    threads_per_thread_group: tuple[int, ...]
    result_shapes: tuple[tuple[int, ...], ...]
    results: tuple[ResultData, ...]
    findings: tuple[Finding, ...]
    seconds: float = dataclasses.field(compare=False)
    reproduce: str | None = None
    smallest: str | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def verdict(self) -> str:
        """``"ok"`` or ``"wrong"``."""
        return "ok" if self.ok else "wrong"

    @property
    def title(self) -> str:
        """The case's name with its variant."""
        return self.name if self.variant == "given" else f"{self.name} ({self.variant})"


@dataclass(frozen=True)
class Report:
    """The outcome of checking one kernel; true in a condition if every case is right.

    ``origin`` is where the kernel is defined in Python, if that is known.
    """

    kernel: str
    math_mode: str
    seed: int
    cases: tuple[CaseReport, ...]
    origin: Origin | None = None

    @property
    def ok(self) -> bool:
        """Whether every case is right."""
        return all(case.ok for case in self.cases)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return "\n".join(line.plain.rstrip() for line in self._lines())

    def print_report(self, console: Console | None = None) -> None:
        """Print the report; coloured on a terminal, the plain text of ``str(report)`` elsewhere."""
        console = console or Console()
        for line in self._lines():
            console.print(line, soft_wrap=True, highlight=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as dicts, lists, strings and numbers; NaN and infinities as ``"nan"``, ``"inf"``.

        The results' error maps are left out: they are pictures, and large.
        """
        plain = dataclasses.asdict(self)
        for case, report in zip(plain["cases"], self.cases, strict=True):
            case["ok"] = report.ok
            for result in case["results"]:
                del result["error_map"]
        return _jsonable({"kernel": self.kernel, "ok": self.ok, **plain})

    def to_json(self, indent: int | None = 2) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def _lines(self) -> list[Text]:
        wrong = sum(not case.ok for case in self.cases)
        count = f"{len(self.cases)} case{'s' if len(self.cases) != 1 else ''}"
        outcome = f" in {wrong} of {count}" if wrong else f", {count}"
        head = Text.assemble((self.kernel, "bold"), ": ", (self._verdict, _STYLES[self._verdict]), outcome)
        head.append(f" (math {self.math_mode}, seed {self.seed})")
        lines = [head, *self._table()]
        # one mistake often breaks many cases in the same way: say it once
        alike: dict[tuple[Finding, ...], list[CaseReport]] = {}
        for case in self.cases:
            if not case.ok:
                alike.setdefault(case.findings, []).append(case)
        for cases in alike.values():
            lines += [Text(""), *_details(cases)]
        stated = self._tolerances()
        if stated:
            lines += [Text(""), *stated]
        return lines

    @property
    def _verdict(self) -> str:
        return "ok" if self.ok else "wrong"

    def _table(self) -> list[Text]:
        header = ("", "case", "inputs", "result", "max abs", "max rel", "max ulp", "unwritten")
        rows: list[tuple[str, ...]] = [header]
        for case in self.cases:
            inputs = " ".join(show_input(value) for value in case.inputs)
            for result in case.results or (None,):
                rows.append((case.verdict, case.title, inputs, *_columns(case, result)))
        widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
        lines = []
        for row in rows:
            line = Text("  ")
            for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
                style = "dim" if row is header else _STYLES.get(cell, "") if column == 0 else ""
                line.append(cell.ljust(width) + "  ", style)
            line.rstrip()
            lines.append(line)
        return lines

    def _tolerances(self) -> list[Text]:
        stated: dict[str, None] = {}
        for case in self.cases:
            for result in case.results:
                stated[f"{result.dtype}: {result.tolerance.describe()} (reference in {result.reference})"] = (
                    None
                )
        return [Text(f"tolerance for {line}", "dim") for line in stated]


def _columns(case: CaseReport, result: ResultData | None) -> tuple[str, ...]:
    if result is None:
        return (case.findings[0].kind, *("-",) * 4)
    missing = str(result.unwritten.count) if result.unwritten else "0"
    shape = show_shape(result.shape)
    steps = f"{result.max_ulp}"
    return (
        f"{result.name} {result.dtype}{shape}",
        f"{result.max_abs:.3g}",
        f"{result.max_rel:.3g}",
        steps,
        missing,
    )


def _details(cases: Sequence[CaseReport]) -> list[Text]:
    case = cases[0]
    sizes = f"grid {case.threads_per_grid}, threadgroup {case.threads_per_thread_group}"
    others = f"; the same in {_show_others(cases[1:])}" if len(cases) > 1 else ""
    lines = [Text.assemble((f"{case.title}: ", "bold"), sizes, others)]
    for finding in case.findings:
        where = f"{finding.result}: " if finding.result else ""
        first, *rest = finding.message.splitlines() or [""]
        rest += excerpt_lines(finding.site, finding.excerpt)
        for other in finding.related:
            rest += other.render().splitlines()
        lines.append(Text.assemble("  ", (finding.kind, "red"), f"  {where}{first}"))
        lines += [Text(f"      {line}") for line in rest]
    for shrunk in (case for case in cases if case.smallest and case.reproduce):
        lines.append(Text.assemble("  ", ("smallest", "bold"), f"  {shrunk.smallest}; to see it again:"))
        lines += [Text(f"      {line}") for line in str(shrunk.reproduce).splitlines()]
    return lines


def _show_others(cases: Sequence[CaseReport]) -> str:
    if len(cases) > _OTHERS_NAMED:
        return f"{len(cases)} more cases"
    return ", ".join(case.title for case in cases)


def show_input(value: InputData) -> str:
    """Return an input as name, dtype and shape, or a scalar with its value."""
    if value.value is not None:
        return f"{value.name}={show(value.value, 'float32')}"
    return f"{value.name}:{value.dtype}{show_shape(value.shape)}"


def show_shape(shape: tuple[int, ...]) -> str:
    """Return a shape as it stands behind a dtype."""
    return "[" + ",".join(map(str, shape)) + "]"


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _jsonable(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value
