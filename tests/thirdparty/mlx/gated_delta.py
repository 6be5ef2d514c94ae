"""The gated delta rule, step by step in double: what its kernels are compared with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from arrays import TYPES, normal

# a result in half is rounded once
CLOSE = {"float": (2e-5, 2e-5), "half": (1e-3, 1e-3), "bfloat16_t": (8e-3, 8e-3)}


@dataclass(frozen=True)
class Size:
    """One instantiation: elements of keys and values, heads of each; a checkpoint of the state every some steps."""

    kind: str
    keys: int
    values: int
    key_heads: int
    value_heads: int
    every: int = 4

    def arguments(self, last: int) -> str:
        return f"{self.kind}, {self.keys}, {self.values}, {self.key_heads}, {self.value_heads}, {last}"


@dataclass(frozen=True)
class Inputs:
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    gate: torch.Tensor
    beta: torch.Tensor
    state: torch.Tensor

    @classmethod
    def of(cls, size: Size, batch: int, steps: int) -> Inputs:
        """Return random ones: keys are of length one, gates and betas between 0 and 1."""
        shape = (batch, steps)
        key = normal(steps, *shape, size.key_heads, size.keys)
        gates = normal(steps + 1, 2, *shape, size.value_heads).sigmoid()
        dtype = TYPES[size.kind]
        return cls(
            (normal(steps + 2, *key.shape) * size.keys**-0.5).to(dtype),
            (key / key.norm(dim=-1, keepdim=True)).to(dtype),
            normal(steps + 3, *shape, size.value_heads, size.values, kind=size.kind),
            (0.5 + gates[0] / 2).to(dtype),
            gates[1].to(dtype),
            normal(steps + 4, batch, size.value_heads, size.values, size.keys),
        )

    def all(self) -> tuple[torch.Tensor, ...]:
        return self.q, self.k, self.v, self.gate, self.beta, self.state

    def double(self) -> Inputs:
        return Inputs(*(one.double() for one in self.all()))

    @property
    def steps(self) -> int:
        return self.q.shape[1]


def recurrence(given: Inputs) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Return the results of all steps, the last state, and the state before each step."""
    shared = given.v.shape[2] // given.q.shape[2]
    q, k = (one.repeat_interleave(shared, 2) for one in (given.q, given.k))
    state, results, entered = given.state, [], []
    for t in range(given.steps):
        entered.append(state)
        state = state * given.gate[:, t, :, None, None]
        known = torch.einsum("bhvk,bhk->bhv", state, k[:, t])
        delta = (given.v[:, t] - known) * given.beta[:, t, :, None]
        state = state + delta[..., None] * k[:, t, :, None, :]
        results.append(torch.einsum("bhvk,bhk->bhv", state, q[:, t]))
    return torch.stack(results, 1), state, entered


def checkpoints(size: Size, entered: list[torch.Tensor]) -> torch.Tensor:
    """Return the states before every so many steps, by head and then by step."""
    return torch.stack(entered[:: size.every], 2).flatten(0, 1)


def close(kind: str, out: torch.Tensor, expected: torch.Tensor) -> None:
    rtol, atol = CLOSE[kind]
    torch.testing.assert_close(out, expected.to(out.dtype), rtol=rtol, atol=atol)
