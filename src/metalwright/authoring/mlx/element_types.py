"""The element types of MLX on a GPU: each under the name that MLX has in MSL, and as any library names it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from metalwright.authoring import dtypes
from metalwright.authoring.dtypes import ElementType

_COMPLEX = ElementType(torch.complex64, np.dtype(np.complex64), "struct", "complex64_t", 8, "float")
# Core AI's spelling is the table's, MLX's is another
_SPELLINGS = {
    "float16": "float16_t",
    "bfloat16": "bfloat16_t",
    "float32": "float",
    "bool": "bool",
    "complex64": "complex64_t",
}
# "Atomic Functions" of the MSL specification: the types that atomic<T> takes
_ATOMIC = frozenset({"bool", "int32", "uint32", "uint64", "float32"})


@dataclass(frozen=True)
class MLXType:
    """An element type: ``row`` says what it is elsewhere, ``msl`` is its name in the generated signature."""

    row: ElementType
    msl: str

    @property
    def name(self) -> str:
        """The name without a package: ``"float32"``."""
        return self.row.name

    @property
    def atomic(self) -> bool:
        """True if Metal has ``atomic<T>`` of it."""
        return self.name in _ATOMIC


_BY_NAME: dict[str, MLXType] = {
    row.name: MLXType(row, _SPELLINGS.get(row.name, f"{row.name}_t"))
    for row in (*dtypes.ELEMENT_TYPES, _COMPLEX)
}
SUPPORTED = ", ".join(_BY_NAME)


def core() -> Any:
    """Return the module ``mlx.core`` if somebody imported it, else ``None``."""
    return sys.modules.get("mlx.core")


def is_array(value: Any) -> bool:
    """True for an array of MLX."""
    mx = core()
    return mx is not None and isinstance(value, mx.array)


def library(dtype: Any) -> str | None:
    """Return whose dtype it is: ``"mlx"``, ``"torch"``, ``"numpy"``, or ``None``."""
    mx = core()
    if mx is not None and isinstance(dtype, mx.Dtype):
        return "mlx"
    if isinstance(dtype, torch.dtype):
        return "torch"
    return "numpy" if isinstance(dtype, np.dtype) or _is_numpy_class(dtype) else None


def find(dtype: Any) -> MLXType | None:
    """Return the type for a dtype of MLX, PyTorch or NumPy; ``None`` for anything that a kernel cannot have."""
    match library(dtype):
        case "mlx":
            return _BY_NAME.get(str(dtype).rpartition(".")[2].removesuffix("_"))
        case "torch":
            return _BY_NAME.get(str(dtype).removeprefix("torch."))
        case "numpy":
            found = np.dtype(dtype)
            return _BY_NAME.get(found.name) if found.isnative else None
    return None


def _is_numpy_class(value: Any) -> bool:
    # ml_dtypes.bfloat16 is one too
    return isinstance(value, type) and issubclass(value, np.generic)
