"""The element types a Metal kernel may have: one table, read by everything that meets a dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np
import torch

Kind = Literal["float", "int", "bool"]

# What an element of a result holds before any thread wrote it. 0xFF bytes are a NaN in every float format;
# 0xA5 bytes are an unlikely integer; a bool keeps a valid value, its unwritten elements are known from the
# engine's shadow alone.
_POISON: dict[Kind, int] = {"float": 0xFF, "int": 0xA5, "bool": 0x01}


@dataclass(frozen=True)
class ElementType:
    """One element type under each of its names.

    ``element`` is Core AI's name (``"f32"``), ``msl`` the type in the generated signature (``"float"``),
    ``size`` is in bytes, ``poison`` is the byte that an unwritten result is filled with.
    """

    torch: torch.dtype
    numpy: np.dtype[Any]
    element: str
    msl: str
    size: int
    kind: Kind

    @property
    def poison(self) -> int:
        return _POISON[self.kind]

    @property
    def name(self) -> str:
        """The name without a package: ``"float32"``."""
        return str(self.torch).removeprefix("torch.")


def _row(torch_dtype: torch.dtype, numpy_type: Any, element: str, msl: str, kind: Kind) -> ElementType:
    numpy_dtype = np.dtype(numpy_type)
    return ElementType(torch_dtype, numpy_dtype, element, msl, numpy_dtype.itemsize, kind)


ELEMENT_TYPES: tuple[ElementType, ...] = (
    _row(torch.float32, np.float32, "f32", "float", "float"),
    _row(torch.float16, np.float16, "f16", "half", "float"),
    _row(torch.bfloat16, ml_dtypes.bfloat16, "bf16", "bfloat", "float"),
    _row(torch.int8, np.int8, "si8", "int8_t", "int"),
    _row(torch.uint8, np.uint8, "ui8", "uint8_t", "int"),
    _row(torch.int16, np.int16, "si16", "int16_t", "int"),
    _row(torch.uint16, np.uint16, "ui16", "uint16_t", "int"),
    _row(torch.int32, np.int32, "si32", "int", "int"),
    _row(torch.uint32, np.uint32, "ui32", "uint", "int"),
    _row(torch.int64, np.int64, "si64", "int64_t", "int"),
    _row(torch.uint64, np.uint64, "ui64", "uint64_t", "int"),
    _row(torch.bool, np.bool_, "i1", "bool", "bool"),
)

BY_TORCH: dict[torch.dtype, ElementType] = {row.torch: row for row in ELEMENT_TYPES}
BY_NUMPY: dict[np.dtype[Any], ElementType] = {row.numpy: row for row in ELEMENT_TYPES}
BY_NAME: dict[str, ElementType] = {
    alias: row for row in ELEMENT_TYPES for alias in (row.msl, row.element, row.name)
}

# Core AI's converter narrows 64-bit integers before a kernel ever sees them, so the MSL that ships says `int`
# where PyTorch says int64. The same text runs here.
_NARROWED: dict[torch.dtype, ElementType] = {torch.int64: BY_TORCH[torch.int32]}

# A Python scalar of the reference becomes a `constant T&` of this type.
SCALAR_TYPES: dict[type, ElementType] = {
    int: BY_TORCH[torch.int32],
    float: BY_TORCH[torch.float32],
    bool: BY_TORCH[torch.bool],
}

SUPPORTED = ", ".join(row.name for row in ELEMENT_TYPES)


def on_device(dtype: ElementType) -> ElementType:
    """Return the type that the kernel sees for values of ``dtype``: itself, or ``int32`` for ``int64``."""
    return _NARROWED.get(dtype.torch, dtype)


def find(dtype: Any) -> ElementType | None:
    """Return the row of a torch dtype, a NumPy dtype, or a name (``"half"``, ``"f16"``, ``"float16"``)."""
    if isinstance(dtype, torch.dtype):
        return BY_TORCH.get(dtype)
    if isinstance(dtype, str):
        return BY_NAME.get(dtype)
    try:
        return BY_NUMPY.get(np.dtype(dtype))
    except TypeError:
        return None
