"""Dot products, and the cross entropy of rows with its gradient."""

from __future__ import annotations

import math

import pytest
import torch
from arrays import TYPES, garbage, groups, integers, normal, up
from units import UTILS, Unit

DOTS = [("float", 4, 64, 2), ("float", 32, 64, 2), ("half", 32, 256, 8), ("bfloat16_t", 8, 64, 2)]


@pytest.mark.parametrize("case", DOTS, ids=str)
def test_dot(bench, case: tuple[str, int, int, int]) -> None:
    kind, items, threads, _ = case
    kernels = tuple((str(row), "dot_product", ", ".join(map(str, row))) for row in DOTS)
    unit = Unit("dot.h", (), kernels)
    # a threadgroup sums up so many products
    each = items * threads
    for size in (1, 7, 130, each, each + 33, 3 * each - 2):
        a, b = integers(size, size, kind=kind), integers(size + 1, size, kind=kind)
        count = up(size, each)
        out = garbage(count, dtype=torch.float32)
        bench.run(unit, str(case), a, b, out, size, **groups(count, group=(threads,)))
        products = torch.nn.functional.pad(a.float() * b.float(), (0, count * each - size))
        assert torch.equal(out, products.view(count, each).sum(1)), size


TOLERANCE = {"float": 1e-5, "half": 2e-3, "bfloat16_t": 1.6e-2}


def entropy_unit(kernel: str) -> Unit:
    return Unit("cross_entropy.h", UTILS, tuple((kind, kernel, kind) for kind in TOLERANCE))


def rows(kind: str, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return logits, targets, and the targets as kernels may get them: some counted from the end."""
    x = (normal(length, 4, length) * 3).to(TYPES[kind])
    targets = torch.randint(length, (4,), generator=torch.Generator().manual_seed(length))
    return x, targets, torch.where(torch.arange(4) % 2 == 0, targets, targets - length).int()


def launch(length: int) -> dict[str, tuple[int, ...]]:
    return groups(4, group=(min(1024, 32 * up(length, 128)),))


LENGTHS = (1, 5, 128, 131, 700, 4101)


@pytest.mark.parametrize("kind", list(TOLERANCE))
def test_cross_entropy(bench, kind: str) -> None:
    unit = entropy_unit("cross_entropy")
    for length in LENGTHS:
        x, targets, given = rows(kind, length)
        if length == 131:
            # masked logits, and one that outweighs all others
            x[0, x[0] < 0] = -math.inf
            x[0, targets[0]] = 1
            x[1, (targets[1] + 1) % length] = math.inf
        out = garbage(4, dtype=torch.float32)
        bench.run(unit, kind, x, given, out, length, **launch(length))
        exact = torch.nn.functional.cross_entropy(x.double(), targets, reduction="none")
        if length == 131:
            # torch subtracts infinity from infinity
            assert exact[1].isnan()
            exact[1] = math.inf
        torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("kind", list(TOLERANCE))
def test_gradient(bench, kind: str) -> None:
    unit = entropy_unit("cross_entropy_vjp")
    for length in LENGTHS:
        x, targets, given = rows(kind, length)
        leaf = x.double().requires_grad_()
        loss = torch.nn.functional.cross_entropy(leaf, targets, reduction="none")
        cotangent = normal(length + 1, 4)
        loss.backward(cotangent.double())
        assert leaf.grad is not None
        exact = leaf.grad.to(x.dtype)
        tolerance = {"rtol": TOLERANCE[kind], "atol": 1e-6}
        for out in (garbage(4, length, dtype=x.dtype), x.clone()):
            # MLX may give the kernel one buffer for the logits and the result
            logits = out if out.isfinite().all() else x
            bench.run(
                unit, kind, logits, given, loss.detach().float(), cotangent, out, length, **launch(length)
            )
            torch.testing.assert_close(out, exact, **tolerance)
