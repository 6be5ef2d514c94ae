"""A Llama-style decoder: grouped-query attention over a KV state, int8 projections, every fused step a kernel."""

from __future__ import annotations

import torch

from metalwright import MetalKernel, MetalParameter
from tests.models.case import Case, seeded, weights
from tests.models.kernels import MATVEC_PARAMETERS, gated, matvec_sizes, normalised

BLOCKS = 2
HIDDEN = 256
HEADS = 8
KV_HEADS = 4
HEAD_WIDTH = HIDDEN // HEADS
FFN = 704
VOCABULARY = 512
CONTEXT = 96


def _int8_matvec(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return ((x.float() @ weight.float().T) * scale.float()).to(x.dtype)


int8_matvec = MetalKernel(
    "llama_int8_matvec",
    input_names=["x", "weight", "scale"],
    result_names=["out"],
    src="""
    uint row = group.x * simdgroups + simdgroup, token = group.y;
    if (row >= uint(weight.get_extent(1)))
        return;
    device const char4* quantised = reinterpret_cast<device const char4*>(&weight[0, row]);
    device const TYPE4* values = reinterpret_cast<device const TYPE4*>(&x[0, token]);
    float sum = 0.0f;
    for (uint i = lane; i < uint(weight.get_extent(0)) / 4; i += 32)
        sum += dot(float4(values[i]), float4(quantised[i]));
    sum = simd_sum(sum);
    if (lane == 0)
        out[row, token] = TYPE(sum * float(scale[row]));
    """,
    torch_defn=_int8_matvec,
    template_dtypes={"x": "TYPE"},
    metal_params=MATVEC_PARAMETERS,
)


def _rope(x: torch.Tensor, positions: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    angles = (positions.float()[:, None] * frequencies)[:, None, :]
    first, second = x.float().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)


rope = MetalKernel(
    "llama_rope",
    input_names=["x", "positions", "frequencies"],
    result_names=["out"],
    src="""
    uint pairs = x.get_extent(0) / 2;
    float angle = float(positions[gid.z]) * frequencies[gid.x];
    float c = metal::cos(angle), s = metal::sin(angle);
    float first = float(x[gid.x, gid.y, gid.z]), second = float(x[gid.x + pairs, gid.y, gid.z]);
    out[gid.x, gid.y, gid.z] = TYPE(first * c - second * s);
    out[gid.x + pairs, gid.y, gid.z] = TYPE(second * c + first * s);
    """,
    torch_defn=_rope,
    template_dtypes={"x": "TYPE"},
    metal_params=[MetalParameter("gid", "uint3", "thread_position_in_grid")],
)


class Int8Linear(torch.nn.Module):
    """A projection with int8 weights and a scale for each output channel."""

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        full = weights(generator, outputs, inputs)
        scale = full.abs().amax(-1) / 127
        self.register_buffer("weight", (full / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale.to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens, features = x.shape[0], self.weight.shape[0]
        return int8_matvec(
            x, self.weight, self.scale, **matvec_sizes(features, tokens), result_shapes=[[tokens, features]]
        )


class Attention(torch.nn.Module):
    def __init__(self, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.query = Int8Linear(HIDDEN, HIDDEN, generator, dtype)
        self.key = Int8Linear(HIDDEN, KV_HEADS * HEAD_WIDTH, generator, dtype)
        self.value = Int8Linear(HIDDEN, KV_HEADS * HEAD_WIDTH, generator, dtype)
        self.output = Int8Linear(HIDDEN, HIDDEN, generator, dtype)
        exponents = torch.arange(HEAD_WIDTH // 2) * 2 / HEAD_WIDTH
        self.register_buffer("frequencies", 10000.0**-exponents)
        for name in ("k_cache", "v_cache"):
            self.register_buffer(name, torch.zeros(CONTEXT, KV_HEADS, HEAD_WIDTH, dtype=dtype))

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        tokens = x.shape[0]
        query = self._rotated(self.query(x).reshape(tokens, HEADS, HEAD_WIDTH), positions)
        key = self._rotated(self.key(x).reshape(tokens, KV_HEADS, HEAD_WIDTH), positions)
        # not cache[positions] = …: for one index, Core AI's interpreter ends the process with an index out of bounds
        self.k_cache.index_copy_(0, positions.long(), key)
        self.v_cache.index_copy_(0, positions.long(), self.value(x).reshape(tokens, KV_HEADS, HEAD_WIDTH))
        seen = torch.arange(CONTEXT, dtype=torch.int32) <= positions[:, None]
        attended = torch.nn.functional.scaled_dot_product_attention(
            query.transpose(0, 1)[None],
            *map(_heads, (self.k_cache, self.v_cache)),
            attn_mask=seen[None, None],
        )
        return self.output(attended[0].transpose(0, 1).reshape(tokens, HIDDEN))

    def _rotated(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        tokens, heads, width = x.shape
        return rope(
            x, positions, self.frequencies,
            threads_per_grid=(width // 2, heads, tokens), threads_per_thread_group=(width // 2, heads, 1),
            result_shapes=[[tokens, heads, width]],
        )  # fmt: skip


def _heads(cache: torch.Tensor) -> torch.Tensor:
    """Return a cache as attention takes it, each head for all the query heads that share it."""
    return cache.transpose(0, 1).repeat_interleave(HEADS // KV_HEADS, 0)[None]


class Block(torch.nn.Module):
    """Takes the residual stream in two parts, which its first kernel adds."""

    def __init__(self, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.attention = Attention(generator, dtype)
        self.attention_norm = _norm_weight(generator, dtype)
        self.ffn_norm = _norm_weight(generator, dtype)
        self.gate = Int8Linear(HIDDEN, FFN, generator, dtype)
        self.up = Int8Linear(HIDDEN, FFN, generator, dtype)
        self.down = Int8Linear(FFN, HIDDEN, generator, dtype)

    def forward(
        self, x: torch.Tensor, delta: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        normed, x = normalised(x, delta, self.attention_norm)
        normed, x = normalised(x, self.attention(normed, positions), self.ffn_norm)
        return x, self.down(gated(self.gate(normed), self.up(normed)))


class Llama(torch.nn.Module):
    """Token numbers and their positions to logits."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        super().__init__()
        generator = seeded(seed)
        self.embedding = torch.nn.Parameter(
            torch.randn(VOCABULARY, HIDDEN, generator=generator).to(dtype), requires_grad=False
        )
        self.blocks = torch.nn.ModuleList(Block(generator, dtype) for _ in range(BLOCKS))
        self.norm = _norm_weight(generator, dtype)
        self.head = Int8Linear(HIDDEN, VOCABULARY, generator, dtype)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.embedding(tokens, self.embedding)
        delta = torch.zeros_like(x)
        for block in self.blocks:
            x, delta = block(x, delta, positions)
        normed, _ = normalised(x, delta, self.norm)
        return self.head(normed)


def _norm_weight(generator: torch.Generator, dtype: torch.dtype) -> torch.nn.Parameter:
    weight = (1 + 0.1 * torch.randn(HIDDEN, generator=generator)).to(dtype)
    return torch.nn.Parameter(weight, requires_grad=False)


def inputs(tokens: list[int], first: int) -> dict[str, torch.Tensor]:
    """Return the inputs for tokens of which the first has position ``first``."""
    return {
        "tokens": torch.tensor(tokens, dtype=torch.int32),
        "positions": torch.arange(first, first + len(tokens), dtype=torch.int32),
    }


def case(*, dynamic: bool, dtype: torch.dtype = torch.float32) -> Case:
    """A step of one token, or, ``dynamic``, of any number up to the whole context."""
    states = tuple(f"{name}_{block}" for block in range(BLOCKS) for name in ("k_cache", "v_cache"))
    any_number = {0: torch.export.Dim("tokens_in_step", min=1, max=CONTEXT)}
    return Case(
        Llama(1, dtype),
        inputs([3, 1, 4, 1, 5] if dynamic else [3], 0),
        outputs=("logits",),
        states=states,
        dynamic_shapes={"tokens": any_number, "positions": any_number} if dynamic else None,
    )
