"""What linting found: as text, on a terminal, and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from metalwright.errors import excerpt_lines
from metalwright.lint.rule import LintFinding

_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


@dataclass(frozen=True)
class LintReport:
    """The findings in some kernels; true in a condition if none is worse than a note.

    For kernels in ``without_cases`` nothing is known of launch sizes and shapes: rules about these were silent.
    """

    kernels: tuple[str, ...]
    findings: tuple[LintFinding, ...]
    without_cases: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no error and no warning."""
        return all(finding.severity == "note" for finding in self.findings)

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
        """Return the report as dicts, lists, strings and numbers."""
        return {
            "ok": self.ok,
            "kernels": list(self.kernels),
            "findings": [finding.to_dict() for finding in self.findings],
            "without_cases": list(self.without_cases),
        }

    def to_json(self, indent: int | None = 2) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent)

    def _lines(self) -> list[Text]:
        lines: list[Text] = []
        for finding in self.findings:
            where = f"{finding.site}: " if finding.site else ""
            lines.append(
                Text.assemble(
                    (where, "bold"),
                    (f"{finding.severity} {finding.rule}", _STYLES[finding.severity]),
                    f": {finding.message}",
                )
            )
            lines += [Text(line) for line in excerpt_lines(finding.site, finding.excerpt)]
            lines.append(Text(""))
        for name in self.without_cases:
            lines.append(
                Text(f"{name}: has no cases: rules about launch sizes and shapes had nothing to go by", "dim")
            )
        lines.append(self._summary())
        return lines

    def _summary(self) -> Text:
        count = f"{len(self.kernels)} kernel{'s' if len(self.kernels) != 1 else ''}"
        if not self.findings:
            return Text.assemble((f"{count}: ", "bold"), ("nothing found", "green"))
        parts = []
        for severity in _STYLES:
            number = sum(finding.severity == severity for finding in self.findings)
            if number:
                parts.append(f"{number} {severity}{'s' if number != 1 else ''}")
        explained = ", ".join(sorted({finding.rule for finding in self.findings}))
        return Text.assemble(
            (f"{count}: ", "bold"), ", ".join(parts), (f" (metalwright explain {explained})", "dim")
        )
