"""MLX's steel products of matrices for the matrix units of newer GPUs ("nax"), in tiles that MLX instantiates.

They are written with Metal Performance Primitives. Operands are small whole numbers, whose sums are exact in
``float``: the only rounding is that of the stored result, so results are compared for equality. Rows are longer than
a matrix has columns, and what lies between is not a number.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from arrays import TYPES, garbage, groups, integers, up
from fused import fused
from steel import ADDMM_PARAMS, SPLITK_PARAMS, Tile, flag, gemm_params, matrices, rows, struct, wide
from units import GEMM_NAX, Unit

from metalwright.errors import BarrierFault

FOLDER = "steel/gemm/kernels/"
FUSED = f"{FOLDER}steel_gemm_fused_nax.h"
GATHER = f"{FOLDER}steel_gemm_gather_nax.h"
SEGMENTED = f"{FOLDER}steel_gemm_segmented_nax.h"
SPLITK = f"{FOLDER}steel_gemm_splitk_nax.h"
THIN = f"{FOLDER}steel_gemm_thin_nax.h"

SMALL = Tile(64, 64, 256)


def product(bench, kind: str, *operands: torch.Tensor, **more) -> torch.Tensor:
    return fused(bench, kind, SMALL, *operands, file=FUSED, before=GEMM_NAX, **more)


def parted(*values) -> list:
    """Return a case for a launch that is not checked, and for one that is, which fails.

    Simdgroups whose tile is whole and those whose tile is cut call other instantiations of ``gemm_loop``, each with
    its barrier. Metal leaves undefined what comes of that; unchecked, any barrier serves.
    """
    fails = pytest.mark.xfail(
        strict=True,
        raises=BarrierFault,
        reason="checked, a barrier is missed: simdgroups with whole and with cut tiles wait in other instantiations "
        "of `gemm_loop`; unchecked, it matches",
    )
    return [pytest.param(*values, False), pytest.param(*values, True, marks=fails)]


@pytest.mark.parametrize(
    ("kind", "turned_a", "turned_b", "shapes", "checked"),
    [
        # whole tiles
        ("half", False, True, [(64, 128, 256)], True),
        # whole threadgroups, those with all simdgroups cut or without a result, less than a step of k
        ("bfloat16_t", True, False, [(84, 77, 300), (20, 70, 13)], True),
        *parted("bfloat16_t", True, False, [(67, 45, 300), (40, 70, 256 + 13)]),
    ],
)
def test_gemm(bench, kind: str, turned_a: bool, turned_b: bool, shapes, checked: bool) -> None:
    for m, n, k in shapes:
        a = matrices(integers(0, 2, m, k, kind=kind), turned_a)
        b = matrices(integers(1, 2, k, n, kind=kind), turned_b)
        out = product(bench, kind, a, b, swizzle=1, checked=checked)
        assert torch.equal(out, (wide(a) @ wide(b)).to(out.dtype)), (m, n, k)


def test_addmm_batched_by_strides(bench) -> None:
    m, n, k = 64, 71, 37
    a = matrices(integers(0, 2, 1, m, k), False).expand(2, 2, m, k)
    b = matrices(integers(1, 2, 2, k, n), False).transpose(0, 1)
    row = integers(2, n).expand(2, 2, m, n)
    columns = matrices(integers(3, 2, 2, m, n), True)
    for c in (row, columns):
        out = product(bench, "float", a, b, c, alpha=0.5, beta=-2.0)
        assert torch.equal(out, (0.5 * (wide(a) @ wide(b)) - 2 * wide(c)).float())


@pytest.mark.parametrize(
    ("kind", "turned", "n", "k", "counts", "checked"),
    [
        # rows of each group: none, one, a tile, more than a tile
        ("half", True, 140, 139, (0, 1, 16, 17, 0, 40, 0), True),
        *parted("half", True, 170, 139, (0, 1, 16, 17, 0, 40, 0)),
        # more groups than a simdgroup has lanes
        ("bfloat16_t", False, 128, 128, (2,) * 31 + (0, 0, 33) + (1,) * 5, True),
    ],
)
def test_gather_mm_rhs(bench, kind: str, turned: bool, n: int, k: int, counts, checked: bool) -> None:
    tile = Tile(16, 128, 128, 1, 4)
    a = integers(0, sum(counts), k, kind=kind)
    b = matrices(integers(1, len(counts), k, n, kind=kind), turned)
    constants = tuple(zip((200, 201, 202), (False, *tile.aligned(sum(counts), n, k)[1:]), strict=True))
    arguments = f"{kind}, {tile.arguments}, false, {flag(turned)}, float"
    unit = Unit(GATHER, GEMM_NAX, (("gather_mm_rhs_nax", "gather_mm_rhs_nax", arguments),), constants)
    ends = torch.tensor(counts).cumsum(0)
    starts = (ends - torch.tensor(counts)).to(torch.int32)
    out = garbage(len(a), n, dtype=TYPES[kind])
    tiles_n, tiles_m = tile.tiles(len(a), n)
    bench.run(
        unit,
        "gather_mm_rhs_nax",
        a,
        b,
        starts,
        out,
        gemm_params(tile, a, b, batch_stride_b=b.stride(0), batch_stride_d=0),
        len(counts),
        # each group may end in a tile that is cut
        **groups(tiles_n, tiles_m + len(counts), 1, group=tile.group),
        checked=checked,
    )
    owner = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    expected = (wide(a)[:, None] @ wide(b)[owner])[:, 0]
    assert torch.equal(out, expected.to(out.dtype))


@pytest.mark.parametrize(
    ("kind", "bk", "turned_a", "turned_b", "m", "n", "contiguous", "checked"),
    [
        ("half", 64, False, True, 20, 128, True, True),
        *parted("half", 64, False, True, 40, 128, True),
        ("float", 128, True, False, 64, 64, False, True),
    ],
)
def test_segmented_mm(
    bench, kind: str, bk: int, turned_a, turned_b, m: int, n: int, contiguous: bool, checked: bool
) -> None:
    tile, k = Tile(64, 64, bk), 350
    a = matrices(integers(0, m, k, kind=kind), turned_a)
    b = matrices(integers(1, k, n, kind=kind), turned_b)
    # empty, less than a step, whole steps, and some more
    bounds = [0, 16, 16, 20, 148, 350]
    pairs = list(itertools.pairwise(bounds))
    if contiguous:
        pairs += [(3, 340), (349, 350)]
    segments = torch.tensor(pairs if contiguous else bounds, dtype=torch.int32).view(torch.uint32)
    constants = ((199, contiguous), *zip((200, 201), tile.aligned(m, n, k)[:2], strict=True))
    arguments = f"{kind}, {tile.arguments}, {flag(turned_a)}, {flag(turned_b)}, float"
    unit = Unit(SEGMENTED, GEMM_NAX, (("segmented_mm_nax", "segmented_mm_nax", arguments),), constants)
    out = garbage(len(pairs), m, n, dtype=TYPES[kind])
    tiles_n, tiles_m = tile.tiles(m, n)
    # with short steps, the segments are the first dimension of the grid
    grid = (tiles_n, tiles_m, len(pairs)) if bk > 64 else (len(pairs), tiles_n, tiles_m)
    bench.run(
        unit,
        "segmented_mm_nax",
        a,
        b,
        segments,
        out,
        gemm_params(tile, a, b),
        **groups(*grid, group=tile.group),
        checked=checked,
    )
    expected = torch.stack([wide(a)[:, start:end] @ wide(b)[start:end] for start, end in pairs])
    assert torch.equal(out, expected.to(out.dtype))


@pytest.mark.parametrize(
    ("kind", "turned_a", "turned_b", "shape", "part", "swizzle", "checked"),
    [
        # the last part is shorter than a step of k
        ("bfloat16_t", False, True, (128, 20, 600), 256, 1, True),
        *parted("bfloat16_t", False, True, (128, 45, 600), 256, 1),
        # all parts are whole
        ("half", True, False, (64, 128, 1024), 512, 0, True),
    ],
)
def test_splitk(
    bench, kind: str, turned_a: bool, turned_b: bool, shape, part: int, swizzle: int, checked: bool
) -> None:
    m, n, k = shape
    a = matrices(integers(0, m, k, kind=kind), turned_a)
    b = matrices(integers(1, k, n, kind=kind), turned_b)
    constants = tuple(zip((200, 201), SMALL.aligned(*shape)[:2], strict=True))
    arguments = f"{kind}, {SMALL.arguments}, {flag(turned_a)}, {flag(turned_b)}, float"
    unit = Unit(SPLITK, GEMM_NAX, (("gemm_splitk_nax", "gemm_splitk_nax", arguments),), constants)
    parts = up(k, part)
    tiles_n, tiles_m = SMALL.tiles(m, n)
    params = struct(
        SPLITK_PARAMS,
        M=m,
        N=n,
        K=k,
        lda=rows(a)[1],
        ldb=rows(b)[1],
        ldc=n,
        tiles_n=tiles_n,
        tiles_m=tiles_m,
        partitions=parts,
        partition_stride=m * n,
        partition_size=part,
        swizzle_log=swizzle,
        k_iterations=part // SMALL.bk,
    )
    out = garbage(parts, m, n, dtype=torch.float32)
    count = (tiles_n << swizzle) * up(tiles_m, 1 << swizzle) * parts
    sizes = groups(count, 1, 1, group=SMALL.group)
    bench.run(unit, "gemm_splitk_nax", a, b, out, params, **sizes, checked=checked)
    bounds = [(start, min(start + part, k)) for start in range(0, k, part)]
    expected = torch.stack([wide(a)[:, start:end] @ wide(b)[start:end] for start, end in bounds])
    assert torch.equal(out, expected.float())


@pytest.mark.parametrize(
    ("kind", "simdgroups", "turned_b", "scales", "shapes"),
    [
        # blocks at the edges move back inside; fewer rows than a block has; parts of k without work
        ("half", (1, 1, 4), True, (0.5, -2.0), [(45, 40, 333), (7, 40, 70), (70, 5, 20)]),
        ("bfloat16_t", (1, 2, 2), False, None, [(45, 100, 333), (33, 5, 100)]),
        # nothing is cut
        ("half", (1, 2, 2), True, (1.0, 1.0), [(64, 64, 256)]),
    ],
)
def test_thin(bench, kind: str, simdgroups: tuple[int, int, int], turned_b: bool, scales, shapes) -> None:
    along_m, along_n, along_k = simdgroups
    step = 64
    # the block of a threadgroup; each simdgroup computes 32 by 32
    tile = Tile(32 * along_m, 32 * along_n, step, along_m, along_n)
    arguments = f"{kind}, 2, 2, {along_m}, {along_n}, {along_k}, {flag(turned_b)}"
    alpha, beta = scales or (1.0, 0.0)
    for m, n, k in shapes:
        constants = (
            (100, scales is not None),
            (110, scales not in (None, (1.0, 1.0))),
            *zip((200, 201, 202), tile.aligned(m, n, k), strict=True),
        )
        unit = Unit(THIN, GEMM_NAX, (("gemm_thin_nax", "gemm_thin_nax", arguments),), constants)
        a = matrices(integers(0, m, k, kind=kind), False)
        b = matrices(integers(1, k, n, kind=kind), turned_b)
        c = addition = None
        if scales:
            # a row for all, as the bias of a layer
            c = integers(2, n, kind=kind).expand(m, n)
            addition = struct(ADDMM_PARAMS, ldc=0, fdc=1, batch_stride_c=0, alpha=alpha, beta=beta)
        out = garbage(m, n, dtype=TYPES[kind])
        tiles_n, tiles_m = tile.tiles(m, n)
        params = gemm_params(tile, a, b, k_iterations=up(k, step * along_k))
        count = along_m * along_n * along_k
        bench.run(
            unit,
            "gemm_thin_nax",
            a,
            b,
            c,
            out,
            params,
            addition,
            **groups(tiles_n * tiles_m, 1, 1, group=(32, count, 1)),
        )
        expected = alpha * (wide(a) @ wide(b))
        if c is not None:
            expected += beta * wide(c)
        assert torch.equal(out, expected.to(out.dtype)), (m, n, k)
