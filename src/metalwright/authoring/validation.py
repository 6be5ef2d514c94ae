"""Checks of a launch: sizes, inputs, results. Every message names the kernel, the argument, expected and got."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from metalwright.authoring import dtypes
from metalwright.authoring.dtypes import ElementType
from metalwright.errors import ArgumentError, DispatchError

MAX_THREADS_PER_THREADGROUP = 1024
MAX_RANK = 16  # of a Metal tensor
_UINT32_MAX = 2**32 - 1
_C: Any = torch._C  # its private parts have no type stubs
_TRANSFORMED = "is inside a torch.func transform (jvp, grad, vmap); kernels have no rule for it"
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_FLOAT32_OVERFLOW = float.fromhex("0x1.ffffffp127")  # from here on, rounding to 32 bits gives infinity

Size3 = tuple[int, int, int]


# Sizes ------------------------------------------------------------------------------------------------------------


def size3(kernel: str, argument: str, value: Any) -> Size3:
    """Return launch sizes as three ints. Raises :class:`DispatchError` for another number or kind of entries."""
    try:
        entries = tuple(operator.index(entry) for entry in value)
    except TypeError:
        raise DispatchError(
            f"kernel {kernel!r}: {argument}: expected three integers, got {value!r}"
        ) from None
    if len(entries) != 3:
        raise DispatchError(
            f"kernel {kernel!r}: {argument} must be a 3-tuple (x, y, z), got {len(entries)} elements: {value!r}"
        )
    return entries


def check_sizes(
    kernel: str, grid_name: str, grid: Sequence[Any], group_name: str, group: Sequence[Any]
) -> None:
    """Check launch sizes against what a GPU accepts; entries that are symbols (while tracing) are passed over.

    Raises:
        DispatchError: zero or negative entries, a grid beyond 32 bits, over 1024 threads in a threadgroup.
    """
    for argument, sizes in ((grid_name, grid), (group_name, group)):
        for axis, entry in zip("xyz", sizes, strict=True):
            if isinstance(entry, int) and not 1 <= entry <= _UINT32_MAX:
                raise DispatchError(
                    f"kernel {kernel!r}: {argument}.{axis}: expected 1 to {_UINT32_MAX}, got {entry} in {tuple(sizes)}"
                )
    threads = math.prod(entry for entry in group if isinstance(entry, int))
    if threads > MAX_THREADS_PER_THREADGROUP:
        raise DispatchError(
            f"kernel {kernel!r}: {group_name}: at most {MAX_THREADS_PER_THREADGROUP} threads in a threadgroup, "
            f"got {' * '.join(map(str, group))} = {threads}"
        )


def shapes(kernel: str, result_names: Sequence[str], value: Any) -> tuple[tuple[int, ...], ...]:
    """Return the result shapes as tuples of ints. Raises :class:`ArgumentError`."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ArgumentError(f"kernel {kernel!r}: result_shapes: expected a list of shapes, got {value!r}")
    if len(value) != len(result_names):
        raise ArgumentError(
            f"kernel {kernel!r}: result_shapes must contain one shape per result name; expected "
            f"{len(result_names)} (for {list(result_names)}), got {len(value)}: {value!r}"
        )
    try:
        return tuple(tuple(operator.index(extent) for extent in shape) for shape in value)
    except TypeError:
        raise ArgumentError(
            f"kernel {kernel!r}: result_shapes: expected a list of integers for each result, got {value!r}"
        ) from None


# Inputs -----------------------------------------------------------------------------------------------------------


def check_count(kernel: str, input_names: Sequence[str], inputs: Sequence[Any]) -> None:
    """Check the number of inputs. Raises :class:`ArgumentError`."""
    if len(inputs) != len(input_names):
        raise ArgumentError(
            f"kernel {kernel!r}: expected {len(input_names)} inputs ({', '.join(input_names)}), got {len(inputs)}"
        )


def scalar(kernel: str, name: str, kind: type, value: Any) -> int | float | bool:
    """Return a scalar input as a Python value of the type that the reference declares.

    Raises:
        ArgumentError: another kind of value, or one that MSL's ``int`` or ``float`` does not hold.
    """
    where = f"kernel {kernel!r}: input {name!r}"
    if isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim == 0:
        value = value.item()
    if isinstance(value, np.bool_):
        value = bool(value)
    if kind is int:
        if not isinstance(value, numbers.Integral):
            raise ArgumentError(f"{where}: expected an int, got {_described(value)}")
        integer = int(value)
        if not _INT32_MIN <= integer <= _INT32_MAX:
            raise ArgumentError(
                f"{where}: expected an int of 32 bits ({_INT32_MIN} to {_INT32_MAX}), as MSL `int`, got {integer}"
            )
        return integer
    if not isinstance(value, numbers.Real):
        raise ArgumentError(f"{where}: expected a {kind.__name__}, got {_described(value)}")
    if kind is bool:
        return bool(value)
    try:
        number = float(value)
    except OverflowError:
        number = _FLOAT32_OVERFLOW
    if not math.isfinite(number):
        raise ArgumentError(
            f"{where}: expected a finite float (Core AI takes no NaN or infinity here), got {number}"
        )
    if abs(number) >= _FLOAT32_OVERFLOW:
        raise ArgumentError(f"{where}: expected a float that fits in 32 bits, as MSL `float`, got {number!r}")
    return number


def check_tensor(kernel: str, name: str, value: Any) -> ElementType:
    """Check a tensor or array input and return its element type.

    Raises:
        ArgumentError: not a tensor; dtype, device, layout or rank that a kernel cannot take; no elements.
    """
    where = f"kernel {kernel!r}: input {name!r}"
    if isinstance(value, torch.Tensor):
        check_torch(where, name, value)
    elif isinstance(value, np.ndarray):
        _check_numpy(where, name, value)
    else:
        raise ArgumentError(f"{where}: expected a tensor, got {_described(value)}")
    row = dtypes.find(value.dtype)
    if row is None:
        raise ArgumentError(f"{where}: dtype {value.dtype} does not exist in a kernel; expected one of "
                            f"{dtypes.SUPPORTED}{_dtype_advice(name, str(value.dtype))}")  # fmt: skip
    _check_extents(where, tuple(value.shape))
    if isinstance(value, torch.Tensor):
        check_dense(kernel, name, value)
        check_storage(kernel, name, value)
    return row


def check_dense(kernel: str, name: str, value: torch.Tensor) -> None:
    """Check that a tensor's elements lie in order without gaps. Raises :class:`ArgumentError`."""
    if not value.is_contiguous():
        raise ArgumentError(
            f"kernel {kernel!r}: input {name!r}: expected a contiguous tensor (innermost stride 1, no gaps), got shape "
            f"{list(value.shape)} with strides {list(value.stride())}; pass {name}.contiguous(), or index the "
            f"original in the kernel"
        )


def check_traced(kernel: str, name: str, value: torch.Tensor) -> None:
    """Check a traced input's strides where they are numbers. Raises :class:`ArgumentError`.

    On the device, too, an input that is not dense stops the program, so the export stops here.
    """
    if _C._functorch.is_gradtrackingtensor(value):
        raise ArgumentError(f"kernel {kernel!r}: input {name!r}: {_TRANSFORMED}")
    if value.layout is torch.strided and all(isinstance(n, int) for n in (*value.shape, *value.stride())):
        check_dense(kernel, name, value)


def check_narrow(kernel: str, name: str, low: int, high: int) -> None:
    """Check that 64-bit integers survive Core AI's narrowing. Raises :class:`ArgumentError`."""
    if low < _INT32_MIN or high > _INT32_MAX:
        raise ArgumentError(
            f"kernel {kernel!r}: input {name!r}: Core AI passes int64 to a kernel as 32-bit `int`; expected values "
            f"from {_INT32_MIN} to {_INT32_MAX}, got {low} to {high}"
        )


def check_storage(kernel: str, name: str, value: torch.Tensor) -> None:
    """Check that a CPU tensor's memory is still all there. Raises :class:`ArgumentError`."""
    needed = (value.storage_offset() + value.numel()) * value.element_size()
    if value.untyped_storage().nbytes() < needed:
        raise ArgumentError(
            f"kernel {kernel!r}: input {name!r}: its storage has {value.untyped_storage().nbytes()} bytes, its shape "
            f"{list(value.shape)} needs {needed}; it was resized after the tensor was made"
        )


def check_torch(where: str, name: str, value: torch.Tensor) -> None:
    """Check that a tensor is an ordinary one with data on the CPU. Raises :class:`ArgumentError`."""
    if _C._functorch.is_functorch_wrapped_tensor(value):
        raise ArgumentError(
            f"{where}: is inside a torch.func transform (jvp, grad, vmap); kernels have no rule for it"
        )
    if value.is_nested:
        raise ArgumentError(
            f"{where}: is a nested tensor; expected a dense one, call the kernel on each part"
        )
    if value.device.type == "meta":
        raise ArgumentError(f"{where}: is on device 'meta' and has no data; expected a CPU tensor")
    if value.device.type != "cpu":
        raise ArgumentError(
            f"{where}: is on device {str(value.device)!r}; expected a CPU tensor: MSL is executed on the CPU here, "
            f"pass {name}.cpu()"
        )
    if isinstance(value, FakeTensor):
        raise ArgumentError(f"{where}: is a fake tensor and has no data; expected a CPU tensor")
    if value.layout is not torch.strided:
        raise ArgumentError(
            f"{where}: has layout {value.layout}; expected a dense tensor, pass {name}.to_dense()"
        )
    if value.is_neg() or value.is_conj():
        raise ArgumentError(f"{where}: is a lazily negated or conjugated view; pass {name}.clone()")


def _check_numpy(where: str, name: str, value: np.ndarray) -> None:
    if not value.dtype.isnative:
        raise ArgumentError(f"{where}: dtype {value.dtype} is not in this machine's byte order; pass "
                            f"{name}.astype({name}.dtype.newbyteorder('='))")  # fmt: skip
    if not value.flags.c_contiguous:
        raise ArgumentError(
            f"{where}: expected a contiguous array (innermost stride 1, no gaps), got shape {list(value.shape)} with "
            f"strides {list(value.strides)} in bytes; pass numpy.ascontiguousarray({name})"
        )
    if not value.flags.aligned:
        raise ArgumentError(f"{where}: is not aligned to its dtype; pass {name}.copy()")


def _check_extents(where: str, shape: tuple[int, ...]) -> None:
    if len(shape) > MAX_RANK:
        raise ArgumentError(
            f"{where}: expected at most rank {MAX_RANK}, got rank {len(shape)}, shape {list(shape)}"
        )
    if 0 in shape:
        raise ArgumentError(f"{where}: expected at least one element, got shape {list(shape)}; Metal has no empty "
                            f"tensors, so leave the kernel out for this input")  # fmt: skip
    if max(shape, default=1) > _INT32_MAX:
        raise ArgumentError(f"{where}: expected extents of at most {_INT32_MAX}, got shape {list(shape)}")


def _dtype_advice(name: str, dtype: str) -> str:
    if "float64" in dtype:
        return f"; Metal has no double, pass {name} in float32"
    if "complex" in dtype:
        return "; pass the real and imaginary parts as two inputs"
    if "float8" in dtype or "float4" in dtype:
        return f"; pass the bytes, {name}.view(torch.uint8), and make a tensor_inline of a packed format in the kernel"
    return ""


# Results ----------------------------------------------------------------------------------------------------------


def check_result_shape(kernel: str, name: str, shape: tuple[int, ...]) -> None:
    """Check a result shape by itself. Raises :class:`ArgumentError`."""
    where = f"kernel {kernel!r}: result {name!r}"
    if not shape:
        raise ArgumentError(f"{where}: has rank 0; a Metal tensor has at least rank 1, use shape [1]")
    if min(shape) < 0:
        raise ArgumentError(f"{where}: expected positive extents, got shape {list(shape)}")
    _check_extents(where, shape)


def check_results(
    kernel: str,
    result_names: Sequence[str],
    promised: Sequence[Sequence[Any]],
    reference: Any,
) -> tuple[torch.Tensor, ...]:
    """Check what the reference returned against ``result_shapes`` and return it as a tuple.

    Extents that are symbols (while tracing) are passed over. Raises :class:`ArgumentError`.
    """
    values = tuple(reference) if isinstance(reference, (list, tuple)) else (reference,)
    if len(values) != len(result_names):
        raise ArgumentError(
            f"kernel {kernel!r}: the reference returned {len(values)} tensors; expected {len(result_names)} "
            f"({', '.join(result_names)})"
        )
    for name, shape, value in zip(result_names, promised, values, strict=True):
        where = f"kernel {kernel!r}: result {name!r}"
        if not isinstance(value, torch.Tensor):
            raise ArgumentError(f"{where}: the reference returned {_described(value)}; expected a tensor")
        if len(value.shape) != len(shape) or any(
            isinstance(a, int) and isinstance(b, int) and a != b
            for a, b in zip(value.shape, shape, strict=True)
        ):
            raise ArgumentError(
                f"{where}: result_shapes says {list(shape)}, the reference returns {list(value.shape)}"
            )
    return values


def result_type(kernel: str, name: str, dtype: torch.dtype) -> ElementType:
    """Return the element type of a result. Raises :class:`ArgumentError` for one that a kernel cannot write."""
    row = dtypes.find(dtype)
    if row is None:
        raise ArgumentError(
            f"kernel {kernel!r}: result {name!r}: the reference returns dtype {dtype}, which does not exist in a "
            f"kernel; expected one of {dtypes.SUPPORTED}"
        )
    return row


def _described(value: Any) -> str:
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return f"a {type(value).__name__} of shape {list(value.shape)} and dtype {value.dtype}"
    if isinstance(value, (int, float, bool, str)) or value is None:
        return f"{type(value).__name__} {value!r}"
    return f"{type(value).__name__}"
