"""The parameters of a kernel, read from its embedded MSL."""

from __future__ import annotations

import re

from metalwright.coreai.artifact import Parameter

_OPENING, _CLOSING = "(<[{", ")>]}"
_PARAMETER = re.compile(
    r"(?P<type>.+?)\s*\b(?P<name>[A-Za-z_]\w*)\s*\[\[(?P<attribute>.+)\]\]\s*\Z", re.DOTALL
)


def parameters(source: str, kernel: str) -> tuple[Parameter, ...]:
    """Return the parameters of the function ``kernel``, in order; none if the text has no such function."""
    head = re.search(rf"\[\[kernel\]\]\s+void\s+{re.escape(kernel)}\s*\(", source)
    if head is None:
        return ()
    found = (_PARAMETER.match(text.strip()) for text in _split(source, head.end()))
    return tuple(
        Parameter(m["name"], " ".join(m["type"].split()), m["attribute"].strip()) for m in found if m
    )


def _split(source: str, start: int) -> list[str]:
    """Split the parameter list that begins at ``start`` at the commas outside all brackets."""
    pieces: list[str] = []
    depth, begin = 0, start
    for position in range(start, len(source)):
        character = source[position]
        if depth == 0 and character in ",)":
            pieces.append(source[begin:position])
            begin = position + 1
            if character == ")":
                break
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
    return pieces
