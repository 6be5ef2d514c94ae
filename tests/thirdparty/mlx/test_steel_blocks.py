"""MLX's steel products of matrices by blocks: masked, gathered by indices, and of segments of k.

Operands are small whole numbers and masks powers of two: sums are exact, and results are compared for equality.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import pytest
import torch
from arrays import TYPES, garbage, groups, integers, up
from steel import (
    Tile,
    flag,
    gemm_params,
    matrices,
    strides,
    wide,
)
from units import GEMM, Unit

MASKED = "steel/gemm/kernels/steel_gemm_masked.h"
GATHER = "steel/gemm/kernels/steel_gemm_gather.h"
SEGMENTED = "steel/gemm/kernels/steel_gemm_segmented.h"


def mask(kind: str, *shape: int, seed: int) -> torch.Tensor:
    """Return a mask of blocks: about a third is off; those of numbers also scale."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(0, 3, shape, generator=generator)
    if kind == "bool":
        return chosen > 0
    return torch.tensor([0.0, 0.5, 2.0])[chosen].to(TYPES[kind])


def spread(blocks: torch.Tensor, block: int, height: int, width: int) -> torch.Tensor:
    """Return a mask of blocks as one of elements."""
    whole = wide(blocks).repeat_interleave(block, -2).repeat_interleave(block, -1)
    return whole[..., :height, :width]


@dataclass(frozen=True)
class Masked:
    """A product and the types of its masks: of blocks of the result, and of blocks of both operands."""

    kind: str
    out_mask: str
    operand_masks: str
    tile: Tile
    turned_a: bool
    turned_b: bool
    shape: tuple[int, int, int]

    @property
    def unit(self) -> Unit:
        aligned_m, aligned_n, aligned_k = self.tile.aligned(*self.shape)
        return self._unit(
            f"{self.kind}, {self.out_mask}, {self.operand_masks}", aligned_m and aligned_n, aligned_k
        )

    @property
    def unit_of_bools(self) -> Unit:
        """The header's second kernel of that name, whose masks are always of bools."""
        return self._unit(self.kind, False, False, ", true")

    def _unit(self, kinds: str, aligned_mn: bool, aligned_k: bool, more: str = "") -> Unit:
        turned = f"{flag(self.turned_a)}, {flag(self.turned_b)}"
        aligned = f"{flag(aligned_mn)}, {flag(aligned_k)}"
        arguments = f"{kinds}, {self.tile.arguments}, {turned}, {aligned}{more}"
        return Unit(MASKED, GEMM, (("block_masked_gemm", "block_masked_gemm", arguments),))

    def run(self, bench, unit: Unit, batch: tuple[int, ...]) -> None:
        """Launch the kernel as ``BlockMaskedMM`` does, and compare its result."""
        m, n, k = self.shape
        tile = self.tile
        a = matrices(integers(0, *batch, m, k, kind=self.kind), self.turned_a)
        # the same matrices for all of the last batch dimension
        b = matrices(integers(1, *batch[:-1], 1, k, n, kind=self.kind), self.turned_b).expand(*batch, k, n)
        tiles_n, tiles_m = tile.tiles(m, n)
        tiles_k = up(k, tile.bm)
        out_mask = lhs = rhs = None
        if self.out_mask != "nomask_t":
            out_mask = mask(self.out_mask, *batch, tiles_m, tiles_n, seed=5)
        if self.operand_masks != "nomask_t":
            lhs = mask(self.operand_masks, *batch, tiles_k, tiles_m, seed=6).mT
            rhs = mask(self.operand_masks, *batch, tiles_k, tiles_n, seed=7)
        given = [held for held in (out_mask, lhs, rhs) if held is not None]
        mask_strides = [held.stride(axis) for held in given for axis in (-1, -2)]
        # Metal lets a kernel have a buffer that nothing is bound to
        unused = torch.zeros(1, dtype=torch.bool)
        out = garbage(*batch, m, n, dtype=TYPES[self.kind])
        bench.run(
            unit,
            "block_masked_gemm",
            a,
            b,
            None,
            out,
            gemm_params(
                tile,
                a,
                b,
                batch_stride_a=a.stride(-3),
                batch_stride_b=b.stride(-3),
                batch_ndim=len(batch),
            ),
            None,
            torch.tensor(batch, dtype=torch.int32),
            strides(a, b, *given),
            None,
            None,
            *(unused if held is None else held for held in (out_mask, lhs, rhs)),
            torch.tensor(mask_strides, dtype=torch.int32),
            **groups(tiles_n, tiles_m, math.prod(batch), group=tile.group),
        )
        left, right = wide(a), wide(b)
        if lhs is not None and rhs is not None:
            left = left * spread(lhs, tile.bm, m, k)
            right = right * spread(rhs, tile.bm, k, n)
        expected = left @ right
        if out_mask is not None:
            expected = expected * spread(out_mask, tile.bm, m, n)
        assert torch.equal(out, expected.to(out.dtype))


CUT = Tile(32, 32, 16)
MASKS = {
    "bools, no tile is cut": Masked("float", "bool", "bool", CUT, False, False, (64, 96, 96)),
    "a bool for each of the result's, k is cut": Masked(
        "half", "bool", "nomask_t", Tile(64, 64, 16), False, True, (64, 128, 35)
    ),
    "factors": Masked("bfloat16_t", "bfloat16_t", "bfloat16_t", CUT, True, False, (75, 50, 104)),
    "factors of operands": Masked("float", "nomask_t", "float", CUT, True, True, (33, 64, 71)),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("batch", [(2,), (2, 3)])
def test_block_masked(bench, name: str, batch: tuple[int, ...]) -> None:
    MASKS[name].run(bench, MASKS[name].unit, batch)


@pytest.mark.parametrize("batch", [(2,), (2, 3)])
def test_block_masked_by_bools(bench, batch: tuple[int, ...]) -> None:
    masked = Masked("half", "bool", "bool", CUT, False, True, (75, 50, 104))
    masked.run(bench, masked.unit_of_bools, batch)


@pytest.mark.parametrize(
    ("kind", "tile", "turned_a", "turned_b", "shape", "indices"),
    [
        ("half", Tile(32, 32, 16), False, True, (35, 40, 23), (2, 3)),
        ("float", Tile(64, 32, 32), True, False, (64, 64, 64), (5,)),
    ],
)
def test_gather_mm(bench, kind: str, tile: Tile, turned_a, turned_b, shape, indices) -> None:
    m, n, k = shape
    a = matrices(integers(0, 2, 2, m, k, kind=kind), turned_a)
    # batches lie the other way round in memory
    b = matrices(integers(1, 3, 2, k, n, kind=kind), turned_b).transpose(0, 1)
    generator = torch.Generator().manual_seed(len(indices))
    left = torch.randint(0, 4, indices, generator=generator, dtype=torch.int32)
    right = torch.randint(0, 6, indices[::-1], generator=generator, dtype=torch.int32).permute(
        *reversed(range(len(indices)))
    )
    constants = ((10, len(indices) > 1), *zip((200, 201, 202), tile.aligned(m, n, k), strict=True))
    arguments = f"{kind}, {tile.arguments}, {flag(turned_a)}, {flag(turned_b)}, float"
    unit = Unit(GATHER, GEMM, (("gather_mm", "gather_mm", arguments),), constants)
    out = garbage(*indices, m, n, dtype=TYPES[kind])
    params = gemm_params(
        tile,
        a,
        b,
        batch_stride_a=left.stride(0),
        batch_stride_b=right.stride(0),
        batch_ndim=len(indices),
    )
    bench.run(
        unit,
        "gather_mm",
        a,
        b,
        left.view(torch.uint32),
        right.view(torch.uint32),
        out,
        params,
        torch.tensor(indices, dtype=torch.int32),
        torch.tensor(left.stride()),
        torch.tensor(right.stride()),
        2,
        torch.tensor(a.shape, dtype=torch.int32),
        torch.tensor(a.stride()),
        2,
        torch.tensor(b.shape, dtype=torch.int32),
        torch.tensor(b.stride()),
        **groups(*tile.tiles(m, n), left.numel(), group=tile.group),
    )
    expected = wide(a).flatten(0, 1)[left] @ wide(b).flatten(0, 1)[right]
    assert torch.equal(out, expected.to(out.dtype))


@pytest.mark.parametrize(
    ("kind", "turned", "n", "k", "counts"),
    [
        # rows of each group: none, one, a tile, more than a tile
        ("half", True, 70, 39, (0, 1, 16, 17, 0, 40, 0)),
        ("float", False, 128, 32, (3, 0, 20, 16)),
        # more groups than a simdgroup has lanes
        ("half", True, 70, 39, (2,) * 31 + (0, 0, 33) + (1,) * 35),
    ],
)
def test_gather_mm_rhs(bench, kind: str, turned: bool, n: int, k: int, counts) -> None:
    tile = Tile(16, 64, 16, 1, 2)
    a = integers(0, sum(counts), k, kind=kind)
    b = matrices(integers(1, len(counts), k, n, kind=kind), turned)
    aligned = tile.aligned(sum(counts), n, k)
    constants = ((10, False), *zip((200, 201, 202), (False, *aligned[1:]), strict=True))
    arguments = f"{kind}, {tile.arguments}, false, {flag(turned)}, float"
    unit = Unit(GATHER, GEMM, (("gather_mm_rhs", "gather_mm_rhs", arguments),), constants)
    ends = torch.tensor(counts).cumsum(0)
    starts = (ends - torch.tensor(counts)).to(torch.int32)
    out = garbage(len(a), n, dtype=TYPES[kind])
    params = gemm_params(tile, a, b, batch_stride_b=b.stride(0), batch_stride_d=0)
    tiles_n, tiles_m = tile.tiles(len(a), n)
    bench.run(
        unit,
        "gather_mm_rhs",
        a,
        b,
        starts,
        out,
        params,
        len(counts),
        # each group may end in a tile that is cut
        **groups(tiles_n, tiles_m + len(counts), 1, group=tile.group),
    )
    owner = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    expected = (wide(a)[:, None] @ wide(b)[owner])[:, 0]
    assert torch.equal(out, expected.to(out.dtype))


@pytest.mark.parametrize(
    ("kind", "turned_a", "turned_b", "m", "n", "contiguous"),
    [("half", False, True, 40, 70, True), ("float", True, False, 64, 32, False)],
)
def test_segmented_mm(bench, kind: str, turned_a, turned_b, m: int, n: int, contiguous: bool) -> None:
    tile, k = Tile(32, 32, 16), 75
    a = matrices(integers(0, m, k, kind=kind), turned_a)
    b = matrices(integers(1, k, n, kind=kind), turned_b)
    bounds = [0, 16, 16, 20, 52, 75]
    pairs = list(itertools.pairwise(bounds))
    if contiguous:
        pairs += [(3, 70), (74, 75)]
    segments = torch.tensor(pairs if contiguous else bounds, dtype=torch.int32).view(torch.uint32)
    constants = ((199, contiguous), *zip((200, 201), tile.aligned(m, n, k)[:2], strict=True))
    arguments = f"{kind}, {tile.arguments}, {flag(turned_a)}, {flag(turned_b)}, float"
    unit = Unit(SEGMENTED, GEMM, (("segmented_mm", "segmented_mm", arguments),), constants)
    out = garbage(len(pairs), m, n, dtype=TYPES[kind])
    bench.run(
        unit,
        "segmented_mm",
        a,
        b,
        segments,
        out,
        gemm_params(tile, a, b),
        **groups(*tile.tiles(m, n), len(pairs), group=tile.group),
    )
    expected = torch.stack([wide(a)[:, start:end] @ wide(b)[start:end] for start, end in pairs])
    assert torch.equal(out, expected.to(out.dtype))
