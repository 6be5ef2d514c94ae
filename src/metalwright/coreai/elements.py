"""Core AI's names of element types, as NumPy's types. Nothing of torch: the process that compiles needs none."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from metalwright.errors import ArtifactError

# what a kernel may take
NUMPY: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
        "f32": np.float32,
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "si8": np.int8,
        "ui8": np.uint8,
        "si16": np.int16,
        "ui16": np.uint16,
        "si32": np.int32,
        "ui32": np.uint32,
        "si64": np.int64,
        "ui64": np.uint64,
        "i1": np.bool_,
    }.items()
}
# the runtime calls them as NumPy does
BY_RUNTIME_NAME: dict[str, np.dtype[Any]] = {dtype.name: dtype for dtype in NUMPY.values()}
_NAMES = {dtype: name for name, dtype in NUMPY.items()}


def numpy_dtype(element: str) -> np.dtype[Any]:
    """Return NumPy's type for Core AI's name of an element type.

    Raises:
        ArtifactError: Kernels do not take such elements.
    """
    if element not in NUMPY:
        raise ArtifactError(
            f"a tensor of {element!r} is handed to or from a kernel, which takes none of these"
        )
    return NUMPY[element]


def name_of(dtype: np.dtype[Any]) -> str:
    """Return Core AI's name of an element type. Raises :class:`ArtifactError` if kernels do not take it."""
    if dtype not in _NAMES:
        raise ArtifactError(f"a tensor of {dtype} is handed to or from a kernel, which takes none of these")
    return _NAMES[dtype]
