"""The engine: LLVM IR of a kernel goes in, a running grid of threads comes out."""

from metalwright.engine.launch import Program, load
from metalwright.engine.types import (
    Access,
    Buffer,
    KernelSignature,
    LaunchReport,
    LogLine,
    Module,
    Parameter,
    Race,
    Scalar,
    Texture,
    ThreadgroupVariable,
    Uninitialised,
)

__all__ = [
    "Access",
    "Buffer",
    "KernelSignature",
    "LaunchReport",
    "LogLine",
    "Module",
    "Parameter",
    "Program",
    "Race",
    "Scalar",
    "Texture",
    "ThreadgroupVariable",
    "Uninitialised",
    "load",
]
