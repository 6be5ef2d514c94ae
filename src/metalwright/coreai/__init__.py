"""Core AI artifacts: writing an ``.aimodel``, reading what is in one, and running it.

What needs PyTorch is resolved when it is first used: the process that compiles artifacts does without.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from metalwright.coreai.artifact import Artifact, Function, Kernel, Operand, Parameter, TensorInfo
from metalwright.coreai.inspect import inspect

if TYPE_CHECKING:
    from metalwright.coreai.exporting import export
    from metalwright.coreai.model import Model, ModelFunction, load
    from metalwright.coreai.runtime_emulate import emulate

_HOMES = {
    "Model": "metalwright.coreai.model",
    "ModelFunction": "metalwright.coreai.model",
    "emulate": "metalwright.coreai.runtime_emulate",
    "export": "metalwright.coreai.exporting",
    "load": "metalwright.coreai.model",
}

__all__ = [
    "Artifact",
    "Function",
    "Kernel",
    "Model",
    "ModelFunction",
    "Operand",
    "Parameter",
    "TensorInfo",
    "emulate",
    "export",
    "inspect",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # before coreai_torch: it silences a false warning of that package
    importlib.import_module("metalwright.authoring")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
