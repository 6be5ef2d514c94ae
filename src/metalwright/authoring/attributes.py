"""The attributes that a parameter of an MSL compute kernel may carry, and the types each allows."""

from __future__ import annotations

import re

from metalwright.msl.attributes import SCALAR_ATTRIBUTES, VECTOR_ATTRIBUTES

# attribute -> how many components its parameter may have
ATTRIBUTES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(VECTOR_ATTRIBUTES, (1, 2, 3)),
    **dict.fromkeys(SCALAR_ATTRIBUTES, (1,)),
}

_SPELLINGS = {
    "ushort": "ushort", "uint": "uint", "uint16_t": "ushort", "uint32_t": "uint", "unsigned": "uint",
    "unsigned int": "uint", "unsigned short": "ushort",
}  # fmt: skip
_VECTOR = re.compile(r"vec<(.+),([234])>\Z")
_SHORT_VECTOR = re.compile(r"(ushort|uint)([234])\Z")


def components(dtype: str) -> int | None:
    """Return how many components an unsigned type has (``"uint3"`` and ``"vec<uint, 3>"``: 3), else ``None``."""
    spelling = " ".join(dtype.replace("metal::", "").split())
    spelling = spelling.removeprefix("const ").removesuffix(" const")
    if spelling in _SPELLINGS:
        return 1
    if match := _SHORT_VECTOR.match(spelling):
        return int(match[2])
    if (match := _VECTOR.match(spelling.replace(" ", ""))) and match[1] in ("ushort", "uint"):
        return int(match[2])
    return None


def allowed_types(attribute: str) -> str:
    """Return the types of ``attribute`` as prose: ``"uint or ushort"``, with vectors where it has them."""
    if ATTRIBUTES[attribute] == (1,):
        return "uint or ushort"
    return "uint, uint2, uint3, ushort, ushort2 or ushort3"


def parameter_problem(dtype: object, attribute: object) -> str | None:
    """Say what is wrong with a parameter ``dtype name [[attribute]]``, or return ``None``."""
    if not isinstance(attribute, str) or attribute not in ATTRIBUTES:
        return f"unknown attribute {attribute!r}; a compute kernel has {', '.join(sorted(ATTRIBUTES))}"
    count = components(dtype) if isinstance(dtype, str) else None
    if count not in ATTRIBUTES[attribute]:
        return f"attribute {attribute!r} has type {allowed_types(attribute)}, got {dtype!r}"
    return None
