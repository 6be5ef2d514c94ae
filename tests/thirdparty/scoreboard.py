"""The page that says which of other projects' kernels run here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

_HEAD = """# Other projects' kernels

Kernels that were written for a GPU by others, compiled and run here as they are, each compared with PyTorch or NumPy
on small shapes, ragged ones among them. Found: the kernels that a file defines. Compiled: at least one instantiation
compiles. Run: at least one was launched by a test. Tried: the instantiations that were launched, which differ in
template arguments or function constants. Matching: those of which a launch gave what the reference gives, and none
anything else. Stopped: those that checked mode stopped in some launch, for a fault of the kernel's own such as a read
past the end of a buffer; where no launch went through, the instantiation does not match. No GPU was asked.

This page is written by

```sh
METALWRIGHT_THIRDPARTY=1 python -m pytest tests/thirdparty -n 2 --scoreboard docs/reference/scoreboard.md
```
"""


_TABLE = """| file | found | compiled | run | tried | matching | stopped | not run, stopped, or not matching |
|---|---|---|---|---|---|---|---|"""


@dataclass
class _Kernel:
    seen: set[str] = field(default_factory=set)
    # instantiation -> how its launches ended: "matched", "stopped", "wrong"
    tried: dict[str, set[str]] = field(default_factory=dict)
    # why a launch did not match, or why there is none
    causes: list[str] = field(default_factory=list)


_Files = dict[str, dict[str, _Kernel]]


@dataclass
class Scoreboard:
    """Collects what tests noted of each kernel."""

    suites: dict[str, _Files] = field(default_factory=dict)

    def add(self, notes: Iterable[Sequence[str]], report: Any, stopped: bool) -> None:
        """Add the notes of one test; ``stopped`` says that it ended with a kernel's fault."""
        for suite, file, name, what, detail in notes:
            kernel = self.suites.setdefault(suite, {}).setdefault(file, {}).setdefault(name, _Kernel())
            kernel.seen.add(what)
            if what == "unsupported":
                kernel.causes.append(f"not supported: {detail}")
            elif what == "ran":
                outcome = "matched" if report.passed else "stopped" if stopped else "wrong"
                kernel.tried.setdefault(detail, set()).add(outcome)
                if not report.passed:
                    kernel.causes.append(_cause(report))

    def page(self) -> str:
        """Return the page, in Markdown."""
        return "\n".join([_HEAD, *(_section(suite, files) for suite, files in sorted(self.suites.items()))])


def _cause(report: Any) -> str:
    # an expected failure tells its reason
    return getattr(report, "wasxfail", "") or f"fails in `{report.nodeid.rsplit('::', 1)[-1]}`"


def _outcomes(kernels: Iterable[_Kernel]) -> tuple[int, int, int]:
    """Return how many instantiations were tried, how many match, and how many checked mode stopped."""
    tried = [outcomes for kernel in kernels for outcomes in kernel.tried.values()]
    matching = sum("matched" in outcomes and "wrong" not in outcomes for outcomes in tried)
    return len(tried), matching, sum("stopped" in outcomes for outcomes in tried)


def _section(suite: str, files: _Files) -> str:
    tried, matching, stopped = _outcomes(kernel for kernels in files.values() for kernel in kernels.values())
    summary = (
        f"Of {tried} instantiations tried, {matching} match; checked mode stopped {stopped} in some launch."
    )
    rows = "\n".join(_row(file, kernels) for file, kernels in sorted(files.items()))
    return f"## {suite}\n\n{summary}\n\n{_TABLE}\n{rows}\n"


def _row(file: str, kernels: dict[str, _Kernel]) -> str:
    misses: dict[str, list[str]] = {}
    for name, kernel in sorted(kernels.items()):
        if kernel.causes:
            for cause in dict.fromkeys(kernel.causes):
                misses.setdefault(cause, []).append(name)
        elif not kernel.seen & {"compiled", "ran"}:
            misses.setdefault("no test compiles", []).append(name)
        elif "ran" not in kernel.seen:
            misses.setdefault("no test launches", []).append(name)
    listed = "; ".join(
        f"{cause}: {', '.join(f'`{name}`' for name in names)}" for cause, names in misses.items()
    )
    compiled = sum(1 for kernel in kernels.values() if kernel.seen & {"compiled", "ran"})
    ran = sum(1 for kernel in kernels.values() if "ran" in kernel.seen)
    numbers = (len(kernels), compiled, ran, *_outcomes(kernels.values()))
    return f"| `{file}` | {' | '.join(map(str, numbers))} | {listed} |"
