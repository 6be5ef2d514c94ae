"""Cases of shapes at which kernels break: 1, primes, and one below, at and above each tile and threadgroup."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from metalwright.check.cases import Case
from metalwright.check.family import Family
from metalwright.check.inputs import Random
from metalwright.check.tiles import tile_sizes

_PRIMES = (7, 37)
_MOST_CASES = 60
# a check is to stay a matter of seconds: larger cases show no edge that these do not
_MOST_ELEMENTS = 1 << 17


def edge_cases(family: Family, cases: Sequence[Case]) -> Iterator[Case]:
    """Yield cases of a family that stress edges and are not among the given ones, which are its kernel's own."""
    tiles = tile_sizes(family.kernel, _groups(family, cases))
    known = {_identity(case) for case in cases}
    made = 0
    for member, extents in _all(family, tiles):
        case = member.case(extents)
        if case is None or _elements(case) > _MOST_ELEMENTS or _identity(case) in known:
            continue
        known.add(_identity(case))
        yield replace(case, at_edge=extents != family.example)
        made += 1
        if made == _MOST_CASES:
            return


def _all(family: Family, tiles: Sequence[int]) -> Iterator[tuple[Family, Mapping[str, int]]]:
    # other dtypes and threadgroups at ordinary extents first, as the number of cases has an end
    yield family, family.example
    for member in family.variants():
        yield member, member.example
    for extents in edge_extents(family.example, tiles):
        yield family, extents


def edge_extents(example: Mapping[str, int], tiles: Sequence[int]) -> Iterator[Mapping[str, int]]:
    """Yield extents at the edges: all at once, then one after the other beside ordinary ones."""
    around = [size + step for size in tiles for step in (-1, 1, 0)]
    edges = list(dict.fromkeys((1, *_PRIMES, *around)))
    for edge in edges:
        yield dict.fromkeys(example, edge)
    if len(example) > 1:
        for edge in edges:
            for name in example:
                yield {**example, name: edge}


def _groups(family: Family, cases: Sequence[Case]) -> list[tuple[int, ...]]:
    ordinary = family.case(family.example)
    return [case.threads_per_thread_group for case in (*cases, *([ordinary] if ordinary else ()))]


def _elements(case: Case) -> int:
    inputs = [math.prod(getattr(value, "shape", ())) for value in case.inputs]
    return max(math.prod(case.threads_per_grid), *inputs, *map(math.prod, case.result_shapes))


def _identity(case: Case) -> tuple[Any, ...]:
    # the same shapes of the same dtypes are the same case, whatever it is called
    inputs = tuple(
        (tuple(value.shape), value.dtype) if hasattr(value, "shape") else value for value in case.inputs
    )
    drawn = all(isinstance(value, Random) or not hasattr(value, "shape") for value in case.inputs)
    sizes = (case.threads_per_grid, case.threads_per_thread_group, case.result_shapes)
    return inputs, drawn, sizes
