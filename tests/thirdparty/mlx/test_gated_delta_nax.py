"""gated_delta_update_nax.h and its gradient: the gated delta rule in chunks of 16 steps on matrix units.

The forward pass can keep what the gradient needs: the state before every so many chunks, and of each chunk the
products of keys with keys and of queries with keys, the inverse of a triangular matrix, and what the steps add to the
state. The gradient is launched on what the reference keeps, so that it is tested by itself.

MLX makes these kernels for 16 heads and more; how many only says how far apart in memory the steps are.
"""

from __future__ import annotations

import pytest
import torch
from arrays import garbage, groups, normal, up
from gated_delta import Inputs, Size, close, recurrence
from nax_units import BACKWARD, BACKWARD_BY_CHUNK, BY_GATE, CHUNK, FORWARD, SIZES, backward, by_gate, forward

BATCH = 2
# less than a chunk, one, and a state that is kept in the middle of the chunks; the last chunk is cut off
STEPS = (5, CHUNK, 5 * CHUNK + 3)


def kept_of(given: Inputs, entered: list[torch.Tensor], every: int) -> tuple[torch.Tensor, ...]:
    """Return what a forward pass keeps: states, the three matrices of each chunk, and what its steps add."""
    shared = given.v.shape[2] // given.q.shape[2]
    known = [
        torch.einsum("bhvk,bhk->bhv", state * given.gate[:, t, :, None, None], key)
        for t, (state, key) in enumerate(
            zip(entered, given.k.repeat_interleave(shared, 2).unbind(1), strict=True)
        )
    ]
    added = (given.v - torch.stack(known, 1)) * given.beta[..., None]
    chunks = up(given.steps, CHUNK)

    def split(steps: torch.Tensor) -> torch.Tensor:
        """Bring heads before chunks before steps; steps that are missing are zeros."""
        padded = torch.nn.functional.pad(steps, (0, 0) * (steps.ndim - 2) + (0, chunks * CHUNK - given.steps))
        return padded.unflatten(1, (chunks, CHUNK)).movedim(3, 1).contiguous()

    q, k = (split(one.repeat_interleave(shared, 2)) for one in (given.q, given.k))
    products = k @ k.mT
    lower = (split(given.beta)[..., None] * products).tril(-1)
    inverse = torch.linalg.inv(torch.eye(CHUNK, dtype=torch.float64) + lower)
    states = torch.stack(entered[:: CHUNK * every], 2)
    return states, torch.stack([products, inverse, q @ k.mT], 3), split(added)


@pytest.mark.parametrize("save", [True, False])
@pytest.mark.parametrize("size", SIZES[FORWARD], ids=str)
def test_forward(bench, size: Size, save: bool) -> None:
    for steps in STEPS:
        given = Inputs.of(size, BATCH, steps)
        expected, last, entered = recurrence(given.double())
        kept = kept_of(given.double(), entered, size.every)
        y = garbage(*given.v.shape, dtype=given.v.dtype)
        state = garbage(*given.state.shape, dtype=torch.float32)
        # where nothing is kept MLX passes one number
        found = [garbage(*(one.shape if save else (1,)), dtype=torch.float32) for one in kept]
        bench.run(
            forward(size, save),
            FORWARD,
            *(given.q, given.k, given.v, given.state, given.gate, given.beta),
            *(y, state, steps),
            *found,
            **groups(1, size.values // 64, BATCH * size.value_heads, group=(32, 4, 1)),
        )
        close(size.kind, y, expected)
        close("float", state, last)
        for one, other in zip(found, kept, strict=True):
            if save:
                close("float", one, other)
            else:
                assert one.isnan().all()


@pytest.mark.parametrize(
    ("kernel", "size"),
    [(kernel, size) for kernel in (BACKWARD, BACKWARD_BY_CHUNK) for size in SIZES[kernel]],
    ids=str,
)
def test_gradient(bench, kernel: str, size: Size) -> None:
    for steps in STEPS:
        given = Inputs.of(size, BATCH, steps)
        leaves = Inputs(*(one.requires_grad_() for one in given.double().all()))
        results, last, entered = recurrence(leaves)
        by_result = normal(5, *results.shape, kind=size.kind)
        by_state = normal(6, *last.shape)
        torch.autograd.backward((results, last), (by_result.double(), by_state.double()))
        # where heads share keys, sums are by atomics and start as zero
        begin = torch.zeros if size.key_heads != size.value_heads else garbage
        dq, dk = (begin(*one.shape, dtype=torch.float32) for one in (given.q, given.k))
        dv, dg, db, dh = (
            garbage(*one.shape, dtype=torch.float32) for one in (given.v, given.gate, given.beta, given.state)
        )
        with torch.no_grad():
            states, matrices, added = (one.float() for one in kept_of(leaves, entered, size.every))
        scratch = [garbage(*given.state.shape[:2], size.every, *given.state.shape[2:], dtype=torch.float32)]
        bench.run(
            backward(kernel, size),
            kernel,
            *(given.q, given.k, given.v, given.gate, given.beta),
            *(by_result, by_state, states, steps),
            *(dq, dk, dv, dg, db, dh),
            *(matrices, added),
            *(scratch if kernel == BACKWARD else ()),
            **groups(1, 1, BATCH * size.value_heads, group=(32, size.values // 16, 1)),
        )
        # what is found of gates is by the sum of their logarithms in a chunk
        heads = BATCH * size.value_heads
        bench.run(
            by_gate(size),
            BY_GATE,
            *(given.gate, dg, steps, size.value_heads, heads),
            threads=(heads, up(steps, CHUNK)),
            group=(min(heads, 32), 1),
        )
        for out, leaf in zip((dq, dk, dv, dg, db, dh), leaves.all(), strict=True):
            close("float", out, leaf.grad)
