"""How much a reference magnifies rounding: measured by rounding its inputs and looking at its results.

What is measured must be rounding, magnified, and not a jump. At ``x == c`` the least rounding moves ``x < c`` to the
other side, and a kernel that compares with a wrong ``c`` is wrong by just that much. So every rounding is tried at
two sizes: where the change does not shrink with the rounding, it is a jump and says nothing about accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from metalwright.check.reference import run

FLOAT32_ROUNDING = 2.0**-24
# results that depend on no more inputs than this are taken for a chain of operations, others for a sum
CHAIN_LENGTH = 8
_RANDOM_ROUNDINGS = 3
# A rounding this many times smaller changes the result as many times less where the reference is smooth, and
# sqrt(8) = 2.8 times less at the foot of a square root; a jump stays as it is.
_SMALLER = 8.0
_SHRINKS_AT_LEAST = 2.0


@dataclass(frozen=True)
class Condition:
    """What was measured for one result.

    ``inputs_per_result`` is the number of input elements that one result element depends on. ``change`` is, for
    each element, how far it moves (float64) when every input is rounded once with a relative error of 1: measured
    with float32's rounding, and extrapolated. ``coarse`` is the same measured with the rounding of the result's own
    dtype, where that is float16 or bfloat16. Both are finite, and leave out jumps.
    """

    inputs_per_result: int
    change: torch.Tensor
    coarse: torch.Tensor | None = None

    def slack(self, dtype: torch.dtype, relative: torch.Tensor) -> torch.Tensor:
        """Return what is added to each element's tolerance; ``relative`` is the relative part of the base."""
        slack = 2.0 * math.sqrt(self.inputs_per_result) * FLOAT32_ROUNDING * self.change
        if dtype is torch.float32:
            return slack
        rounding = self.rounding(dtype)
        if self.inputs_per_result <= CHAIN_LENGTH:
            return slack + 2.0 * rounding
        return slack + torch.minimum(rounding, relative)

    def rounding(self, dtype: torch.dtype) -> torch.Tensor:
        """Return how far each element moves when every input is rounded once in this dtype."""
        # next to a square root's foot the extrapolation alone would allow anything
        change = self.change if self.coarse is None else torch.minimum(self.change, self.coarse)
        return change * unit(dtype)


def unit(dtype: torch.dtype) -> float:
    """Return the largest relative error of one rounding in a floating dtype."""
    return torch.finfo(dtype).eps / 2


def measure(
    reference: Callable[..., Any],
    wide_inputs: Sequence[Any],
    results: Sequence[torch.Tensor | None],
    seed: int,
    dtypes: Sequence[torch.dtype] = (),
) -> tuple[Condition | None, ...]:
    """Measure each result's condition; ``results`` are the reference's results on ``wide_inputs`` in float64.

    ``None`` for a result that has none, and for all if the reference does not take the rounded inputs. ``dtypes``
    are the results' own. Every floating input is rounded several times: all elements up, which is exact for
    element-wise work, and each by a random part, which shows the cancellation inside a sum. The largest changes of
    all inputs are added up.
    """
    try:
        changes = _changes(reference, wide_inputs, results, FLOAT32_ROUNDING, seed)
    except Exception:
        # user code may refuse a value in any way it likes
        return (None,) * len(results)
    counts = _inputs_per_result(reference, wide_inputs, results)
    coarse: dict[torch.dtype, list[torch.Tensor | None]] = {}
    for dtype in dtypes:
        if dtype in (torch.float16, torch.bfloat16) and dtype not in coarse:
            try:
                coarse[dtype] = _changes(reference, wide_inputs, results, unit(dtype), seed)
            except Exception:
                coarse[dtype] = [None] * len(results)
    return tuple(
        None
        if change is None
        else Condition(count, change, coarse[dtypes[i]][i] if dtypes and dtypes[i] in coarse else None)
        for i, (change, count) in enumerate(zip(changes, counts, strict=True))
    )


def _changes(
    reference: Callable[..., Any],
    wide_inputs: Sequence[Any],
    results: Sequence[torch.Tensor | None],
    size: float,
    seed: int,
) -> list[torch.Tensor | None]:
    """Return each result's change, over the size of the rounding that it was measured with."""
    generator = torch.Generator().manual_seed(seed)
    changes = [torch.zeros_like(result) if result is not None else None for result in results]
    for position, value in enumerate(wide_inputs):
        if isinstance(value, float):
            roundings: tuple[Any, ...] = (1.0, -1.0)
        elif _is_float(value):
            roundings = (
                1.0,
                -1.0,
                *(_random_rounding(value.shape, generator) for _ in range(_RANDOM_ROUNDINGS)),
            )
        else:
            continue
        largest = [torch.zeros_like(result) if result is not None else None for result in results]
        for rounding in roundings:
            full, small = (
                _moved(reference, wide_inputs, position, value * (1 + step * rounding), results)
                for step in (size, size / _SMALLER)
            )
            for index, before in enumerate(largest):
                if before is not None:
                    change = _without_jumps(full[index], small[index]) / size
                    largest[index] = torch.maximum(before, change)
        for change, of_input in zip(changes, largest, strict=True):
            if change is not None and of_input is not None:
                change += of_input
    return changes


def _without_jumps(full: torch.Tensor, small: torch.Tensor) -> torch.Tensor:
    """Return the change by a rounding: 0 where it is a jump, seen by the ``small``er rounding too or not."""
    change = torch.minimum(full, small * _SMALLER)
    return torch.where(small * _SHRINKS_AT_LEAST > full, 0.0, change)


def _random_rounding(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    # no larger than a rounding may be, and continuous: by +1 and -1 two terms that cancel would often move alike
    return torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1


def _moved(
    reference: Callable[..., Any],
    inputs: Sequence[Any],
    position: int,
    value: Any,
    results: Sequence[torch.Tensor | None],
) -> list[torch.Tensor]:
    moved = run(reference, (*inputs[:position], value, *inputs[position + 1 :]))
    return [
        torch.zeros(()) if before is None else _distance(before, after.to(torch.float64))
        for before, after in zip(results, moved, strict=True)
    ]


def _distance(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    same = (before == after) | (before.isnan() & after.isnan())
    distance = (before - after).abs()
    # between finite and not there is no distance: that is a jump, too
    return torch.where(same | ~distance.isfinite(), 0.0, distance)


def _inputs_per_result(
    reference: Callable[..., Any], inputs: Sequence[Any], results: Sequence[torch.Tensor | None]
) -> list[int]:
    """Count the inputs with a non-zero derivative for a few elements of each result, at ordinary values."""
    generator = torch.Generator().manual_seed(0)
    replaced = [_ordinary(value, generator) if _is_float(value) else value for value in inputs]
    leaves = [value for value in replaced if isinstance(value, torch.Tensor) and value.requires_grad]
    # what can be said without derivatives: a sum usually runs over one axis
    guess = max((max(value.shape, default=1) for value in leaves), default=1)
    try:
        with torch.enable_grad():
            # on copies: a reference may write into its inputs, and a leaf cannot be written into
            outputs = reference(*(value.clone() if _is_float(value) else value for value in replaced))
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        return [
            _count(output, leaves) if result is not None else 1
            for output, result in zip(outputs, results, strict=True)
        ]
    except Exception:
        # a reference need not be differentiable, and it may say so in any way it likes
        return [guess] * len(results)


def _count(output: torch.Tensor, leaves: Sequence[torch.Tensor]) -> int:
    if not output.requires_grad or not output.numel():
        return 1
    flat = output.reshape(-1)
    counts = [1]
    for element in {0, flat.numel() // 2, flat.numel() - 1}:
        gradients = torch.autograd.grad(flat[element], list(leaves), retain_graph=True, allow_unused=True)
        counts.append(sum(int((gradient != 0).sum()) for gradient in gradients if gradient is not None))
    return max(counts)


def _ordinary(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    # zeros, infinities and NaN hide a dependence
    return (torch.rand(value.shape, generator=generator, dtype=torch.float64) + 0.5).requires_grad_()


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point
