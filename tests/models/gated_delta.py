"""A gated-delta-rule block (Gated DeltaNet): a scan kernel over time, and two states that go from call to call."""

from __future__ import annotations

import torch

from metalwright import MetalKernel, MetalParameter
from tests.models.case import Case, seeded, weights
from tests.models.kernels import gated, normalised

HIDDEN = 128
HEADS = 4
KEY_WIDTH = 32
VALUE_WIDTH = 64
KEYS, VALUES = HEADS * KEY_WIDTH, HEADS * VALUE_WIDTH
CONVOLVED = 2 * KEYS + VALUES
TAPS = 4  # of the short convolution
STEP = 4


def _scan(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The recurrence for all times at once, by a triangular system: no loop, so that the length may be dynamic.

    ``state = exp(decay) * state``, then ``state += key * beta * (value - key @ state)``, then ``query @ state``.
    """
    steps = query.shape[0]
    queries, keys, values = (x.transpose(0, 1) for x in (query, key, value))
    since_start = decay.cumsum(0).T
    earlier = torch.ones(steps, steps, dtype=torch.bool).tril()
    between = (since_start[:, :, None] - since_start[:, None, :]).masked_fill(~earlier, -torch.inf).exp()
    carried = since_start.exp()[:, :, None]
    betas = beta.T[:, :, None]
    mixing = (betas * between * (keys @ keys.transpose(1, 2))).tril(-1) + torch.eye(steps)
    updates = torch.linalg.solve_triangular(
        mixing, betas * (values - carried * (keys @ state)), upper=False, unitriangular=True
    )
    out = carried * (queries @ state) + (between * (queries @ keys.transpose(1, 2))) @ updates
    until_end = (since_start[:, -1:] - since_start).exp()[:, :, None]
    after = carried[:, -1:] * state + (until_end * keys).transpose(1, 2) @ updates
    return out.transpose(0, 1).contiguous(), after


# A threadgroup has a head, a thread a column of the head's state, which it keeps in registers from step to step.
scan = MetalKernel(
    "gated_delta_scan",
    input_names=["query", "key", "value", "decay", "beta", "state"],
    result_names=["out", "after"],
    helper_src=f"constant constexpr uint KEY_WIDTH = {KEY_WIDTH};",
    src="""
    threadgroup float q[KEY_WIDTH], k[KEY_WIDTH];
    float column[KEY_WIDTH];
    for (uint i = 0; i < KEY_WIDTH; ++i)
        column[i] = state[lid, i, head];
    uint steps = query.get_extent(2);
    for (uint t = 0; t < steps; ++t) {
        if (lid < KEY_WIDTH) {
            q[lid] = query[lid, head, t];
            k[lid] = key[lid, head, t];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float kept = metal::exp(decay[head, t]), recalled = 0.0f;
        for (uint i = 0; i < KEY_WIDTH; ++i) {
            column[i] *= kept;
            recalled += k[i] * column[i];
        }
        float update = beta[head, t] * (value[lid, head, t] - recalled), sum = 0.0f;
        for (uint i = 0; i < KEY_WIDTH; ++i) {
            column[i] += k[i] * update;
            sum += q[i] * column[i];
        }
        out[lid, head, t] = sum;
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint i = 0; i < KEY_WIDTH; ++i)
        after[lid, i, head] = column[i];
    """,
    torch_defn=_scan,
    metal_params=[
        MetalParameter("head", "uint", "threadgroup_position_in_grid"),
        MetalParameter("lid", "uint", "thread_position_in_threadgroup"),
    ],
)


class GatedDelta(torch.nn.Module):
    """Mixes a sequence; what it remembers of earlier calls is in ``recurrent`` and ``convolution``."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        super().__init__()
        generator = seeded(seed)

        def parameter(value: torch.Tensor, kind: torch.dtype = dtype) -> torch.nn.Parameter:
            return torch.nn.Parameter(value.to(kind), requires_grad=False)

        self.norm = parameter(1 + 0.1 * torch.randn(HIDDEN, generator=generator))
        self.mixed = parameter(weights(generator, CONVOLVED, HIDDEN))
        self.taps = parameter(weights(generator, CONVOLVED, 1, TAPS))
        self.gate = parameter(weights(generator, VALUES, HIDDEN))
        self.rates = parameter(weights(generator, 2 * HEADS, HIDDEN))
        self.out_norm = parameter(1 + 0.1 * torch.randn(VALUE_WIDTH, generator=generator))
        self.out = parameter(weights(generator, HIDDEN, VALUES))
        self.slowness = parameter(torch.linspace(-3, 1, HEADS), torch.float32)
        self.register_buffer("recurrent", torch.zeros(HEADS, KEY_WIDTH, VALUE_WIDTH))
        self.register_buffer("convolution", torch.zeros(TAPS - 1, CONVOLVED, dtype=dtype))

    def forward(self, x: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
        normed, x = normalised(x, delta, self.norm)
        steps = x.shape[0]
        query, key, value = self._convolved(normed @ self.mixed.T).split([KEYS, KEYS, VALUES], -1)
        query, key = (_unit(y.reshape(steps, HEADS, KEY_WIDTH)) for y in (query, key))
        rate, beta = (normed @ self.rates.T).float().chunk(2, -1)
        read, after = scan(
            query * KEY_WIDTH**-0.5,
            key,
            value.reshape(steps, HEADS, VALUE_WIDTH).contiguous(),
            -self.slowness.exp() * torch.nn.functional.softplus(rate),
            torch.sigmoid(beta),
            self.recurrent,
            threads_per_grid=(HEADS * VALUE_WIDTH, 1, 1),
            threads_per_thread_group=(VALUE_WIDTH, 1, 1),
            result_shapes=[[steps, HEADS, VALUE_WIDTH], [HEADS, KEY_WIDTH, VALUE_WIDTH]],
        )
        self.recurrent.copy_(after)
        heads = read.to(x.dtype).reshape(steps * HEADS, VALUE_WIDTH)
        normed_heads, _ = normalised(heads, torch.zeros_like(heads), self.out_norm)
        return x + gated(normed @ self.gate.T, normed_heads.reshape(steps, VALUES)) @ self.out.T

    def _convolved(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve over time with the last inputs of the call before, and keep this call's; always in float32."""
        padded = torch.cat([self.convolution, x])
        self.convolution.copy_(padded[x.shape[0] :])
        channels = torch.nn.functional.conv1d(padded.T[None], self.taps, groups=CONVOLVED)
        return torch.nn.functional.silu(channels[0].T.float().contiguous())


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def inputs(steps: int, dtype: torch.dtype = torch.float32, seed: int = 7) -> dict[str, torch.Tensor]:
    generator = seeded(seed)
    return {name: torch.randn(steps, HIDDEN, generator=generator).to(dtype) for name in ("x", "delta")}


def case(*, dynamic: bool, dtype: torch.dtype = torch.float32) -> Case:
    """A fixed number of steps a call, or any."""
    any_number = {0: torch.export.Dim("steps", min=1, max=256)}
    return Case(
        GatedDelta(6, dtype),
        inputs(STEP, dtype),
        outputs=("y",),
        states=("recurrent", "convolution"),
        dynamic_shapes={"x": any_number, "delta": any_number} if dynamic else None,
    )
