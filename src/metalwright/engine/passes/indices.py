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
# the first index steps from element to element; of the others those of i32 are numbers of a struct's members
_INDEX = re.compile(rf"(?P<before>ptr {text.NAME}, i32 |, i64 )(?!0\b)(?P<value>-?\d+|{text.NAME})")
_IN_ARRAY = re.compile(r" \[(\d+) x [^\]]+\], ptr \S+, i64 0, i64 (-?\d+)\b")
_ALLOCA = re.compile(rf"^\s*(?P<result>{text.NAME}) = alloca (?P<rest>.*)$")
# an address that is so many elements away from another, the second index within an array
_STEP = re.compile(
    rf"^\s*(?P<result>{text.NAME}) = getelementptr (?:inbounds |nuw |nusw )*(?P<type>\w+|\[[^\]]*\]|<[^>]*>), "
    rf"ptr (?P<pointer>{text.NAME}), i(?:32|64) (?P<index>-?\d+)(?:, i(?:32|64) (?P<within>-?\d+))?(?:, !dbg !\d+)?$"
)
_ARRAY = re.compile(r"\[\d+ x (?P<element>[^\[\]]+)\]$")
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
    """Whether an index that is written as a number lies outside its array or private variable."""
    inside: dict[str, tuple[int, int]] = {}  # pointers into variables: how far, and the variable's size
    for line in lines:
        if line.startswith("define"):
            inside.clear()
        elif " = alloca " in line:
            if (match := _ALLOCA.match(line)) and (size := _bytes(text.take_type(match["rest"])[0])):
                inside[match["result"]] = (0, size)
        elif " = getelementptr " in line:
            for count, index in _IN_ARRAY.findall(line):
                if not 0 <= int(index) < int(count):
                    return True
            if (match := _STEP.match(line)) is None or match["pointer"] not in inside:
                continue
            at, size = inside[match["pointer"]]
            element = _bytes(match["type"])
            if match["within"] is not None:
                array = _ARRAY.match(match["type"])
                at += int(match["within"]) * (_bytes(array["element"]) if array else 0)
            at += int(match["index"]) * element
            if not 0 <= at < size:
                return True
            if element:
                inside[match["result"]] = (at, size)
    return False


def _bytes(type_name: str) -> int:
    """Return the size of a type, or 0 where it is not known."""
    try:
        return text.store_bytes(type_name)
    except (ValueError, KeyError):
        return 0


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
            kind = index["before"].split()[-1]
            out.append(f"{indent}%mw.index{count} = freeze {kind} {index['value']}")
            return f"{index['before']}%mw.index{count}"

        rest = _INDEX.sub(name, match["rest"])
        head = line[: match.start("flags")]
        out.append(line if rest == match["rest"] else f"{head}{rest}")
    return out
