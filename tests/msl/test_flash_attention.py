"""FlashAttention written with tensor operations against torch's scaled_dot_product_attention, ragged sizes included."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
import torch

from metalwright import compile_shader

KERNEL = Path(__file__).parents[1] / "kernels" / "flash_attention.metal"
DTYPES = {"half_64": torch.float16, "bfloat_64": torch.bfloat16, "float_40": torch.float32}
# heads, heads of keys, queries, keys, causal
SHAPES = [
    (2, 2, 16, 32, False),
    (4, 2, 50, 77, False),
    (1, 1, 1, 33, False),
    (2, 1, 37, 37, True),
    (3, 1, 5, 70, True),
]


@pytest.mark.parametrize(("heads", "key_heads", "queries", "keys", "causal"), SHAPES)
@pytest.mark.parametrize("name", DTYPES)
def test_attention(name: str, heads: int, key_heads: int, queries: int, keys: int, causal: bool) -> None:
    depth, dtype = int(name.split("_")[1]), DTYPES[name]
    generator = torch.Generator().manual_seed(queries * keys)

    def random(*shape: int) -> torch.Tensor:
        return (2 * torch.randn(shape, generator=generator)).to(dtype)

    q, k, v = random(heads, queries, depth), random(key_heads, keys, depth), random(key_heads, keys, depth)
    # a guard behind the result tells whether ragged edges are left alone
    memory = torch.full((heads * queries * depth + 256,), 9, dtype=dtype)
    out = memory[:-256].view(heads, queries, depth)
    sizes = struct.pack("5if", queries, keys, heads, key_heads, causal, 1 / math.sqrt(depth))
    parameters = torch.frombuffer(bytearray(sizes), dtype=torch.uint8)
    groups = -(-queries // 16)
    kernel = compile_shader(KERNEL)[f"flash_attention_{name}"]
    kernel(q, k, v, out, parameters, threads=(32 * groups, heads), group_size=(32, 1))
    mask = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries) if causal else None
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), attn_mask=mask, enable_gqa=True
    )
    # the weights are rounded to the operands' type before they meet the values
    error = (out.double() - expected).abs().max().item()
    assert error < 8 * torch.finfo(dtype).eps * v.double().abs().max().item()
    assert (memory[-256:] == 9).all()
