"""Recognising a reduction that holds only what the first simdgroup of each threadgroup added up.

The reference says what that would be: it is run on inputs whose other elements are set to what a sum, a maximum or a
minimum leaves out of account.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from metalwright.check.pattern import Errors, Pattern, partial_sum
from metalwright.check.reference import run

_SIMDGROUP = 32
_MOST_ELEMENTS = 1 << 20
_INTEGERS_AT_LEAST = 3
_CLOSE = 1e-3


def first_simdgroup_only(
    errors: Errors, reference: Callable[..., Any], inputs: Sequence[Any], result: int, threads: int
) -> Pattern | None:
    """Return the pattern if a result is the reference's for the inputs of the first simdgroup alone.

    ``inputs`` are those that ``errors.expected`` was computed from, ``threads`` the size of a threadgroup.
    """
    if threads <= _SIMDGROUP or not _telling(errors):
        return None
    for shown, partly in _partly(inputs, threads):
        try:
            instead = run(reference, partly)[result].to(torch.float64)
        except Exception:
            # user code may refuse an input in any way it likes
            continue
        sentence = f"only the first simdgroup is counted: the result is that of the first 32 {shown}"
        found = partial_sum(errors, instead, sentence)
        if found is not None:
            return found
    return None


def _telling(errors: Errors) -> bool:
    """Whether an agreement would say something: small integers agree by chance, and so do large tolerances."""
    wrong = errors.wrong
    if int(wrong.sum()) >= _INTEGERS_AT_LEAST:
        return True
    off = (errors.got - errors.expected).abs()[wrong]
    allowed = errors.allowed[wrong]
    return bool(off.numel()) and bool(((allowed > 0) & (allowed < _CLOSE * off)).all())


def _partly(inputs: Sequence[Any], threads: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for position, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor) or not 0 < value.numel() <= _MOST_ELEMENTS:
            continue
        for axis in reversed(range(value.dim())):
            index = torch.arange(value.shape[axis])
            kept = {f"elements along axis {axis} of an input": index < _SIMDGROUP}
            if len(index) > threads:
                kept[f"of each {threads} elements along axis {axis} of an input"] = (
                    index % threads < _SIMDGROUP
                )
            for shown, mask in kept.items():
                if bool(mask.all()):
                    continue
                mask = mask.reshape(-1, *(1,) * (value.dim() - axis - 1))
                for neutral in (0, -math.inf, math.inf) if value.is_floating_point() else (0,):
                    rest = torch.where(mask, value, torch.full_like(value, neutral))
                    yield shown, (*inputs[:position], rest, *inputs[position + 1 :])
