"""Products by MLX's fused steel kernels, launched as ``steel_matmul_regular_axpby`` launches them."""

from __future__ import annotations

import torch
from arrays import TYPES, garbage, groups, up
from steel import ADDMM_PARAMS, GEMM_PARAMS, flag, rows, strides, struct
from units import GEMM, Unit

FUSED = "steel/gemm/kernels/steel_gemm_fused.h"


def fused(
    bench,
    kind,
    tile,
    a,
    b,
    c=None,
    alpha=1.0,
    beta=1.0,
    out=None,
    out_strides=None,
    swizzle=0,
    file=FUSED,
    before=GEMM,
    checked=True,
) -> torch.Tensor:
    """Return ``alpha * a @ b + beta * c`` as ``steel_matmul_regular_axpby`` has it computed."""
    m, k = a.shape[-2:]
    n = b.shape[-1]
    batch = a.shape[:-2]
    assert b.shape[:-2] == batch
    (a_turned, lda), (b_turned, ldb) = rows(a), rows(b)
    constants = (
        (10, len(batch) > 1),
        (100, c is not None),
        (110, (alpha, beta) != (1, 1)),
        *zip((200, 201, 202), tile.aligned(m, n, k), strict=True),
    )
    arguments = f"{kind}, {tile.arguments}, {flag(a_turned)}, {flag(b_turned)}, float"
    unit = Unit(file, before, (("gemm", "gemm", arguments),), constants)
    if out is None:
        out = garbage(*batch, m, n, dtype=TYPES[kind])
        out_strides = m * n, n
    tiles_n, tiles_m = tile.tiles(m, n)
    params = struct(
        GEMM_PARAMS,
        M=m,
        N=n,
        K=k,
        lda=lda,
        ldb=ldb,
        ldd=out_strides[1],
        tiles_n=tiles_n,
        tiles_m=tiles_m,
        batch_stride_a=a.stride(-3) if batch else 0,
        batch_stride_b=b.stride(-3) if batch else 0,
        batch_stride_d=out_strides[0],
        swizzle_log=swizzle,
        k_iterations=k // tile.bk,
        batch_ndim=max(len(batch), 1),
    )
    addition = None
    if c is not None:
        addition = struct(
            ADDMM_PARAMS,
            ldc=c.stride(-2),
            fdc=c.stride(-1),
            batch_stride_c=c.stride(-3) if batch else 0,
            alpha=alpha,
            beta=beta,
        )
    batched = len(batch) > 1
    operands = (a, b) if c is None else (a, b, c)
    bench.run(
        unit,
        "gemm",
        a,
        b,
        c,
        out,
        params,
        addition,
        torch.tensor(batch, dtype=torch.int32) if batched else None,
        strides(*operands) if batched else None,
        **groups(tiles_n << swizzle, up(tiles_m, 1 << swizzle), batch.numel(), group=tile.group),
        checked=checked,
    )
    return out
