"""MLX's attention for the matrix units of newer GPUs ("nax"), in blocks that MLX instantiates."""

from __future__ import annotations

import pytest
from attending import Blocks, Kernel, attend_case

FILE = "steel/attn/kernels/steel_attention_nax.h"
ATTENTION = Kernel(FILE, "attention_nax")
# simdgroups share the elements of a head
SPLIT = Kernel(FILE, "attention_nax_dsplit", values=False)

CASES = {
    "half, 64, causal, sinks, sums, shared heads": (
        ATTENTION,
        "half",
        Blocks(64, 32, 64, 64),
        (2, 4, 2),
        (75, 101),
        {"causal": True, "sinks": True, "sums": True},
    ),
    "bfloat, 64, mask of bools": (
        ATTENTION,
        "bfloat16_t",
        Blocks(64, 64, 64, 64),
        (1, 2, 1),
        (64, 150),
        {"mask": "bool"},
    ),
    "half, 192 by 128, added mask": (
        ATTENTION,
        "half",
        Blocks(64, 32, 192, 128),
        (1, 2, 1),
        (20, 64),
        {"mask": "half"},
    ),
    "half, 256, added mask, sinks, sums": (
        SPLIT,
        "half",
        Blocks(64, 32, 256, 256, 4, 2),
        (1, 2, 1),
        (70, 45),
        {"mask": "half", "sinks": True, "sums": True},
    ),
    "float, 256, causal": (
        SPLIT,
        "float",
        Blocks(64, 32, 256, 256, 4, 2),
        (1, 2, 2),
        (64, 96),
        {"causal": True},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_attention(bench, name: str) -> None:
    kernel, *case = CASES[name]
    attend_case(bench, kernel, *case)
