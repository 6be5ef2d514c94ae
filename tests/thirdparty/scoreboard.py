"""The page that says which of other projects' kernels run here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

_HEAD = """# Other projects' kernels

Kernels that were written for a GPU by others, compiled and run here as they are, each compared with PyTorch or NumPy
on small shapes, ragged ones among them. Found: the kernels that a file defines. Compiled: at least one instantiation
compiles. Run: at least one was launched by a test. Tried: the instantiations that were launched, which differ in
template arguments or function constants. Matching: those whose every launch gave what the reference gives. No GPU was
asked.

This page is written by

```sh
METALWRIGHT_THIRDPARTY=1 python -m pytest tests/thirdparty -n 2 --scoreboard docs/reference/scoreboard.md
```
"""


_TABLE = """| file | found | compiled | run | tried | matching | not run, or not matching |
|---|---|---|---|---|---|---|"""


@dataclass
class _Kernel:
    seen: set[str] = field(default_factory=set)
    # instantiation -> whether every launch of it matched
    tried: dict[str, bool] = field(default_factory=dict)
    # why a launch did not match, or why there is none
    causes: list[str] = field(default_factory=list)


_Files = dict[str, dict[str, _Kernel]]


@dataclass
class Scoreboard:
    """Collects what tests noted of each kernel."""

    suites: dict[str, _Files] = field(default_factory=dict)

    def add(self, notes: Iterable[Sequence[str]], report: Any) -> None:
        """Add the notes of one test."""
        for suite, file, name, what, detail in notes:
            kernel = self.suites.setdefault(suite, {}).setdefault(file, {}).setdefault(name, _Kernel())
            kernel.seen.add(what)
            if what == "unsupported":
                kernel.causes.append(f"not supported: {detail}")
            elif what == "ran":
                kernel.tried[detail] = kernel.tried.get(detail, True) and report.passed
                if not report.passed:
                    kernel.causes.append(_cause(report))

    def page(self) -> str:
        """Return the page, in Markdown."""
        return "\n".join([_HEAD, *(_section(suite, files) for suite, files in sorted(self.suites.items()))])


def _cause(report: Any) -> str:
    # an expected failure tells its reason
    return getattr(report, "wasxfail", "") or f"fails in `{report.nodeid.rsplit('::', 1)[-1]}`"


def _section(suite: str, files: _Files) -> str:
    outcomes = [
        outcome
        for kernels in files.values()
        for kernel in kernels.values()
        for outcome in kernel.tried.values()
    ]
    matching = f"Of {len(outcomes)} instantiations tried, {sum(outcomes)} match."
    rows = "\n".join(_row(file, kernels) for file, kernels in sorted(files.items()))
    return f"## {suite}\n\n{matching}\n\n{_TABLE}\n{rows}\n"


def _row(file: str, kernels: dict[str, _Kernel]) -> str:
    misses: dict[str, list[str]] = {}
    for name, kernel in sorted(kernels.items()):
        if kernel.causes:
            misses.setdefault(kernel.causes[0], []).append(name)
        elif not kernel.seen & {"compiled", "ran"}:
            misses.setdefault("no test compiles", []).append(name)
        elif "ran" not in kernel.seen:
            misses.setdefault("no test launches", []).append(name)
    listed = "; ".join(
        f"{cause}: {', '.join(f'`{name}`' for name in names)}" for cause, names in misses.items()
    )
    compiled = sum(1 for kernel in kernels.values() if kernel.seen & {"compiled", "ran"})
    ran = sum(1 for kernel in kernels.values() if "ran" in kernel.seen)
    outcomes = [outcome for kernel in kernels.values() for outcome in kernel.tried.values()]
    numbers = (len(kernels), compiled, ran, len(outcomes), sum(outcomes))
    return f"| `{file}` | {' | '.join(map(str, numbers))} | {listed} |"
