"""Hadamard transforms of powers of two, and of those times 12, 20 or 28."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from arrays import garbage, groups, integers
from units import UTILS, Unit, hadamard, radix

MOST_THREADS = 256


def sylvester(order: int) -> torch.Tensor:
    """Return the Hadamard matrix of a power of two: each is four times the last, once with a minus."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < order:
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), matrix)
    return matrix


@dataclass(frozen=True)
class Transform:
    """One of ``n * m`` elements: MLX does the power of two ``n`` first, then ``m`` by a function made for it."""

    n: int
    m: int = 1
    kind: str = "float"
    stride: int = 1

    @property
    def radix(self) -> int:
        return min(self.n, 16)

    @property
    def read_width(self) -> int:
        return 2 if self.n == 2 or self.m == 28 else 4

    @property
    def unit(self) -> Unit:
        first = f"{self.kind}, {self.n}, {self.radix}, {self.read_width}, {self.stride}"
        kernels = [("hadamard_n", "hadamard_n", first)]
        if self.m > 1:
            second = f"{self.kind}, {self.n}, {self.m}, {self.read_width}"
            kernels.append(("hadamard_m", "hadamard_m", second))
        return Unit("hadamard.h", UTILS, tuple(kernels), text=radix(self.m))

    def first(self, bench: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
        """Transform each ``n`` elements, which are ``stride`` apart."""
        out = garbage(*x.shape, dtype=x.dtype)
        threads = self.n // self.radix
        count = x.numel() // self.n // self.stride
        sizes = groups(1, count, self.stride, group=(threads, 1, 1))
        bench.run(self.unit, "hadamard_n", x, out, scale, **sizes)
        return out

    def second(self, bench: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
        """Transform each ``m`` elements, which are ``n`` apart."""
        out = garbage(*x.shape, dtype=x.dtype)
        threads = min(self.n // self.read_width, MOST_THREADS)
        count = x.numel() // self.m // self.read_width // threads
        sizes = groups(count, 1, 1, group=(1, threads, 1))
        bench.run(self.unit, "hadamard_m", x, out, scale, **sizes)
        return out


@pytest.mark.parametrize(
    "of",
    [Transform(2), Transform(64, kind="half"), Transform(512), Transform(256, kind="bfloat16_t")],
    ids=str,
)
def test_powers_of_two(bench, of: Transform) -> None:
    for count in (1, 5):
        # every sum is a whole number that even bfloat16 has
        x = integers(of.n, count, of.n, kind=of.kind, limit=1)
        expected = (x.double() @ sylvester(of.n)).to(x.dtype) * 0.25
        assert torch.equal(of.first(bench, x, 0.25), expected)


def test_elements_that_are_apart(bench) -> None:
    """What MLX does first where one threadgroup cannot hold all: it leaves the scale to the next step."""
    of = Transform(32, kind="half", stride=6)
    x = integers(1, 3, of.n, of.stride, kind=of.kind)
    expected = torch.einsum("ij,bjs->bis", sylvester(of.n), x.double()).to(x.dtype)
    assert torch.equal(of.first(bench, x, 0.25), expected)


@pytest.mark.parametrize(
    "of",
    [Transform(16, 12), Transform(32, 28), Transform(2048, 20, "half")],
    ids=str,
)
def test_multiples_of_powers_of_two(bench, of: Transform) -> None:
    odd = torch.tensor(hadamard(of.m), dtype=torch.float64)
    assert torch.equal(odd @ odd.T, of.m * torch.eye(of.m, dtype=torch.float64))
    x = integers(of.n, 3, of.m, of.n, kind=of.kind, limit=1)
    expected = odd @ (x.double() @ sylvester(of.n))
    out = of.second(bench, of.first(bench, x, 1.0), 0.5)
    assert torch.equal(out, (expected * 0.5).to(out.dtype))
