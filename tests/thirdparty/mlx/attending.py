"""Attention by MLX's steel kernels, launched as its host code launches them (``scaled_dot_product_attention.cpp``).

The kernels multiply and sum in ``float`` and round their result once; what is left of an error of 1e-5 comes from
sums in another order and from exponentials of base 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from arrays import TYPES, garbage, groups, up
from steel import struct
from units import UTILS, Unit

PARAMS = np.dtype(
    [
        *((name, "i4") for name in ("B", "H", "D", "qL", "kL", "gqa_factor")),
        ("scale", "f4"),
        *((name, "i4") for name in ("NQ", "NK", "NQ_aligned", "NK_aligned", "qL_rem", "kL_rem", "qL_off")),
        *((f"{name}_strides", "i8", 3) for name in "QKVO"),
    ],
    align=True,
)


@dataclass(frozen=True)
class Kernel:
    """One of the kernels.

    Attributes:
        file: the header it is in.
        name: its name.
        values: whether its heads of values may have another size than those of queries.
    """

    file: str
    name: str
    values: bool = True


@dataclass(frozen=True)
class Blocks:
    """Sizes of blocks of queries and keys, of heads of queries and values, and the simdgroups."""

    bq: int
    bk: int
    bd: int
    bv: int
    wm: int = 4
    wn: int = 1

    def arguments(self, kernel: Kernel) -> str:
        heads = f"{self.bd}, {self.bv}" if kernel.values else f"{self.bd}"
        return f"{self.bq}, {self.bk}, {heads}, {self.wm}, {self.wn}"


def numbers(kind: str, *shape: int, seed: int) -> torch.Tensor:
    """Return numbers whose second and third dimensions lie the other way round, as a projection leaves them."""
    generator = torch.Generator().manual_seed(seed)
    batch, heads, length, size = shape
    values = torch.rand(batch, length, heads, size, generator=generator) * 2 - 1
    return values.to(TYPES[kind]).transpose(1, 2)


def reference(q, k, v, scale, mask, causal, sinks) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the attention and the logarithm of each row's sum of exponentials."""
    shared = q.shape[1] // k.shape[1]
    q, k, v = q.double(), k.double().repeat_interleave(shared, 1), v.double().repeat_interleave(shared, 1)
    scores = q @ k.mT * scale
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask.double()
    if causal:
        above = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + k.shape[2] - q.shape[2])
        scores = scores.masked_fill(above, -torch.inf)
    columns = scores
    if sinks is not None:
        extra = sinks.double().reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        columns = torch.cat([scores, extra], -1)
    sums = columns.logsumexp(-1)
    return (scores - sums[..., None]).exp() @ v, sums


def attend(bench, kernel: Kernel, kind, blocks, q, k, v, mask, causal, sinks, save_sums) -> None:
    batch, heads, queries, size = q.shape
    keys = k.shape[2]
    scale = size**-0.5
    constants = (
        (200, queries % blocks.bq == 0),
        (201, keys % blocks.bk == 0),
        (300, mask is not None),
        (301, causal),
        (302, sinks is not None),
        (303, save_sums),
    )
    mask_kind = "bool" if mask is not None and mask.dtype == torch.bool else kind
    arguments = f"{kind}, {blocks.arguments(kernel)}, {mask_kind}, float"
    unit = Unit(kernel.file, UTILS, ((kernel.name, kernel.name, arguments),), constants)
    out = garbage(batch, queries, heads, v.shape[-1], dtype=TYPES[kind]).transpose(1, 2)
    sums = garbage(batch, heads, queries, dtype=torch.float32)
    params = struct(
        PARAMS,
        B=batch,
        H=heads,
        D=size,
        qL=queries,
        kL=keys,
        gqa_factor=heads // k.shape[1],
        scale=scale,
        NQ=up(queries, blocks.bq),
        NK=up(keys, blocks.bk),
        NQ_aligned=queries // blocks.bq,
        NK_aligned=keys // blocks.bk,
        qL_rem=queries % blocks.bq,
        kL_rem=keys % blocks.bk,
        qL_off=keys - queries,
        Q_strides=q.stride()[:3],
        K_strides=k.stride()[:3],
        V_strides=v.stride()[:3],
        O_strides=out.stride()[:3],
    )
    bench.run(
        unit,
        kernel.name,
        q,
        k,
        v,
        out,
        params,
        None if mask is None else torch.tensor(mask.stride()[:3]),
        mask,
        sinks,
        sums if save_sums else None,
        **groups(up(queries, blocks.bq), heads, batch, group=(32, blocks.wm, blocks.wn)),
    )
    expected, expected_sums = reference(q, k, v, scale, mask, causal, sinks)
    # half of the last digit when the result is stored, and the error of sums of floats
    rounding = torch.finfo(out.dtype).eps / 2
    torch.testing.assert_close(out.double(), expected, rtol=rounding * 1.01, atol=1e-5)
    if save_sums:
        torch.testing.assert_close(sums.double(), expected_sums, rtol=0, atol=1e-5)


def attend_case(
    bench,
    kernel: Kernel,
    kind: str,
    blocks: Blocks,
    counts: tuple[int, int, int],
    lengths: tuple[int, int],
    options: dict[str, Any],
) -> None:
    """Compare one launch with the reference.

    Arguments:
        counts: batches, heads of queries, heads of keys.
        lengths: how many queries and keys.
        options: "mask" of "bool" or numbers, "causal", "sinks", "sums".
    """
    batch, heads, key_heads = counts
    queries, keys = lengths
    q = numbers(kind, batch, heads, queries, blocks.bd, seed=1)
    k = numbers(kind, batch, key_heads, keys, blocks.bd, seed=2)
    v = numbers(kind, batch, key_heads, keys, blocks.bv, seed=3)
    mask = None
    if wanted := options.get("mask"):
        # the same for all heads
        mask = numbers("float", batch, 1, queries, keys, seed=4).contiguous().expand(-1, heads, -1, -1)
        mask = mask > -0.3 if wanted == "bool" else mask.to(TYPES[wanted])
        if wanted == "bool":
            mask[..., 0] = True
            mask = mask[:, :1].contiguous().expand(-1, heads, -1, -1)
    sinks = torch.linspace(-1, 2, heads).to(q.dtype) if options.get("sinks") else None
    attend(
        bench,
        kernel,
        kind,
        blocks,
        q,
        k,
        v,
        mask,
        options.get("causal", False),
        sinks,
        options.get("sums", False),
    )
