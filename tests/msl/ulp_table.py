"""Accuracy that the Metal Shading Language specification asks of its math functions.

Source: Metal Shading Language Specification, version 4, section 8.4 "ULPs and Relative Error": table 8.1 (single
precision), 8.2 (single precision, fast math), 8.3 (half). Tables 8.4 and 8.5 (bfloat) bound arithmetic only.
Read from a public text rendering of the document; the half table was also seen in the 2017 edition, with the same
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ulp:
    """At most `ulps` units in the last place; 0 means exact, 0.5 correctly rounded."""

    ulps: float


@dataclass(frozen=True)
class UlpPerArgument:
    """At most `base + floor(|2 x|)` units in the last place for argument x."""

    base: float


@dataclass(frozen=True)
class Absolute:
    """At most `error` in absolute terms for x in [low, high]; `elsewhere` units in the last place outside, if given."""

    error: float
    low: float
    high: float
    elsewhere: float | None = None


@dataclass(frozen=True)
class Formula:
    """The specification gives an implementation (`text`) in place of a bound."""

    text: str


@dataclass(frozen=True)
class Undefined:
    """The specification promises nothing."""


Bound = Ulp | UlpPerArgument | Absolute | Formula | Undefined

EXACT = Ulp(0)
ROUNDED = Ulp(0.5)

_SHARED: dict[str, Bound] = {
    **dict.fromkeys(("ceil", "fdim", "floor", "fma", "fract", "ldexp", "rint", "round", "trunc"), ROUNDED),
    **dict.fromkeys(("copysign", "fabs", "fmax", "fmin", "frexp", "ilogb", "modf", "nextafter"), EXACT),
}

PRECISE: dict[str, Bound] = {
    **_SHARED,
    **dict.fromkeys(("acos", "acosh", "asin", "asinh"), Ulp(4)),
    "atan": Ulp(5),
    "atan2": Ulp(6),
    "atanh": Ulp(5),
    **dict.fromkeys(("cos", "cosh", "cospi", "exp", "exp2", "exp10", "log", "log2", "log10"), Ulp(4)),
    "divide": ROUNDED,
    "fmod": EXACT,
    "pow": Ulp(16),
    "powr": Ulp(16),
    "rsqrt": ROUNDED,
    **dict.fromkeys(("sin", "sincos", "sinh", "sinpi"), Ulp(4)),
    "sqrt": ROUNDED,
    "tan": Ulp(6),
    "tanpi": Ulp(6),
    "tanh": Ulp(5),
}

_PI = 3.141592653589793
_CIRCULAR = Absolute(2.0**-13, -_PI, _PI)
_CIRCULAR_PI = Absolute(2.0**-13, -1, 1)

FAST: dict[str, Bound] = {
    **_SHARED,
    "acos": Ulp(5),
    "acosh": Formula("log(x + sqrt(x*x - 1.0))"),
    "asin": Ulp(5),
    "asinh": Formula("log(x + sqrt(x*x + 1.0))"),
    "atan": Ulp(5),
    "atanh": Formula("0.5*(log(1.0 + x)/(1.0 - x))"),
    "atan2": Formula("atan(y/x), turned by M_PI_F for x < 0"),
    "cos": _CIRCULAR,
    "cosh": Formula("0.5*(exp(x) + exp(-x))"),
    "cospi": _CIRCULAR_PI,
    "divide": Ulp(2.5),
    "exp": UlpPerArgument(3),
    "exp2": UlpPerArgument(3),
    "exp10": Formula("exp2(x*log2(10))"),
    "fmod": Undefined(),
    "log": Absolute(2.0**-21, 0.5, 2, elsewhere=3),
    "log2": Absolute(2.0**-22, 0.5, 2, elsewhere=2),
    "log10": Formula("log2(x)*log10(2)"),
    "pow": Formula("exp2(y*log2(x))"),
    "powr": Formula("exp2(y*log2(x))"),
    "rsqrt": Ulp(2),
    "sin": _CIRCULAR,
    "sincos": _CIRCULAR,
    "sinh": Formula("0.5*(exp(x) - exp(-x))"),
    "sinpi": _CIRCULAR_PI,
    "sqrt": Formula("x*rsqrt(x)"),
    "tan": Formula("sin(x)*(1.0/cos(x))"),
    "tanh": Formula("(t - 1.0)/(t + 1.0), t = exp(2.0*x)"),
    "tanpi": Formula("tan(x*pi)"),
}

HALF: dict[str, Bound] = {
    **_SHARED,
    **dict.fromkeys(("acos", "acosh", "asin", "asinh", "atan", "atanh", "atan2"), Ulp(1)),
    **dict.fromkeys(("cos", "cosh", "cospi", "exp", "exp2", "exp10", "log", "log2", "log10"), Ulp(1)),
    **dict.fromkeys(("sin", "sincos", "sinh", "sinpi", "tan", "tanh", "tanpi"), Ulp(1)),
    "divide": ROUNDED,
    "fmod": EXACT,
    "rsqrt": ROUNDED,
    "sqrt": ROUNDED,
}

BFLOAT: dict[str, Bound] = {"divide": ROUNDED}
