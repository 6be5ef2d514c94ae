"""A program of many kernels: each is compiled when it is asked for."""

from __future__ import annotations

from metalwright.engine import KernelSignature, Module
from metalwright.msl import compiler
from metalwright.msl.compiler import CompileOptions, Part
from metalwright.msl.program import Section


class Library:
    """The kernels of a program. All of it is checked at once; where it has many, their code is made one by one."""

    def __init__(self, sections: tuple[Section, ...], options: CompileOptions, label: str) -> None:
        self._source = compiler.prepare(sections, options, label)
        self._first = compiler.compile_source(self._source, Part.FEW_OR_OUTLINE)

    @property
    def label(self) -> str:
        return self._first.label

    @property
    def kernels(self) -> tuple[KernelSignature, ...]:
        return self._first.kernels

    @property
    def unset_constants(self) -> tuple[str, ...]:
        """The function constants that need a value before a kernel can run."""
        return self._first.unset_constants

    def signature(self, name: str) -> KernelSignature:
        """Return the signature of the kernel with this host name.

        Raises:
            KeyError: there is none.
        """
        return self._first.kernel(name)

    def module(self, name: str) -> Module:
        """Return the compiled program that has the code of this kernel."""
        if len(self.kernels) <= compiler.FEW:
            return self._first
        return compiler.compile_source(self._source, name)
