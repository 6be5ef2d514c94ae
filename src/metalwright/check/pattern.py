"""Naming the shape of an error: transposed, shifted by one, a constant factor, a tail that is missing, and so on.

A name is a claim about the bug, so it must be sure: the explanation has to fit nearly all wrong elements, and it must
be beyond chance. How often chance would fit is measured by putting the expected values in random order: where these
would explain the wrong elements too, as in a tensor of few values, nothing is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction

import torch

# of the wrong elements, and of all that an explanation speaks of
_NEARLY_ALL = 0.97
_CHANCE_AT_MOST = 1e-5
# a few random orders show no coincidence where a thousand would
_LEAST_CHANCE = 0.05
_ORDERS = 8
_MOST_ELEMENTS = 1 << 20
_PLAIN_DENOMINATOR = 64
# a last element is often wrong for reasons of its own, and often stands at a multiple of a small number
_TILE_OF_ONE_LEFT = 32


@dataclass(frozen=True)
class Pattern:
    """The shape of an error: its name for machines, and what it means as part of a sentence.

    ``name`` is ``"tail"``, ``"negated"``, ``"factor"``, ``"offset"``, ``"transposed"``, ``"reversed"``,
    ``"halves-swapped"``, ``"shifted"``, ``"shared"`` or ``"partial-sum"``.
    """

    name: str
    sentence: str


@dataclass(frozen=True)
class Errors:
    """A wrong result: what was given and expected (float64), which elements are wrong, and what was allowed.

    ``wrong`` are elements that were written and are outside their tolerance; ``tiles`` are the sizes that the
    kernel's work is cut into.
    """

    got: torch.Tensor
    expected: torch.Tensor
    allowed: torch.Tensor
    wrong: torch.Tensor
    written: torch.Tensor
    tiles: Collection[int] = ()

    def explained_by(
        self, instead: torch.Tensor, allowed: torch.Tensor, within: torch.Tensor | None = None
    ) -> bool:
        """Whether ``instead``, where it says something (``within``), is what the kernel gave, and not by chance."""
        said = self.written if within is None else self.written & within
        wrong = self.wrong & said
        if 2 * int(wrong.sum()) < int(self.wrong.sum()):
            return False
        fits = _near(self.got, instead, allowed)
        return _nearly_all(fits, wrong) and _nearly_all(fits, said) and self._beyond_chance(wrong)

    def _beyond_chance(self, wrong: torch.Tensor) -> bool:
        count = int(wrong.sum())
        generator = torch.Generator().manual_seed(0)
        expected, allowed = self.expected.reshape(-1), self.allowed.reshape(-1)
        lucky = 0.0
        for _ in range(_ORDERS):
            order = torch.randperm(expected.numel(), generator=generator)
            fits = _near(self.got.reshape(-1), expected[order], allowed[order])
            lucky += float(fits[wrong.reshape(-1)].double().mean())
        chance = max(lucky / _ORDERS, _LEAST_CHANCE)
        return chance**count < _CHANCE_AT_MOST


def recognise(errors: Errors) -> Pattern | None:
    """Return the shape of an error, or ``None`` where it has none that is sure."""
    elements = errors.got.numel()
    if not 1 < elements <= _MOST_ELEMENTS:
        return None
    for recogniser in (_tail, _scaled, _moved, _shared, _shifted):
        found = recogniser(errors)
        if found is not None:
            return found
    return None


def _tail(errors: Errors) -> Pattern | None:
    """Everything from an element on is wrong or unwritten, and the element begins a tile."""
    for axis, extent in enumerate(errors.got.shape):
        bad = (errors.wrong | ~errors.written).movedim(axis, 0).reshape(extent, -1)
        found = _tail_of(bad, errors.tiles)
        if found is not None:
            where = f" along axis {axis}" if errors.got.dim() > 1 else ""
            return Pattern("tail", _tail_sentence(errors, found, extent, where))
    flat = (errors.wrong | ~errors.written).reshape(-1, 1)
    found = _tail_of(flat, errors.tiles)
    if found is None:
        return None
    return Pattern("tail", _tail_sentence(errors, found, flat.shape[0], " in row-major order"))


def _tail_of(bad: torch.Tensor, tiles: Collection[int]) -> tuple[int, int] | None:
    """Return where the tail begins and the tile it begins at; ``bad`` has a row for each index."""
    rows = bad.any(1).nonzero().reshape(-1)
    if not rows.numel():
        return None
    first, extent = int(rows[0]), bad.shape[0]
    tile = max((tile for tile in tiles if tile > 1 and first % tile == 0), default=None)
    if not first or tile is None or (extent - first == 1 and tile < _TILE_OF_ONE_LEFT):
        return None
    return (first, tile) if float(bad[first:].double().mean()) >= _NEARLY_ALL else None


def _tail_sentence(errors: Errors, found: tuple[int, int], extent: int, where: str) -> str:
    first, tile = found
    state = "wrong" if bool(errors.wrong.any()) else "never written"
    return (
        f"the tail is missing: all elements from index {first} of {extent} on{where} are {state}, and {first} is a "
        f"multiple of {tile}, a tile or threadgroup of the kernel: the last, partial one is left out"
    )


def _scaled(errors: Errors) -> Pattern | None:
    """The wrong elements are the expected ones times a constant, or plus one."""
    chosen = errors.wrong & errors.got.isfinite() & errors.expected.isfinite()
    # the first one is what the constant is taken from and proves nothing
    if not _nearly_all(chosen, errors.wrong) or int(chosen.sum()) < 5:
        return None
    got, expected, allowed = errors.got[chosen], errors.expected[chosen], errors.allowed[chosen]
    if not _varied(expected, allowed):
        return None
    solid = expected != 0
    ratios = got[solid] / expected[solid]
    if ratios.numel():
        factor = _plain(float(ratios.median()))
        slack = allowed * max(1.0, abs(factor)) + 1e-12 * got.abs()
        fits = (got - factor * expected).abs() <= slack
        if factor not in (0.0, 1.0) and _nearly_all(fits, torch.ones_like(fits)):
            if factor == -1:
                return Pattern("negated", "every wrong element is the expected one with the other sign")
            return Pattern("factor", f"every wrong element is {_show(factor)} times the expected one")
    offset = float((got - expected).median())
    rounded = round(offset)
    if abs(rounded - offset) <= float(allowed.max()):
        offset = float(rounded)
    fits = (got - expected - offset).abs() <= 2 * allowed
    if offset and _nearly_all(fits, torch.ones_like(fits)):
        return Pattern("offset", f"every wrong element is the expected one {_show_signed(offset)}")
    return None


def _varied(values: torch.Tensor, allowed: torch.Tensor) -> bool:
    """Whether there are at least four values that no tolerance takes for one another."""
    distinct, last = 0, -math.inf
    slack = 4 * float(allowed.max())
    for value in values.sort().values[:: max(1, values.numel() // 1000)].tolist():
        if value - last > slack:
            distinct, last = distinct + 1, value
    return distinct >= 4


def _moved(errors: Errors) -> Pattern | None:
    """The expected elements stand in other places: transposed, reversed, halves swapped."""
    for sentence, name, move in _moves(errors.expected.shape):
        if errors.explained_by(move(errors.expected), move(errors.allowed)):
            return Pattern(name, sentence)
    return None


_Move = Callable[[torch.Tensor], torch.Tensor]


def _moves(shape: torch.Size) -> Iterator[tuple[str, str, _Move]]:
    rank = len(shape)
    for one in range(rank):
        for other in range(one + 1, rank):
            if min(shape[one], shape[other]) < 2:
                continue
            axes = f"axes {one} and {other}"

            def transpose(values: torch.Tensor, one: int = one, other: int = other) -> torch.Tensor:
                return values.transpose(one, other).reshape(values.shape)

            def back(values: torch.Tensor, one: int = one, other: int = other) -> torch.Tensor:
                turned = values.transpose(one, other).shape
                return values.reshape(turned).transpose(one, other)

            yield f"the result is transposed: {axes} are swapped", "transposed", transpose
            if shape[one] != shape[other]:
                yield f"the result is transposed: {axes} are swapped", "transposed", back
    for axis, extent in enumerate(shape):
        if extent > 1:
            sentence = f"the result is reversed along axis {axis}"
            yield sentence, "reversed", lambda values, axis=axis: values.flip(axis)
        if extent > 2 and extent % 2 == 0:
            sentence = f"the two halves of axis {axis} are swapped"
            yield (
                sentence,
                "halves-swapped",
                lambda values, axis=axis, half=extent // 2: values.roll(half, axis),
            )


def _shared(errors: Errors) -> Pattern | None:
    """Every row is what one row should be."""
    for axis, extent in enumerate(errors.got.shape):
        if extent < 2 or errors.got.dim() < 2:
            continue
        for index, which in ((0, "first"), (extent - 1, "last")):
            one = errors.expected.narrow(axis, index, 1).expand_as(errors.expected)
            allowed = errors.allowed.narrow(axis, index, 1).expand_as(errors.allowed)
            elsewhere = torch.ones_like(errors.wrong)
            elsewhere.narrow(axis, index, 1).fill_(False)
            if errors.explained_by(one, allowed, elsewhere) and _varied(one.reshape(-1), allowed):
                sentence = f"one slice is shared: along axis {axis} every index holds what index {index}, the {which}, "
                return Pattern("shared", sentence + "should hold")
    return None


def _shifted(errors: Errors) -> Pattern | None:
    """Every element is its neighbour along one axis, or in memory."""
    for axis, extent in enumerate(errors.got.shape):
        if extent < 3:
            continue
        for step in (1, -1):
            inside = torch.ones_like(errors.wrong)
            inside.narrow(axis, extent - 1 if step > 0 else 0, 1).fill_(False)
            moved = errors.expected.roll(-step, axis), errors.allowed.roll(-step, axis)
            if errors.explained_by(*moved, inside):
                sign, neighbour = ("+", "next") if step > 0 else ("-", "previous")
                return Pattern(
                    "shifted",
                    f"the result is shifted by one along axis {axis}: index i holds what index i {sign} 1, the "
                    f"{neighbour}, should hold",
                )
    return None


def partial_sum(errors: Errors, instead: torch.Tensor, sentence: str) -> Pattern | None:
    """Return the pattern of a result that is what the reference gives for a part of its input, ``instead``."""
    if instead.shape != errors.expected.shape:
        return None
    # nothing is learnt from elements that the missing part does not change
    changed = ~_near(instead, errors.expected, errors.allowed)
    if not _nearly_all(changed, errors.wrong) or not bool(errors.wrong.any()):
        return None
    fits = _near(errors.got, instead, 2 * errors.allowed)
    return Pattern("partial-sum", sentence) if bool(fits[errors.written].all()) else None


def _near(got: torch.Tensor, wanted: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    return ((got - wanted).abs() <= allowed) | (got == wanted) | (got.isnan() & wanted.isnan())


def _nearly_all(these: torch.Tensor, of: torch.Tensor) -> bool:
    count = int(of.sum())
    return count > 0 and int((these & of).sum()) >= _NEARLY_ALL * count


def _plain(value: float) -> float:
    """Return the fraction of small numbers next to a value, where there is one that is meant."""
    if not math.isfinite(value):
        return 0.0
    near = float(Fraction(value).limit_denominator(_PLAIN_DENOMINATOR))
    return near if near and abs(near - value) <= 1e-5 * abs(value) else value


def _show(value: float) -> str:
    fraction = Fraction(value).limit_denominator(_PLAIN_DENOMINATOR)
    if float(fraction) == value and fraction.denominator > 1 and abs(fraction.numerator) == 1:
        return str(fraction)
    return f"{value:.6g}"


def _show_signed(value: float) -> str:
    return f"{'plus' if value > 0 else 'minus'} {abs(value):.6g}"
