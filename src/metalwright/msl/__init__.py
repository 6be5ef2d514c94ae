"""The front-end: MSL text goes in, LLVM IR and kernel signatures come out."""

from metalwright.msl.compiler import CompileOptions, compile_msl
from metalwright.msl.library import Library
from metalwright.msl.program import Section

__all__ = ["CompileOptions", "Library", "Section", "compile_msl"]
