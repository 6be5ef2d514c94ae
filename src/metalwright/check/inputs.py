"""Generated inputs: a case says what a tensor looks like, and the values are drawn from a seed."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from metalwright.errors import ArgumentError

# of a variant with special values: every special value stands once, or in this part of a large tensor
_SPECIAL_PART = 64
# of a small tensor at most this part is special, so that ordinary values stand beside them
_SPECIAL_PART_AT_MOST = 4
# of the normal variant's floats this part is zero
_ZERO_PART = 50
_INTEGER_MAGNITUDE = 100

# Infinities do not stand beside values that overflow: whether +inf meets an overflow to -inf, and so becomes NaN,
# depends on the order of a sum, and no kernel is wrong for it.
SPECIAL_VARIANTS = ("extreme", "non-finite")
# values that all but cancel in a sum: large ones of alternating sign, small ones in between
CANCELLING = "cancelling"
# Squares of the large ones, added up over thousands of elements, stay inside the dtype.
_LARGE = {torch.float32: 2.0**12, torch.bfloat16: 2.0**6, torch.float16: 2.0**3}
_NON_FINITE = [math.inf, -math.inf, math.nan, 0.0, -0.0]


@dataclass(frozen=True)
class Random:
    """A tensor to be drawn: its shape, dtype and range of values.

    Made by :func:`random`.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    low: float | None = None
    high: float | None = None

    def variants(self) -> tuple[str, ...]:
        """Return the variants that differ: ``"normal"``, ``"extreme"``, ``"non-finite"``."""
        if not math.prod(self.shape):
            return ("normal",)
        return ("normal", *(variant for variant in SPECIAL_VARIANTS if self._special_values(variant)))

    @property
    def may_cancel(self) -> bool:
        """Whether the variant ``"cancelling"`` differs: floats without a range, more than one."""
        free = self.low is None and self.high is None
        return free and self.dtype.is_floating_point and math.prod(self.shape) > 1

    def draw(self, seed: int, variant: str = "normal") -> torch.Tensor:
        """Return the tensor for a seed.

        In the variant ``"extreme"`` zeros of both signs and tiny and large values are spread over it, in
        ``"non-finite"`` infinities, NaN and zeros; in each only those inside the range. In ``"cancelling"``
        large values of alternating sign have small ones between them; what has a range stays as it is.
        """
        generator = torch.Generator().manual_seed(seed)
        if variant == CANCELLING and self.may_cancel:
            return self._cancelling(generator).to(self.dtype)
        # PyTorch has few operations on some dtypes: the values are made in a wide one and converted at the end
        values = self._ordinary(generator)
        if variant in SPECIAL_VARIANTS:
            self._spread(values, generator, self._special_values(variant))
        return values.to(self.dtype)

    def _cancelling(self, generator: torch.Generator) -> torch.Tensor:
        small = torch.randn(self.shape, generator=generator, dtype=torch.float64)
        place = torch.arange(small.numel()).reshape(self.shape)
        if small.dim() > 1:
            # columns are sums too: each row begins one place further
            place = place % self.shape[-1] + place // self.shape[-1]
        large = _LARGE[self.dtype] * (1 - place // 2 % 2 * 2)
        return torch.where(place % 2 == 0, large, small)

    def _ordinary(self, generator: torch.Generator) -> torch.Tensor:
        if self.dtype is torch.bool:
            return torch.randint(0, 2, self.shape, generator=generator)
        low, high = self._range()
        if not self.dtype.is_floating_point:
            return torch.randint(int(low), int(high), self.shape, generator=generator)
        if self.low is None and self.high is None:
            values = torch.randn(self.shape, generator=generator, dtype=torch.float64)
            zeros = torch.randint(0, _ZERO_PART, self.shape, generator=generator) == 0
            return values.masked_fill_(zeros, 0.0)
        values = torch.rand(self.shape, generator=generator, dtype=torch.float64)
        # rounding to the dtype may reach the excluded upper end, hence the clamp to the last value below it
        return (low + (high - low) * values).clamp(max=_below(high, self.dtype))

    def _range(self) -> tuple[float, float]:
        if self.dtype.is_floating_point:
            low = self.low if self.low is not None else (self.high or 0.0) - 1.0
            return low, self.high if self.high is not None else low + 1.0
        limits = torch.iinfo(self.dtype)
        low = self.low if self.low is not None else max(limits.min, -_INTEGER_MAGNITUDE)
        high = (
            self.high if self.high is not None else min(limits.max, max(int(low), 0) + _INTEGER_MAGNITUDE) + 1
        )
        return low, high

    def _special_values(self, variant: str) -> list[float]:
        if self.dtype is torch.bool:
            return []
        if self.dtype.is_floating_point:
            values = _extreme_floats(self.dtype) if variant == "extreme" else _NON_FINITE
        else:
            values = _extreme_integers(self.dtype) if variant == "extreme" else []
        return [value for value in values if self.allows(value)]

    def allows(self, value: float) -> bool:
        """Whether a value is inside the range."""
        above = self.low is None or value >= self.low
        below = self.high is None or value < self.high
        bounded = self.low is not None or self.high is not None
        return above and below and not (bounded and not math.isfinite(value))

    def _spread(self, values: torch.Tensor, generator: torch.Generator, special: list[float]) -> None:
        elements = values.numel()
        if not special or not elements:
            return
        count = max(len(special), elements // _SPECIAL_PART)
        count = max(1, min(count, elements // _SPECIAL_PART_AT_MOST))
        where = torch.randperm(elements, generator=generator)[:count]
        # a small tensor has room for some of them only: another seed shows others
        order = torch.randperm(len(special), generator=generator).tolist()
        chosen = [special[order[i % len(special)]] for i in range(count)]
        values.view(-1)[where] = torch.tensor(chosen, dtype=values.dtype)


def random(
    shape: Sequence[int],
    dtype: torch.dtype = torch.float32,
    *,
    low: float | None = None,
    high: float | None = None,
) -> Random:
    """Describe an input tensor that ``check`` draws from its seed.

    Without a range, floats are normally distributed (mean 0, deviation 1, every fiftieth one zero) and integers
    lie within -100 and 100 as far as the dtype allows. With ``low`` or ``high`` they are uniform in
    ``low <= value < high``, which keeps indices inside a table or a logarithm's argument positive.

    ``check`` runs a generated case up to three times: with these values, with extreme values put among them
    (zeros, tiny, large), and with infinities and NaN; only those inside the range.

    >>> import torch
    >>> random((2, 3), torch.float16).draw(seed=0).shape
    torch.Size([2, 3])

    Raises:
        ArgumentError: a dtype that Metal does not have, a negative extent or an empty range.
    """
    if dtype is torch.float64 or dtype.is_complex or dtype not in _SUPPORTED:
        raise ArgumentError(f"cannot generate {dtype} inputs: Metal has {', '.join(map(_short, _SUPPORTED))}")
    extents = tuple(int(extent) for extent in shape)
    if any(extent < 0 for extent in extents):
        raise ArgumentError(
            f"cannot generate an input of shape {list(extents)}: extents must not be negative"
        )
    if low is not None and high is not None and not low < high:
        raise ArgumentError(f"cannot generate values with low={low} and high={high}: low must be below high")
    return Random(extents, dtype, low, high)


def seed_for(seed: int, *parts: object) -> int:
    """Return a seed of its own for one input, the same on every machine and in every process."""
    # torch's generator looks at 32 bits of a seed
    return zlib.crc32(repr((seed, *parts)).encode())


def _extreme_floats(dtype: torch.dtype) -> list[float]:
    limits = torch.finfo(dtype)
    large = 2.0 ** (math.frexp(limits.max)[1] // 2)
    magnitudes = [0.0, limits.smallest_normal, limits.smallest_normal / 4, limits.eps, 1.0, large, limits.max]
    return [sign * magnitude for magnitude in magnitudes for sign in (1.0, -1.0)]


def _extreme_integers(dtype: torch.dtype) -> list[float]:
    """Zeros, signs and large values.

    Signed overflow is undefined in MSL as in C++, so a correct kernel must not be led into it: types that are
    computed in ``int`` get their extremes, wider signed ones values whose product still fits.
    """
    limits = torch.iinfo(dtype)
    if limits.bits < 32 or limits.min == 0:
        # PyTorch has few operations on its larger unsigned types and converts through int64
        values = [limits.min, limits.min + 1, min(limits.max, 2**63 - 1), 0, 1, -1]
    else:
        large = 2 ** (limits.bits // 2 - 1) - 1
        values = [0, 1, -1, large, -large]
    return sorted({value for value in values if limits.min <= value <= limits.max})


def _below(value: float, dtype: torch.dtype) -> float:
    bound = torch.tensor(value, dtype=dtype)
    if bound.item() < value:
        return float(bound)
    return float(torch.nextafter(bound, torch.tensor(-math.inf, dtype=dtype)))


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


_SUPPORTED = (
    torch.float32, torch.float16, torch.bfloat16,
    torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64,
    torch.bool,
)  # fmt: skip
