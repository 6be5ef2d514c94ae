"""The page that says which of other projects' kernels run here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

_HEAD = """# Other projects' kernels

Kernels that were written for a GPU by others, compiled and run here as they are, each compared with PyTorch or NumPy
on small shapes, ragged ones among them. Found: the kernels that a file defines. Compiled: at least one instantiation
compiles. Run: at least one was launched by a test. Matching: every launch gave what the reference gives. No GPU was
asked.

This page is written by

```sh
METALWRIGHT_THIRDPARTY=1 python -m pytest tests/thirdparty -n 2 --scoreboard docs/reference/scoreboard.md
```
"""


@dataclass
class _Kernel:
    seen: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)


@dataclass
class Scoreboard:
    """Collects what tests noted of each kernel."""

    kernels: dict[tuple[str, str, str], _Kernel] = field(default_factory=dict)

    def add(self, notes: Iterable[Sequence[str]], passed: bool, report: Any) -> None:
        """Add the notes of one test."""
        for suite, file, name, what in notes:
            kernel = self.kernels.setdefault((suite, file, name), _Kernel())
            kernel.seen.add(what)
            if what == "ran" and not passed:
                kernel.failures.append(report.nodeid.rsplit("::", 1)[-1])

    def page(self) -> str:
        """Return the page, in Markdown."""
        parts = [_HEAD]
        for suite in sorted({suite for suite, _, _ in self.kernels}):
            files: dict[str, dict[str, _Kernel]] = {}
            for (owner, file, name), kernel in sorted(self.kernels.items()):
                if owner == suite:
                    files.setdefault(file, {})[name] = kernel
            rows = [_row(file, kernels) for file, kernels in files.items()]
            table = [
                "| file | found | compiled | run | matching | not run, or not matching |",
                "|---|---|---|---|---|---|",
            ]
            parts.append("\n".join([f"## {suite}\n", *table, *rows]) + "\n")
        return "\n".join(parts)


def _row(file: str, kernels: dict[str, _Kernel]) -> str:
    compiled = [name for name, kernel in kernels.items() if kernel.seen & {"compiled", "ran"}]
    ran = [name for name, kernel in kernels.items() if "ran" in kernel.seen]
    misses: dict[str, list[str]] = {}
    for name, kernel in kernels.items():
        if kernel.failures:
            misses.setdefault(f"fails in `{kernel.failures[0]}`", []).append(name)
        elif name not in compiled:
            misses.setdefault("no test compiles", []).append(name)
        elif name not in ran:
            misses.setdefault("no test launches", []).append(name)
    listed = "; ".join(
        f"{cause}: {', '.join(f'`{name}`' for name in names)}" for cause, names in misses.items()
    )
    matching = sum(1 for name in ran if not kernels[name].failures)
    return f"| `{file}` | {len(kernels)} | {len(compiled)} | {len(ran)} | {matching} | {listed} |"
