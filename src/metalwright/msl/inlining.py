"""Functions that nobody wrote have no ``always_inline``: the constructor of ``struct P { int x = 3; };``.

Everything becomes part of the kernel, so what clang left is inlined by a second run over the IR, with the attribute
on every function. Rare, so most kernels do not pay for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from metalwright import toolchain
from metalwright.engine import builder

_DEFINITION_GROUP = re.compile(r"^define\b[^\n]*\) [^\n]*?#(\d+)\b", re.MULTILINE)
_GROUP = re.compile(r"^attributes #(\d+) = \{ (.*) \}$", re.MULTILINE)


def inline_all(ir: str, label: str, optimise: Sequence[str] = ()) -> str:
    """Return the IR with every call of a function that it defines inlined, but for recursive ones.

    ``optimise`` are options of clang with which the whole is then optimised.
    """
    groups = set(_DEFINITION_GROUP.findall(ir))

    def marked(match: re.Match[str]) -> str:
        words = match[2].split()
        if match[1] not in groups or "alwaysinline" in words:
            return match[0]
        kept = " ".join(word for word in words if word not in ("noinline", "optnone"))
        return f"attributes #{match[1]} = {{ alwaysinline {kept} }}"

    ir = _GROUP.sub(marked, ir)
    if not optimise:
        return builder.inline(ir, label)
    done = toolchain.clang(["-x", "ir", *optimise, "-w", "-S", "-emit-llvm", "-o", "-"], ir.encode())
    # what clang wrote it also reads; if not, the verifier says what was left
    return done.output.decode() if done.ok else ir
