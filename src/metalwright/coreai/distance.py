"""How far a tensor is from what is expected of it."""

from __future__ import annotations

import math

import torch

# relative to the largest element that is expected; whole numbers and bools have to be equal
DEFAULT_BOUNDS = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def bound(dtype: torch.dtype, rtol: float | None = None) -> float:
    """Return how far a tensor of this type may be: ``rtol``, or the type's default."""
    if not dtype.is_floating_point:
        return 0.0
    return DEFAULT_BOUNDS.get(dtype, 1e-3) if rtol is None else rtol


def relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest finite element that is expected.

    Infinite where the shapes differ, or where one has an infinity or a NaN and the other has not the same.
    """
    if got.shape != expected.shape:
        return math.inf
    a, b = got.to(torch.float64), expected.to(torch.float64)
    same = (a == b) | (a.isnan() & b.isnan())
    if bool(same.all()):
        return 0.0
    difference = torch.where(same, 0.0, (a - b).abs())
    if not bool(difference.isfinite().all()):
        return math.inf
    largest = torch.where(b.isfinite(), b, 0.0).abs().max().item()
    return difference.max().item() / (largest or 1.0)
