"""MLX's steel products of matrices: plain, batched, added to a third, split along k.

Operands are small whole numbers, whose sums are exact in ``float``: the only rounding is that of the stored result,
so results are compared for equality. Rows are longer than a matrix has columns, and what lies between is not a
number.
"""

from __future__ import annotations

import pytest
import torch
from arrays import TYPES, garbage, groups, integers
from fused import fused
from steel import (
    SPLITK_PARAMS,
    Tile,
    flag,
    matrices,
    rows,
    struct,
    wide,
)
from units import GEMM, Unit

from metalwright.errors import MemoryFault

SPLITK = "steel/gemm/kernels/steel_gemm_splitk.h"


@pytest.mark.parametrize(
    ("kind", "tile", "turned_a", "turned_b", "shapes"),
    [
        # all edges are those of tiles, or only k's is not
        ("float", Tile(32, 32, 16), False, False, [(64, 32, 48)]),
        ("half", Tile(64, 32, 32), False, True, [(64, 64, 32)]),
        ("half", Tile(64, 64, 16, 1, 2), True, False, [(64, 128, 21)]),
        ("bfloat16_t", Tile(64, 32, 8, 4, 1), True, True, [(64, 32, 13)]),
        # tiles of every kind: whole, cut at the right, below, at both, and none whole at all
        ("float", Tile(32, 32, 16), True, False, [(33, 45, 17), (1, 31, 15)]),
        ("bfloat16_t", Tile(32, 64, 16, 1, 2), False, True, [(37, 70, 20), (63, 2, 50)]),
        # complex numbers: three real products each
        ("complex64_t", Tile(32, 32, 16), False, True, [(32, 45, 18)]),
    ],
)
def test_gemm(bench, kind: str, tile: Tile, turned_a: bool, turned_b: bool, shapes) -> None:
    for m, n, k in shapes:
        a = matrices(integers(0, 2, m, k, kind=kind), turned_a)
        b = matrices(integers(1, 2, k, n, kind=kind), turned_b)
        for swizzle in (0, 1):
            out = fused(bench, kind, tile, a, b, swizzle=swizzle)
            assert torch.equal(out, (wide(a) @ wide(b)).to(out.dtype)), (m, n, k, swizzle)


@pytest.mark.parametrize(
    ("kind", "turned_a", "turned_b", "alpha", "beta", "shape"),
    [
        ("half", False, True, 1.0, 1.0, (32, 36, 20)),
        ("bfloat16_t", True, False, 0.5, -2.0, (40, 64, 19)),
        ("float", False, False, 2.0, 0.25, (32, 32, 33)),
    ],
)
def test_addmm(bench, kind: str, turned_a, turned_b, alpha: float, beta: float, shape) -> None:
    m, n, k = shape
    a = matrices(integers(0, 2, 3, m, k, kind=kind), turned_a)
    b = matrices(integers(1, 3, k, n, kind=kind), turned_b).expand(2, 3, k, n)
    row = integers(2, n, kind=kind).expand(2, 3, m, n)
    # by columns, with more behind each: see test_addmm_reads_no_more_than_there_is
    room = integers(3, n, 2 * 3 * m + 32, kind=kind).t()
    for c in (row, room[: 2 * 3 * m].unflatten(0, (2, 3, m))):
        out = fused(bench, kind, Tile(32, 32, 16), a, b, c, alpha, beta)
        expected = alpha * (wide(a) @ wide(b)) + beta * wide(c)
        assert torch.equal(out, expected.to(out.dtype))


@pytest.mark.xfail(
    strict=True,
    raises=MemoryFault,
    reason="`apply_epilogue_safe` compares columns alone with the tile's size: it reads rows below the added matrix",
)
def test_addmm_reads_no_more_than_there_is(bench) -> None:
    a = integers(0, 35, 20, kind="half")
    b = integers(1, 20, 32, kind="half")
    c = integers(2, 35, 32, kind="half")
    fused(bench, "half", Tile(32, 32, 16), a, b, c)


def test_gemm_batched_by_strides(bench) -> None:
    tile = Tile(32, 32, 16)
    m, n, k = 33, 32, 40
    a = matrices(integers(0, 3, 1, m, k, kind="half"), False).expand(3, 2, m, k)
    b = matrices(integers(0, 2, 3, k, n, kind="half"), False).transpose(0, 1)
    out = fused(bench, "half", tile, a, b)
    assert torch.equal(out, (wide(a) @ wide(b)).to(out.dtype))


def test_gemm_of_groups_side_by_side(bench) -> None:
    """A grouped convolution writes each group's columns beside those of the one before."""
    tile, parts, m, n, k = Tile(32, 32, 16), 3, 32, 10, 18
    a = integers(0, m, parts, k, kind="half").transpose(0, 1)
    b = matrices(integers(0, parts, k, n, kind="half"), True)
    out = garbage(m, parts, n, dtype=torch.float16)
    fused(bench, "half", tile, a, b, out=out, out_strides=(n, parts * n))
    assert torch.equal(out.transpose(0, 1), (wide(a) @ wide(b)).to(out.dtype))


def partitions(k: int) -> int:
    """Return how many parts MLX splits k into."""
    sixteenths = k // 16
    return 2 if sixteenths < 16 else 4 if sixteenths < 32 else 8


@pytest.mark.parametrize(
    ("kind", "turned_a", "turned_b", "shape"),
    [
        ("float", False, False, (64, 32, 272)),
        ("half", False, True, (40, 45, 280)),
        ("bfloat16_t", True, False, (17, 64, 165)),
        ("complex64_t", True, True, (32, 16, 144)),
    ],
)
def test_splitk(bench, kind: str, turned_a: bool, turned_b: bool, shape) -> None:
    partial = "complex64_t" if kind == "complex64_t" else "float"
    sums = (
        ("gemm_splitk_accum", "gemm_splitk_accum", f"{partial}, {kind}"),
        ("gemm_splitk_accum_axpby", "gemm_splitk_accum_axpby", f"{partial}, {kind}"),
    )
    m, n, k = shape
    tile = Tile(16 if m < 40 else 32, 16 if n < 40 else 32, 16)
    a = matrices(integers(0, m, k, kind=kind, limit=2), turned_a)
    b = matrices(integers(1, k, n, kind=kind, limit=2), turned_b)
    (_, lda), (_, ldb) = rows(a), rows(b)
    aligned_m, aligned_n, aligned_k = tile.aligned(m, n, k)
    arguments = ", ".join(
        [
            f"{kind}, {partial}, {tile.arguments}, {flag(turned_a)}, {flag(turned_b)}",
            f"{flag(aligned_m and aligned_n)}, {flag(aligned_k)}",
        ]
    )
    unit = Unit(SPLITK, GEMM, (("gemm_splitk", "gemm_splitk", arguments), *sums))
    parts = partitions(k)
    iterations = k // tile.bk // parts
    tiles_n, tiles_m = tile.tiles(m, n)
    params = struct(
        SPLITK_PARAMS,
        M=m,
        N=n,
        K=k,
        lda=lda,
        ldb=ldb,
        ldc=n,
        tiles_n=tiles_n,
        tiles_m=tiles_m,
        partitions=parts,
        partition_stride=m * n,
        partition_size=iterations * tile.bk,
        swizzle_log=0,
        k_iterations=iterations,
    )
    split = garbage(parts, m, n, dtype=TYPES[partial])
    sizes = groups(tiles_n, tiles_m, parts, group=tile.group)
    bench.run(unit, "gemm_splitk", a, b, split, params, **sizes)
    product = wide(a) @ wide(b)
    assert torch.equal(wide(split).sum(0), product)

    out = garbage(m, n, dtype=TYPES[kind])
    bench.run(unit, "gemm_splitk_accum", split, out, parts, m * n, n, threads=(n, m), group=(32, 8))
    assert torch.equal(out, product.to(out.dtype))

    c = integers(2, n, m, kind=kind).t()
    out = garbage(m, n, dtype=TYPES[kind])
    bench.run(
        unit,
        "gemm_splitk_accum_axpby",
        split,
        out,
        parts,
        m * n,
        n,
        c,
        c.stride(0),
        c.stride(1),
        0.5,
        2.0,
        threads=(n, m),
        group=(32, 8),
    )
    assert torch.equal(out, (0.5 * product + 2 * wide(c)).to(out.dtype))
