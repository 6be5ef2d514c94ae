"""``DecodeAttention.h`` and ``PrefillAttention.h``, driven as PyTorch's host code drives them, against torch in float64.

The headers instantiate more than two hundred kernels; those that are launched are compiled.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from metalwright import compile_shader
from metalwright.authoring import ShaderLibrary

FOLDER = "ATen/native/mps/kernels"
DECODE, PREFILL = f"{FOLDER}/DecodeAttention.h", f"{FOLDER}/PrefillAttention.h"
KINDS = {"float": torch.float32, "half": torch.float16, "bfloat": torch.bfloat16}
PREFILL_KINDS = {"float": "float32", "half": "float16", "bfloat": "bfloat16"}
# blocks of keys that the first of two passes sums, each by a threadgroup
BLOCKS = 32
PARAMS = np.dtype(
    [
        *((name, "i4") for name in ("B", "H", "D", "qL", "kL", "gqa_factor")),
        ("scale", "f4"),
        ("softcapping", "f4"),
        *((f"{name}_strides", "i4", 3) for name in "QKVO"),
    ]
)


@functools.cache
def library(header: str) -> ShaderLibrary:
    return compile_shader(f"""
#include <metal_stdlib>
#include <metal_simdgroup>
#include <metal_simdgroup_matrix>
using namespace metal;
#include <c10/metal/common.h>
#include <c10/metal/utils.h>
#include <{header}>
""")


@dataclass(frozen=True)
class Case:
    """Queries, keys and values; ``mask`` is ``"bool"``, ``"added"`` or nothing; ``heads`` of queries, of keys."""

    kind: str
    size: int
    lengths: tuple[int, int]
    heads: tuple[int, int] = (2, 2)
    mask: str = ""
    causal: bool = False

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return random ones whose heads and positions lie the other way round, as a projection leaves them."""
        generator = torch.Generator().manual_seed(self.size + self.lengths[1])

        def numbers(heads: int, length: int) -> torch.Tensor:
            values = torch.randn(2, length, heads, self.size, generator=generator)
            return values.to(KINDS[self.kind]).transpose(1, 2)

        queries, keys = self.lengths
        q, k, v = numbers(self.heads[0], queries), numbers(self.heads[1], keys), numbers(self.heads[1], keys)
        if not self.mask:
            return q, k, v, None
        added = torch.randn(2, self.heads[0], queries, keys, generator=generator)
        if self.mask == "bool":
            seen = added > -0.5
            seen[0, 1, 0] = False  # a query that sees no key
            return q, k, v, seen
        added[added > 1.5] = -math.inf
        return q, k, v, added.to(KINDS[self.kind])

    def expected(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        shared = self.heads[0] // self.heads[1]
        k, v = k.double().repeat_interleave(shared, 1), v.double().repeat_interleave(shared, 1)
        scores = q.double() @ k.mT * self.size**-0.5
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, -math.inf)
        elif mask is not None:
            scores = scores + mask.double()
        if self.causal:
            # the first query sees the first key, however many keys there are
            scores = scores.masked_fill(torch.ones(self.lengths, dtype=torch.bool).triu(1), -math.inf)
        # what sees nothing is 0
        return scores.softmax(-1).nan_to_num() @ v


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    # the result, and of half and bfloat also scaled queries or partial results, is rounded to its type
    rounding = torch.finfo(found.dtype).eps
    torch.testing.assert_close(found.double(), expected, rtol=2 * rounding, atol=max(2 * rounding, 1e-5))


def words(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def garbage(*shape: int, kind: str) -> torch.Tensor:
    return torch.full(shape, 1e3, dtype=KINDS[kind])


DECODED = {
    "plain": Case("float", 64, (3, 70), (4, 2)),
    "few keys": Case("half", 96, (2, 5)),
    "causal": Case("bfloat", 128, (7, 45), (2, 1), causal=True),
    "bools": Case("float", 64, (4, 100), (4, 4), mask="bool"),
    "added": Case("half", 256, (2, 65), (2, 1), mask="added"),
}


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("name", DECODED)
def test_decoding(name: str, passes: int, ran: Callable[..., None]) -> None:
    case = DECODED[name]
    q, k, v, mask = case.tensors()
    batch, heads, queries, size = q.shape
    kind = "bool" if case.mask == "bool" else case.kind
    suffix = (
        f"{case.kind}_{size}_{size}_mask{kind if case.mask else 'none'}{'_causal' if case.causal else ''}"
    )
    # a buffer that no kernel reads where there is no mask
    seen = torch.zeros(1) if mask is None else mask
    strides = (
        (0, 0, 0, 0) if mask is None else (seen.stride(3), seen.stride(2), seen.stride(1), seen.stride(0))
    )
    shared = [words(heads // k.shape[1]), words(k.shape[2])]
    shared += [words(*(one.stride(axis) for one in (q, k, v)), 0) for axis in (1, 2)]
    shared += [torch.tensor([size**-0.5]), seen, words(*strides)]
    shared += [words(*(one.stride(0) for one in (q, k, v)), heads)]
    out = garbage(batch, heads, queries, size, kind=case.kind)
    if passes == 1:
        ran(DECODE, "sdpa_vector", suffix)
        library(DECODE)[f"sdpa_vector_{suffix}"](
            q, k, v, out, *shared, threads=(batch * heads * 1024, queries, 1), group_size=(1024, 1, 1)
        )
    else:
        partial = garbage(batch * heads * queries, BLOCKS, size, kind=case.kind)
        sums, most = torch.full((2, batch * heads * queries, BLOCKS), 1e3)
        ran(DECODE, "sdpa_vector_2pass_1", suffix)
        library(DECODE)[f"sdpa_vector_2pass_1_{suffix}"](
            *(q, k, v, partial, sums, most, *shared),
            threads=(batch * heads * 256, queries, BLOCKS),
            group_size=(256, 1, 1),
        )
        ran(DECODE, "sdpa_vector_2pass_2", f"{case.kind}_{size}")
        library(DECODE)[f"sdpa_vector_2pass_2_{case.kind}_{size}"](
            *(partial, sums, most, out),
            threads=(batch * heads * 1024, queries, 1),
            group_size=(1024, 1, 1),
        )
    close(out, case.expected(q, k, v, mask))


PREFILLED = {
    "plain": (Case("float", 64, (45, 70), (4, 2)), (32, 32, 4)),
    "causal": (Case("half", 32, (64, 40), causal=True), (32, 32, 4)),
    "bools": (Case("bfloat", 80, (33, 65), (2, 1), mask="bool"), (32, 32, 4)),
    "added": (Case("half", 128, (40, 33), (2, 2), mask="added", causal=True), (32, 16, 4)),
    "large": (Case("float", 256, (19, 20), (1, 1)), (16, 8, 2)),
}


@pytest.mark.parametrize("name", PREFILLED)
def test_prefill(name: str, ran: Callable[..., None]) -> None:
    case, (bq, bk, simdgroups) = PREFILLED[name]
    q, k, v, mask = case.tensors()
    batch, heads, queries, size = q.shape
    kind = PREFILL_KINDS[case.kind]
    form = f"bq{bq}_bk{bk}_bd{size}_wm{simdgroups}_wn1_hm{int(mask is not None)}_dc{int(case.causal)}"
    full = f"prefill_attention_{kind}_{form}_mask{'bool_' if case.mask == 'bool' else kind}"
    out = garbage(batch, queries, heads, size, kind=case.kind).transpose(1, 2)
    params = np.zeros((), PARAMS)
    sizes = {
        "B": batch,
        "H": heads,
        "D": size,
        "qL": queries,
        "kL": k.shape[2],
        "gqa_factor": heads // k.shape[1],
    }
    for field, value in sizes.items():
        params[field] = value
    params["scale"], params["softcapping"] = size**-0.5, 1  # which is none
    for field, one in zip("QKVO", (q, k, v, out), strict=True):
        params[f"{field}_strides"] = one.stride()[:3]
    ran(PREFILL, "prefill_attention", full)
    library(PREFILL)[full](
        *(q, k, v, out, torch.frombuffer(bytearray(params.tobytes()), dtype=torch.uint8)),
        words(*((0, 0, 0, 0) if mask is None else mask.stride())),
        torch.zeros(1, dtype=q.dtype) if mask is None else mask,
        threads=(-(-queries // bq) * 32, heads * simdgroups, batch),
        group_size=(32, simdgroups, 1),
    )
    close(out, case.expected(q, k, v, mask))
