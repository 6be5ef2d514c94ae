"""Seeing the calls of every ``TorchMetalKernel``, also of code that knows nothing of Metalwright.

While at least one handler is active anywhere, ``TorchMetalKernel.__call__`` is replaced. A handler belongs to the
context (thread or task) that pushed it, so code that runs beside it is not disturbed.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from coreai_torch import TorchMetalKernel

from metalwright.authoring import tracing

Handler = Callable[[TorchMetalKernel, Callable[[], Any], tuple[Any, ...], dict[str, Any]], Any]
"""``handler(kernel, proceed, args, kwargs)``; ``proceed()`` is what would happen without the handler."""

_handlers: ContextVar[tuple[Handler, ...]] = ContextVar("metalwright_handlers", default=())
_lock = threading.Lock()
_installed = 0
_original: Callable[..., Any] = TorchMetalKernel.__call__


def push(handler: Handler) -> None:
    """Let ``handler`` see the calls made in this context, before the handlers that are active already."""
    global _installed, _original
    with _lock:
        if _installed == 0 and not getattr(TorchMetalKernel.__call__, "_metalwright", False):
            _original = TorchMetalKernel.__call__
            TorchMetalKernel.__call__ = _patched(_original)  # type: ignore[method-assign]
        _installed += 1
    _handlers.set((*_handlers.get(), handler))


def pop(handler: Handler) -> None:
    """Undo the latest :func:`push` of ``handler`` in this context."""
    global _installed
    active = list(_handlers.get())
    last = len(active) - 1 - active[::-1].index(handler)
    _handlers.set((*active[:last], *active[last + 1 :]))
    with _lock:
        _installed -= 1
        # if somebody patched on top of us, taking ours out would take theirs too: leave it, it passes calls on
        if _installed == 0 and getattr(TorchMetalKernel.__call__, "_metalwright", False):
            TorchMetalKernel.__call__ = _original  # type: ignore[method-assign]


@contextmanager
def calls(handler: Handler) -> Iterator[None]:
    """Let ``handler`` see the calls made inside the block."""
    push(handler)
    try:
        yield
    finally:
        pop(handler)


def _patched(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: TorchMetalKernel, *args: Any, **kwargs: Any) -> Any:
        if tracing.in_dynamo():  # it reads this function; there is nothing for a handler to see
            return original(self, *args, **kwargs)
        proceed = functools.partial(original, self, *args, **kwargs)
        for handler in _handlers.get():
            proceed = functools.partial(handler, self, proceed, args, kwargs)
        return proceed()

    call._metalwright = True  # type: ignore[attr-defined]
    return call
