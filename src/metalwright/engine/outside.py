"""Writes outside a private variable that LLVM would drop, found before it does.

Where an index turns out to be a number, the pass that moves variables to registers takes a write outside its variable
for one that never happens, and leaves no trace of it. So a copy of the program is simplified first, in which each
variable is used once more at the end: what is written to it stays, with the distances that LLVM works out.

This runs in the process of ``builder``.
"""

from __future__ import annotations

import re

import llvmlite.binding as llvm

from metalwright.engine import registers
from metalwright.engine.passes import checks, text
from metalwright.engine.target import target_machine

_KEEP = "__mw_keep"
# it reads a variable and tells nobody where that is: other calls still leave it alone
_READS = f"\ndeclare void @{_KEEP}(ptr captures(none), i64) nounwind memory(argmem: read)\n"
_ALLOCA = re.compile(rf"^\s*(?P<result>{text.NAME}) = alloca (?P<rest>.*)$")
_KEPT = re.compile(rf"call void @{_KEEP}\(ptr (?:\w+ )*(?P<variable>{text.NAME}), i64 (?P<bytes>\d+)\)")
_DISTANCE = re.compile(
    rf"^\s*(?P<result>{text.NAME}) = getelementptr (?:inbounds |nuw |nusw )*i8, ptr (?P<variable>{text.NAME}), "
    r"i64 (?P<bytes>-?\d+)(?:, !dbg !\d+)?$"
)
# what one round makes known lets the next forward more values
_ROUNDS = 2
# past this, forwarding values takes LLVM more memory than a machine has: MLX's Rader FFT, at 212,000, took 22 GB
_MOST_LINES = 100_000


def writes_outside(ir: str, label: str) -> bool:
    """Whether a program writes outside a private variable, at a distance that LLVM can work out.

    Programs of very many instructions are not looked at.
    """
    if " = alloca " not in ir or ir.count("\n") > _MOST_LINES:
        return False
    parsed = registers.parse(_kept(ir), label)
    builder = llvm.create_pass_builder(target_machine(), llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_function_pass_manager()
    for _ in range(_ROUNDS):
        passes.add_new_gvn_pass()
        passes.add_instruction_combine_pass()
    for function in parsed.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return any(_leaves(function) for function in str(parsed).split("\ndefine ")[1:])


def _kept(ir: str) -> str:
    """Return the program with a use of every variable, and its size, before each return."""
    out: list[str] = []
    uses: list[str] = []
    for line in ir.split("\n"):
        if line.startswith("define"):
            uses = []
        elif " = alloca " in line and (match := _ALLOCA.match(line)):
            kind, rest = text.take_type(match["rest"])
            if rest.startswith("align") or not rest:
                size = text.size_expression(kind)
                uses.append(f"  call void @{_KEEP}(ptr {match['result']}, i64 {size})")
        elif line.startswith("  ret "):
            out += uses
        out.append(line)
    return "\n".join(out) + _READS


def _leaves(function: str) -> bool:
    sizes = {match["variable"]: int(match["bytes"]) for match in _KEPT.finditer(function)}
    places = {variable: (variable, 0) for variable in sizes}
    for line in function.split("\n"):
        if (match := _DISTANCE.match(line)) and match["variable"] in sizes:
            places[match["result"]] = match["variable"], int(match["bytes"])
            continue
        for access in checks.accesses(line):
            variable, at = places.get(access.pointer, ("", 0))
            size = int(access.size) if access.size.isdigit() else 1
            if variable and access.write and not 0 <= at <= sizes[variable] - size:
                return True
    return False
