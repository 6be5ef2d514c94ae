"""The engine: LLVM IR of a kernel goes in, a running grid of threads comes out."""

from metalwright.engine.launch import Program, load
from metalwright.engine.types import (
    Buffer,
    KernelSignature,
    LaunchReport,
    LogLine,
    Module,
    Parameter,
    Scalar,
    Texture,
    ThreadgroupVariable,
)

__all__ = [
    "Buffer",
    "KernelSignature",
    "LaunchReport",
    "LogLine",
    "Module",
    "Parameter",
    "Program",
    "Scalar",
    "Texture",
    "ThreadgroupVariable",
    "load",
]
