"""``emulate("mlx")``: kernels of ``mx.fast.metal_kernel`` run here, also where MLX has no GPU.

While an emulation is active anywhere, ``mx.fast.metal_kernel`` is replaced. What it makes in a context (thread or
task) where none is active is MLX's own kernel.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from metalwright.authoring.mlx.kernel import CustomKernel, metal_kernel
from metalwright.authoring.registry import Options, Target, register
from metalwright.authoring.replacing import Replacement, Replacing
from metalwright.errors import ToolchainError
from metalwright.msl import CompileOptions


class EmulatedKernel:
    """A kernel made while MLX is emulated: its MSL runs here while that lasts, and by MLX at any other time."""

    def __init__(self, kernel: CustomKernel, make: Callable[[], Any]) -> None:
        self._kernel = kernel
        self._make = make

    def __call__(self, **call: Any) -> list[Any]:
        """Take the arguments of :meth:`CustomKernel.__call__`."""
        options = _replacing.active()
        if options is None:
            return self._theirs(**call)
        return self._kernel.variant(_options(self._kernel, options), library="mlx")(**call)

    def __repr__(self) -> str:
        return f"<EmulatedKernel {self._kernel.name}>"

    @functools.cached_property
    def _theirs(self) -> Callable[..., list[Any]]:
        return self._make()


def _fast() -> Any:
    try:
        return importlib.import_module("mlx.core").fast
    except ImportError as error:
        raise ToolchainError(
            f"emulate('mlx'): MLX is installed but cannot be imported ({error}); on Linux it needs a back-end: "
            "pip install 'mlx[cpu]'"
        ) from error


def _metal_kernel(
    options: Options, original: Callable[..., Any], *args: Any, **kwargs: Any
) -> EmulatedKernel:
    return EmulatedKernel(metal_kernel(*args, **kwargs), functools.partial(original, *args, **kwargs))


def _options(kernel: CustomKernel, options: Options) -> CompileOptions:
    # a kernel that asks for fast math keeps it
    fast = "fast" in (options.math_mode, kernel.options.math_mode)
    return CompileOptions("fast" if fast else "safe", options.checked, recursion=options.recursion)


_replacing = Replacing("mlx", lambda: (Replacement(_fast(), "metal_kernel", _metal_kernel),))
register(Target(name="mlx", package="mlx", begin=_replacing.begin, end=_replacing.end))
