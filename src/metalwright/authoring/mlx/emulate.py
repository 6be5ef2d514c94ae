"""``emulate("mlx")``: kernels of ``mx.fast.metal_kernel`` run here, also where MLX has no GPU.

While an emulation is active anywhere, ``mx.fast.metal_kernel`` is replaced. What it makes in a context (thread or
task) where none is active is MLX's own kernel.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from metalwright.authoring.mlx.kernel import CustomKernel, metal_kernel
from metalwright.authoring.registry import Options, Target, register
from metalwright.errors import ToolchainError
from metalwright.msl import CompileOptions

_active: ContextVar[tuple[Options, ...]] = ContextVar("metalwright_mlx", default=())
_lock = threading.Lock()
_installed = 0
_original: Callable[..., Any] | None = None


class EmulatedKernel:
    """A kernel made while MLX is emulated: its MSL runs here while that lasts, and by MLX at any other time."""

    def __init__(self, kernel: CustomKernel, make: Callable[[], Any]) -> None:
        self._kernel = kernel
        self._make = make

    def __call__(self, **call: Any) -> list[Any]:
        """Take the arguments of :meth:`CustomKernel.__call__`."""
        active = _active.get()
        if not active:
            return self._theirs(**call)
        return self._kernel.variant(_options(self._kernel, active[-1]), library="mlx")(**call)

    def __repr__(self) -> str:
        return f"<EmulatedKernel {self._kernel.name}>"

    @functools.cached_property
    def _theirs(self) -> Callable[..., list[Any]]:
        return self._make()


def begin(options: Options) -> None:
    """Emulate MLX in this context, with these options."""
    global _installed, _original
    fast = _fast()
    with _lock:
        if _installed == 0 and not getattr(fast.metal_kernel, "_metalwright", False):
            _original = fast.metal_kernel
            fast.metal_kernel = _patched(fast.metal_kernel)
        _installed += 1
    _active.set((*_active.get(), options))


def end(options: Options) -> None:
    """Undo the latest :func:`begin` with these options in this context."""
    global _installed
    active = list(_active.get())
    last = len(active) - 1 - active[::-1].index(options)
    _active.set((*active[:last], *active[last + 1 :]))
    fast = _fast()
    with _lock:
        _installed -= 1
        # if somebody patched on top of us, taking ours out would take theirs too: leave it, it passes calls on
        if _installed == 0 and getattr(fast.metal_kernel, "_metalwright", False):
            fast.metal_kernel = _original


def _fast() -> Any:
    try:
        return importlib.import_module("mlx.core").fast
    except ImportError as error:
        raise ToolchainError(
            f"emulate('mlx'): MLX is installed but cannot be imported ({error}); on Linux it needs a back-end: "
            "pip install 'mlx[cpu]'"
        ) from error


def _patched(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original, updated=())
    def make(*args: Any, **kwargs: Any) -> Any:
        if not _active.get():
            return original(*args, **kwargs)
        return EmulatedKernel(metal_kernel(*args, **kwargs), functools.partial(original, *args, **kwargs))

    make._metalwright = True  # type: ignore[attr-defined]
    return make


def _options(kernel: CustomKernel, options: Options) -> CompileOptions:
    # a kernel that asks for fast math keeps it
    fast = "fast" in (options.math_mode, kernel.options.math_mode)
    return CompileOptions("fast" if fast else "safe", options.checked, recursion=options.recursion)


register(Target(name="mlx", package="mlx", begin=begin, end=end))
