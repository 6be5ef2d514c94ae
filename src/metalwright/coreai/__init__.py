"""Core AI artifacts: writing an ``.aimodel`` and reading what is in one."""

import metalwright.authoring  # noqa: F401 - before coreai_torch: it silences a false warning of that package
from metalwright.coreai.artifact import Artifact, Function, Kernel, Operand, Parameter, TensorInfo
from metalwright.coreai.export import export
from metalwright.coreai.inspect import inspect
from metalwright.coreai.model import Model, ModelFunction, load

__all__ = [
    "Artifact",
    "Function",
    "Kernel",
    "Model",
    "ModelFunction",
    "Operand",
    "Parameter",
    "TensorInfo",
    "export",
    "inspect",
    "load",
]
