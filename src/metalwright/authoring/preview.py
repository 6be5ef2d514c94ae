"""The MSL of a kernel for inputs that need not exist: what ``MetalKernel.source`` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coreai_torch import TorchMetalKernel

from metalwright.authoring import dtypes, reference, source, validation
from metalwright.authoring.dtypes import ElementType
from metalwright.authoring.source import Parameter
from metalwright.errors import ArgumentError

_EXTENT = 8  # of dimensions whose size nobody gave; equal extents suit element-wise kernels and matmuls


def generate(
    kernel: TorchMetalKernel,
    inputs: Sequence[Any],
    given_dtypes: Mapping[str, Any] | Any,
    given_ranks: Mapping[str, int] | int | None,
    given_scalars: Mapping[str, Any] | None,
) -> str:
    """Return the complete generated MSL; the arguments are those of :meth:`MetalKernel.source`."""
    dtype_of = _by_name(kernel, "dtypes", given_dtypes)
    rank_of = _by_name(kernel, "ranks", given_ranks)
    value_of = dict(given_scalars or {})
    if strangers := set(value_of) - set(kernel._scalar_input_types):
        raise ArgumentError(
            f"kernel {kernel.name!r}: scalars: {', '.join(map(repr, sorted(strangers)))} not among the scalar inputs, "
            f"{list(kernel._scalar_input_types)}"
        )
    known = dict(zip(kernel.input_names, _examples(kernel, inputs), strict=False))

    scalars: dict[str, Any] = {}
    described: list[Any] = []
    parameters: list[Parameter] = []
    for name in kernel.input_names:
        kind = kernel._scalar_input_types.get(name)
        if kind is not None:
            value = value_of.get(name, known.get(name))
            if value is None:
                raise _unknown(kernel, name, "value", f"scalars={{{name!r}: ...}}")
            scalars[name] = validation.scalar(kernel.name, name, kind, value)
            described.append(scalars[name])
            parameters.append(Parameter(dtypes.SCALAR_TYPES[kind], 0))
        else:
            dtype, shape = _tensor(kernel, name, dtype_of.get(name), rank_of.get(name), known.get(name))
            described.append((dtype, shape))
            parameters.append(Parameter(dtypes.on_device(dtype), len(shape)))
    return source.complete(kernel, parameters, _results(kernel, described, dtype_of, rank_of), scalars)


def _examples(kernel: TorchMetalKernel, inputs: Sequence[Any]) -> Sequence[Any]:
    """Return the inputs to go by: those given, or those of the kernel's first case."""
    if inputs:
        validation.check_count(kernel.name, kernel.input_names, inputs)
        return inputs
    cases: Any = getattr(kernel, "cases", None)
    if cases is None:
        return ()
    listed: Any = cases() if callable(cases) else cases
    first = next(iter(listed), None)
    return first["inputs"] if first is not None else ()


def _by_name(kernel: TorchMetalKernel, argument: str, value: Any) -> dict[str, Any]:
    """Spread one value over all tensor inputs, or check a mapping's names."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return {name: value for name in kernel.input_names if name not in kernel._scalar_input_types}
    names = [*kernel.input_names, *kernel.result_names]
    if strangers := [name for name in value if name not in names]:
        raise ArgumentError(f"kernel {kernel.name!r}: {argument}: {strangers[0]!r} not among {names}")
    return dict(value)


def _tensor(
    kernel: TorchMetalKernel, name: str, dtype: Any, rank: int | None, example: Any
) -> tuple[ElementType, tuple[int, ...]]:
    shape = getattr(example, "shape", None)
    if rank is not None and (shape is None or len(shape) != rank):
        shape = (_EXTENT,) * rank
    if dtype is None:
        dtype = getattr(example, "dtype", None)
    if dtype is None:
        raise _unknown(kernel, name, "dtype", f"dtypes={{{name!r}: ...}}")
    if shape is None:
        raise _unknown(kernel, name, "rank", f"ranks={{{name!r}: ...}}")
    return _row(kernel, name, dtype), tuple(shape)


def _results(
    kernel: TorchMetalKernel, described: list[Any], dtype_of: dict[str, Any], rank_of: dict[str, Any]
) -> list[Parameter]:
    names = kernel.result_names
    if all(name in dtype_of and name in rank_of for name in names):
        return [Parameter(dtypes.on_device(_row(kernel, n, dtype_of[n])), rank_of[n]) for n in names]
    traced = reference.trace(kernel, described)
    values = tuple(traced) if isinstance(traced, (list, tuple)) else (traced,)
    validation.check_results(kernel.name, names, [value.shape for value in values], traced)
    return [
        Parameter(dtypes.on_device(_row(kernel, n, dtype_of.get(n, v.dtype))), rank_of.get(n, v.ndim))
        for n, v in zip(names, values, strict=True)
    ]


def _row(kernel: TorchMetalKernel, name: str, dtype: Any) -> ElementType:
    row = dtypes.find(dtype)
    if row is None:
        raise ArgumentError(
            f"kernel {kernel.name!r}: {name!r}: dtype {dtype} does not exist in a kernel; expected one of "
            f"{dtypes.SUPPORTED}"
        )
    return row


def _unknown(kernel: TorchMetalKernel, name: str, what: str, keyword: str) -> ArgumentError:
    return ArgumentError(
        f"kernel {kernel.name!r}: the {what} of input {name!r} is not known; pass {keyword}, example inputs, or set "
        f"kernel.cases"
    )
