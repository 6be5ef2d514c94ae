"""MLX's steel attention: head sizes, lengths that no block divides, masks, causality, sinks, shared heads."""

from __future__ import annotations

import pytest
from attending import Blocks, Kernel, attend_case

ATTENTION = Kernel("steel/attn/kernels/steel_attention.h", "attention")
CASES = {
    "float, 64, added mask": ("float", Blocks(32, 32, 64, 64), (2, 2, 2), (40, 70), {"mask": "float"}),
    "half, 128, causal, sinks, shared heads": (
        "half",
        Blocks(32, 16, 128, 128),
        (2, 4, 2),
        (33, 50),
        {"causal": True, "sinks": True},
    ),
    "bfloat, 80, mask of bools, sums": (
        "bfloat16_t",
        Blocks(32, 32, 80, 80),
        (1, 2, 1),
        (37, 45),
        {"mask": "bool", "sums": True},
    ),
    "half, 64, whole blocks, causal, sinks, sums": (
        "half",
        Blocks(32, 32, 64, 64),
        (1, 2, 2),
        (32, 96),
        {"causal": True, "sinks": True, "sums": True},
    ),
    "half, 192 by 128, two simdgroups share a row, causal": (
        "half",
        Blocks(32, 32, 192, 128, 4, 2),
        (1, 2, 1),
        (45, 70),
        {"causal": True},
    ),
    "float, 256, two simdgroups share a row, added mask": (
        "float",
        Blocks(16, 16, 256, 256, 2, 2),
        (1, 2, 2),
        (20, 37),
        {"mask": "float"},
    ),
    "bfloat, 256, two simdgroups share a row": (
        "bfloat16_t",
        Blocks(16, 16, 256, 256, 2, 2),
        (1, 2, 2),
        (33, 21),
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_attention(bench, name: str) -> None:
    attend_case(bench, ATTENTION, *CASES[name])
