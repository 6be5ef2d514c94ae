"""Values of function constants, as C++ that is compiled in their place."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

Value = bool | int | float | Sequence[bool | int | float]

_BITS = {"char": 8, "short": 16, "int": 32, "long": 64}
_FLOATS = {"half", "bfloat", "float"}
_SPELLINGS = {f"{prefix}int{bits}_t": (prefix, bits) for prefix in ("", "u") for bits in (8, 16, 32, 64)}
_VECTOR = re.compile(
    r"(?:metal::)?(?:vec<(?P<element>\w+),(?P<count>[234])>|(?P<word>[a-z]+)(?P<lanes>[234])?)$"
)


def initializer(kind: str, value: Value) -> str:
    """Return the C++ initializer of a constant.

    Args:
        kind: the type as it is declared, without spaces: ``"uint"``, ``"float2"``.
        value: a bool, int or float; a list of as many for a vector.

    Raises:
        ValueError: the value is not one of the type.
    """
    element, lanes = _parse(kind)
    values = list(value) if isinstance(value, Sequence) else [value]
    if len(values) != lanes:
        raise ValueError(f"expected {lanes} value{'s' if lanes > 1 else ''} for {kind}, got {value!r}")
    written = [_scalar(element, kind, one) for one in values]
    return f"{kind}({', '.join(written)})"


def _parse(kind: str) -> tuple[str, int]:
    if kind.removeprefix("metal::") in _SPELLINGS or kind in ("size_t", "ptrdiff_t"):
        return kind.removeprefix("metal::"), 1
    match = _VECTOR.match(kind)
    if match is None:
        # an enum or a type of the user's own: the compiler knows
        return "", 1
    return match["element"] or match["word"], int(match["count"] or match["lanes"] or 1)


def _scalar(element: str, kind: str, value: bool | int | float) -> str:
    if element == "bool":
        if not isinstance(value, (bool, int)) or value not in (0, 1):
            raise ValueError(f"expected True or False for {kind}, got {value!r}")
        return "true" if value else "false"
    if element in _FLOATS:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"expected a number for {kind}, got {value!r}")
        return _floating(float(value))
    if isinstance(value, float) or not isinstance(value, int):
        raise ValueError(f"expected a whole number for {kind}, got {value!r}")
    if isinstance(value, bool):
        return "true" if value else "false"
    low, high = _limits(element)
    if not low <= value <= high:
        raise ValueError(f"expected a value from {low} to {high} for {kind}, got {value}")
    suffix = "ull" if value >= 1 << 63 else "ll"
    # the lowest value has no literal of its own
    return f"{value}{suffix}" if value > -(1 << 63) else f"({value + 1}ll - 1)"


def _limits(element: str) -> tuple[int, int]:
    unsigned, bits = False, 64
    if element in _SPELLINGS:
        unsigned, bits = _SPELLINGS[element][0] == "u", _SPELLINGS[element][1]
    elif element == "size_t":
        unsigned = True
    elif element.removeprefix("unsigned").removeprefix("u") in _BITS:
        unsigned, bits = element.startswith("u"), _BITS[element.removeprefix("unsigned").removeprefix("u")]
    elif element == "":
        return -(1 << 63), (1 << 64) - 1
    return (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _floating(value: float) -> str:
    if math.isnan(value):
        return '__builtin_nanf("")'
    if math.isinf(value):
        return f"({'-' if value < 0 else ''}__builtin_inff())"
    return f"({value.hex()}f)"
