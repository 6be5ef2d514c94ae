"""LLVM's reading of IR, and variables from memory to registers: what the steps of ``builder``'s process share."""

from __future__ import annotations

import llvmlite.binding as llvm

from metalwright.engine.target import target_machine
from metalwright.errors import ToolchainError

# an index that a first round makes constant lets the next take apart what it indexes
_ROUNDS_OF_SROA = 3


def parse(ir: str, label: str, context: llvm.ContextRef | None = None) -> llvm.ModuleRef:
    """Return IR as LLVM has it, for this processor.

    In a context of its own, types keep their names; modules that are to be linked share one.

    Raises:
        ToolchainError: LLVM cannot read it.
    """
    try:
        module = llvm.parse_assembly(ir, context or llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise ToolchainError(
            f"kernel {label!r}: LLVM cannot read its IR; where `metalwright doctor` finds that clang and llvmlite "
            f"match, this is a mistake in Metalwright: {error}"
        ) from error
    module.triple = llvm.get_process_triple()
    module.data_layout = str(target_machine().target_data)
    return module


def promote(module: llvm.ModuleRef) -> None:
    """Move the variables that nothing points to from memory to registers."""
    builder = llvm.create_pass_builder(target_machine(), llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_function_pass_manager()
    for _ in range(_ROUNDS_OF_SROA):
        passes.add_sroa_pass()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
