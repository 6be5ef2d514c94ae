"""How much a reference magnifies rounding: measured by rounding its inputs and looking at its results."""

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
_RANDOM_ROUNDINGS = 2


@dataclass(frozen=True)
class Condition:
    """What was measured for one result.

    ``inputs_per_result`` is the number of input elements that one result element depends on. ``change`` is, for
    each element, how far it moves (float64) when every input is rounded once with a relative error of 1.
    """

    inputs_per_result: int
    change: torch.Tensor

    def slack(self, dtype: torch.dtype, relative: torch.Tensor) -> torch.Tensor:
        """Return what is added to each element's tolerance; ``relative`` is the relative part of the base."""
        slack = 2.0 * math.sqrt(self.inputs_per_result) * FLOAT32_ROUNDING * self.change
        if dtype is torch.float32:
            return slack
        rounding = self.change * (torch.finfo(dtype).eps / 2)
        if self.inputs_per_result <= CHAIN_LENGTH:
            return slack + 2.0 * rounding
        return slack + torch.minimum(rounding, relative)


def measure(
    reference: Callable[..., Any],
    wide_inputs: Sequence[Any],
    results: Sequence[torch.Tensor | None],
    seed: int,
) -> tuple[Condition | None, ...]:
    """Measure each result's condition; ``results`` are the reference's results on ``wide_inputs`` in float64.

    ``None`` for a result that has none, and for all if the reference does not take the rounded inputs. Every
    floating input is rounded three times: all elements up, which is exact for element-wise work, and each by a
    random part, which shows the cancellation inside a sum. The largest changes of all inputs are added up.
    """
    try:
        changes = _changes(reference, wide_inputs, results, seed)
    except Exception:
        # user code may refuse a value in any way it likes
        return (None,) * len(results)
    counts = _inputs_per_result(reference, wide_inputs, results)
    return tuple(
        None if change is None else Condition(count, change / FLOAT32_ROUNDING)
        for change, count in zip(changes, counts, strict=True)
    )


def _changes(
    reference: Callable[..., Any],
    wide_inputs: Sequence[Any],
    results: Sequence[torch.Tensor | None],
    seed: int,
) -> list[torch.Tensor | None]:
    generator = torch.Generator().manual_seed(seed)
    changes = [torch.zeros_like(result) if result is not None else None for result in results]
    for position, value in enumerate(wide_inputs):
        if isinstance(value, float):
            roundings: tuple[Any, ...] = (1.0,)
        elif _is_float(value):
            roundings = (1.0, *(_random_rounding(value.shape, generator) for _ in range(_RANDOM_ROUNDINGS)))
        else:
            continue
        moved = [
            _moved(reference, wide_inputs, position, value * (1 + FLOAT32_ROUNDING * rounding), results)
            for rounding in roundings
        ]
        for index, change in enumerate(changes):
            if change is not None:
                change += torch.stack([distances[index] for distances in moved]).amax(0)
    return changes


def _random_rounding(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    # of variance 1, and continuous: with +1 and -1 alone, two large terms that cancel would often move alike
    return (torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1) * math.sqrt(3.0)


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
    # an element that changes between finite and not is at the edge of its range: any value may come out
    return torch.where(same, 0.0, torch.where(distance.isnan(), math.inf, distance))


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
