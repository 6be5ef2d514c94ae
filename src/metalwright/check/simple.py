"""Simple values for an input, and how a value is written in Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from metalwright.check.inputs import Random

# from the simplest on; after them come the values that were drawn
LADDER = {
    "all ones": lambda spec: _ones(spec),
    "small integers": lambda spec: _small(spec),
    "zeros but the last element": lambda spec: _one(spec),
}
_LITERALS_AT_MOST = 4096
_SHORT = 32


@dataclass(frozen=True, eq=False)
class Value:
    """An input, and the Python text that makes it; ``None`` for one that is too large to be written down."""

    value: Any
    text: str | None


def simple(spec: Random, kind: str) -> Value:
    """Return values of a kind of the ladder, inside the input's range."""
    make: Callable[[Random], Value] = LADDER[kind]
    made = make(spec)
    return literal(made.value) if made.value.numel() <= _SHORT else made


def drawn(spec: Random, seed: int, variant: str) -> Value:
    """Return the values that a check draws, as the call that draws them."""
    bounds = "".join(
        f", {name}={bound!r}" for name, bound in (("low", spec.low), ("high", spec.high)) if bound is not None
    )
    text = f"random({tuple(spec.shape)}, {spec.dtype}{bounds}).draw({seed}, {variant!r})"
    return Value(spec.draw(seed, variant), text)


def literal(value: Any) -> Value:
    """Return a value that is given, written out."""
    if not isinstance(value, torch.Tensor):
        return Value(value, f"float({str(value)!r})" if _unwritable(value) else repr(value))
    if not value.numel():
        return Value(value, f"torch.zeros({tuple(value.shape)}, dtype={value.dtype})")
    if value.numel() > _LITERALS_AT_MOST:
        return Value(value, None)
    return Value(value, f"torch.tensor({value.tolist()}, dtype={value.dtype})")


def _unwritable(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _ones(spec: Random) -> Value:
    fill = _fill(spec)
    text = f"torch.full({tuple(spec.shape)}, {fill!r}, dtype={spec.dtype})"
    return Value(torch.full(spec.shape, fill, dtype=spec.dtype), text)


def _small(spec: Random) -> Value:
    cycle = [value for value in range(1, 8) if spec.allows(value)] or [_fill(spec)]
    if spec.dtype is torch.bool:
        cycle = [1, 0]
    count = math.prod(spec.shape)
    values = torch.tensor(cycle)[torch.arange(count) % len(cycle)].reshape(spec.shape).to(spec.dtype)
    text = f"torch.tensor({cycle})[torch.arange({count}) % {len(cycle)}].reshape({tuple(spec.shape)}).to({spec.dtype})"
    return Value(values, text)


def _one(spec: Random) -> Value:
    if not spec.allows(0) or not math.prod(spec.shape):
        return _ones(spec)
    count, fill = math.prod(spec.shape), _fill(spec)
    values = (torch.arange(count) == count - 1).to(spec.dtype).reshape(spec.shape) * fill
    text = f"(torch.arange({count}) == {count - 1}).to({spec.dtype}).reshape({tuple(spec.shape)}) * {fill!r}"
    return Value(values.to(spec.dtype), f"({text}).to({spec.dtype})")


def _fill(spec: Random) -> Any:
    fill: Any = 1
    if not spec.allows(1):
        fill = spec.low if spec.low is not None else (spec.high or 0.0) - 1
    return float(fill) if spec.dtype.is_floating_point else int(fill)
