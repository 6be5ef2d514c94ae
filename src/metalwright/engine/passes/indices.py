"""Constant indices that are out of range, kept from LLVM's eyes until the checks are in.

The pass that moves variables to registers takes an access that lies outside its variable for one that never happens,
and leaves poison where its value was used: the program then does anything. Such a program is compiled again with
indices that the pass cannot see through, so the access stays in memory and the check that belongs to it finds it.
"""

from __future__ import annotations

import re

from metalwright.engine.passes import text

_GEP = re.compile(
    rf"^(?P<indent>\s*){text.NAME} = getelementptr (?P<flags>(?:inbounds |nuw |nusw )*)(?P<rest>.*)$"
)
_INDEX = re.compile(rf", i64 (?!0\b)(?P<value>-?\d+|{text.NAME})")
_IN_ARRAY = re.compile(r" \[(\d+) x [^\]]+\], ptr \S+, i64 0, i64 (-?\d+)\b")
_NOTHING = re.compile(r"\bpoison\b")
# aggregates and vectors are built from nothing, one element at a time
_BUILT_FROM_NOTHING = re.compile(
    r"= (?:insertvalue|insertelement|shufflevector|freeze) |^\s*(?:;|#dbg_|!|declare|attributes)"
)


def uses_of_nothing(lines: list[str]) -> int:
    """Return how many instructions take a value that no instruction has made."""
    return sum(
        1 for line in lines if _NOTHING.search(line) is not None and _BUILT_FROM_NOTHING.search(line) is None
    )


def leaves_an_array(lines: list[str]) -> bool:
    """Whether an index that is written as a number lies outside its array."""
    for line in lines:
        if " = getelementptr " in line:
            for size, index in _IN_ARRAY.findall(line):
                if not 0 <= int(index) < int(size):
                    return True
    return False


def hidden(lines: list[str]) -> list[str]:
    """Return the program with every index of an array behind a ``freeze``."""
    out: list[str] = []
    count = 0
    for line in lines:
        match = _GEP.match(line) if " = getelementptr " in line else None
        if match is None:
            out.append(line)
            continue

        def name(index: re.Match[str], indent: str = match["indent"]) -> str:
            nonlocal count
            count += 1
            out.append(f"{indent}%mw.index{count} = freeze i64 {index['value']}")
            return f", i64 %mw.index{count}"

        rest = _INDEX.sub(name, match["rest"])
        head = line[: match.start("flags")]
        out.append(line if rest == match["rest"] else f"{head}{rest}")
    return out
