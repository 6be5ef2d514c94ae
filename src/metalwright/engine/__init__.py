"""The engine: LLVM IR of a kernel goes in, a running grid of threads comes out."""

from metalwright.engine.launch import Program, load
from metalwright.engine.types import (
    Access,
    BadNumber,
    Buffer,
    KernelSignature,
    LaunchReport,
    LogLine,
    Module,
    Parameter,
    Race,
    Scalar,
    Seen,
    Texture,
    ThreadgroupVariable,
    Uninitialised,
)

__all__ = [
    "Access",
    "BadNumber",
    "Buffer",
    "KernelSignature",
    "LaunchReport",
    "LogLine",
    "Module",
    "Parameter",
    "Program",
    "Race",
    "Scalar",
    "Seen",
    "Texture",
    "ThreadgroupVariable",
    "Uninitialised",
    "load",
]
