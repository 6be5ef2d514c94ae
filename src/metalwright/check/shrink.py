"""Shrinking: the smallest extents and the simplest values for which a case is wrong in the same way."""

from __future__ import annotations

import contextlib
import math
import os
import random as python_random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metalwright.check.cases import Case
from metalwright.check.inputs import Random, seed_for
from metalwright.check.simple import LADDER, Value, drawn, literal, simple
from metalwright.errors import MetalwrightError

SECONDS = 10.0
_MOST_TRIED = 200
_ALL_EXTENTS_UP_TO = 512

Judge = Callable[[Case, tuple[Any, ...]], Collection[str]]


@dataclass(frozen=True)
class Smallest:
    """The smallest case that is wrong in the same way, and its inputs."""

    case: Case
    values: str
    inputs: tuple[Value, ...]

    def describe(self) -> str:
        """Return it as text, such as ``"m=1, k=17: all ones"``."""
        return f"{', '.join(f'{name}={value}' for name, value in self.case.extents)}: {self.values}"


def inputs_of(case: Case, values: str, seed: int, names: Sequence[str]) -> tuple[Value, ...]:
    """Return a case's inputs with values of the ladder, or of a variant of the generated ones."""
    return tuple(
        literal(value)
        if not isinstance(value, Random)
        else simple(value, values)
        if values in LADDER
        else drawn(value, seed_for(seed, case.name, name, values), values)
        for name, value in zip(names, case.inputs, strict=True)
    )


class _Search:
    """What has been tried: each extents and values once, until the time is over."""

    def __init__(self, case: Case, kind: str, judge: Judge, seed: int, names: Sequence[str]) -> None:
        self.case, self.kind, self.judge = case, kind, judge
        self.seed, self.names = seed, names
        self.tried: dict[tuple[tuple[int, ...], str], bool] = {}
        self.best: tuple[tuple[int, ...], Smallest] | None = None
        self.until = time.monotonic() + SECONDS

    def fails(self, extents: tuple[int, ...], values: str) -> bool:
        # hypothesis asks again for what it has seen and must hear the same, also when the time is over
        key = (extents, values)
        if key not in self.tried:
            if time.monotonic() > self.until:
                return False
            self.tried[key] = self._fails(extents, values)
        return self.tried[key]

    def _fails(self, extents: tuple[int, ...], values: str) -> bool:
        family = self.case.family
        assert family is not None
        names = [name for name, _ in self.case.extents]
        try:
            case = family.case(dict(zip(names, extents, strict=True)))
        except MetalwrightError:
            return False
        if case is None:
            return False
        inputs = inputs_of(case, values, self.seed, self.names)
        if self.kind not in self.judge(case, tuple(value.value for value in inputs)):
            return False
        order = list(LADDER).index(values) if values in LADDER else len(LADDER)
        size = (math.prod(extents), sum(extents), order)
        if self.best is None or size < self.best[0]:
            self.best = (size, Smallest(case, values, inputs))
        return True


def smallest(
    case: Case, variant: str, kind: str, judge: Judge, seed: int, names: Sequence[str]
) -> Smallest | None:
    """Return the smallest case with a finding of this kind; ``None`` where not even this one has it again.

    ``judge`` gives the kinds of findings of a case with these inputs.
    """
    # late, as it takes a while and most checks find nothing
    import hypothesis
    from hypothesis import HealthCheck, strategies
    from hypothesis.errors import HypothesisException

    search = _Search(case, kind, judge, seed, names)
    extents = tuple(value for _, value in case.extents)
    if not search.fails(extents, variant):
        return None
    drawn_from = strategies.tuples(
        strategies.tuples(*(strategies.sampled_from(_candidates(extent)) for extent in extents)),
        strategies.sampled_from([*LADDER, *[variant] * len(LADDER)]),
    )
    settings = hypothesis.settings(
        max_examples=_MOST_TRIED,
        database=None,
        deadline=None,
        suppress_health_check=tuple(HealthCheck),  # pyright: ignore[reportArgumentType]
        verbosity=hypothesis.Verbosity.quiet,
    )
    # the time may be over before a failure was met: the case itself is then the smallest known
    with _nothing_written(), contextlib.suppress(HypothesisException):
        hypothesis.find(
            drawn_from,
            lambda value: search.fails(*value),
            settings=settings,
            random=python_random.Random(seed),
        )
    assert search.best is not None
    return search.best[1]


def _candidates(extent: int) -> list[int]:
    """Return extents from the smallest on, every other draw being the extent that is known to fail."""
    step = max(1, extent // _ALL_EXTENTS_UP_TO)
    smaller = [*range(1, min(extent, _ALL_EXTENTS_UP_TO)), *range(_ALL_EXTENTS_UP_TO, extent, step)]
    return [*smaller, *[extent] * (len(smaller) + 1)]


@contextlib.contextmanager
def _nothing_written() -> Iterator[None]:
    """Keep hypothesis from leaving a folder of its own in the user's working directory."""
    from hypothesis.configuration import set_hypothesis_home_dir

    set_hypothesis_home_dir(
        Path(os.devnull) / "hypothesis"
    )  # no folder can be made there, and it does without
    try:
        yield
    finally:
        set_hypothesis_home_dir(None)
