"""Operators on the machinery of PyTorch's ``c10/metal/indexing.h``: functors of our own, and what torch says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

HEAD = """
#include <metal_stdlib>
using namespace metal;
#include <c10/metal/indexing.h>
#include <c10/metal/special_math.h>
#include <c10/metal/igamma.h>
#include <c10/metal/expm1f.h>
#define ONE(NAME, ...) struct NAME##_functor { \\
  template <typename T> inline T operator()(const T x) { return static_cast<T>(__VA_ARGS__); } };
#define TWO(NAME, ...) struct NAME##_functor { \\
  template <typename T> inline T operator()(const T x, const T y) { return static_cast<T>(__VA_ARGS__); } };
#define ASK(NAME, ...) struct NAME##_functor { \\
  template <typename T> inline bool operator()(const T x, const T y) { return __VA_ARGS__; } };
"""

TYPES = {
    "float": torch.float32,
    "half": torch.float16,
    "bfloat": torch.bfloat16,
    "int": torch.int32,
    "long": torch.int64,
    "short": torch.int16,
    "char": torch.int8,
    "uchar": torch.uint8,
    "bool": torch.bool,
    "float2": torch.complex64,
}
# c10/metal/common.h numbers the types as torch does
CODES = {
    "uchar": 0,
    "char": 1,
    "short": 2,
    "int": 3,
    "long": 4,
    "half": 5,
    "float": 6,
    "float2": 9,
    "bool": 11,
    "bfloat": 15,
}

# how far float results may be apart, relative to the larger
EXACT = 0.0  # one IEEE operation, or none that rounds
ROUNDED = 3e-7  # both sides are within 2 ULP of the true value
ALGORITHM = 4e-6  # the header evaluates in float what torch evaluates otherwise: a few roundings each
SERIES = 3e-5  # series and continued fractions in float


@dataclass(frozen=True)
class Operator:
    """An operator: its functor's expression, what torch computes, and inputs from ``low`` to ``high``."""

    name: str
    body: str
    reference: Callable[..., torch.Tensor]
    low: float = -4.0
    high: float = 4.0
    rtol: float = ROUNDED
    kind: str = "TWO"
    atol: float = 1e-30
    whole: bool = False  # whole numbers

    @property
    def arity(self) -> int:
        return 1 if self.kind == "ONE" else 2

    @property
    def source(self) -> str:
        return f"{self.kind}({self.name}, {self.body})\n"


def _one(
    name: str, body: str, reference: Callable[..., torch.Tensor], *more: float, **named: float
) -> Operator:
    return Operator(name, body, reference, *more, kind="ONE", **named)  # type: ignore[arg-type]


def _sgn(x: torch.Tensor) -> torch.Tensor:
    return torch.sign(x)


FLOAT_UNARY = (
    _one("exp", "precise::exp(x)", torch.exp),
    _one("exp2", "precise::exp2(x)", torch.exp2),
    # the header takes the leading part of ln 2 alone out of its argument, so it errs by 1.4e-6 for each
    _one("expm1", "c10::metal::expm1f(x)", torch.expm1, rtol=1.2e-5),
    _one("log", "precise::log(x)", torch.log, 0.01, 9.0),
    _one("log2", "precise::log2(x)", torch.log2, 0.01, 9.0),
    _one("log10", "precise::log10(x)", torch.log10, 0.01, 9.0),
    _one("log1p", "c10::metal::log1p(x)", torch.log1p, -0.9, 9.0, rtol=ALGORITHM),
    _one("sin", "precise::sin(x)", torch.sin),
    _one("cos", "precise::cos(x)", torch.cos),
    _one("tan", "precise::tan(x)", torch.tan, -1.5, 1.5),
    _one("asin", "precise::asin(x)", torch.asin, -1.0, 1.0),
    _one("acos", "precise::acos(x)", torch.acos, -1.0, 1.0),
    _one("atan", "precise::atan(x)", torch.atan),
    _one("sinh", "precise::sinh(x)", torch.sinh),
    _one("cosh", "precise::cosh(x)", torch.cosh),
    _one("tanh", "precise::tanh(x)", torch.tanh),
    _one("asinh", "precise::asinh(x)", torch.asinh),
    _one("acosh", "precise::acosh(x)", torch.acosh, 1.0, 9.0),
    _one("atanh", "precise::atanh(x)", torch.atanh, -0.9, 0.9),
    _one("sqrt", "precise::sqrt(x)", torch.sqrt, 0.0, 9.0),
    _one("rsqrt", "precise::rsqrt(x)", torch.rsqrt, 0.01, 9.0),
    _one("sigmoid", "1 / (1 + precise::exp(-x))", torch.sigmoid, rtol=ALGORITHM),
    _one("reciprocal", "1 / x", torch.reciprocal, 0.1, 9.0, rtol=EXACT),
    _one("neg", "-x", torch.neg, rtol=EXACT),
    _one("abs", "abs(x)", torch.abs, rtol=EXACT),
    _one("square", "c10::metal::mul(x, x)", torch.square, rtol=EXACT),
    _one("ceil", "ceil(x)", torch.ceil, rtol=EXACT),
    _one("floor", "floor(x)", torch.floor, rtol=EXACT),
    _one("trunc", "trunc(x)", torch.trunc, rtol=EXACT),
    _one("round", "rint(x)", torch.round, rtol=EXACT),
    _one("sgn", "sign(x)", _sgn, rtol=EXACT),
    _one("relu", "max(x, T(0))", torch.relu, rtol=EXACT),
    _one("erf", "c10::metal::erf(x)", torch.erf, rtol=ALGORITHM),
    _one("sinc", "c10::metal::sinc(x)", torch.sinc, -0.9, 0.9, rtol=ALGORITHM),
)
FLOAT_BINARY = (
    Operator("add", "x + y", torch.add, rtol=EXACT),
    Operator("sub", "x - y", torch.sub, rtol=EXACT),
    Operator("mul", "c10::metal::mul(x, y)", torch.mul, rtol=EXACT),
    Operator("div", "c10::metal::div(x, y)", torch.div, rtol=EXACT),
    Operator("floor_divide", "c10::metal::floor_divide(x, y)", torch.floor_divide, rtol=EXACT),
    Operator("fmod", "c10::metal::fmod(x, y)", torch.fmod, rtol=EXACT),
    Operator("remainder", "c10::metal::remainder(x, y)", torch.remainder, rtol=ALGORITHM, atol=2e-6),
    Operator("maximum", "c10::metal::max(x, y)", torch.maximum, rtol=EXACT),
    Operator("minimum", "c10::metal::min(x, y)", torch.minimum, rtol=EXACT),
    Operator("hypot", "c10::metal::hypot(abs(x), abs(y))", torch.hypot, rtol=ALGORITHM),
    Operator("atan2", "precise::atan2(x, y)", torch.atan2),
    Operator("pow", "c10::metal::pow(x, y)", torch.pow, 0.1, 4.0, rtol=ALGORITHM),
    Operator("copysign", "copysign(x, y)", torch.copysign, rtol=EXACT),
    Operator("nextafter", "nextafter(x, y)", torch.nextafter, rtol=EXACT),
    Operator("fdim", "fdim(x, y)", lambda x, y: torch.relu(x - y), rtol=EXACT),
    Operator("logaddexp", "c10::metal::logaddexp(x, y)", torch.logaddexp, rtol=ALGORITHM, atol=1e-6),
    Operator("logaddexp2", "c10::metal::logaddexp2(x, y)", torch.logaddexp2, rtol=ALGORITHM, atol=1e-6),
    Operator("xlogy", "c10::metal::xlogy(x, y)", torch.xlogy, 0.1, 4.0, rtol=ALGORITHM, atol=1e-6),
    Operator("xlog1py", "c10::metal::xlog1py(x, y)", torch.special.xlog1py, 0.1, 4.0, rtol=ALGORITHM),
    Operator("zeta", "c10::metal::zeta(x, y)", torch.special.zeta, 1.5, 4.0, rtol=SERIES),
    Operator("igamma", "c10::metal::igamma(x, y)", torch.special.gammainc, 0.5, 4.0, rtol=SERIES),
    Operator("igammac", "c10::metal::igammac(x, y)", torch.special.gammaincc, 0.5, 4.0, rtol=SERIES),
    *(
        Operator(name, f"x {sign} y", getattr(torch, name), -2, 2, kind="ASK", whole=True)
        for name, sign in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))
    ),
)
INTEGER_BINARY = (
    Operator("and_", "x & y", torch.bitwise_and, whole=True),
    Operator("or_", "x | y", torch.bitwise_or, whole=True),
    Operator("xor_", "x ^ y", torch.bitwise_xor, whole=True),
    Operator("idiv", "c10::metal::floor_divide(x, y)", torch.floor_divide, 1, 9, whole=True),
    Operator("imod", "c10::metal::remainder(x, y)", torch.remainder, 1, 9, whole=True),
    Operator("imax", "max(x, y)", torch.maximum, whole=True),
)
COMPLEX_BINARY = (
    Operator("cadd", "x + y", torch.add, rtol=EXACT),
    Operator("csub", "x - y", torch.sub, rtol=EXACT),
    Operator("cmul", "c10::metal::mul(x, y)", torch.mul, rtol=ALGORITHM, atol=2e-6),
    Operator("cdiv", "c10::metal::div(x, y)", torch.div, rtol=ALGORITHM, atol=2e-6),
    Operator("cpow", "c10::metal::pow(x, y)", torch.pow, 0.2, 1.5, rtol=SERIES, atol=2e-6),
)
COMPLEX_UNARY = (
    _one("cneg", "-x", torch.neg, rtol=EXACT),
    _one("cconj", "c10::metal::conj(x)", torch.conj_physical, rtol=EXACT),
    _one("csquare", "c10::metal::mul(x, x)", torch.square, rtol=ALGORITHM, atol=2e-6),
    _one("creciprocal", "c10::metal::div(T(1, 0), x)", torch.reciprocal, 0.1, 4.0, rtol=ALGORITHM),
    _one("cexp", "T(precise::cos(x.y), precise::sin(x.y)) * precise::exp(x.x)", torch.exp, rtol=ALGORITHM),
    _one("clog1p", "c10::metal::log1p(x)", torch.log1p, -0.5, 4.0, rtol=SERIES, atol=2e-6),
    _one("csinc", "c10::metal::sinc(x)", torch.sinc, -0.9, 0.9, rtol=SERIES, atol=2e-6),
)
