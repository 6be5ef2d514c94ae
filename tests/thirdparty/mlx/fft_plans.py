"""How MLX takes a Fourier transform apart: what its host code works out before it launches a kernel (``fft.cpp``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from arrays import up

# in the order in which they are tried, which is that of the function constants
RADICES = (13, 11, 8, 7, 6, 5, 4, 3, 2)
# a threadgroup has this many elements at least, of several transforms where one is shorter
LEAST_ELEMENTS = 256
# transforms that a threadgroup has where they are columns, so that it reads some elements side by side
LEAST_COLUMNS = 4
# from here on powers of two use radix 8
LARGE = 512


@dataclass(frozen=True)
class Plan:
    """One transform in threadgroup memory.

    Attributes:
        length: of the transform.
        size: elements in memory: the length, or a power of two that holds the convolution of Bluestein's algorithm.
        steps: how often each radix is used.
        rader: a prime factor that is done by Rader's algorithm, or 1.
        rader_steps: how often each radix is used for that factor.
    """

    length: int
    size: int
    steps: tuple[int, ...]
    rader: int = 1
    rader_steps: tuple[int, ...] = (0,) * len(RADICES)

    @property
    def per_thread(self) -> int:
        """Elements of a thread: a radix that is used, so that most threads have whole butterflies."""
        counts = zip(RADICES, self.steps, self.rader_steps, strict=True)
        used = sorted(radix for radix, *of in counts if any(of))
        large = [radix for radix in used if radix > 8]
        if large and 7 in used:
            return 7
        if len(large) == 2:
            return 11
        if large and len(used) == 2:
            return sum(used) // 2
        return used[min(1, len(used) - 1)]

    @property
    def threads(self) -> int:
        return up(self.size, self.per_thread)

    def constants(self, inverse: bool, table: bool = False) -> tuple[tuple[int, bool | int], ...]:
        return (
            (0, inverse),
            (1, self.size & (self.size - 1) == 0),
            (2, self.per_thread),
            (3, self.length // self.rader),
            *enumerate((*self.steps, *self.rader_steps), 4),
            (22, table),
        )

    def together(self, columns: bool = False) -> int:
        """Transforms of a threadgroup."""
        return max(LEAST_ELEMENTS // self.size, LEAST_COLUMNS if columns else 1)


def plan(length: int) -> Plan:
    """Return the plan for a length that fits in threadgroup memory."""
    steps = _steps(length)
    if steps:
        return Plan(length, length, steps)
    for prime in (p for p in _primes(length) if p > RADICES[0]):
        rest, below = _steps(length // prime), _steps(prime - 1)
        if rest and below:
            return Plan(length, length, rest, prime, below)
    size = power_of_two(2 * length - 1)
    steps = _steps(size)
    assert steps
    return Plan(length, size, steps)


def power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def bluestein(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """Return the spectrum to multiply with, and the chirp for before and after."""
    n = plan.length
    squares = np.arange(-n + 1, n) ** 2 % (2 * n)
    chirp = np.exp(-1j * np.pi * squares / n)
    spectrum = np.fft.fft(1 / chirp, plan.size)
    return spectrum.astype(np.complex64), chirp[n - 1 :].astype(np.complex64)


def rader(prime: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the spectrum to multiply with, and the powers of a primitive root and of its inverse."""
    root = next(g for g in range(2, prime) if len({pow(g, i, prime) for i in range(prime - 1)}) == prime - 1)
    forward = [pow(root, i, prime) for i in range(prime - 1)]
    backward = [pow(root, -i, prime) for i in range(prime - 1)]
    spectrum = np.fft.fft(np.exp(-2j * np.pi * np.array(backward) / prime))
    return spectrum.astype(np.complex64), np.array(forward, np.int16), np.array(backward, np.int16)


def _steps(length: int) -> tuple[int, ...] | None:
    """Return how often each radix is used; None where they do not suffice."""
    small = length < LARGE and length & (length - 1) == 0
    counts = []
    for radix in RADICES:
        counts.append(0)
        while length % radix == 0 and not (small and radix > 4):
            counts[-1] += 1
            length //= radix
    return tuple(counts) if length == 1 else None


def _primes(number: int) -> list[int]:
    return [p for p in range(2, number + 1) if number % p == 0 and all(p % q for q in range(2, p))]
