"""Python values as the buffers of a kernel, by PyTorch's rules for ``torch.mps.compile_shader``.

A tensor is bound where its data begins, with everything behind it in its storage; strides mean nothing to a kernel.
What a GPU would read as something else than what was meant is an error here: a float16 tensor for ``device float*``,
a Python float for ``constant half&``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch

from metalwright.authoring import dtypes
from metalwright.engine import Buffer, KernelSignature, Parameter, Scalar
from metalwright.errors import ArgumentError

# torch/mps: the names of arg_casts
CASTS: Mapping[str, np.dtype[Any]] = {
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "int32": np.dtype(np.int32),
    "int16": np.dtype(np.int16),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
}
_COMPLEX = {torch.complex64: "f32", torch.complex32: "f16"}
# torch's types for packed formats: a kernel takes their bytes
_PACKED = frozenset(
    {
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float8_e8m0fnu,
        torch.float4_e2m1fn_x2,
    }
)
_FLOATS = frozenset({"f16", "bf16", "f32"})
_NAMES = {row.element: row.msl for row in dtypes.ELEMENT_TYPES}


@dataclass(frozen=True)
class Bound:
    """Arguments for the engine, and what has to stay alive while it runs."""

    arguments: list[Buffer | Scalar | None]
    alive: list[Any]


def bind(
    signature: KernelSignature, values: Sequence[Any], casts: str | Mapping[int, str] | None = None
) -> Bound:
    """Return the values as the kernel's buffers.

    Raises:
        ArgumentError: there are more or fewer values than buffers, or one is not what its parameter takes.
    """
    kernel = signature.name
    buffers = sorted(
        (p for p in signature.parameters if p.kind in ("pointer", "reference", "tensor")),
        key=lambda p: p.index,
    )
    # position i of the call is [[buffer(i)]]; an index that the kernel does not use takes any value
    present = {parameter.index: parameter for parameter in buffers if parameter.present}
    by_index = {parameter.index: parameter for parameter in buffers} | present
    expected, most = (max(some, default=-1) + 1 for some in (present, by_index))
    if not expected <= len(values) <= most:
        listed = ", ".join(f"{p.name} [[buffer({p.index})]]" for p in present.values()) or "none"
        raise ArgumentError(f"kernel {kernel!r} takes {expected} arguments ({listed}), got {len(values)}")
    arguments: list[Buffer | Scalar | None] = []
    alive: list[Any] = []
    for index, value in itertools.zip_longest(range(most), values):
        parameter = by_index.get(index)
        if parameter is None:
            arguments.append(None)
            continue
        if not parameter.present:
            arguments.append(Buffer(parameter.name, 0, parameter.element, (0,), 0, False))
            continue
        where = f"kernel {kernel!r}: argument {index}, {parameter.name!r}"
        if parameter.kind == "tensor":
            raise ArgumentError(f"{where} is a tensor<…>, which has extents: use MetalKernel")
        if isinstance(value, torch.Tensor):
            arguments.append(_tensor(where, parameter, value))
            alive.append(value)
            continue
        array = _numbers(where, parameter, value, _cast(where, index, casts))
        alive.append(array)
        arguments.append(
            Buffer(parameter.name, array.ctypes.data, parameter.element, (array.size,), array.nbytes, False)
        )
    return Bound(arguments, alive)


def _tensor(where: str, parameter: Parameter, value: torch.Tensor) -> Buffer:
    if value.device.type != "cpu":
        raise ArgumentError(f"{where}: expected a CPU tensor, got one on {value.device}")
    if value.layout != torch.strided or value.is_nested:
        raise ArgumentError(f"{where}: expected a dense tensor, got {value.layout}")
    if value.is_neg() or value.is_conj():
        raise ArgumentError(f"{where}: the tensor is a negative or conjugate view: resolve it first")
    element = _COMPLEX.get(value.dtype)
    if value.dtype in _PACKED and (parameter.element == "struct" or _bytes(parameter.element)):
        element = "ui8"
    if element is None:
        row = dtypes.BY_TORCH.get(value.dtype)
        if row is None:
            advice = ": a kernel takes its bytes, as device uchar*" if value.dtype in _PACKED else ""
            raise ArgumentError(f"{where}: Metal has no type for {value.dtype}{advice}")
        element = row.element
    if not _reads_as(element, parameter):
        raise ArgumentError(
            f"{where} is {_written(parameter)}, and the tensor's elements are {value.dtype}; "
            "where its bytes are meant, give it as .view(torch.uint8)"
        )
    behind = int(value.untyped_storage().nbytes()) - int(value.storage_offset()) * value.element_size()
    if value.numel() and behind < value.element_size():
        raise ArgumentError(f"{where}: the tensor's storage has been shrunk below its data")
    return Buffer(
        parameter.name,
        value.data_ptr(),
        element,
        (behind // value.element_size(),),
        behind,
        parameter.address_space == "device",
    )


def _reads_as(given: str, parameter: Parameter) -> bool:
    wanted = parameter.element
    if wanted == "struct" or given == wanted or _bytes(given) or _bytes(wanted):
        return True
    if given in _FLOATS or wanted in _FLOATS:
        return False
    # a sign is a matter of view, a width is not
    return given.lstrip("su") == wanted.lstrip("su")


def _bytes(element: str) -> bool:
    return element in ("ui8", "si8", "i1")


def _written(parameter: Parameter) -> str:
    lanes = str(parameter.lanes) if parameter.lanes > 1 else ""
    mark = "&" if parameter.kind == "reference" else "*"
    return f"{parameter.address_space} {_NAMES.get(parameter.element, 'struct')}{lanes}{mark}"


def _cast(where: str, index: int, casts: str | Mapping[int, str] | None) -> np.dtype[Any] | None:
    name = casts.get(index) if isinstance(casts, Mapping) else casts
    if name is None:
        return None
    if not isinstance(name, str) or name not in CASTS:
        raise ArgumentError(f"{where}: arg_casts: expected one of {', '.join(CASTS)}, got {name!r}")
    return CASTS[name]


def _numbers(where: str, parameter: Parameter, value: Any, cast: np.dtype[Any] | None) -> np.ndarray:
    several = isinstance(value, (list, tuple))
    items = list(value) if several else [value]
    if not items:
        raise ArgumentError(f"{where}: an empty list is no argument")
    if isinstance(items[0], torch.Tensor):
        raise ArgumentError(f"{where}: lists of tensors are not supported: give each as an argument")
    if all(isinstance(item, int) for item in items):
        own = np.dtype(np.int64)
    elif all(isinstance(item, (int, float)) for item in items):
        own = np.dtype(np.float32)
    else:
        kinds = ", ".join(sorted({type(item).__name__ for item in items}))
        raise ArgumentError(f"{where}: expected a tensor, a number or a list of numbers, got {kinds}")
    dtype = own if cast is None else cast
    try:
        array = np.array(items, own if dtype.kind in "iu" and own.kind == "i" else np.float64)
    except OverflowError:
        raise ArgumentError(f"{where}: {value!r} does not fit in 64 bits") from None
    if dtype.kind in "iu" and array.dtype.kind == "i":
        limits = np.iinfo(dtype.type)
        if array.min() < limits.min or array.max() > limits.max:
            raise ArgumentError(f"{where}: {value!r} does not fit in {dtype.name}")
    array = array.astype(dtype)
    _check_numbers(where, parameter, value, dtype, array.nbytes, several)
    return array


def _check_numbers(
    where: str, parameter: Parameter, value: Any, dtype: np.dtype[Any], nbytes: int, several: bool
) -> None:
    given, wanted = dtypes.BY_NUMPY[dtype].element, parameter.element
    if parameter.address_space == "device" and not several and parameter.kind == "pointer":
        raise ArgumentError(f"{where} is {_written(parameter)}: expected a tensor, got {value!r}")
    if wanted == "struct":
        return
    is_float = given in _FLOATS
    # an int goes as a long, whose low bytes are the value in every narrower integer; more of them would not line up
    fits = given == wanted if is_float else wanted not in _FLOATS
    if fits and not is_float and (several or parameter.lanes > 1):
        fits = dtype.itemsize == dtypes.BY_NAME[wanted].size
    if not fits:
        casts = [name for name, kind in CASTS.items() if dtypes.BY_NUMPY[kind].element == wanted]
        advice = f"arg_casts={{{_position(where)}: {casts[0]!r}}}" if casts else "another type of number"
        sort = dtypes.BY_NUMPY[dtype].msl
        raise ArgumentError(
            f"{where} is {_written(parameter)}, and {value!r} is bound as {sort}: use {advice}"
        )
    if parameter.kind == "reference" and nbytes < parameter.element_bytes:
        raise ArgumentError(
            f"{where} is {_written(parameter)} of {parameter.element_bytes} bytes, and {value!r} has {nbytes}"
        )


def _position(where: str) -> str:
    return where.split("argument ", 1)[1].split(",", 1)[0]
