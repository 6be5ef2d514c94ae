"""Arrays of MLX, PyTorch and NumPy as the buffers of a kernel, and the kernel's outputs as arrays again."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch

from metalwright.authoring import validation
from metalwright.authoring.mlx import element_types
from metalwright.authoring.mlx.element_types import MLXType
from metalwright.engine import Buffer, Scalar
from metalwright.errors import ArgumentError

_INT32 = np.iinfo(np.int32)
_INT64 = np.iinfo(np.int64)
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Input:
    """An input where it lies: strides are in elements; ``owner`` keeps the memory alive."""

    dtype: MLXType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    owner: Any

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def span(self) -> int:
        """How many elements lie from the first to the last, with those in between that are not of the array."""
        if self.size == 0:
            return 0
        return 1 + sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))

    @property
    def bytes(self) -> int:
        return self.span * self.dtype.row.size

    def argument(self, name: str) -> Buffer | Scalar:
        """Return it for the engine: a buffer, or, without dimensions, a value."""
        element = self.dtype.row.element
        if not self.shape:
            return Scalar(name, ctypes.string_at(self.address, self.bytes), element)
        extents = self.shape[::-1] if self.span == self.size else (self.span,)
        return Buffer(name, self.address, element, extents, self.bytes, False)

    def layout(self, info: str) -> Input:
        """Return its ``"shape"``, ``"strides"`` or ``"ndim"`` as an input of its own."""
        match info:
            case "shape":
                return _described(np.array(self.shape, np.int32))
            case "strides":
                return _described(np.array(self.strides, np.int64))
            case _:
                return _described(np.array(len(self.shape), np.int32))


@dataclass(frozen=True)
class Output:
    """Memory for an output, and what the caller gets of it."""

    dtype: MLXType
    shape: tuple[int, ...]
    address: int
    nbytes: int
    owner: Any
    library: str

    def buffer(self, name: str) -> Buffer:
        """Return it for the engine."""
        return Buffer(name, self.address, self.dtype.row.element, self.shape[::-1], self.nbytes, True)

    def array(self) -> Any:
        """Return the output as an array of its library."""
        return _to_mlx(self.owner) if self.library == "mlx" else self.owner


def library(kernel: str, inputs: Sequence[Any], output_dtypes: Sequence[Any]) -> str:
    """Return whose arrays a call gives back: the inputs', or, where all are numbers, that of the first output's dtype.

    Raises:
        ArgumentError: tensors and arrays of other libraries are mixed. NumPy's go with MLX's, as in MLX.
    """
    found = {kind for value in inputs if (kind := _library_of(value)) is not None}
    if not found:
        return element_types.library(output_dtypes[0]) or "numpy"
    if found == {"mlx", "numpy"}:
        return "mlx"
    if len(found) > 1:
        raise ArgumentError(
            f"kernel {kernel!r}: inputs: expected arrays of one library, got those of {' and '.join(sorted(found))}"
        )
    return found.pop()


def take(kernel: str, name: str, value: Any, kind: str, contiguous: bool) -> Input:
    """Return an input as it lies in memory, or, where ``contiguous`` asks for it, a copy in row-major order.

    Raises:
        ArgumentError: not an array or number, or one of a dtype or layout that a kernel cannot have.
    """
    where = f"kernel {kernel!r}: input {name!r}"
    if isinstance(value, torch.Tensor):
        return _from_torch(where, name, value, contiguous)
    if element_types.is_array(value):
        return _from_mlx(where, value, contiguous)
    if isinstance(value, np.ndarray):
        if kind == "mlx":
            return _from_mlx(where, _to_mlx(value), contiguous)
        return _from_numpy(where, name, value, contiguous, value.dtype)
    number = _number(where, value)
    return _from_numpy(where, name, number, contiguous, number.dtype)


def make(dtype: MLXType, shape: tuple[int, ...], library: str, init_value: float | None) -> Output:
    """Return memory for an output: filled with ``init_value``, or with what no kernel is likely to write."""
    row = dtype.row
    if library == "torch":
        owner: Any = torch.empty(shape, dtype=row.torch)
        address, nbytes = owner.data_ptr(), owner.nbytes
    else:
        owner = np.empty(shape, row.numpy)
        address, nbytes = owner.ctypes.data, owner.nbytes
    if init_value is None:
        ctypes.memset(address, row.poison, nbytes)
    elif nbytes:
        memory = (ctypes.c_char * nbytes).from_address(address)
        np.frombuffer(memory, row.numpy)[:] = _converted(init_value, dtype)
    return Output(dtype, shape, address, nbytes, owner, library)


def without_gradient(kernel: str, execute: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """Execute on arrays of MLX; a derivative that is asked of the result is an error instead of a silent zero."""
    places = [place for place, value in enumerate(inputs) if element_types.is_array(value)]

    def run(*arrays: Any) -> Any:
        values = list(inputs)
        for place, array in zip(places, arrays, strict=True):
            values[place] = array
        return execute(*values)

    def refuse(*_: Any) -> Any:
        raise ArgumentError(
            f"kernel {kernel!r} has no derivative; give it one with mx.custom_function, as on a GPU"
        )

    function = element_types.core().custom_function(run)
    for transform in (function.vjp, function.jvp, function.vmap):
        transform(refuse)
    return function(*(inputs[place] for place in places))


def initial_problem(value: Any, dtype: MLXType) -> str | None:
    """Say why an output of this type cannot be filled with a value, or return ``None``."""
    try:
        number = float(value) if not isinstance(value, (str, bytes)) else None
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None:
        return f"expected a number, got {value!r}"
    if dtype.row.kind != "int":
        return None
    limits = np.iinfo(dtype.row.numpy)
    if math.isfinite(number) and limits.min <= int(value) <= limits.max:
        return None
    return f"{value!r} is no {dtype.name}"


def _converted(value: float, dtype: MLXType) -> np.ndarray:
    # MLX takes a float and casts it: towards zero for integers, to infinity where it is too large
    number = int(value) if dtype.row.kind == "int" else float(value)
    with np.errstate(over="ignore"):
        return np.array(number).astype(dtype.row.numpy)


def _described(values: np.ndarray) -> Input:
    dtype = element_types.find(values.dtype)
    assert dtype is not None
    strides = (1,) * values.ndim
    return Input(dtype, values.shape, strides, values.ctypes.data, values)


def _library_of(value: Any) -> str | None:
    if isinstance(value, torch.Tensor):
        return "torch"
    if element_types.is_array(value):
        return "mlx"
    return "numpy" if isinstance(value, np.ndarray) else None


def _number(where: str, value: Any) -> np.ndarray:
    """Return a number as an array without dimensions, of the type that MLX gives it."""
    if isinstance(value, np.generic):
        return np.array(value)
    if isinstance(value, bool):
        return np.array(value, np.bool_)
    if isinstance(value, int):
        if not _INT64.min <= value <= _INT64.max:
            raise ArgumentError(f"{where}: {value} does not fit in 64 bits")
        return np.array(value, np.int32 if _INT32.min <= value <= _INT32.max else np.int64)
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            return np.array(value, np.float32)
    if isinstance(value, complex):
        return np.array(value, np.complex64)
    raise ArgumentError(f"{where}: expected an array or a number, got {type(value).__name__}")


def _dtype(where: str, dtype: Any) -> MLXType:
    found = element_types.find(dtype)
    if found is None:
        raise ArgumentError(
            f"{where}: dtype {dtype} does not exist in a kernel; expected one of {element_types.SUPPORTED}"
        )
    return found


def _from_torch(where: str, name: str, value: torch.Tensor, contiguous: bool) -> Input:
    validation.check_torch(where, name, value)
    dtype = _dtype(where, value.dtype)
    if contiguous:
        value = value.contiguous()
    shape = tuple(value.shape)
    taken = Input(dtype, shape, tuple(value.stride()), value.data_ptr(), value)
    end = value.storage_offset() * value.element_size() + taken.bytes
    if value.untyped_storage().nbytes() < end:
        raise ArgumentError(
            f"{where}: its storage has {value.untyped_storage().nbytes()} bytes and its elements need {end}; "
            "it was resized after the tensor was made"
        )
    return taken


def _from_numpy(where: str, name: str, value: np.ndarray, contiguous: bool, named: Any) -> Input:
    """``named`` is the dtype that the elements have; the array may hold the same bytes under another."""
    dtype = _dtype(where, named)
    if contiguous and not value.flags.c_contiguous:
        value = np.ascontiguousarray(value)
    if not value.flags.aligned:
        raise ArgumentError(f"{where}: is not aligned to its dtype; pass {name}.copy()")
    steps = [divmod(stride, value.itemsize) for stride in value.strides]
    if any(rest or step < 0 for step, rest in steps):
        raise ArgumentError(
            f"{where}: strides {list(value.strides)} (in bytes) are negative or no whole elements; pass "
            f"{name}.copy(), or make the kernel with ensure_row_contiguous=True"
        )
    address = value.__array_interface__["data"][0]
    return Input(dtype, value.shape, tuple(step for step, _ in steps), address, value)


def _from_mlx(where: str, value: Any, contiguous: bool) -> Input:
    mx = element_types.core()
    _dtype(where, value.dtype)
    named = value.dtype
    try:
        if contiguous:
            value = mx.contiguous(value)
        if named == mx.bfloat16:
            value = value.view(mx.uint16)  # the buffer protocol has no name for it
        mx.eval(value)
    except ValueError as error:
        raise ArgumentError(
            f"{where}: has no value yet: inside mx.compile or mx.vmap a kernel cannot run here (mx.disable_compile() "
            "lets compiled functions run step by step)"
        ) from error
    return _from_numpy(where, "it", np.asarray(value), contiguous, named)


def _to_mlx(value: np.ndarray) -> Any:
    mx = element_types.core()
    if value.dtype == _BFLOAT16:
        return mx.array(value.view(np.uint16)).view(mx.bfloat16)
    return mx.array(value)
