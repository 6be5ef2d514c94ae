"""What was seen: numbers about results, without a judgement."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from metalwright.check import picture
from metalwright.check.condition import Condition
from metalwright.check.pattern import Errors, Pattern, recognise
from metalwright.check.picture import ErrorMap, UlpBin
from metalwright.check.tolerance import EXACT, Tolerance

Index = tuple[int, ...]
# how many of the elements that were never written are listed
_FIRST = 8
# how many of the wrong elements are listed
_WORST = 8
# a sum whose terms come this close to the end of a dtype's range may overflow in between
_NEAR_OVERFLOW = 8
# PyTorch rounds after each of its operations: a chain of this many may be that many roundings from float64
_ROUNDINGS_APART = 16


@dataclass(frozen=True)
class InputData:
    """One input of a case: its dtype and shape, or a scalar's value (dtype ``int``, ``float`` or ``bool``)."""

    name: str
    dtype: str
    shape: Index
    value: int | float | bool | None = None


@dataclass(frozen=True)
class Element:
    """One element of a result: its index in torch order, what the kernel gave and what the reference gave.

    ``error`` is the absolute difference (NaN where either is not finite), ``allowed`` the tolerance there.
    """

    index: Index
    got: int | float | bool
    expected: int | float | bool
    error: float
    allowed: float


@dataclass(frozen=True)
class Unwritten:
    """Elements that no thread wrote: how many, and the first of them."""

    count: int
    first: tuple[Index, ...]


@dataclass(frozen=True)
class OrderDifference:
    """Elements that came out differently when the threads of each threadgroup ran in reverse order.

    ``count`` is the number of elements whose bits differ, ``beyond`` the number that differ by more than the
    tolerance (integers: all). ``first`` is the one that differs most, with the two values.
    """

    count: int
    beyond: int
    index: Index
    forward: int | float | bool
    reverse: int | float | bool


@dataclass(frozen=True)
class ResultData:
    """One result of one case, compared with the reference.

    ``max_abs``, ``max_rel`` and ``max_ulp`` are over the written elements where both values are finite; ``max_ulp``
    counts representable values of the result's dtype between the two (integers: the difference). ``wrong`` is the
    number of written elements outside the tolerance, ``not_finite`` the part of them where only one value is
    finite, or both are not and they differ. ``worst`` is the element furthest beyond (or nearest to) its
    tolerance; ``None`` if every element equals its reference. ``reference`` is the precision the reference was
    evaluated in, ``"float64"`` or the result's dtype. ``inputs_per_result`` is part of the measured condition,
    ``None`` where it was not needed. ``ulps`` counts the elements that ``max_ulp`` is over by their distance.
    ``pattern`` is the shape of the error, where it has one.

    Where something is wrong, ``worst_elements`` has the wrong elements that are furthest beyond their tolerance, and
    ``error_map`` shows where they are; it is left out of the report's JSON.
    """

    name: str
    dtype: str
    shape: Index
    elements: int
    max_abs: float
    max_rel: float
    max_ulp: int
    wrong: int
    not_finite: int
    worst: Element | None
    unwritten: Unwritten | None
    order: OrderDifference | None
    tolerance: Tolerance
    reference: str
    inputs_per_result: int | None
    ulps: tuple[UlpBin, ...] = ()
    worst_elements: tuple[Element, ...] = ()
    error_map: ErrorMap | None = None
    pattern: Pattern | None = None


def compare(
    name: str,
    got: torch.Tensor,
    reverse: torch.Tensor,
    written: torch.Tensor,
    own: torch.Tensor,
    wide: torch.Tensor | None,
    tolerance: Tolerance,
    condition: Callable[[], Condition | None],
    explain: Callable[[Errors], Pattern | None] = recognise,
) -> ResultData:
    """Compare one result with its reference.

    Args:
        name: the result's name.
        got: the kernel's result; ``reverse``: the same with threads in reverse order.
        written: bool, which elements were written.
        own: the reference's result in its own dtype; ``wide``: in float64, or ``None``. All have one shape.
        tolerance: the result's tolerance.
        condition: measures the reference's condition; asked only where the base tolerance is exceeded.
        explain: names the shape of an error; asked only where there is one.
    """
    floating = got.dtype.is_floating_point
    pair = _FloatPair(got, own, wide, tolerance) if floating else _ExactPair(got, own)
    used: Condition | None = None
    bad = pair.bad(written)
    if floating and tolerance.measured and bool(bad.any()):
        used = condition()
        if used is not None:
            pair.widen(used, got.dtype)
            bad = pair.bad(written)
    finite = pair.comparable & written
    steps = pair.steps()
    order = _Order(got, reverse, written, pair.allowed)
    return ResultData(
        name=name,
        dtype=str(got.dtype).removeprefix("torch."),
        shape=tuple(got.shape),
        elements=got.numel(),
        max_abs=_largest(pair.error, finite),
        max_rel=_largest(pair.relative(), finite),
        max_ulp=int(_largest(steps, finite)),
        wrong=int(bad.sum()),
        not_finite=int((bad & ~pair.comparable).sum()),
        worst=_worst(pair, bad, written),
        unwritten=_unwritten(written),
        order=order.data(),
        tolerance=tolerance if floating else EXACT,
        reference="float64" if wide is not None else str(own.dtype).removeprefix("torch."),
        inputs_per_result=used.inputs_per_result if used is not None else None,
        ulps=picture.ulp_histogram(steps[finite]),
        worst_elements=_worst_elements(pair, bad),
        error_map=_error_map(pair, bad, written, order.beyond),
        pattern=explain(_errors(pair, bad, written)) if bool((bad | ~written).any()) else None,
    )


def _error_map(
    pair: _FloatPair | _ExactPair, bad: torch.Tensor, written: torch.Tensor, order: torch.Tensor
) -> ErrorMap | None:
    if not bool((bad | ~written | order).any()):
        return None
    marked = {
        picture.ORDER: order,
        picture.VALUE: bad,
        picture.NOT_FINITE: bad & ~pair.comparable,
        picture.UNWRITTEN: ~written,
    }
    return picture.error_map(pair.error.masked_fill(~written, 0.0), marked)


def _errors(pair: _FloatPair | _ExactPair, bad: torch.Tensor, written: torch.Tensor) -> Errors:
    got, expected = pair.got.to(torch.float64), pair.expected.to(torch.float64)
    return Errors(got, expected, pair.allowed, bad, written)


class _FloatPair:
    """A floating result beside its reference, in float64; ``allowed`` is each element's tolerance."""

    def __init__(
        self, got: torch.Tensor, own: torch.Tensor, wide: torch.Tensor | None, tolerance: Tolerance
    ) -> None:
        self.dtype = got.dtype
        self.raw = got
        self.got = got.to(torch.float64)
        self.own = own.to(torch.float64)
        self.wide = wide if wide is not None else self.own
        # what the exact value is in the result's dtype: a correctly rounded result has no error
        self.rounded = self.wide.to(got.dtype)
        self.expected = self.rounded.to(torch.float64)
        self.comparable = self.got.isfinite() & self.expected.isfinite()
        self.error = (self.got - self.expected).abs()
        size = self.wide.abs()
        self.relative_part = tolerance.rtol * size
        self.measured = tolerance.measured
        self.either = torch.zeros_like(self.comparable)
        self.allowed = self.relative_part + tolerance.atol
        # in float64 there is a value and in the dtype there is none, or the two references disagree about that:
        # the computation leaves the dtype's range, and the order of its operations decides what comes out
        self.out_of_range = self.own.isfinite() != self.expected.isfinite()
        self.out_of_range |= self.wide.isfinite() & ~self.expected.isfinite()
        if self.measured:
            finite = size[size.isfinite()]
            largest = float(finite.max()) if finite.numel() else 0.0
            # the last step of subnormal numbers is larger than any relative tolerance
            step = torch.finfo(got.dtype).smallest_normal * torch.finfo(got.dtype).eps
            self.allowed = self.relative_part + tolerance.atol * (min(1.0, largest) or 1.0) + step

    def widen(self, condition: Condition, dtype: torch.dtype) -> None:
        apart = (self.own - self.wide).abs()
        apart = torch.where(apart.isfinite(), apart, 0.0)
        slack = condition.slack(dtype, self.relative_part)
        # further apart than a few roundings, the two references stand on either side of a jump: a result may be
        # near either, and not between them
        self.either = apart > _ROUNDINGS_APART * (self.allowed + condition.rounding(dtype))
        self.allowed = self.allowed + slack + torch.where(self.either, 0.0, 2.0 * apart)
        # what cancels in the end may have overflowed before
        self.out_of_range |= condition.change >= torch.finfo(dtype).max / _NEAR_OVERFLOW

    def bad(self, written: torch.Tensor) -> torch.Tensor:
        return written & ~self._within()

    def _within(self) -> torch.Tensor:
        within = self.comparable & (self.error <= self.allowed)
        within |= _same(self.got, self.expected)
        if not self.measured:
            return within
        within |= self.comparable & self.either & ((self.got - self.own).abs() <= self.allowed)
        within |= _same(self.got, self.own) | (self.out_of_range & ~self.got.isfinite())
        # rounded beyond the dtype's range on one side, and just within it on the other
        edge = self.wide.isfinite() & (self.got.sign() == self.wide.sign())
        overflowed = self.got.isinf() & (self.wide.abs() + self.allowed >= torch.finfo(self.dtype).max)
        saturated = self.expected.isinf() & ((self.got - self.wide).abs() <= self.allowed)
        return within | (edge & (overflowed | saturated))

    def relative(self) -> torch.Tensor:
        size = self.expected.abs()
        return torch.where(size > 0, self.error / size, torch.where(self.error > 0, math.inf, 0.0))

    def steps(self) -> torch.Tensor:
        return (_ordered(self.raw) - _ordered(self.rounded)).abs().to(torch.float64)

    def excess(self) -> torch.Tensor:
        """How many tolerances the error is; infinite where a value is not finite and the two differ."""
        ratio = self.error / self.allowed
        ratio = torch.where(self.allowed > 0, ratio, torch.where(self.error > 0, math.inf, 0.0))
        ratio = torch.where(self.comparable, ratio, math.inf)
        return torch.where(_same(self.got, self.expected), 0.0, ratio)

    def values(self, position: int) -> tuple[float, float]:
        return float(self.got.reshape(-1)[position]), float(self.expected.reshape(-1)[position])


class _ExactPair:
    """An integer or boolean result beside its reference."""

    def __init__(self, got: torch.Tensor, own: torch.Tensor) -> None:
        self.got = got
        self.expected = own
        self.different = got != own
        # in float64: the difference of two 64-bit integers does not fit in one
        self.error = (got.to(torch.float64) - own.to(torch.float64)).abs()
        self.comparable = torch.ones_like(self.different)
        self.allowed = torch.zeros_like(self.error)

    def widen(self, condition: Condition, dtype: torch.dtype) -> None:
        """Integers are exact whatever the condition."""

    def bad(self, written: torch.Tensor) -> torch.Tensor:
        return written & self.different

    def relative(self) -> torch.Tensor:
        size = self.expected.to(torch.float64).abs()
        return torch.where(size > 0, self.error / size, torch.where(self.error > 0, math.inf, 0.0))

    def steps(self) -> torch.Tensor:
        return self.error

    def excess(self) -> torch.Tensor:
        # large 64-bit integers may differ and be the same float64
        return torch.where(self.different, self.error.clamp(min=1.0), 0.0)

    def values(self, position: int) -> tuple[int | bool, int | bool]:
        return self.got.reshape(-1)[position].item(), self.expected.reshape(-1)[position].item()  # type: ignore


def _same(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return (left == right) | (left.isnan() & right.isnan())


def _ordered(values: torch.Tensor) -> torch.Tensor:
    """Return int64 numbers that count up by one from each value of the dtype to the next; both zeros are 0."""
    bits = values.contiguous().view({2: torch.int16, 4: torch.int32}[values.element_size()]).to(torch.int64)
    magnitude = bits & (2 ** (8 * values.element_size() - 1) - 1)
    return torch.where(bits < 0, -magnitude, magnitude)


def _largest(values: torch.Tensor, where: torch.Tensor) -> float:
    chosen = values[where]
    return float(chosen.max()) if chosen.numel() else 0.0


def _worst(pair: _FloatPair | _ExactPair, bad: torch.Tensor, written: torch.Tensor) -> Element | None:
    excess = pair.excess().masked_fill(~written, 0.0)
    if bool(bad.any()):
        # among what is wrong only: a tolerated difference between infinities has no finite excess
        excess = excess.masked_fill(~bad, -1.0)
    if not excess.numel() or float(excess.max()) <= 0.0:
        return None
    return _element(pair, int(excess.reshape(-1).argmax()))


def _worst_elements(pair: _FloatPair | _ExactPair, bad: torch.Tensor) -> tuple[Element, ...]:
    positions = bad.reshape(-1).nonzero().reshape(-1)
    # stable: of equals the first, as for the worst one
    ranked = pair.excess().reshape(-1)[positions].argsort(descending=True, stable=True)
    return tuple(_element(pair, int(position)) for position in positions[ranked[:_WORST]])


def _element(pair: _FloatPair | _ExactPair, position: int) -> Element:
    got, expected = pair.values(position)
    error = float(pair.error.reshape(-1)[position])
    return Element(
        index=_index(position, pair.error.shape),
        got=got,
        expected=expected,
        error=error if math.isfinite(error) else math.nan,
        allowed=float(pair.allowed.reshape(-1)[position]),
    )


def _unwritten(written: torch.Tensor) -> Unwritten | None:
    missing = (~written).reshape(-1).nonzero().reshape(-1)
    if not missing.numel():
        return None
    return Unwritten(missing.numel(), tuple(_index(int(m), written.shape) for m in missing[:_FIRST]))


class _Order:
    """A result beside that of the threads in reverse order; ``beyond``: where the two are too far apart."""

    def __init__(
        self, forward: torch.Tensor, reverse: torch.Tensor, written: torch.Tensor, allowed: torch.Tensor
    ) -> None:
        floating = forward.dtype.is_floating_point
        self.forward, self.reverse = forward, reverse
        self.different = written & ~(_same(forward, reverse) if floating else forward == reverse)
        distance = (forward.to(torch.float64) - reverse.to(torch.float64)).abs()
        self.distance = torch.where(distance.isfinite(), distance, math.inf)
        self.beyond = self.different & (~(self.distance <= allowed) if floating else self.different)

    def data(self) -> OrderDifference | None:
        if not bool(self.different.any()):
            return None
        among = self.beyond if bool(self.beyond.any()) else self.different
        position = int(self.distance.masked_fill(~among, -1.0).reshape(-1).argmax())
        return OrderDifference(
            count=int(self.different.sum()),
            beyond=int(self.beyond.sum()),
            index=_index(position, self.forward.shape),
            forward=self.forward.reshape(-1)[position].item(),  # type: ignore
            reverse=self.reverse.reshape(-1)[position].item(),  # type: ignore
        )


def _index(position: int, shape: torch.Size) -> Index:
    index: list[int] = []
    for extent in reversed(shape):
        position, remainder = divmod(position, extent)
        index.append(remainder)
    return tuple(reversed(index))
