"""The three floating formats of Metal as NumPy sees them: bits in, float64 values out, and exact rounding to each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Format:
    """A binary format: its Metal name, storage, significant bits and exponent range (of 1.x * 2^e)."""

    name: str
    storage: type[np.unsignedinteger]
    precision: int
    e_min: int
    e_max: int

    @property
    def bits(self) -> int:
        return 8 * self.storage().itemsize

    @property
    def largest(self) -> float:
        return float((2 - 2.0 ** (1 - self.precision)) * 2.0**self.e_max)

    def decode(self, bits: NDArray[np.unsignedinteger]) -> Floats:
        """Values of bit patterns."""
        with np.errstate(invalid="ignore"):
            if self.name == "half":
                return bits.view(np.float16).astype(np.float64)
            if self.name == "bfloat":
                return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
            return bits.view(np.float32).astype(np.float64)

    def encode(self, values: Floats) -> NDArray[np.unsignedinteger]:
        """Bit patterns of values, rounded to the format."""
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = self.round(np.asarray(values, dtype=np.float64))
            if self.name == "half":
                return rounded.astype(np.float16).view(np.uint16)
            bits = rounded.astype(np.float32).view(np.uint32)
        return (bits >> np.uint32(16)).astype(np.uint16) if self.name == "bfloat" else bits

    def ulp(self, values: Floats) -> Floats:
        """Distance between neighbours at each finite value."""
        _, exponent = np.frexp(values)
        return np.ldexp(1.0, np.clip(exponent - 1, self.e_min, self.e_max) - self.precision + 1)

    def round(self, values: Floats) -> Floats:
        """Nearest value of the format, ties to even, as float64."""
        with np.errstate(invalid="ignore"):
            finite = np.isfinite(values)
            unit = self.ulp(np.where(finite, values, 1.0))
            near = np.where(finite, np.rint(values / unit) * unit, values)
            return np.where(np.abs(near) > self.largest, np.copysign(np.inf, near), near)


FLOAT = Format("float", np.uint32, 24, -126, 127)
HALF = Format("half", np.uint16, 11, -14, 15)
BFLOAT = Format("bfloat", np.uint16, 8, -126, 127)
FORMATS = (FLOAT, HALF, BFLOAT)
