"""MLX's steel products of matrices by blocks: masked, gathered by indices, and of segments of k.

Operands are small whole numbers and masks powers of two: sums are exact, and results are compared for equality.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from arrays import TYPES, garbage, groups, integers
from steel import (
    GEMM_PARAMS,
    Tile,
    flag,
    matrices,
    rows,
    strides,
    struct,
    wide,
)
from units import GEMM, Unit

MASKED = "steel/gemm/kernels/steel_gemm_masked.h"
GATHER = "steel/gemm/kernels/steel_gemm_gather.h"
SEGMENTED = "steel/gemm/kernels/steel_gemm_segmented.h"


def gemm_params(tile: Tile, a: torch.Tensor, b: torch.Tensor, **others: int) -> torch.Tensor:
    """Return the parameters of a product; batch strides and the like are given, 0 otherwise."""
    m, k = a.shape[-2:]
    n = b.shape[-1]
    tiles_n, tiles_m = tile.tiles(m, n)
    values = {
        "M": m,
        "N": n,
        "K": k,
        "lda": rows(a)[1],
        "ldb": rows(b)[1],
        "ldd": n,
        "tiles_n": tiles_n,
        "tiles_m": tiles_m,
        "batch_stride_a": 0,
        "batch_stride_b": 0,
        "batch_stride_d": m * n,
        "swizzle_log": 0,
        "k_iterations": k // tile.bk,
        "batch_ndim": 0,
    }
    return struct(GEMM_PARAMS, **(values | others))


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


@pytest.mark.parametrize(
    ("kind", "out_kind", "operand_kind", "tile", "turned_a", "turned_b", "shape"),
    [
        ("float", "bool", "bool", Tile(32, 32, 16), False, False, (64, 96, 96)),
        ("half", "bool", "nomask_t", Tile(64, 64, 16), False, True, (64, 128, 35)),
        ("bfloat16_t", "bfloat16_t", "bfloat16_t", Tile(32, 32, 16), True, False, (75, 50, 104)),
        ("float", "nomask_t", "float", Tile(32, 32, 16), True, True, (33, 64, 71)),
    ],
)
@pytest.mark.parametrize("batch", [(2,), (2, 3)])
def test_block_masked(bench, kind, out_kind, operand_kind, tile, turned_a, turned_b, shape, batch) -> None:
    m, n, k = shape
    aligned_m, aligned_n, aligned_k = tile.aligned(m, n, k)
    arguments = ", ".join(
        [
            f"{kind}, {out_kind}, {operand_kind}, {tile.arguments}, {flag(turned_a)}, {flag(turned_b)}",
            f"{flag(aligned_m and aligned_n)}, {flag(aligned_k)}",
        ]
    )
    unit = Unit(MASKED, GEMM, (("block_masked_gemm", "block_masked_gemm", arguments),))
    masks = tuple(name for name, held in (("out", out_kind), ("op", operand_kind)) if held != "nomask_t")
    _masked(bench, unit, kind, (out_kind, operand_kind), masks, tile, turned_a, turned_b, shape, batch)


def test_block_masked_by_bools(bench) -> None:
    """The header's second kernel of that name, whose masks are always of bools."""
    tile = Tile(32, 32, 16)
    arguments = f"half, {tile.arguments}, false, true, false, false, true"
    unit = Unit(MASKED, GEMM, (("block_masked_gemm", "block_masked_gemm", arguments),))
    for batch in ((2,), (2, 3)):
        kinds, masks = ("bool", "bool"), ("out", "op")
        _masked(bench, unit, "half", kinds, masks, tile, False, True, (75, 50, 104), batch)


def _masked(bench, unit, kind, mask_kinds, masks, tile, turned_a, turned_b, shape, batch) -> None:
    m, n, k = shape
    a = matrices(integers(0, *batch, m, k, kind=kind), turned_a)
    # the same matrices for all of the last batch dimension
    b = matrices(integers(1, *batch[:-1], 1, k, n, kind=kind), turned_b).expand(*batch, k, n)
    tiles_n, tiles_m = tile.tiles(m, n)
    tiles_k = -(-k // tile.bm)
    out_mask = mask(mask_kinds[0], *batch, tiles_m, tiles_n, seed=5) if "out" in masks else None
    lhs = mask(mask_kinds[1], *batch, tiles_k, tiles_m, seed=6).mT if "op" in masks else None
    rhs = mask(mask_kinds[1], *batch, tiles_k, tiles_n, seed=7) if "op" in masks else None
    given = [held for held in (out_mask, lhs, rhs) if held is not None]
    mask_strides = torch.tensor([held.stride(axis) for held in given for axis in (-1, -2)], dtype=torch.int32)
    unused = torch.zeros(1, dtype=torch.bool)
    out = garbage(*batch, m, n, dtype=TYPES[kind])
    params = gemm_params(
        tile,
        a,
        b,
        batch_stride_a=a.stride(-3),
        batch_stride_b=b.stride(-3),
        batch_ndim=len(batch),
    )
    bench.run(
        unit,
        "block_masked_gemm",
        a,
        b,
        None,
        out,
        params,
        None,
        torch.tensor(batch, dtype=torch.int32),
        strides(a, b, *given),
        None,
        None,
        unused if out_mask is None else out_mask,
        unused if lhs is None else lhs,
        unused if rhs is None else rhs,
        mask_strides,
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
