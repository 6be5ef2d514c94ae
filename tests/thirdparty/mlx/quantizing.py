"""Quantised matrices as MLX stores them, from the definitions of the formats, and what they stand for.

A row is a stream of codes without gaps, the first in the lowest bits of the first byte. A group of neighbours in a
row shares a scale: an affine code ``q`` stands for ``scale * q + bias``; a code of the floating formats is a number
of its own that the scale multiplies.

The scales and numbers that ``affine`` and ``floating`` choose make every product and sum below exact in ``float``, in
whatever order: then a kernel's result is the exact one, rounded once, and the test compares bits.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from arrays import TYPES


def generator(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def pack(codes: np.ndarray, bits: int) -> torch.Tensor:
    """Return rows of codes as MLX's words of 32 bits."""
    each = (codes[..., None] >> np.arange(bits)) & 1
    stream = each.reshape(*codes.shape[:-1], -1).astype(np.uint8)
    return torch.from_numpy(np.packbits(stream, axis=-1, bitorder="little")).view(torch.int32)


def unpack(words: torch.Tensor, bits: int) -> np.ndarray:
    """Return the codes that words, or bytes, are made of."""
    stream = np.unpackbits(words.view(torch.uint8).numpy(), axis=-1, bitorder="little")
    each = stream.reshape(*stream.shape[:-1], -1, bits).astype(np.int64)
    return (each << np.arange(bits)).sum(-1)


@dataclass(frozen=True)
class Matrices:
    """One or more quantised matrices.

    Attributes:
        parts: codes and scales, and biases where codes are affine.
        values: what they stand for.
        whole: scales of whole matrices, for kernels that take such.
    """

    parts: tuple[torch.Tensor, ...]
    values: torch.Tensor
    whole: tuple[torch.Tensor, ...] = ()

    @property
    def arguments(self) -> tuple[torch.Tensor, ...]:
        return (*self.parts, *self.whole)

    def with_room(self) -> Matrices:
        """Return the same matrices with memory behind them, as buffers of a GPU have for they are rounded up."""
        return dataclasses.replace(self, parts=tuple(with_room(part) for part in self.parts))

    def strides(self) -> list[Any]:
        """Return the arguments by which a kernel finds a matrix among several: dimensions, shape and strides."""
        words = self.parts[0]
        return [
            words.ndim - 2,
            torch.tensor(words.shape, dtype=torch.int32),
            *(torch.tensor(part.stride()) for part in self.parts),
        ]


def with_room(part: torch.Tensor) -> torch.Tensor:
    memory = torch.zeros(part.numel() + 1024, dtype=part.dtype)
    memory[: part.numel()] = part.flatten()
    return memory[: part.numel()].view(part.shape)


def affine(shape: tuple[int, ...], group: int, bits: int, kind: str) -> Matrices:
    """Return matrices with affine codes; groups are in the last dimension."""
    random = generator(*shape, group, bits)
    codes = random.integers(0, 1 << bits, shape)
    groups = (*shape[:-1], shape[-1] // group)
    scales = random.choice([-0.5, 0.25, 0.5, 1], groups)
    # so that what a code stands for has no more bits than a bfloat keeps
    middle = 1 << (bits - 1)
    biases = scales * -(middle if bits > 6 else middle + random.integers(-2, 3, groups))
    values = codes * scales.repeat(group, -1) + biases.repeat(group, -1)
    parts = (torch.from_numpy(part).to(TYPES[kind]) for part in (scales, biases))
    return Matrices((pack(codes, bits), *parts), torch.from_numpy(values))


def away_from_zero(numbers: np.ndarray) -> np.ndarray:
    """Round as Metal's ``round`` does."""
    return np.copysign(np.floor(np.abs(numbers.astype(np.float64)) + 0.5), numbers).astype(numbers.dtype)


def affine_quantized(values: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return codes, scales and biases of groups: one a row, of float32.

    The range of a group takes in zero from above. Its end that is farther from zero gets code 0 and is kept exactly,
    and the step is the nearest to the range's part by which zero has a code too.
    """
    if bits == 1:
        low = values.min(-1, keepdims=True)
        scale = np.maximum(np.maximum(values.max(-1, keepdims=True), 0) - low, np.float32(1e-7))
        bias = low
    else:
        low, high = values.min(-1, keepdims=True), np.maximum(values.max(-1, keepdims=True), 0)
        step = np.maximum((high - low) / np.float32((1 << bits) - 1), np.float32(1e-7))
        lower = np.abs(low) > np.abs(high)
        end, step = np.where(lower, low, high), np.where(lower, step, -step)
        zero = away_from_zero(end / step)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.where(zero == 0, step, end / zero)
        bias = np.where(zero == 0, np.float32(0), end)
    codes = np.minimum(away_from_zero((values - bias) / scale), (1 << bits) - 1)
    return codes.astype(np.int64), scale[:, 0], bias[:, 0]


@dataclass(frozen=True)
class Floating:
    """A format of small floating-point numbers: bits of a code, numbers in a group, and what a scale is."""

    bits: int
    group: int
    scale: str  # "e8m0" or "e4m3"

    @property
    def numbers(self) -> np.ndarray:
        """What each code stands for."""
        return E2M1 if self.bits == 4 else E4M3

    @property
    def scales(self) -> np.ndarray:
        """What each code of a scale stands for."""
        return E8M0 if self.scale == "e8m0" else E4M3


def small_floats(exponent: int, mantissa: int) -> np.ndarray:
    """Return what the codes of a format stand for that has a sign, these bits, zero and subnormal numbers."""
    codes = np.arange(1 << (1 + exponent + mantissa))
    power = codes >> mantissa & ((1 << exponent) - 1)
    fraction = (codes & ((1 << mantissa) - 1)) / (1 << mantissa)
    bias = (1 << (exponent - 1)) - 1
    magnitude = np.where(power > 0, (1 + fraction) * 2.0 ** (power - bias), fraction * 2.0 ** (1 - bias))
    return np.where(codes >> (exponent + mantissa), -magnitude, magnitude)


E2M1 = small_floats(2, 1)
E4M3 = small_floats(4, 3)
E4M3[[0x7F, 0xFF]] = np.nan
E8M0 = np.append(2.0 ** (np.arange(255) - 127), np.nan)
MXFP4, MXFP8, NVFP4 = Floating(4, 32, "e8m0"), Floating(8, 32, "e8m0"), Floating(4, 16, "e4m3")


def floating(shape: tuple[int, ...], form: Floating) -> Matrices:
    """Return matrices of a floating format; groups are in the last dimension."""
    random = generator(*shape, form.group, form.bits)
    few = np.flatnonzero((np.abs(form.numbers) <= 16) & (form.numbers * 4 % 1 == 0))
    codes = random.choice(few, shape)
    groups = (*shape[:-1], shape[-1] // form.group)
    scales = random.choice(np.flatnonzero(np.isin(form.scales, [0.25, 0.5, 1, 1.25, 2])), groups)
    values = form.numbers[codes] * form.scales[scales].repeat(form.group, -1)
    packed = pack(codes, form.bits)
    return Matrices((packed, torch.from_numpy(scales.astype(np.uint8))), torch.from_numpy(values))


def nearest(numbers: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return the code that each number is rounded to: to nearest, ties to even, the largest where it is too large."""
    half = len(table) // 2
    positive = table[:half][~np.isnan(table[:half])]
    place = np.clip(np.abs(numbers.astype(np.float64)), 0, positive[-1])
    above = np.clip(np.searchsorted(positive, place), 1, len(positive) - 1)
    up, down = positive[above] - place, place - positive[above - 1]
    code = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, above - 1)
    return np.where(np.signbit(numbers), code + half, code)


def floating_quantized(
    values: np.ndarray, form: Floating, largest: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return codes and codes of scales of groups: one a row, of float32.

    A scale brings the group's largest number to the largest of the format: the scale that is not smaller where scales
    are powers of two, else the nearest. ``largest`` is that of a whole tensor whose scales are in proportion to it.
    """
    factor = np.float32(E4M3[0x7E] * E2M1.max() / largest) if largest else np.float32(1)
    wanted = np.abs(values).max(-1, keepdims=True) / np.float32(np.nanmax(form.numbers)) * factor
    if form.scale == "e8m0":
        scales = np.searchsorted(form.scales[:-1], wanted)
    else:
        scales = nearest(wanted, form.scales)
    scale = form.scales[scales].astype(np.float32)
    with np.errstate(divide="ignore"):
        inverse = np.where(scale == 0, np.float32(0), factor / scale)
    return nearest(values * inverse, form.numbers), scales[:, 0]
