"""The reference's results: in the inputs' own dtype, and in float64 where the reference allows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Expected:
    """What a reference gives for one set of inputs.

    ``own`` are the results in their own dtype. ``wide`` are the floating results of the same computation on
    inputs raised to float64, as float64; ``None`` for integers and where the reference does not take float64.
    ``wide_inputs`` are those inputs.
    """

    own: tuple[torch.Tensor, ...]
    wide: tuple[torch.Tensor | None, ...]
    wide_inputs: tuple[Any, ...]


def evaluate(reference: Callable[..., Any], inputs: Sequence[Any]) -> Expected:
    """Return the reference's results; the inputs are left as they are.

    Raises whatever the reference raises on inputs in their own dtype; that it cannot take float64 is no error.
    """
    inputs = tuple(_as_the_kernel_sees(value) for value in inputs)
    own = run(reference, inputs)
    wide_inputs = tuple(_widen(value) for value in inputs)
    none: tuple[torch.Tensor | None, ...] = (None,) * len(own)
    if not any(result.dtype.is_floating_point for result in own):
        return Expected(own, none, wide_inputs)
    try:
        wide = run(reference, wide_inputs)
    except Exception:
        # user code may refuse float64 in any way it likes; its own dtype is then all there is
        return Expected(own, none, wide_inputs)
    if [result.shape for result in wide] != [result.shape for result in own]:
        return Expected(own, none, wide_inputs)
    return Expected(
        own,
        tuple(_float64(w) if o.dtype.is_floating_point else None for w, o in zip(wide, own, strict=True)),
        wide_inputs,
    )


def run(reference: Callable[..., Any], inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """Return the reference's results as a tuple, computed on copies: a reference may write into its inputs."""
    with torch.no_grad():
        results = reference(
            *(value.clone() if isinstance(value, torch.Tensor) else value for value in inputs)
        )
    return as_tuple(results)


def as_tuple(results: Any) -> tuple[torch.Tensor, ...]:
    """Return the results of a kernel or a reference, one or several, as a tuple."""
    return tuple(results) if isinstance(results, (list, tuple)) else (results,)


def _as_the_kernel_sees(value: Any) -> Any:
    # Python's floats have more digits than the float that the kernel gets
    if isinstance(value, float):
        return float(np.float32(value))
    return value


def _widen(value: Any) -> Any:
    return _float64(value) if isinstance(value, torch.Tensor) and value.dtype.is_floating_point else value


def _float64(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.float64)
