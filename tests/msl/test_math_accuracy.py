"""Measures every function of <metal_math> against high-precision references and judges it by the specification.

Each function runs over arrays through compiled loops. NumPy's float64 functions act as a sieve: the points where the
result looks worst, points next to a rounding boundary and a random sample are then judged with mpmath at 240 bits.
Run with `-s` for the table of worst ULPs.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import mpmath
import numpy as np
import pytest
import support_table
import ulp_table
from _formats import FLOAT, FORMATS, Floats, Format
from _jit import CompileError, Library, compile_ir, load
from mpmath import mp
from numpy.typing import NDArray

mp.prec = 240

OWN_GOAL = {"float": 0.51, "half": 0.5, "bfloat": 0.5}
JUDGED = 60  # points a function and format that mpmath judges, of each kind


# --- references -------------------------------------------------------------------------------------------------


def _within_two(x: Floats) -> Floats:
    """x modulo 2, in [-1, 1], exactly."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(x), x - 2 * np.rint(x / 2), np.nan)


def _sinpi(x: Floats) -> Floats:
    w = _within_two(x)
    near = np.where(np.abs(w) > 0.5, np.copysign(1, w) - w, w)
    return np.where(near == 0, np.copysign(0.0, x), np.sin(np.pi * near))


def _cospi(x: Floats) -> Floats:
    w = np.abs(_within_two(x))
    value = np.where(np.abs(w - 0.5) < 0.25, np.sin(np.pi * (0.5 - w)), np.cos(np.pi * w))
    return np.where(w == 0.5, 0.0, value)


def _tanpi(x: Floats) -> Floats:
    w = _within_two(x)
    odd = np.abs(w) == 1
    zero = np.copysign(0.0, np.where(odd, -x, x))
    pole = np.where(w == 0.5, np.inf, -np.inf)
    ratio = np.where(np.abs(w) == 0.5, pole, _sinpi(x) / np.where(_cospi(x) == 0, 1, _cospi(x)))
    return np.where((w == 0) | odd, zero, ratio)


def _round(x: Floats) -> Floats:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)  # exact: float64 holds |x| + 0.5 for every narrower x


def _powr(x: Floats, y: Floats) -> Floats:
    nan = (x < 0) | np.isnan(x) | np.isnan(y)
    nan |= ((x == 0) | np.isinf(x)) & (y == 0)
    nan |= (x == 1) & np.isinf(y)
    return np.where(nan, np.nan, np.power(np.abs(x), y))


def _max(x: Floats, y: Floats) -> Floats:
    return np.where((x < y) | np.isnan(x), y, x)


def _min(x: Floats, y: Floats) -> Floats:
    return np.where((y < x) | np.isnan(x), y, x)


def _median(x: Floats, y: Floats, z: Floats) -> Floats:
    return np.sort(np.stack([x, y, z]), axis=0)[1]


def _ilogb(x: Floats) -> Floats:
    plain = np.isfinite(x) & (x != 0)
    special = np.where(np.isinf(x), 2.0**31 - 1, -(2.0**31))
    return np.where(plain, np.frexp(np.where(plain, x, 1))[1] - 1, special)


def _modf(x: Floats) -> tuple[Floats, Floats]:
    whole = np.trunc(x)
    return np.copysign(np.where(np.isinf(x), 0, x - whole), x), whole


def _frexp(x: Floats) -> tuple[Floats, Floats]:
    m, e = np.frexp(x)
    return m, np.where(np.isfinite(x), e, 0).astype(np.float64)


def _mp_rsqrt(x: Any) -> Any:
    return 1 / mpmath.sqrt(x)


def _mp_fract(x: Any) -> Any:
    return x - mpmath.floor(x)


def _mp_tanpi(x: Any) -> Any:
    return mpmath.sinpi(x) / mpmath.cospi(x)


Reference = Callable[..., Floats]
Exactly = Callable[..., Any]  # on mpf numbers, whose type mpmath makes at run time


@dataclass(frozen=True)
class Function:
    """One function: its sieve, its judge (None: the sieve is exact) and how often it takes arguments."""

    name: str
    sieve: Reference
    judge: Exactly | None = None
    arity: int = 1
    aliases: tuple[str, ...] = field(default=())


ROUNDED_FUNCTIONS = (
    Function("acos", np.arccos, mpmath.acos),
    Function("acosh", np.arccosh, mpmath.acosh),
    Function("asin", np.arcsin, mpmath.asin),
    Function("asinh", np.arcsinh, mpmath.asinh),
    Function("atan", np.arctan, mpmath.atan),
    Function("atanh", np.arctanh, mpmath.atanh),
    Function("cos", np.cos, mpmath.cos),
    Function("cosh", np.cosh, mpmath.cosh),
    Function("cospi", _cospi, mpmath.cospi),
    Function("exp", np.exp, mpmath.exp),
    Function("exp2", np.exp2, lambda x: mpmath.power(2, x)),
    Function("exp10", lambda x: np.power(10.0, x), lambda x: mpmath.power(10, x)),
    Function("log", np.log, mpmath.log),
    Function("log2", np.log2, lambda x: mpmath.log(x) / mpmath.log(2)),
    Function("log10", np.log10, lambda x: mpmath.log(x) / mpmath.log(10)),
    Function("rsqrt", lambda x: 1 / np.sqrt(x), _mp_rsqrt),
    Function("sin", np.sin, mpmath.sin),
    Function("sinh", np.sinh, mpmath.sinh),
    Function("sinpi", _sinpi, mpmath.sinpi),
    Function("sqrt", np.sqrt, mpmath.sqrt),
    Function("tan", np.tan, mpmath.tan),
    Function("tanh", np.tanh, mpmath.tanh),
    Function("tanpi", _tanpi, _mp_tanpi),
    Function("atan2", np.arctan2, mpmath.atan2, 2),
    Function("divide", np.divide, lambda x, y: x / y, 2),
    Function("fdim", lambda x, y: np.where(x <= y, 0.0, x - y), lambda x, y: max(x - y, mpmath.mpf(0)), 2),
    Function("pow", np.power, mpmath.power, 2),
    Function("powr", _powr, mpmath.power, 2),
    Function("fma", lambda a, b, c: a * b + c, lambda a, b, c: mpmath.fadd(a * b, c, exact=True), 3),
)

EXACT_FUNCTIONS = (
    Function("ceil", np.ceil),
    Function("fabs", np.abs, aliases=("abs",)),
    Function("floor", np.floor),
    Function("rint", np.rint),
    Function("round", _round),
    Function("trunc", np.trunc),
    Function("copysign", np.copysign, arity=2),
    Function("fmax", _max, arity=2, aliases=("max",)),
    Function("fmin", _min, arity=2, aliases=("min",)),
    Function("fmod", np.fmod, arity=2),
    Function("fmax3", lambda x, y, z: _max(x, _max(y, z)), arity=3, aliases=("max3",)),
    Function("fmin3", lambda x, y, z: _min(x, _min(y, z)), arity=3, aliases=("min3",)),
)

# Two results: the second has the argument's type or is an int.
PAIRS = ("modf", "frexp", "sincos", "sincospi")


# --- compiled loops ---------------------------------------------------------------------------------------------


def _loop(symbol: str, call: str, element: str, arity: int, out: str | None = None, second: str = "") -> str:
    parameters = "".join(f"const {element}* {name}, " for name in "abc"[:arity])
    extra = f"{second}* second, " if second else ""
    return (
        f'extern "C" void {symbol}({parameters}{out or element}* o, {extra}long n) '
        f"{{ for (long i = 0; i < n; ++i) o[i] = {call}; }}\n"
    )


def _arguments(arity: int) -> str:
    return ", ".join(f"{name}[i]" for name in "abc"[:arity])


def _source(space: str, formats: tuple[Format, ...]) -> tuple[str, list[str]]:
    """Loops over every function in a namespace, named function_format."""
    text, names = ["#include <metal_math>\n"], []
    for fmt in formats:
        for f in ROUNDED_FUNCTIONS + EXACT_FUNCTIONS:
            for name in (f.name, *f.aliases):
                names.append(f"{name}_{fmt.name}")
                text.append(_loop(names[-1], f"{space}::{name}({_arguments(f.arity)})", fmt.name, f.arity))
        for name in ("fmedian3", "median3"):
            names.append(f"{name}_{fmt.name}")
            text.append(_loop(names[-1], f"{space}::{name}({_arguments(3)})", fmt.name, 3))
        for name in PAIRS:
            names.append(f"{name}_{fmt.name}")
            second = "int" if name == "frexp" else fmt.name
            text.append(_loop(names[-1], f"{space}::{name}(a[i], second[i])", fmt.name, 1, second=second))
        for name, call, out, arity in (
            ("fract", "fract(a[i])", fmt.name, 1),
            ("nextafter", "nextafter(a[i], b[i])", fmt.name, 2),
            ("ilogb", "ilogb(a[i])", "int", 1),
            ("ldexp", "ldexp(a[i], int(float(b[i])))", fmt.name, 2),
        ):
            names.append(f"{name}_{fmt.name}")
            text.append(_loop(names[-1], f"{space}::{call}", fmt.name, arity, out))
    return "".join(text), names


@functools.cache
def _library(space: str, formats: tuple[Format, ...], flags: tuple[str, ...] = ()) -> Library:
    return load(*_source(space, formats), flags)


@functools.cache
def _default() -> Library:
    return _library("metal::precise", FORMATS)


def _run(library: Library, name: str, fmt: Format, arguments: tuple[Floats, ...]) -> Floats:
    bits = [np.ascontiguousarray(fmt.encode(a)) for a in arguments]
    out = np.empty_like(bits[0])
    library(f"{name}_{fmt.name}", *bits, out, len(out))
    return fmt.decode(out)


# --- inputs -----------------------------------------------------------------------------------------------------

_SPECIAL = np.array([0.0, 1.0, 2.0, 3.0, 0.5, 1.5, 2.5, 4.0, 10.0, 100.0, math.pi, math.inf, math.nan])


def _specials(fmt: Format) -> Floats:
    tiny = 2.0 ** (fmt.e_min - fmt.precision + 1)
    edges = np.array([tiny, 2 * tiny, 2.0**fmt.e_min - tiny, 2.0**fmt.e_min, fmt.largest, fmt.largest / 2])
    positive = np.concatenate([_SPECIAL, edges])
    return np.concatenate([positive, -positive])


def _critical() -> Floats:
    """Where functions change course: multiples of pi/2 and of 1/2, around 1, both ends of the exponentials."""
    rng = np.random.default_rng(1)
    turns = np.concatenate([np.arange(1, 400), rng.integers(1, 2**40, 200)]) * (np.pi / 2)
    halves = np.arange(1, 200) / 2
    steps = np.ldexp(1.0, -np.arange(1, 40))
    near_one = np.concatenate([1 + steps, 1 - steps, rng.uniform(0.5, 2, 400)])
    ends = np.concatenate([np.linspace(80, 92, 150), np.linspace(100, 155, 150), np.linspace(36, 48, 100)])
    powers = np.concatenate([np.ldexp(1.0, np.arange(-149, 128)), 10.0 ** np.arange(-45, 39)])
    reduction = np.array([math.sqrt(0.5), math.sqrt(2), math.tan(math.pi / 16), math.tan(3 * math.pi / 16)])
    around = np.concatenate([turns, halves, near_one, ends, powers, reduction])
    next_to = np.concatenate([around, around * (1 + 2.0**-23), around * (1 - 2.0**-23)])
    return np.concatenate([next_to, -next_to]).astype(np.float64)


def _nearest_to_right_angles() -> Floats:
    """For each binade the float m * 2^e that comes nearest to a multiple of pi/2, by continued fractions.

    For m, n with |m * 2^e - n * pi/2| small, n/m is a convergent (or nearly) of 2^e / (pi/2).
    """
    worst: list[float] = []
    half_pi = mpmath.pi / 2
    for e in range(-22, 105):
        x = mpmath.ldexp(1, e) / half_pi
        h0, h1, k0, k1 = 0, 1, 1, 0
        rest = x
        while True:
            whole = int(mpmath.floor(rest))
            h0, h1, k0, k1 = h1, whole * h1 + h0, k1, whole * k1 + k0
            if k1 >= 2**24:
                break
            worst.extend(float(mpmath.ldexp(m, e)) for m in (k1, 2**24 // k1 * k1) if m >= 2**20)
            rest = 1 / (rest - whole)
    return np.array(worst)


@functools.cache
def _unary(fmt: Format) -> Floats:
    """Every value of a 16-bit format; for float all binades, specials and critical points."""
    if fmt.precision < 24:
        return fmt.decode(np.arange(65536, dtype=np.uint16))
    rng = np.random.default_rng(2)
    exponents = np.arange(256, dtype=np.uint32) << np.uint32(23)
    mantissas = rng.integers(0, 2**23, (256, 12), dtype=np.uint32)
    mantissas[:, 0], mantissas[:, 1] = 0, 2**23 - 1
    patterns = (exponents[:, None] | mantissas).ravel()
    every_binade = np.concatenate([patterns, patterns | np.uint32(1 << 31)])
    usual = rng.uniform(-20, 20, 2000)
    points = np.concatenate([_specials(fmt), _critical(), usual, _nearest_to_right_angles()])
    return np.concatenate([fmt.decode(every_binade), fmt.round(points)])


@functools.cache
def _several(fmt: Format, arity: int, seed: int = 3) -> tuple[Floats, ...]:
    """Argument tuples: all combinations of specials, all binades at random, usual sizes, exact cases of pow."""
    rng = np.random.default_rng(seed)
    specials = _specials(fmt)
    if arity == 3:
        specials = specials[:: len(specials) // 12]
    combined = np.array(list(itertools.product(specials, repeat=arity))).T
    count = 6000
    patterns = rng.integers(0, 2**fmt.bits, (arity, count)).astype(fmt.storage)
    wild = [fmt.decode(row) for row in patterns]
    usual = rng.uniform(-8, 8, (arity, count))
    near = rng.uniform(0.5, 2, (1, count)) * rng.uniform(0.98, 1.02, (arity, count))
    sets = [combined, np.array(wild), usual, near]
    if arity == 2:
        base = rng.integers(1, 2**13, count).astype(np.float64)
        base = np.where(rng.random(count) < 0.5, base, base * base)
        exact = np.array([base, rng.choice([2, 0.5, 3, 1.5, -1, 4], count)])
        # pow near overflow and underflow: |y log2 x| up to 150
        x = np.exp2(rng.uniform(-10, 10, count))
        edge = np.array([x, rng.uniform(-150, 150, count) / np.log2(x)])
        sets += [exact, edge]
    stacked = fmt.round(np.concatenate(sets, axis=1))
    return tuple(np.ascontiguousarray(row) for row in stacked)


def _inputs(fmt: Format, arity: int) -> tuple[Floats, ...]:
    return (_unary(fmt),) if arity == 1 else _several(fmt, arity)


# --- judging ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """A judged result: its error in ULPs, and one ULP there."""

    arguments: tuple[float, ...]
    result: float
    ulps: float
    unit: float


def _judge(fmt: Format, judge: Exactly, arguments: tuple[float, ...], result: float) -> Point:
    """Error of a result in units of the true value's last place; infinity is right past the last half ULP."""
    true = judge(*(mpmath.mpf(a) for a in arguments))
    exponent = max(mpmath.frexp(true)[1] - 1, fmt.e_min) if true else fmt.e_min
    unit = mpmath.ldexp(1, min(exponent, fmt.e_max) - fmt.precision + 1)
    if math.isinf(result):
        right = abs(true) >= mpmath.mpf(fmt.largest) + unit / 2 and (true > 0) == (result > 0)
        return Point(arguments, result, 0.0 if right else math.inf, float(unit))
    return Point(arguments, result, float(abs(true - mpmath.mpf(result)) / unit), float(unit))


def _same(a: Floats, b: Floats) -> NDArray[np.bool_]:
    """Equal, with NaN equal to NaN and the zeros distinct."""
    return (np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))


def _compare(f: Function, fmt: Format, library: Library, arguments: tuple[Floats, ...]) -> list[Point]:
    """Compares specials exactly and, for rounded functions, judges the points that look worst."""
    got = _run(library, f.name, fmt, arguments)
    with np.errstate(all="ignore"):
        guess = f.sieve(*arguments)
        expected = fmt.round(guess)
    # NaN, infinities and zeros come of a function's definition and not of rounding; mpmath knows no signed zeros.
    special = ~np.isfinite(guess) | (guess == 0)
    special |= ~np.all(np.isfinite(arguments), axis=0) | np.any(np.equal(arguments, 0), axis=0)
    special |= f.judge is None
    wrong = special & ~_same(got, expected)
    assert not wrong.any(), _describe(f, fmt, arguments, got, expected, wrong)
    lost = ~special & np.isnan(got)
    assert not lost.any(), _describe(f, fmt, arguments, got, expected, lost)
    if f.judge is None:
        return []
    with np.errstate(all="ignore"):
        unit = fmt.ulp(np.where(np.isfinite(guess), guess, fmt.largest))
        error = np.where(special | (got == expected), -1, np.abs(got - guess) / unit)
        boundary = np.abs(np.mod(guess / unit, 1) - 0.5)  # distance to a rounding boundary, in ULPs
    boundary[special | ~np.isfinite(boundary)] = 1
    if fmt.precision < 24:
        # Nothing excuses a 16-bit result away from the boundaries that are judged below.
        off = ~special & (boundary > 1e-6) & ~_same(got, expected)
        assert not off.any(), _describe(f, fmt, arguments, got, expected, off)
    sample = np.random.default_rng(4).choice(len(got), JUDGED)
    by_error, by_boundary = np.argsort(-error, kind="stable"), np.argsort(boundary, kind="stable")
    chosen = np.unique(np.concatenate([by_error[:JUDGED], by_boundary[:JUDGED], sample]))
    return [
        _judge(fmt, f.judge, tuple(float(a[i]) for a in arguments), float(got[i]))
        for i in chosen
        if not special[i]
    ]


def _describe(
    f: Function,
    fmt: Format,
    arguments: tuple[Floats, ...],
    got: Floats,
    expected: Floats,
    wrong: NDArray[np.bool_],
) -> str:
    lines = [f"{f.name} in {fmt.name}: {int(wrong.sum())} wrong"]
    for i in np.flatnonzero(wrong)[:8]:
        point = ", ".join(float(a[i]).hex() for a in arguments)
        lines.append(f"  {f.name}({point}) = {float(got[i]).hex()}, expected {float(expected[i]).hex()}")
    return "\n".join(lines)


def _allowed(bound: ulp_table.Bound | None, point: Point) -> float:
    """The ULPs that a bound grants a judged point; infinity where it gives none in ULPs."""
    match bound:
        case ulp_table.Ulp(ulps):
            return ulps
        case ulp_table.UlpPerArgument(base):
            return base + math.floor(abs(2 * point.arguments[0]))
        case ulp_table.Absolute(error, low, high, elsewhere):
            if low <= point.arguments[0] <= high:
                return error / point.unit
            return math.inf if elsewhere is None else elsewhere
        case _:
            return math.inf


_TABLES = {
    "float": (ulp_table.PRECISE, ulp_table.FAST),
    "half": (ulp_table.HALF,),
    "bfloat": (ulp_table.BFLOAT,),
}
_HONOR = ("-fhonor-nans", "-fhonor-infinities")
_WORST: dict[tuple[str, str], float] = {}


def _assert_accurate(f: Function, fmt: Format, points: list[Point]) -> None:
    for point in points:
        for table in _TABLES[fmt.name]:
            assert point.ulps <= _allowed(table.get(f.name), point), (f.name, fmt.name, point)
        assert point.ulps <= OWN_GOAL[fmt.name], (f.name, fmt.name, point)


@pytest.fixture(scope="module", autouse=True)
def _report():
    yield
    print(
        f"\n{'function':10}"
        + "".join(f"{fmt.name:>12}" for fmt in FORMATS)
        + "   worst ULP, judged by mpmath"
    )
    for name in sorted({name for name, _ in _WORST}):
        cells = (_WORST.get((name, fmt.name)) for fmt in FORMATS)
        print(f"{name:10}" + "".join(f"{'-':>12}" if cell is None else f"{cell:12.6f}" for cell in cells))


def _judged(f: Function, fmt: Format) -> list[Point]:
    return _compare(f, fmt, _default(), _inputs(fmt, f.arity))


def worst(f: Function, fmt: Format) -> float:
    """Return the worst error in ULPs of the points that mpmath judges."""
    return max(point.ulps for point in _judged(f, fmt))


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("f", ROUNDED_FUNCTIONS, ids=lambda f: f.name)
def test_rounded_function(f: Function, fmt: Format) -> None:
    """Within the specification's bound of either form, within our own half ULP, and as the reference page says."""
    points = _judged(f, fmt)
    _WORST[f.name, fmt.name] = max(point.ulps for point in points)
    _assert_accurate(f, fmt, points)
    assert _WORST[f.name, fmt.name] <= support_table.stated_ulps(f.name, fmt.name)


_IN_DOUBLE = tuple(f for f in ROUNDED_FUNCTIONS if f.name not in ("sqrt", "divide", "fdim", "fma"))


@functools.cache
def _double_library() -> Library:
    text, names = ["#include <metal_math>\n"], []
    for f in _IN_DOUBLE:
        names.append(f"{f.name}_double")
        text.append(_loop(names[-1], f"__mw::math::{f.name}({_arguments(f.arity)})", "double", f.arity))
    return load("".join(text), names)


@pytest.mark.parametrize("f", _IN_DOUBLE, ids=lambda f: f.name)
def test_evaluation_in_double(f: Function) -> None:
    """Before it is rounded a result is right to 2^-48: a wrong digit too small to show in a float shows here."""
    arguments = _inputs(FLOAT, f.arity)
    if f.arity == 1:
        angles = _nearest_to_right_angles()
        arguments = (np.concatenate([arguments[0], FLOAT.round(np.concatenate([angles, -angles]))]),)
    out = np.empty(len(arguments[0]))
    _double_library()(f"{f.name}_double", *arguments, out, len(out))
    with np.errstate(all="ignore"):
        guess = f.sieve(*arguments)
        ordinary = np.all(np.isfinite(arguments), axis=0) & np.all(np.not_equal(arguments, 0), axis=0)
        ordinary &= (np.abs(guess) > 2.0**-160) & (np.abs(guess) < 2.0**130)
        suspicion = np.where(ordinary, np.abs(out - guess) / np.abs(guess), -1)
    sample = np.random.default_rng(8).choice(np.flatnonzero(ordinary), 200)
    assert f.judge is not None
    for i in np.unique(np.concatenate([np.argsort(-suspicion)[:100], sample])):
        point = tuple(float(a[i]) for a in arguments)
        true = f.judge(*(mpmath.mpf(a) for a in point))
        assert abs(mpmath.mpf(float(out[i])) - true) <= abs(true) * mpmath.mpf(2) ** -48, (
            f.name,
            point,
            out[i],
        )


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("f", EXACT_FUNCTIONS, ids=lambda f: f.name)
def test_exact_function(f: Function, fmt: Format) -> None:
    """No rounding at all: the same value, sign of zero included, under each of its names."""
    for name in (f.name, *f.aliases):
        _compare(replace(f, name=name), fmt, _default(), _inputs(fmt, f.arity))


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("name", ["fmedian3", "median3"])
def test_median(name: str, fmt: Format) -> None:
    """The middle of three numbers; beside a NaN either number, beside two the third."""
    x, y, z = arguments = _several(fmt, 3)
    got = _run(_default(), name, fmt, arguments)
    missing = np.isnan(arguments).sum(axis=0)
    numbers = missing == 0
    assert (got[numbers] == _median(x, y, z)[numbers]).all()
    one_of = (got == x) | (got == y) | (got == z)
    assert one_of[missing < 3].all()
    assert np.isnan(got[missing == 3]).all()


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_fract(fmt: Format) -> None:
    """x - floor(x) rounded to nearest, but never 1."""
    x = _unary(fmt)
    with np.errstate(invalid="ignore"):
        below_one = 1 - 2.0**-fmt.precision
        expected = np.minimum(fmt.round(x - np.floor(x)), below_one)
    got = _run(_default(), "fract", fmt, (x,))
    assert _same(got, expected).all()


def _ordinal(fmt: Format, values: Floats) -> NDArray[np.int64]:
    """Finite values numbered in order: the format's neighbours differ by 1, and both zeros are 0."""
    bits = fmt.encode(values).astype(np.int64)
    sign = np.int64(1) << (fmt.bits - 1)
    return np.where(bits & sign, -(bits & (sign - 1)), bits)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_nextafter(fmt: Format) -> None:
    """One step in the order of the format's values; y where equal; NaN for a NaN."""
    x, y = _several(fmt, 2)
    got = _run(_default(), "nextafter", fmt, (x, y))
    nan = np.isnan(x) | np.isnan(y)
    assert np.isnan(got[nan]).all()
    x, y, got = x[~nan], y[~nan], got[~nan]
    assert _same(got[x == y], y[x == y]).all()
    step = _ordinal(fmt, got) - _ordinal(fmt, x)
    assert (step == np.sign(_ordinal(fmt, y) - _ordinal(fmt, x))).all()
    into_zero = (got == 0) & (x != y)
    assert (np.signbit(got[into_zero]) == np.signbit(x[into_zero])).all()


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_exponents(fmt: Format) -> None:
    """ilogb, frexp and ldexp over every binade and past both ends."""
    x = _unary(fmt)
    bits = fmt.encode(x)
    exponent = np.empty(len(x), dtype=np.int32)
    _default()(f"ilogb_{fmt.name}", bits, exponent, len(x))
    assert (exponent == _ilogb(x)).all()

    out = np.empty_like(bits)
    _default()(f"frexp_{fmt.name}", bits, out, exponent, len(x))
    with np.errstate(invalid="ignore"):
        mantissa, expected = np.frexp(x)
    assert _same(fmt.decode(out), mantissa).all()
    assert (exponent == np.where(np.isfinite(x), expected, 0)).all()

    points = fmt.round(np.random.default_rng(5).choice(x, 20000))
    shifts = fmt.round(np.random.default_rng(6).integers(-300, 300, len(points)).astype(np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        shifted = fmt.round(np.ldexp(points, shifts.astype(np.int64)))
    assert _same(_run(_default(), "ldexp", fmt, (points, shifts)), shifted).all()


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_two_results(fmt: Format) -> None:
    """modf against NumPy; sincos and sincospi give what sin, cos, sinpi and cospi give, bit for bit."""
    x = _unary(fmt)
    bits = fmt.encode(x)
    first, second = np.empty_like(bits), np.empty_like(bits)
    _default()(f"modf_{fmt.name}", bits, first, second, len(x))
    with np.errstate(invalid="ignore"):
        whole = np.trunc(x)
        rest = np.copysign(np.where(np.isinf(x), 0, x - whole), x)
    assert _same(fmt.decode(first), rest).all()
    assert _same(fmt.decode(second), whole).all()
    for both, sine, cosine in (("sincos", "sin", "cos"), ("sincospi", "sinpi", "cospi")):
        _default()(f"{both}_{fmt.name}", bits, first, second, len(x))
        assert _same(fmt.decode(first), _run(_default(), sine, fmt, (x,))).all()
        assert _same(fmt.decode(second), _run(_default(), cosine, fmt, (x,))).all()


@pytest.mark.parametrize("flags", [("-ffast-math",), ("-ffast-math", *_HONOR)], ids=["fast", "relaxed"])
@pytest.mark.parametrize("f", ROUNDED_FUNCTIONS + EXACT_FUNCTIONS, ids=lambda f: f.name)
def test_fast_math_does_not_reach_inside(f: Function, flags: tuple[str, ...]) -> None:
    """With the user's code compiled for fast math the functions keep their accuracy.

    That holds for everything under Metal's "relaxed" mode; with plain -ffast-math clang declares every function's
    result finite, and the specification leaves NaN and infinity undefined, so there only finite ones are compared.
    """
    arguments = tuple(np.ascontiguousarray(a[::7]) for a in _inputs(FLOAT, f.arity))
    if len(flags) == 1:
        with np.errstate(all="ignore"):
            finite = np.all(np.isfinite(arguments), axis=0) & np.isfinite(FLOAT.round(f.sieve(*arguments)))
        arguments = tuple(a[finite] for a in arguments)
    _assert_accurate(f, FLOAT, _compare(f, FLOAT, _library("metal::precise", (FLOAT,), flags), arguments))


def test_flags_end_with_the_header() -> None:
    """The header's own floating-point pragmas do not leak into the code after it."""
    user = 'extern "C" float user(float a, float b, float c) { return a * b + c; }\n'
    ir = compile_ir("#include <metal_math>\n" + user, ("-ffast-math",))
    assert "fmul fast float" in ir and "fadd fast float" in ir


def test_every_form_is_one_function() -> None:
    """`fast::` and `precise::` name the functions measured here, so that both tables are judged on them."""
    lines = ["#include <metal_math>\n"]
    for f in ROUNDED_FUNCTIONS + EXACT_FUNCTIONS:
        types = ", ".join(["float"] * f.arity)
        for name in (f.name, *f.aliases):
            for space in ("fast", "precise"):
                lines.append(f"static_assert(&metal::{space}::{name}<{types}> == &metal::{name}<{types}>);\n")
    for name in (*PAIRS, "fract", "nextafter", "ilogb", "ldexp", "fmedian3", "median3", "nan"):
        lines.append(
            f"namespace uses_{name} {{ using metal::fast::{name}; using metal::precise::{name}; }}\n"
        )
    compile_ir("".join(lines))


# Also a rounding function that LLVM may call where it moves a bfloat about (a `freeze` is widened and narrowed);
# the engine's runtime has one, this harness has none.
_SUPPORT = """
template <int Size> struct bits_of { using type = unsigned short; };
template <> struct bits_of<4> { using type = unsigned; };
template <int Size> using bits = typename bits_of<Size>::type;
extern "C" bfloat __truncsfbf2(float x) { return __mw::math::round_to_bfloat(x); }
"""


def test_vectors_are_their_elements() -> None:
    """A vector call gives each element what the scalar call gives, in every type and length."""
    lines, names = ["#include <metal_math>\n", _SUPPORT], []
    for fmt, lanes in itertools.product(FORMATS, (2, 3, 4)):
        vector = f"metal::vec<{fmt.name}, {lanes}>"
        for f in ROUNDED_FUNCTIONS + EXACT_FUNCTIONS:
            names.append(f"{f.name}_{fmt.name}{lanes}")
            scalars = [", ".join(f"{v}[i]" for v in "abc"[: f.arity]) for i in range(lanes)]
            lines.append(
                f'extern "C" void {names[-1]}(const {fmt.name}* in, int* wrong) {{\n'
                + "".join(f"  {vector} {v};\n" for v in "abc"[: f.arity])
                + f"  for (int i = 0; i < {lanes}; ++i) {{ "
                + " ".join(f"{v}[i] = in[{k * lanes} + i];" for k, v in enumerate("abc"[: f.arity]))
                + f" }}\n  const {vector} r = metal::{f.name}({', '.join('abc'[: f.arity])});\n"
                + f"  for (int i = 0; i < {lanes}; ++i) {{ const {fmt.name} s = metal::{f.name}({scalars[0]});\n"
                + "    *wrong += __builtin_bit_cast(bits<sizeof s>, s) != "
                + "__builtin_bit_cast(bits<sizeof s>, r[i]); }\n}\n"
            )
    library = load("".join(lines), names)
    rng = np.random.default_rng(7)
    for fmt, lanes in itertools.product(FORMATS, (2, 3, 4)):
        values = fmt.encode(rng.uniform(0.1, 0.9, 12))
        for f in ROUNDED_FUNCTIONS + EXACT_FUNCTIONS:
            wrong = np.zeros(1, dtype=np.int32)
            library(f"{f.name}_{fmt.name}{lanes}", values, wrong)
            assert wrong[0] == 0, (f.name, fmt.name, lanes)


_CALLS = {
    "metal::sqrt(2)": "float",
    "metal::pow(f, 2)": "float",
    "metal::pow(h, 2)": "half",
    "metal::pow(b, 2)": "bfloat",
    "metal::max(f, 0)": "float",
    "metal::max(0, h)": "half",
    "metal::min(h, f)": "float",
    "metal::min(h, b)": "float",
    "metal::fmax(f4, 0)": "metal::vec<float, 4>",
    "metal::max(f4, 0.0f)": "metal::vec<float, 4>",
    "metal::fmin(1.0f, f4)": "metal::vec<float, 4>",
    "metal::pow(f4, 2.0f)": "metal::vec<float, 4>",
    "metal::fma(h3, h, 1)": "metal::vec<half, 3>",
    "metal::atan2(f4, 1.0f)": "metal::vec<float, 4>",
    "metal::frexp(f4, i4)": "metal::vec<float, 4>",
    "metal::ldexp(f4, 2)": "metal::vec<float, 4>",
    "metal::ldexp(h3, i3)": "metal::vec<half, 3>",
    "metal::ilogb(h3)": "metal::vec<int, 3>",
    "metal::ilogb(f)": "int",
    "metal::sincos(f4, f4)": "metal::vec<float, 4>",
    "metal::exp(p3)": "metal::vec<float, 3>",
    "metal::max(v, 1)": "float",
    "metal::floor(SIZE)": "float",
    "metal::abs(h)": "half",
    "metal::abs(i)": "int",
    "metal::max(i, 3)": "int",
    "metal::min(u, 16u)": "uint",
    "metal::nan(1u)": "float",
    "metal::nan(ushort(1))": "half",
}


@pytest.mark.parametrize("call", _CALLS)
def test_mixed_arguments(call: str) -> None:
    """Calls that Metal accepts are not ambiguous, beside the integer functions, and have the right type."""
    compile_ir(
        "#include <metal_integer>\n#include <metal_math>\nenum { SIZE = 16 };\n"
        "static float f; static half h; static bfloat b; static int i; static uint u; static volatile float v;\n"
        "static metal::vec<float, 4> f4; static metal::vec<half, 3> h3; static metal::vec<int, 4> i4;\n"
        "static metal::vec<int, 3> i3; static metal::packed_vec<float, 3> p3;\n"
        f"static_assert(__is_same(decltype({call}), {_CALLS[call]}));\n"
        f'extern "C" void use() {{ (void){call}; }}\n',
        ("-Wno-unused-variable", "-Wno-unused-function"),
    )


@pytest.mark.parametrize(
    "call", ["metal::sin(f4, f4)", "metal::max(f4, f2)", "metal::sqrt(i4)", "metal::exp(s)"]
)
def test_refused_arguments(call: str) -> None:
    """What Metal has no overload for does not compile."""
    with pytest.raises(CompileError, match="no matching function"):
        compile_ir(
            "#include <metal_integer>\n#include <metal_math>\nstruct S {}; static S s;\n"
            "static metal::vec<float, 4> f4; static metal::vec<float, 2> f2; static metal::vec<int, 4> i4;\n"
            f'extern "C" void use() {{ (void){call}; (void)s; (void)f4; (void)f2; (void)i4; }}\n'
        )


def test_nan_carries_its_code() -> None:
    """A quiet NaN with the code in its low bits."""
    library = load(
        "#include <metal_math>\n"
        'extern "C" void codes(float* f, half* h) { *f = metal::nan(0x1234u); *h = metal::nan(ushort(0x12)); }\n',
        ["codes"],
    )
    single, narrow = np.zeros(1, dtype=np.uint32), np.zeros(1, dtype=np.uint16)
    library("codes", single, narrow)
    assert (single[0], narrow[0]) == (0x7FC01234, 0x7E12)
