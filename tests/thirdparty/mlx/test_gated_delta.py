"""The gated delta rule: step by step, in chunks of eight steps by simdgroup matrices, and its gradient."""

from __future__ import annotations

import pytest
import torch
from arrays import garbage, groups, normal, placed, up
from gated_delta import Inputs, Size, checkpoints, close, recurrence
from units import Unit

SEQUENTIAL, CHUNKED, BACKWARD = "gated_delta_seq", "gated_delta_fused_chunk", "gated_delta_vjp_seq"
# steps of a chunk, which are rows of a simdgroup matrix
CHUNK = 8


@pytest.mark.parametrize("save", [False, True])
@pytest.mark.parametrize(
    "size",
    [Size("float", 32, 8, 2, 2), Size("half", 64, 12, 1, 3), Size("bfloat16_t", 128, 4, 2, 4)],
    ids=str,
)
def test_step_by_step(bench, size: Size, save: bool) -> None:
    kernels = ((SEQUENTIAL, SEQUENTIAL, size.arguments(size.every)),)
    unit = Unit("gated_delta_update.h", (), kernels, ((200, save),))
    for steps in (1, 9):
        given = Inputs.of(size, 2, steps)
        y, state = (
            garbage(*given.v.shape, dtype=given.v.dtype),
            garbage(*given.state.shape, dtype=torch.float32),
        )
        kept = garbage(
            2 * size.value_heads, up(steps, size.every), size.values, size.keys, dtype=torch.float32
        )
        arguments = dict(
            enumerate((given.q, given.k, given.v, given.state, given.gate, given.beta, y, state, steps))
        )
        bench.run(
            unit,
            SEQUENTIAL,
            *placed(arguments | ({9: kept} if save else {})),
            **groups(1, size.values // 4, 2 * size.value_heads, group=(32, 4, 1)),
        )
        expected, last, entered = recurrence(given.double())
        close(size.kind, y, expected)
        close("float", state, last)
        if save:
            close("float", kept, checkpoints(size, entered))


@pytest.mark.parametrize("size", [Size("float", 32, 64, 1, 2), Size("half", 64, 32, 2, 2)], ids=str)
def test_in_chunks(bench, size: Size) -> None:
    kernels = ((CHUNKED, CHUNKED, size.arguments(CHUNK)),)
    unit = Unit("gated_delta_update.h", (), kernels, ((200, False),))
    for steps in (1, 8, 21):
        given = Inputs.of(size, 2, steps)
        y, state = (
            garbage(*given.v.shape, dtype=given.v.dtype),
            garbage(*given.state.shape, dtype=torch.float32),
        )
        bench.run(
            unit,
            CHUNKED,
            *(given.q, given.k, given.v, given.state, given.gate, given.beta),
            *(y, state, steps),
            **groups(1, size.values // 32, 2 * size.value_heads, group=(32, 4, 1)),
        )
        expected, last, _ = recurrence(given.double())
        close(size.kind, y, expected)
        close("float", state, last)


@pytest.mark.parametrize("size", [Size("float", 32, 8, 2, 2), Size("half", 64, 12, 1, 3)], ids=str)
def test_gradient(bench, size: Size) -> None:
    """The states that the forward pass would keep are the reference's, so that this stands for itself."""
    kernels = ((BACKWARD, BACKWARD, size.arguments(size.every)),)
    unit = Unit("gated_delta_update_vjp.h", (), kernels)
    for steps in (1, 10):
        given = Inputs.of(size, 2, steps)
        leaves = Inputs(*(one.requires_grad_() for one in given.double().all()))
        results, last, entered = recurrence(leaves)
        by_result = normal(5, *results.shape, kind=size.kind)
        by_state = normal(6, *last.shape)
        torch.autograd.backward((results, last), (by_result.double(), by_state.double()))
        # what is added up by atomics starts as zero
        dq, dk, dg, db = (torch.zeros(one.shape) for one in (given.q, given.k, given.gate, given.beta))
        dv, dh = (garbage(*one.shape, dtype=torch.float32) for one in (given.v, given.state))
        bench.run(
            unit,
            BACKWARD,
            *(given.q, given.k, given.v, given.gate, given.beta),
            *(by_result, by_state, checkpoints(size, entered).detach().float(), steps),
            *(dq, dk, dv, dg, db, dh),
            **groups(1, size.values // 4, 2 * size.value_heads, group=(32, 4, 1)),
        )
        for out, leaf in zip((dq, dk, dv, dg, db, dh), leaves.all(), strict=True):
            close("float", out, leaf.grad)
