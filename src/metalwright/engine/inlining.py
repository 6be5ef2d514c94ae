"""Calls of a program's own functions, inlined: everything becomes part of the kernel.

Functions have their variables in registers before they are copied. Each copy is then several times smaller, and
LLVM leaves out the branches that the arguments of a call rule out: ``if (transposed)`` in a function that is called
with ``false``. Kernels that are built from many small templates are a tenth of the code that way.

This runs in the process of ``builder``.
"""

from __future__ import annotations

import llvmlite.binding as llvm

from metalwright.engine import registers
from metalwright.engine.outside import writes_outside
from metalwright.engine.passes import indices
from metalwright.engine.target import target_machine


def inlined(ir: str, label: str) -> str:
    """Return the IR with every call of a function marked ``alwaysinline`` replaced by the function.

    What LLVM knows to be wrong, an index past a variable's end or a division by zero, it takes for something that
    never happens. The checks have to see it: such a program is inlined as it was written.
    """
    if not indices.leaves_an_array(ir.splitlines()) and not writes_outside(ir, label):
        parsed = registers.parse(ir, label)
        registers.promote(parsed)
        if _makes_sense(parsed):
            _inline(parsed)
            if _makes_sense(parsed):
                return str(parsed)
    parsed = registers.parse(ir, label)
    _inline(parsed)
    return str(parsed)


def _makes_sense(parsed: llvm.ModuleRef) -> bool:
    return indices.uses_of_nothing(str(parsed).splitlines()) == 0


def _inline(parsed: llvm.ModuleRef) -> None:
    builder = llvm.create_pass_builder(target_machine(), llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.run(parsed, builder)
