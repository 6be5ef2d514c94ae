"""How far a result may be from its reference.

The base is ``rtol * |reference| + atol * min(1, largest |reference|)`` with

=========  =======  =====
dtype      rtol     atol
=========  =======  =====
float32    1.3e-6   1e-5    ``torch.testing``'s default: 11 units of float32's rounding
float16    1e-3     1e-5    ``torch.testing``'s default: one unit in the last place
bfloat16   8e-3     1e-5    one unit in the last place (``torch.testing`` allows two)
integers   0        0       exact
bool       0        0       exact
=========  =======  =====

The absolute part shrinks with the result, so that small results are still looked at.

A computation can lose more than that and be right: a long sum rounds often, and a difference of near-equal
numbers magnifies what was rounded before. So where the base is exceeded, the computation's condition is measured
on the reference itself (:mod:`metalwright.check.condition`) and the tolerance of each element grows by

* twice the distance of PyTorch's own result in this dtype from the reference in float64,
* ``2 * sqrt(n)`` times the change that one float32 rounding of every input makes, where one result element
  depends on ``n`` input elements: what ``n`` float32 additions in any order may lose,
* for float16 and bfloat16, the change that one rounding of every input in that dtype makes: twice it where a
  result depends on at most eight input elements, so that a chain of operations may round after each, as MSL
  does; otherwise no more than ``rtol * |reference|``, so that a long sum must be accumulated in float32.

Only change that shrinks with the rounding counts. At a jump of the reference, such as a comparison with a threshold,
the least rounding of an input may change the result by any amount; that allows a kernel nothing. Where PyTorch's own
result and the reference in float64 stand on different sides of a jump (more than 16 times the base and one rounding
apart), a result is right near either of them, and not between them.

A tolerance that the caller gives is taken as it is, and nothing is added to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from metalwright.errors import ArgumentError


@dataclass(frozen=True)
class Tolerance:
    """A relative and an absolute tolerance; ``measured`` says that the measured condition is added to them."""

    rtol: float
    atol: float
    measured: bool = False

    def describe(self) -> str:
        """Return the tolerance as text, for a report."""
        if not self.rtol and not self.atol:
            return "exact"
        if not self.measured:
            return f"rtol {self.rtol:g}, atol {self.atol:g}, as given"
        return f"rtol {self.rtol:g}, atol {self.atol:g} x min(1, largest |reference|), plus the measured condition"


EXACT = Tolerance(0.0, 0.0)

DEFAULTS: Mapping[torch.dtype, Tolerance] = {
    torch.float32: Tolerance(1.3e-6, 1e-5, measured=True),
    torch.float16: Tolerance(1e-3, 1e-5, measured=True),
    torch.bfloat16: Tolerance(8e-3, 1e-5, measured=True),
}


def tolerances_by_dtype(
    given: Mapping[torch.dtype, Tolerance | tuple[float, float]] | None,
) -> dict[torch.dtype, Tolerance]:
    """Return the defaults with the caller's ``{dtype: (rtol, atol)}`` in their place.

    Raises:
        ArgumentError: a key that is no dtype, or a tolerance that is not two numbers of at least zero.
    """
    table = dict(DEFAULTS)
    for dtype, tolerance in (given or {}).items():
        if not isinstance(dtype, torch.dtype):
            raise ArgumentError(f"tolerances: expected a torch dtype as the key, got {dtype!r}")
        table[dtype] = _parse(dtype, tolerance)
    return table


def _parse(dtype: torch.dtype, tolerance: Tolerance | tuple[float, float]) -> Tolerance:
    if isinstance(tolerance, Tolerance):
        return tolerance
    try:
        rtol, atol = map(float, tolerance)
    except (TypeError, ValueError):
        rtol = atol = math.nan
    if not (rtol >= 0 and atol >= 0):
        raise ArgumentError(f"tolerances: expected (rtol, atol) of at least 0 for {dtype}, got {tolerance!r}")
    return Tolerance(rtol, atol)
