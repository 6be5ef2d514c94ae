"""What a rule is, and what one finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from metalwright.errors import Site, excerpt_lines

if TYPE_CHECKING:
    from metalwright.lint.subject import Subject

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Hit:
    """A place where a rule is broken; ``severity`` replaces the rule's own."""

    message: str
    site: Site | None
    excerpt: str | None = None
    severity: Severity | None = None


@dataclass(frozen=True)
class Rule:
    """One pitfall, and how it is found without running a kernel.

    ``id`` is MW1xx for what stands in the MSL, MW2xx for launch sizes and cases, MW3xx for the PyTorch reference
    and the module around the kernel. ``bad`` is a Python file that breaks the rule and ``good`` the same one
    repaired, both without the imports of :data:`metalwright.lint.page.IMPORTS`.
    """

    id: str
    title: str
    severity: Severity
    explanation: str
    bad: str
    good: str
    fix: str
    find: Callable[[Subject], Iterator[Hit]]


@dataclass(frozen=True)
class LintFinding:
    """A broken rule in a kernel.

    ``site`` is a line of the kernel's MSL as other messages count it (``name.src:3``) or of the Python file;
    ``python`` is the same place in the Python file that the MSL is written in, where that is known.
    """

    rule: str
    severity: Severity
    kernel: str
    message: str
    site: Site | None = None
    excerpt: str | None = None
    python: Site | None = None

    def render(self) -> str:
        """Return the finding as text: site, rule, sentence, excerpt and caret."""
        where = f"{self.site}: " if self.site else ""
        head = f"{where}{self.severity} {self.rule}: {self.message}"
        return "\n".join([head, *excerpt_lines(self.site, self.excerpt)])

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as dicts, strings and numbers."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "kernel": self.kernel,
            "message": self.message,
            "site": _plain(self.site),
            "excerpt": self.excerpt,
            "python": _plain(self.python),
        }


def _plain(site: Site | None) -> dict[str, Any] | None:
    return None if site is None else {"file": site.file, "line": site.line, "column": site.column}
