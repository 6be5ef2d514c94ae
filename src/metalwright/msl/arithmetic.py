"""Arithmetic that gives anything: clang's own checks of it, as calls of the engine.

Shifts by the width or more, signed sums and products that do not fit, and floats that the integer they are turned into
does not hold are undefined in MSL as in C++. clang finds them as it does for other programs; it has no such checks for
vectors.
"""

from __future__ import annotations

import re

OPTIONS = ("-fsanitize=shift,signed-integer-overflow,float-cast-overflow", "-fsanitize-minimal-runtime")
# what the engine calls each kind, by a part of the name of clang's function
KINDS = {"shift": 0, "add": 1, "sub": 1, "mul": 1, "negate": 1, "divrem": 1, "float": 2}
_CALL = re.compile(r"call void @__ubsan_handle_([a-z]+)_\w+_minimal\(\)(?: #\d+)?")
_DECLARED = re.compile(r"^declare void @__ubsan_handle_\w+_minimal\(\).*\n", re.MULTILINE)


def as_engine_calls(ir: str) -> str:
    """Return IR in which what clang calls for bad arithmetic is the engine's."""
    if not _DECLARED.search(ir):
        return ir
    ir = _CALL.sub(lambda match: f"call void @__mw_number(i32 {KINDS[match.group(1)]}, i32 -1)", ir)
    return _DECLARED.sub("", ir) + "\ndeclare void @__mw_number(i32, i32)\n"
