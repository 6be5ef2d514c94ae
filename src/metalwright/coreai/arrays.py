"""Memory that Core AI's interpreter and our kernels share: its arrays, and NumPy's view of them.

The interpreter's own way from NumPy to its arrays copies element by element (1.6 ms for 1 MB of float32, measured), and
its way back copies too. Here both sides see one piece of memory: an array is made from a descriptor, without values,
and read and written at its address, which Python's buffer protocol gives.
"""

from __future__ import annotations

import ctypes
import functools
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from metalwright.coreai import elements
from metalwright.coreai.plan import TensorType

# below this many elements the copy costs less than compiling a descriptor
_ELEMENTS_WORTH_A_DESCRIPTOR = 65_536
_DESCRIPTORS_KEPT = 256


def view(native: Any) -> np.ndarray:
    """Return the values of an array of Core AI's, read-only; a copy only where they do not lie in order."""
    dtype = elements.BY_RUNTIME_NAME.get(native.dtype)
    if dtype is None or not memoryview(native).c_contiguous:
        from coreai.runtime import NDArray

        return np.ascontiguousarray(NDArray._wrap(native).numpy())
    shape = tuple(native.shape)
    if not math.prod(shape):
        return np.empty(shape, dtype)
    return np.frombuffer(native, dtype).reshape(shape)


def writable(native: Any) -> np.ndarray:
    """Return the values of an array that nobody else reads now, for writing; it has to lie in order."""
    values = view(native)
    if not values.nbytes:
        return values
    memory: Any = (ctypes.c_uint8 * values.nbytes).from_address(values.ctypes.data)
    memory._keeps = native
    return np.frombuffer(memory, values.dtype).reshape(values.shape)


class Allocator:
    """Makes arrays. ``descriptors`` are the interpreter's, of the static types that an artifact has."""

    def __init__(self, descriptors: Mapping[TensorType, Any]) -> None:
        self._descriptors = descriptors

    def make(self, element: str, shape: tuple[int, ...]) -> Any:
        """Return an array of Core AI's without values."""
        from coreai.runtime import _NDArray

        kind = TensorType(element, shape)
        descriptor = self._descriptors.get(kind)
        if descriptor is None:
            if math.prod(shape) < _ELEMENTS_WORTH_A_DESCRIPTOR:
                return _NDArray(np.zeros(shape, elements.numpy_dtype(element)), "bytes")
            descriptor = _descriptor(kind)
        return _NDArray.from_descriptor(descriptor=descriptor)

    def copy(self, values: np.ndarray) -> Any:
        """Return an array of Core AI's with these values."""
        native = self.make(elements.name_of(values.dtype), values.shape)
        if values.nbytes:
            np.copyto(writable(native), values)
        return native


@functools.lru_cache(maxsize=_DESCRIPTORS_KEPT)
def _descriptor(kind: TensorType) -> Any:
    """Return the interpreter's descriptor of a type: it has none but those of its functions' inputs."""
    from metalwright.coreai import interpreter, segments

    with tempfile.TemporaryDirectory(prefix="metalwright-") as folder:
        module = interpreter.empty_module()
        name = segments.Segments(module, {}, "main").add_types([kind])
        interpreter.write(module, Path(folder))
        function = interpreter.load(Path(folder)).load_function(
            function_name=name, intermediate_logger=None, profiler=None
        )
        return function.desc.input_descriptor(segments.input_names(1)[0])
