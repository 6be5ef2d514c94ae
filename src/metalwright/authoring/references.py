"""Running kernels' references in place of their MSL, as PyTorch would without Metalwright."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from coreai_torch import TorchMetalKernel

from metalwright.authoring import intercept, reference, tracing

Note = Callable[[TorchMetalKernel, tuple[Any, ...]], None]
"""``note(kernel, args)``, before the reference runs."""

_note: ContextVar[Note | None] = ContextVar("metalwright_references", default=None)


@contextmanager
def instead_of_msl(note: Note) -> Iterator[None]:
    """Let every kernel that is called in the block, in this context, run its reference; ``note`` sees the calls."""

    def plain(kernel: TorchMetalKernel, proceed: Callable[[], Any], args: tuple[Any, ...], _: Any) -> Any:
        return proceed() if tracing.is_traced(args) else run(kernel, args, note)

    token = _note.set(note)
    try:
        with intercept.calls(plain):
            yield
    finally:
        _note.reset(token)


def wanted() -> Note | None:
    """Return the note of the block that this call is in, if it is in one."""
    return _note.get()


def run(kernel: TorchMetalKernel, args: tuple[Any, ...], note: Note) -> Any:
    """Run the reference of a kernel."""
    note(kernel, args)
    return reference.of(kernel)(*args)
