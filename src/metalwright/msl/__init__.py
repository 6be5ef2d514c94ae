"""The front-end: MSL text goes in, LLVM IR and kernel signatures come out."""

from metalwright.msl.compiler import CompileOptions, compile_msl
from metalwright.msl.program import Section

__all__ = ["CompileOptions", "Section", "compile_msl"]
