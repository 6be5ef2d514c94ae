"""Every exception that Metalwright raises, under one root.

Each class also derives from the built-in that a caller would expect (``ValueError`` for a bad value,
``TypeError`` for a bad type), so code written against ``coreai_torch`` keeps catching what it caught.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Site:
    """A place in MSL: the file as the user knows it, a 1-based line and a 1-based column (0: unknown)."""

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Diagnostic:
    """One thing the compiler has to say about the user's MSL.

    ``severity`` is ``"error"``, ``"warning"`` or ``"note"``; ``excerpt`` is the line of the user's source.
    """

    severity: str
    message: str
    site: Site | None = None
    excerpt: str | None = None

    def render(self) -> str:
        """Return the diagnostic as text: site, sentence, excerpt and caret."""
        head = (
            f"{self.site}: {self.severity}: {self.message}"
            if self.site
            else f"{self.severity}: {self.message}"
        )
        return "\n".join([head, *excerpt_lines(self.site, self.excerpt)])


@dataclass(frozen=True)
class Related:
    """Another place that a finding is about, such as the other access of a race: what happened there, and its line."""

    text: str
    site: Site | None = None
    excerpt: str | None = None

    def render(self) -> str:
        """Return it as text: site, sentence, excerpt and caret."""
        head = f"{self.site}: {self.text}" if self.site else self.text
        return "\n".join([head, *excerpt_lines(self.site, self.excerpt)])


def excerpt_lines(site: Site | None, excerpt: str | None) -> list[str]:
    """Return the source line and, where the column is known, a caret under it."""
    if site is None or not excerpt:
        return []
    lines = [f"    {excerpt}"]
    if site.column:
        # keep tabs, so that the caret stands under its column in any terminal
        lead = "".join("\t" if character == "\t" else " " for character in excerpt[: site.column - 1])
        lines.append(f"    {lead}^")
    return lines


class MetalwrightError(Exception):
    """Root of everything that Metalwright raises on purpose. Each can be pickled, to cross between processes."""

    def __reduce__(self) -> tuple[Any, ...]:
        # the subclasses' constructors take other arguments than the message that they make of them
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[MetalwrightError], args: tuple[Any, ...], state: dict[str, Any]) -> MetalwrightError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ToolchainError(MetalwrightError, RuntimeError):
    """The compiler, LLVM or another installed part is missing or does not fit; says what to install."""


class KernelDefinitionError(MetalwrightError, ValueError):
    """A kernel cannot be defined this way: names, templates, number of parameters."""


class KernelSignatureError(MetalwrightError, TypeError):
    """A kernel's PyTorch reference has a signature that cannot be used."""


class ArgumentError(MetalwrightError, ValueError):
    """An argument of a launch does not fit the kernel: dtype, rank, device, layout, value, result shape."""


class DispatchError(MetalwrightError, ValueError):
    """Launch sizes that no GPU accepts."""


class CompileError(MetalwrightError):
    """The MSL does not compile. ``diagnostics`` holds each message with its site in the user's source."""

    def __init__(self, kernel: str, diagnostics: tuple[Diagnostic, ...]) -> None:
        self.kernel = kernel
        self.diagnostics = diagnostics
        super().__init__(
            "\n".join([f"kernel {kernel!r} does not compile", *(d.render() for d in diagnostics)])
        )


class UnsupportedFeatureError(CompileError):
    """The MSL uses a feature of the language that Metalwright does not run."""


class RefusedSourceError(CompileError):
    """The MSL reaches outside a kernel: outside functions, inline assembly, files outside the include roots."""


class KernelFault(MetalwrightError):
    """A kernel did something wrong while it ran in checked mode; ``site`` says where in the MSL.

    ``excerpt`` is that line, ``summary`` the message without it.
    ``log`` holds the lines that its threads had written with ``os_log`` by then.
    """

    log: tuple[Any, ...] = ()

    def __init__(
        self,
        message: str,
        *,
        kernel: str,
        site: Site | None = None,
        excerpt: str | None = None,
        thread: tuple[int, int, int] | None = None,
    ) -> None:
        self.kernel = kernel
        self.site = site
        self.excerpt = excerpt
        self.thread = thread
        where = f"{site}: " if site else ""
        by = f", by the thread at {thread} in the grid" if thread is not None else ""
        self.summary = f"kernel {kernel!r}: {where}{message}{by}"
        super().__init__("\n".join([self.summary, *excerpt_lines(site, excerpt)]))


class MemoryFault(KernelFault):
    """An access outside every buffer, threadgroup array, private array or constant that the thread may touch."""


class BarrierFault(KernelFault):
    """Threads of one threadgroup did not all meet the same barrier."""


class KernelTimeout(KernelFault):
    """The kernel was stopped: it ran longer than it was allowed to."""


class ArtifactError(MetalwrightError):
    """An ``.aimodel`` cannot be written or read."""
