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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from metalwright.coreai import elements
from metalwright.coreai.plan import TensorType

# what is smaller lies in memory that the process has touched before
_BYTES_WORTH_KEEPING = 65_536
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
        self.descriptors = descriptors

    def make(self, element: str, shape: tuple[int, ...]) -> Any:
        """Return an array of Core AI's without values."""
        from coreai.runtime import _NDArray

        kind = TensorType(element, shape)
        descriptor = self.descriptors.get(kind)
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


Spare = dict[TensorType, list[Any]]
"""Arrays that nothing needs any more."""


class Workspace(Allocator):
    """Makes the arrays of one call, where it can from those that are no longer needed.

    New memory would be mapped page by page as it is written: 360 us for 1 MB (measured), several times what a kernel
    takes. ``spare`` are arrays that an earlier call left.
    """

    def __init__(self, descriptors: Mapping[TensorType, Any], spare: Spare) -> None:
        super().__init__(descriptors)
        self.released: Spare = {}
        self._spare = spare
        # the arrays themselves are kept as well: another must not get the number of one that is gone
        self._lent: dict[int, tuple[TensorType, Any]] = {}

    def make(self, element: str, shape: tuple[int, ...]) -> Any:
        """Return an array of Core AI's with any values."""
        kind = TensorType(element, shape)
        for arrays in (self.released.get(kind), self._spare.get(kind)):
            if arrays:
                native = arrays.pop()
                break
        else:
            native = super().make(element, shape)
        if math.prod(shape) * elements.numpy_dtype(element).itemsize >= _BYTES_WORTH_KEEPING:
            self._lent[id(native)] = kind, native
        return native

    def release(self, native: Any) -> None:
        """Take an array back that nothing needs any more; one that was not made here, or was given up, is let go."""
        if found := self._lent.pop(id(native), None):
            kind, native = found
            self.released.setdefault(kind, []).append(native)

    def give_up(self, inputs: Iterable[Any], outputs: Iterable[Any]) -> None:
        """Never take back inputs of a function in whose memory its outputs lie, as those of a reshape do."""
        ours = [native for native in inputs if id(native) in self._lent]
        if not ours:
            return
        made = list(outputs)
        in_order = all(memoryview(native).c_contiguous for native in made)
        for native in ours:
            values = view(native)
            if not in_order or any(np.may_share_memory(values, view(one)) for one in made):
                del self._lent[id(native)]


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
