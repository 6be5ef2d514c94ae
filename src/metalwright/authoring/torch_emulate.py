"""``emulate("torch")``: ``torch.mps.compile_shader`` compiles for this CPU, and its kernels take CPU tensors.

While it is active anywhere, the functions of :mod:`torch.mps` that such code calls are replaced. The options belong to
the context (thread or task) that began it; in any other, the functions do what they did.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.mps

from metalwright.authoring import replacing, shader
from metalwright.authoring.registry import Options, Target, register
from metalwright.authoring.replacing import Replacement, Replacing
from metalwright.engine import KernelSignature
from metalwright.errors import (
    ArgumentError,
    CompileError,
    Diagnostic,
    DispatchError,
    RefusedSourceError,
    UnsupportedFeatureError,
)
from metalwright.msl import Library


class ShaderSyntaxError(CompileError, SyntaxError):
    """What does not compile: PyTorch raises a ``SyntaxError`` whose ``msg`` holds the compiler's words."""

    def __init__(self, kernel: str, diagnostics: tuple[Diagnostic, ...]) -> None:
        super().__init__(kernel, diagnostics)
        self.msg = self.args[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kernel, self.diagnostics)


class UnsupportedShaderError(ShaderSyntaxError, UnsupportedFeatureError):
    """What Metalwright does not run."""


class RefusedShaderError(ShaderSyntaxError, RefusedSourceError):
    """What reaches outside a kernel."""


_SYNTAX_ERRORS: Mapping[type[CompileError], type[ShaderSyntaxError]] = {
    CompileError: ShaderSyntaxError,
    UnsupportedFeatureError: UnsupportedShaderError,
    RefusedSourceError: RefusedShaderError,
}


class ShaderArgumentError(ArgumentError, RuntimeError):
    """An argument that does not fit: PyTorch raises a ``RuntimeError``."""


class ShaderDispatchError(DispatchError, RuntimeError):
    """Launch sizes that no GPU accepts: PyTorch raises a ``RuntimeError``."""


class NoSuchKernelError(AttributeError, RuntimeError):
    """A name that no kernel has: PyTorch raises a ``RuntimeError``, Python expects an ``AttributeError``."""


class EmulatedKernel(shader.ShaderKernel):
    """A kernel whose call raises what PyTorch's raises."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        with _as_pytorch_raises():
            super().__call__(*args, **kwargs)


class EmulatedLibrary(shader.ShaderLibrary):
    """What ``torch.mps.compile_shader`` returns while it is emulated."""

    def _make(self, library: Library, signature: KernelSignature) -> shader.ShaderKernel:
        return EmulatedKernel(library, signature)

    def __getattr__(self, name: str) -> shader.ShaderKernel:
        try:
            with _as_pytorch_raises():
                return super().__getattr__(name)
        except AttributeError as error:
            raise NoSuchKernelError(f"Failed to create function state object for: {name}: {error}") from None


def compile_shader(source: str, options: Options, label: str) -> EmulatedLibrary:
    """Compile with the options of the emulation; PyTorch's own headers can be included."""
    if not isinstance(source, str):
        raise TypeError(f"compile_shader(): expected MSL as str, got {type(source).__name__}")
    with _as_pytorch_raises():
        library = shader.compile_text(
            source,
            label,
            checked=options.checked,
            math_mode=options.math_mode,
            recursion=options.recursion,
        )
    return EmulatedLibrary(library)


@contextmanager
def _as_pytorch_raises() -> Iterator[None]:
    """Turn our errors into such as are PyTorch's too: both kinds of ``except`` catch them."""
    try:
        yield
    except CompileError as error:
        if isinstance(error, SyntaxError):
            raise
        raise _SYNTAX_ERRORS[type(error)](error.kernel, error.diagnostics) from None
    except ArgumentError as error:
        raise ShaderArgumentError(*error.args) from None
    except DispatchError as error:
        raise ShaderDispatchError(*error.args) from None


def _called_from() -> str:
    """Return a name for a source: the place in Python that compiles it."""
    frame: Any = sys._getframe(1)
    hidden = {__file__, replacing.__file__, torch.mps.__file__}
    while frame is not None and frame.f_code.co_filename in hidden:
        frame = frame.f_back
    return f"<shader at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}>" if frame else "<shader>"


def _compile_shader(options: Options, original: Any, source: str) -> EmulatedLibrary:
    return compile_shader(source, options, _called_from())


def _synchronize(options: Options, original: Any) -> None:
    """Return at once: a kernel has written its results when its call returns."""


_NO_MPS = "MPS is not available"
_replacing = Replacing(
    "torch",
    lambda: (
        Replacement(torch.mps, "compile_shader", _compile_shader),
        Replacement(torch.mps, "synchronize", _synchronize),
        # for code that took `from torch.mps import compile_shader` before: it looks here for the compiler
        Replacement(torch._C, "_mps_compileShader", _compile_shader, absent=_NO_MPS),
    ),
)
register(Target(name="torch", package="torch", begin=_replacing.begin, end=_replacing.end))
