"""The PyTorch reference of a kernel: how to find it, what it returns, tracing it without data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, get_origin

import torch
from coreai_torch import TorchMetalKernel
from torch._subclasses.fake_tensor import FakeTensorMode

from metalwright.authoring import validation
from metalwright.authoring.dtypes import ElementType
from metalwright.errors import ArgumentError


def of(kernel: TorchMetalKernel) -> Callable[..., Any]:
    """Return the function that the kernel was defined with."""
    own = getattr(kernel, "torch_defn", None)
    # a plain Core AI kernel keeps it only inside its operator
    return own if own is not None else inspect.unwrap(kernel.torch_custom_op._init_fn)


def structure(kernel: TorchMetalKernel) -> Callable[[Sequence[Any]], Any]:
    """Return what turns a sequence of results into what the reference returns: one tensor, a list or a tuple."""
    annotation = inspect.signature(of(kernel), eval_str=True).return_annotation
    if annotation is torch.Tensor:
        return lambda results: results[0]
    return list if get_origin(annotation) is list else tuple


def trace(
    kernel: TorchMetalKernel,
    inputs: Sequence[tuple[ElementType, tuple[int, ...]] | int | float | bool],
) -> Any:
    """Return the reference's result for inputs given by dtype and shape (scalars by value): fake tensors, no data.

    Raises :class:`ArgumentError` if the reference cannot run that way.
    """
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        values = [
            torch.empty(value[1], dtype=value[0].torch, device="cpu") if isinstance(value, tuple) else value
            for value in inputs
        ]
        try:
            return of(kernel)(*values)
        except Exception as error:
            shown = ", ".join(
                f"{name}={_shown(v)}" for name, v in zip(kernel.input_names, inputs, strict=True)
            )
            raise ArgumentError(
                f"kernel {kernel.name!r}: the reference cannot be traced for {shown} (Core AI's export traces it the "
                f"same way, without the values in the tensors): {type(error).__name__}: {error}"
            ) from error


def result_types(
    kernel: TorchMetalKernel,
    inputs: Sequence[tuple[ElementType, tuple[int, ...]] | int | float | bool],
    shapes: Sequence[tuple[int, ...]],
) -> tuple[ElementType, ...]:
    """Return the results' element types, having checked their shapes against the reference's."""
    values = validation.check_results(kernel.name, kernel.result_names, shapes, trace(kernel, inputs))
    return tuple(
        validation.result_type(kernel.name, name, value.dtype)
        for name, value in zip(kernel.result_names, values, strict=True)
    )


def _shown(value: Any) -> str:
    return f"{value[0].name}{list(value[1])}" if isinstance(value, tuple) else repr(value)
