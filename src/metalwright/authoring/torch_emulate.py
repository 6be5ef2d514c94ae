"""``emulate("torch")``: ``torch.mps.compile_shader`` compiles for this CPU, and its kernels take CPU tensors.

While it is active anywhere, the functions of :mod:`torch.mps` that such code calls are replaced. The options belong to
the context (thread or task) that began it; in any other, the functions do what they did.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.mps

from metalwright.authoring import shader
from metalwright.authoring.registry import Options, Target, register
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

_active: ContextVar[tuple[Options, ...]] = ContextVar("metalwright_mps", default=())
_lock = threading.Lock()
_begun = 0
_ABSENT = object()


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
    hidden = {__file__, torch.mps.__file__}
    while frame is not None and frame.f_code.co_filename in hidden:
        frame = frame.f_back
    return f"<shader at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}>" if frame else "<shader>"


def _compile_shader(options: Options, source: str) -> EmulatedLibrary:
    return compile_shader(source, options, _called_from())


def _synchronize(options: Options) -> None:
    """Return at once: a kernel has written its results when its call returns."""


# the last serves code that took `from torch.mps import compile_shader` before: it looks there for the compiler
_REPLACED: tuple[tuple[ModuleType, str, Callable[..., Any]], ...] = (
    (torch.mps, "compile_shader", _compile_shader),
    (torch.mps, "synchronize", _synchronize),
    (torch._C, "_mps_compileShader", _compile_shader),
)
_originals: dict[tuple[str, str], Any] = {}


def begin(options: Options) -> None:
    """Emulate in this context, before what is emulated there already."""
    global _begun
    with _lock:
        if _begun == 0:
            for owner, name, replacement in _REPLACED:
                current = getattr(owner, name, _ABSENT)
                if getattr(current, "_metalwright", False):
                    continue  # it stayed, because somebody had patched on top of it
                _originals[owner.__name__, name] = current
                setattr(owner, name, _dispatching(current, replacement))
        _begun += 1
    _active.set((*_active.get(), options))


def end(options: Options) -> None:
    """Undo the latest :func:`begin` with these options in this context."""
    global _begun
    active = list(_active.get())
    last = len(active) - 1 - active[::-1].index(options)
    _active.set((*active[:last], *active[last + 1 :]))
    with _lock:
        _begun -= 1
        if _begun:
            return
        for owner, name, _ in _REPLACED:
            # taking ours out from under somebody's patch would take theirs too: leave it, it passes calls on
            if not getattr(getattr(owner, name, None), "_metalwright", False):
                continue
            original = _originals[owner.__name__, name]
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


def _dispatching(original: Any, replacement: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if active := _active.get():
            return replacement(active[-1], *args, **kwargs)
        if original is _ABSENT:
            raise RuntimeError("MPS is not available")
        return original(*args, **kwargs)

    if original is not _ABSENT:
        functools.update_wrapper(call, original)
    call._metalwright = True  # type: ignore[attr-defined]
    return call


register(Target(name="torch", package="torch", begin=begin, end=end))
