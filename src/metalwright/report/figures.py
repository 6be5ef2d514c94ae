"""The pictures of a report as plain numbers and SVG paths; the template draws them, the style sheet colours them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from metalwright.check import picture
from metalwright.check.data import ResultData
from metalwright.check.picture import ErrorMap

_LEVELS = 5
_WIDEST = 512
_LARGEST_CELL, _SMALLEST_CELL = 22, 8
# numbers beside a map may not touch
_BETWEEN_COLUMNS, _BETWEEN_ROWS = 48, 22
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_MARKED = {
    picture.RIGHT: ("right", "right"),
    picture.ORDER: ("order", "depends on the order of threads"),
    picture.NOT_FINITE: ("not-finite", "infinite or NaN on one side"),
    picture.UNWRITTEN: ("unwritten", "never written"),
}


@dataclass(frozen=True)
class Layer:
    """All cells of one kind: a CSS class, what the legend says, and the path that covers them, a cell being 1 × 1."""

    kind: str
    label: str
    path: str


@dataclass(frozen=True)
class Tick:
    """A number beside the map; ``at`` in pixels."""

    at: float
    label: str


@dataclass(frozen=True)
class HeatMap:
    """A map of errors: its size in pixels, ``cell`` pixels a cell."""

    width: int
    height: int
    cell: int
    layers: tuple[Layer, ...]
    along: tuple[Tick, ...]
    down: tuple[Tick, ...]
    caption: str


@dataclass(frozen=True)
class Bar:
    """A bar of a histogram; ``share`` of the longest, in percent. ``gap``: bins without elements came before it."""

    label: str
    count: int
    share: float
    gap: bool


def heat_map(result: ResultData) -> HeatMap | None:
    """Return the picture of where a result is wrong; ``None`` if it is right."""
    seen = result.error_map
    if seen is None:
        return None
    down, along = len(seen.marks), len(seen.marks[0])
    cell = max(_SMALLEST_CELL, min(_LARGEST_CELL, _WIDEST // max(along, down)))
    return HeatMap(
        width=along * cell,
        height=down * cell,
        cell=cell,
        layers=tuple(_layers(seen)),
        along=_ticks(along, cell, seen.cell_columns, _BETWEEN_COLUMNS),
        # in a folded result, the number of a row is that of its first element
        down=_ticks(down, cell, seen.columns if seen.folded else seen.cell_rows, _BETWEEN_ROWS),
        caption=_caption(seen, result),
    )


def histogram(result: ResultData) -> tuple[Bar, ...]:
    """Return the bars for the distances of a result's elements from their reference."""
    longest = max((entry.count for entry in result.ulps), default=0)
    bars: list[Bar] = []
    below = 0
    for entry in result.ulps:
        bars.append(
            Bar(_range(entry.most), entry.count, 100 * entry.count / longest, entry.most > max(1, 2 * below))
        )
        below = entry.most
    return tuple(bars)


def _range(most: int) -> str:
    if most <= 2:
        return str(most)
    if most < 2**17:
        return f"{most // 2 + 1:,} – {most:,}"
    power = most.bit_length() - 1
    return f"2{_raised(power - 1)} – 2{_raised(power)}"


def _raised(power: int) -> str:
    return str(power).translate(_SUPERSCRIPTS)


def _layers(seen: ErrorMap) -> Iterator[Layer]:
    columns = len(seen.marks[0])
    wrong = [
        error for error, mark in zip(seen.errors, "".join(seen.marks), strict=True) if mark == picture.VALUE
    ]
    scale = _Scale(wrong)
    kinds: list[list[tuple[str, str] | None]] = []
    for row, marks in enumerate(seen.marks):
        errors = seen.errors[row * columns : (row + 1) * columns]
        kinds.append(
            [
                scale.kind(error) if mark == picture.VALUE else _MARKED.get(mark)
                for error, mark in zip(errors, marks, strict=True)
            ]
        )
    order = [*scale.kinds(), *_MARKED.values()]
    for kind in order:
        if path := _path(kinds, kind):
            yield Layer(*kind, path)


class _Scale:
    """Errors on a logarithmic scale, in a few levels between the smallest and the largest."""

    def __init__(self, errors: Iterable[float]) -> None:
        positive = [error for error in errors if error > 0]
        self._low = math.log10(min(positive)) if positive else 0.0
        self._high = math.log10(max(positive)) if positive else 0.0
        # closer than that they are alike
        self._levels = _LEVELS if self._high - self._low > 0.05 else 1

    def kind(self, error: float) -> tuple[str, str]:
        if self._levels == 1 or error <= 0:
            return self.kinds()[-1 if self._levels == 1 else 0]
        part = (math.log10(error) - self._low) / (self._high - self._low)
        return self.kinds()[min(self._levels - 1, max(0, int(part * self._levels)))]

    def kinds(self) -> list[tuple[str, str]]:
        if self._levels == 1:
            return [(f"level-{_LEVELS}", f"wrong, off by {10**self._high:.3g}")]
        step = (self._high - self._low) / self._levels
        edges = [10 ** (self._low + step * level) for level in range(self._levels + 1)]
        return [
            (f"level-{level + 1}", f"wrong, off by {edges[level]:.3g} to {edges[level + 1]:.3g}")
            for level in range(self._levels)
        ]


def _path(kinds: list[list[tuple[str, str] | None]], wanted: tuple[str, str]) -> str:
    parts: list[str] = []
    for row, cells in enumerate(kinds):
        column = 0
        for kind, run in groupby(cells):
            length = len(list(run))
            if kind == wanted:
                parts.append(f"M{column} {row}h{length}v1h-{length}z")
            column += length
    return "".join(parts)


def _ticks(cells: int, size: int, elements: int, apart: int) -> tuple[Tick, ...]:
    step = 1
    while step * size < apart and step < cells:
        step *= 2
    return tuple(Tick((cell + 0.5) * size, str(cell * elements)) for cell in range(0, cells, step))


def _caption(seen: ErrorMap, result: ResultData) -> str:
    each = seen.cell_rows * seen.cell_columns
    cell = "one element" if each == 1 else f"{seen.cell_rows} × {seen.cell_columns} elements"
    if seen.folded:
        cell = "one element" if each == 1 else f"{each} elements"
        return f"The elements in order, {seen.columns} a line as text is read; a cell is {cell}."
    if len(result.shape) > 2:
        return (
            f"The last axis from left to right, {seen.columns} long; all others stacked, {seen.rows} rows. "
            f"A cell is {cell}."
        )
    return f"{seen.rows} × {seen.columns}, the last axis from left to right; a cell is {cell}."
