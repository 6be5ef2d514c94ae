"""A mixture-of-experts block: a router in PyTorch, and kernels that read only the experts it chose."""

from __future__ import annotations

import torch

from metalwright import MetalKernel
from tests.models.case import Case, seeded, weights
from tests.models.kernels import MATVEC_PARAMETERS, matvec_sizes, normalised, silu

HIDDEN = 192
FFN = 320
EXPERTS = 8
CHOSEN = 2
TOKENS = 6


def _gate_up(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
    def projected(weight: torch.Tensor) -> torch.Tensor:
        slabs = torch.index_select(weight, 0, experts.reshape(-1)).float()
        return torch.einsum("th,tsfh->tsf", x.float(), slabs.reshape(*experts.shape, *weight.shape[1:]))

    return (silu(projected(gate)) * projected(up)).to(x.dtype)


# Both projections read the activation row of the token, whatever the slot.
gate_up = MetalKernel(
    "moe_gate_up",
    input_names=["x", "gate", "up", "experts"],
    result_names=["out"],
    src="""
    uint feature = group.x * simdgroups + simdgroup, slot = group.y, token = group.z;
    if (feature >= uint(gate.get_extent(1)))
        return;
    int expert = experts[slot, token];
    float g = 0.0f, u = 0.0f;
    for (uint i = lane; i < uint(x.get_extent(0)); i += 32) {
        float value = float(x[i, token]);
        g += value * float(gate[i, feature, expert]);
        u += value * float(up[i, feature, expert]);
    }
    g = simd_sum(g);
    u = simd_sum(u);
    if (lane == 0)
        out[feature, slot, token] = TYPE(g / (1.0f + metal::exp(-g)) * u);
    """,
    torch_defn=_gate_up,
    template_dtypes={"x": "TYPE"},
    metal_params=MATVEC_PARAMETERS,
)


def _down(x: torch.Tensor, weight: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
    slabs = torch.index_select(weight, 0, experts.reshape(-1)).float()
    slabs = slabs.reshape(*experts.shape, *weight.shape[1:])
    return torch.einsum("tsf,tshf->tsh", x.float(), slabs).to(x.dtype)


# Each slot has an activation row of its own.
down = MetalKernel(
    "moe_down",
    input_names=["x", "weight", "experts"],
    result_names=["out"],
    src="""
    uint feature = group.x * simdgroups + simdgroup, slot = group.y, token = group.z;
    if (feature >= uint(weight.get_extent(1)))
        return;
    int expert = experts[slot, token];
    float sum = 0.0f;
    for (uint i = lane; i < uint(x.get_extent(0)); i += 32)
        sum += float(x[i, slot, token]) * float(weight[i, feature, expert]);
    sum = simd_sum(sum);
    if (lane == 0)
        out[feature, slot, token] = TYPE(sum);
    """,
    torch_defn=_down,
    template_dtypes={"x": "TYPE"},
    metal_params=MATVEC_PARAMETERS,
)


class MixtureOfExperts(torch.nn.Module):
    """Gives the block's output and the experts that each token went to."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        super().__init__()
        generator = seeded(seed)

        def parameter(value: torch.Tensor) -> torch.nn.Parameter:
            return torch.nn.Parameter(value.to(dtype), requires_grad=False)

        self.norm = parameter(1 + 0.1 * torch.randn(HIDDEN, generator=generator))
        self.router = parameter(weights(generator, EXPERTS, HIDDEN))
        self.gate = parameter(weights(generator, EXPERTS, FFN, HIDDEN))
        self.up = parameter(weights(generator, EXPERTS, FFN, HIDDEN))
        self.down = parameter(weights(generator, EXPERTS, HIDDEN, FFN))

    def forward(self, x: torch.Tensor, delta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        normed, x = normalised(x, delta, self.norm)
        scores, experts = torch.topk(normed @ self.router.T, CHOSEN)
        experts = experts.to(torch.int32)
        tokens = x.shape[0]
        hidden = gate_up(
            normed, self.gate, self.up, experts,
            **matvec_sizes(FFN, CHOSEN, tokens), result_shapes=[[tokens, CHOSEN, FFN]],
        )  # fmt: skip
        slots = down(
            hidden, self.down, experts,
            **matvec_sizes(HIDDEN, CHOSEN, tokens), result_shapes=[[tokens, CHOSEN, HIDDEN]],
        )  # fmt: skip
        return x + (slots * torch.softmax(scores, -1)[..., None]).sum(1), experts


def inputs(tokens: int, dtype: torch.dtype = torch.float32, seed: int = 3) -> dict[str, torch.Tensor]:
    generator = seeded(seed)
    return {name: torch.randn(tokens, HIDDEN, generator=generator).to(dtype) for name in ("x", "delta")}


def case(*, dynamic: bool, dtype: torch.dtype = torch.float32) -> Case:
    """A fixed number of tokens, or any."""
    any_number = {0: torch.export.Dim("tokens", min=1, max=1024)}
    return Case(
        MixtureOfExperts(2, dtype),
        inputs(TOKENS, dtype),
        outputs=("y", "experts"),
        dynamic_shapes={"x": any_number, "delta": any_number} if dynamic else None,
    )
