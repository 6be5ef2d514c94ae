"""Attention of a few queries, in one pass or in two, and what the blocked attention does before and after its products."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from arrays import TYPES, garbage, groups, normal, placed
from units import UTILS, Unit

# blocks of keys that the first of two passes sums, each by a threadgroup
BLOCKS = 32
# results are rounded once, or the partial ones too; float sums are in another order
CLOSE = {"float": (1e-5, 1e-5), "half": (2e-3, 2e-3), "bfloat16_t": (1.6e-2, 1.6e-2)}


@dataclass(frozen=True)
class Attention:
    """One specialisation.

    Attributes:
        size: elements of a query and a key.
        value_size: elements of a value.
        heads: heads of the queries; each ``shared`` of them have one head of keys and values.
        mask: the mask's type, ``"bool"`` or ``"float"``, or nothing.
        by_position: queries lie by position, then by head.
    """

    kind: str = "float"
    size: int = 64
    value_size: int = 64
    heads: int = 2
    shared: int = 1
    causal: bool = False
    mask: str = ""
    sinks: bool = False
    by_position: bool = False

    @property
    def constants(self) -> tuple[tuple[int, bool | int], ...]:
        flags = (
            bool(self.mask),
            self.by_position,
            self.causal,
            self.mask == "bool",
            self.mask == "float",
            self.sinks,
        )
        return (*((20 + i, flag) for i, flag in enumerate(flags)), (26, BLOCKS))


@dataclass(frozen=True)
class Inputs:
    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    mask: torch.Tensor
    sinks: torch.Tensor
    scale: float

    @classmethod
    def of(cls, case: Attention, length: int, keys: int) -> Inputs:
        """Return random ones: keys and values lie in longer caches, a query may be masked from all keys."""
        seed = 100 * length + keys
        batch = 1 if case.by_position else 2
        shape = (batch, length, case.heads) if case.by_position else (batch, case.heads, length)
        queries = normal(seed, *shape, case.size, kind=case.kind)
        own = case.heads // case.shared
        cached = (batch, own, keys + 3)
        mask = normal(seed + 3, batch, case.heads, length, keys, kind=case.kind)
        if case.mask == "bool":
            mask = mask > 0
            mask[0, 0, 0] = False
        elif case.mask:
            mask[mask > 1] = -math.inf
        return cls(
            queries.transpose(1, 2) if case.by_position else queries,
            normal(seed + 1, *cached, case.size, kind=case.kind)[:, :, :keys],
            normal(seed + 2, *cached, case.value_size, kind=case.kind)[:, :, :keys],
            mask,
            normal(seed + 4, case.heads, kind=case.kind),
            case.size**-0.5,
        )


def attend(case: Attention, given: Inputs) -> torch.Tensor:
    """Return the attention, in double: where all keys are masked, nothing."""
    queries, keys, values = (one.double() for one in (given.queries, given.keys, given.values))
    length, count = queries.shape[2], keys.shape[2]
    scores = given.scale * queries @ keys.repeat_interleave(case.shared, 1).mT
    if case.mask == "bool":
        scores = scores.masked_fill(~given.mask, -math.inf)
    elif case.mask:
        scores = scores + given.mask.double()
    if case.causal:
        later = torch.arange(count) > torch.arange(length)[:, None] + count - length
        scores = scores.masked_fill(later, -math.inf)
    if case.sinks:
        column = given.sinks.double().reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, column], -1)
    weights = scores.softmax(-1).nan_to_num(0)[..., :count]
    return weights @ values.repeat_interleave(case.shared, 1)


def masks(case: Attention, given: Inputs, first: int) -> dict[int, Any]:
    """Return the arguments of a mask and its steps from one key, query and head to the next, from a buffer on."""
    if not case.mask:
        return {}
    # of all dimensions but the heads of a batch, which follow each other
    _, head, query, key = given.mask.stride()
    at = first + (case.mask == "float")
    return {at: given.mask, first + 2: key, first + 3: query, first + 4: head}


def close(case: Attention, out: torch.Tensor, expected: torch.Tensor) -> None:
    rtol, atol = CLOSE[case.kind]
    torch.testing.assert_close(out, expected.to(out.dtype), rtol=rtol, atol=atol)


CASES = (
    Attention(heads=4, shared=2),
    Attention("half", 96, 96, causal=True, by_position=True),
    Attention("half", 64, 64, heads=4, shared=4, mask="bool"),
    Attention("float", 64, 64, mask="float", sinks=True),
    Attention("bfloat16_t", 192, 128, heads=4, shared=2, causal=True, sinks=True),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sdpa_vector(bench, case: Attention) -> None:
    arguments = f"{case.kind}, {case.size}, {case.value_size}"
    unit = Unit("sdpa_vector.h", UTILS, (("sdpa_vector", "sdpa_vector", arguments),), case.constants)
    for length, count in ((1, 1), (1, 65), (3, 31)):
        given = Inputs.of(case, length, count)
        batch = given.queries.shape[0]
        out = garbage(batch, case.heads, length, case.value_size, dtype=TYPES[case.kind])
        bench.run(
            unit,
            "sdpa_vector",
            *placed(
                {
                    0: given.queries,
                    1: given.keys,
                    2: given.values,
                    3: out,
                    4: case.shared,
                    5: count,
                    6: given.keys.stride(1),
                    7: given.keys.stride(2),
                    8: given.values.stride(1),
                    9: given.values.stride(2),
                    10: given.scale,
                }
                | masks(case, given, 11)
                | ({16: given.sinks, 17: case.heads} if case.sinks else {})
            ),
            **groups(batch * case.heads, length, 1, group=(1024, 1, 1)),
        )
        close(case, out, attend(case, given))


class TwoPasses:
    """What the first pass leaves for the second: of each block of keys the weighted values, the weights, the maximum."""

    def __init__(self, case: Attention, given: Inputs) -> None:
        self.case, self.given = case, given
        batch, _, self.length, _ = given.queries.shape
        self.shape = (batch, case.heads, self.length)
        self.partial = garbage(*self.shape, BLOCKS, case.value_size, dtype=TYPES[case.kind])
        self.sums = garbage(*self.shape, BLOCKS, dtype=torch.float32)
        self.maxima = garbage(*self.shape, BLOCKS, dtype=torch.float32)

    def first(self, bench: Any, unit: Unit, more: dict[int, Any]) -> None:
        given, case = self.given, self.case
        arguments = {
            0: given.queries,
            1: given.keys,
            2: given.values,
            3: self.partial,
            4: self.sums,
            5: self.maxima,
            7: given.keys.shape[2],
            8: given.keys.stride(1),
            9: given.keys.stride(2),
            10: given.values.stride(1),
            11: given.values.stride(2),
            12: given.scale,
        }
        bench.run(
            unit,
            unit.kernels[0][0],
            *placed(arguments | more),
            **groups(case.heads // case.shared, self.shape[0], BLOCKS, group=(32, case.shared, self.length)),
        )

    def second(self, bench: Any) -> torch.Tensor:
        name, case = "sdpa_vector_2pass_2", self.case
        kernels = ((name, name, f"{case.kind}, {case.value_size}"),)
        unit = Unit("sdpa_vector.h", UTILS, kernels, Attention().constants)
        out = garbage(*self.shape, case.value_size, dtype=TYPES[case.kind])
        bench.run(
            unit,
            name,
            self.partial,
            self.sums,
            self.maxima,
            out,
            BLOCKS,
            **groups(self.shape[0] * case.heads, self.length, 1, group=(1024, 1, 1)),
        )
        return out


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sdpa_vector_2pass(bench, case: Attention) -> None:
    name = "sdpa_vector_2pass_1"
    arguments = f"{case.kind}, {case.size}, {case.value_size}"
    unit = Unit("sdpa_vector.h", UTILS, ((name, name, arguments),), case.constants)
    # fewer keys than blocks, and enough for a block to take four at once and then some
    for length, count in ((1, 7), (2, 3 * BLOCKS + 20), (1, 5 * BLOCKS)):
        given = Inputs.of(case, length, count)
        passes = TwoPasses(case, given)
        passes.first(bench, unit, masks(case, given, 13) | ({18: given.sinks} if case.sinks else {}))
        close(case, passes.second(bench), attend(case, given))


@pytest.mark.parametrize(
    ("case", "each"),
    [(Attention(heads=16, shared=8), 4), (Attention("half", 128, 128, heads=16, shared=16), 2)],
    ids=str,
)
def test_sdpa_vector_2pass_gqa(bench, case: Attention, each: int) -> None:
    """Simdgroups share the keys of a block, and each has several heads."""
    name = "sdpa_vector_2pass_1_gqa"
    arguments = f"{case.kind}, {case.size}, {case.value_size}, {case.shared}, {each}"
    unit = Unit("sdpa_vector.h", UTILS, ((name, name, arguments),), case.constants)
    for count in (9, 3 * BLOCKS + 5, 7 * BLOCKS):
        given = Inputs.of(case, 1, count)
        passes = TwoPasses(case, given)
        passes.first(bench, unit, {})
        close(case, passes.second(bench), attend(case, given))


@pytest.mark.parametrize("kind", ["float", "half"])
def test_sdpa_blocked_scale_copy(bench, kind: str) -> None:
    name = "sdpa_blocked_scale_copy"
    unit = Unit("sdpa_blocked.h", UTILS, ((name, name, kind),))
    batch, heads, rows, size, offset = 2, 3, 5, 40, 4
    # by position, then by head
    queries = normal(1, batch, offset + rows + 2, heads, size, kind=kind).transpose(1, 2)
    out = garbage(batch, heads, rows, size, dtype=TYPES[kind])
    bench.run(
        unit,
        name,
        queries,
        out,
        0.125,
        torch.tensor(queries.stride()),
        heads,
        rows,
        size,
        offset,
        threads=(size, rows, batch * heads),
        group=(16, 4, 1),
    )
    assert torch.equal(out, queries[:, :, offset : offset + rows] * 0.125)


@pytest.mark.parametrize("kind", ["half", "bfloat16_t"])
def test_sdpa_blocked_causal_mask(bench, kind: str) -> None:
    name = "sdpa_blocked_causal_mask"
    unit = Unit("sdpa_blocked.h", UTILS, ((name, name, kind),))
    tile, columns = 7, 20
    scores = normal(2, 3, tile, columns, kind=kind)
    # the last columns are the tile's own keys
    later = torch.arange(columns) - (columns - tile) > torch.arange(tile)[:, None]
    expected = scores.masked_fill(later, torch.finfo(scores.dtype).min)
    bench.run(unit, name, scores, tile, columns, threads=(tile, 3 * tile), group=(7, 3))
    assert torch.equal(scores, expected)
