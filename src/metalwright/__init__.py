"""Write a Metal kernel in Python, run its MSL here, prove it against PyTorch, ship it in a Core AI artifact.

The public names are resolved when they are first used: importing this package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from metalwright.errors import (
    ArgumentError,
    ArtifactError,
    BarrierFault,
    CompileError,
    Diagnostic,
    DispatchError,
    KernelDefinitionError,
    KernelFault,
    KernelSignatureError,
    KernelTimeout,
    MemoryFault,
    MetalwrightError,
    RefusedSourceError,
    Site,
    ToolchainError,
    UnsupportedFeatureError,
)

if TYPE_CHECKING:
    from coreai_torch import MetalParameter

    from metalwright.authoring import MetalKernel, Texture, compile_shader, emulate, launch, metal_kernel
    from metalwright.check import check
    from metalwright.coreai import export, inspect

__version__ = "0.1.0"

_HOMES = {
    "MetalKernel": "metalwright.authoring",
    "MetalParameter": "coreai_torch",
    "Texture": "metalwright.authoring",
    "compile_shader": "metalwright.authoring",
    "emulate": "metalwright.coreai",
    "export": "metalwright.coreai",
    "inspect": "metalwright.coreai",
    "launch": "metalwright.authoring",
    "metal_kernel": "metalwright.authoring",
}
# packages; `check` can be called, too
_PACKAGES = {"check", "coreai"}

__all__ = [
    "ArgumentError",
    "ArtifactError",
    "BarrierFault",
    "CompileError",
    "Diagnostic",
    "DispatchError",
    "KernelDefinitionError",
    "KernelFault",
    "KernelSignatureError",
    "KernelTimeout",
    "MemoryFault",
    "MetalKernel",
    "MetalParameter",
    "MetalwrightError",
    "RefusedSourceError",
    "Site",
    "Texture",
    "ToolchainError",
    "UnsupportedFeatureError",
    "__version__",
    "check",
    "compile_shader",
    "emulate",
    "export",
    "inspect",
    "launch",
    "metal_kernel",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"metalwright.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
