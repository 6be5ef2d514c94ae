"""Every function of the standard library through the front-end and the engine, as a user's kernel goes, in both modes.

How exact the functions are is tested elsewhere; here a wrong function, lane or type shows, and one that a mode refuses.
The list is that of the reference page: a function added to one must be added to the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.support import launch, whole

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "msl.md"
N = 64
DTYPES = {"float": np.dtype(np.float32), "half": np.dtype(np.float16), "bfloat": np.dtype(ml_dtypes.bfloat16)}
DIGITS = {"float": 20, "half": 10, "bfloat": 7}
Reference = Callable[..., np.ndarray]


def half_away(x: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def middle(*values: np.ndarray) -> np.ndarray:
    return np.median(np.stack(values), axis=0)


def smooth(low: np.ndarray, high: np.ndarray, x: np.ndarray) -> np.ndarray:
    t = np.clip((x - low) / (high - low), 0, 1)
    return t * t * (3 - 2 * t)


# a: inside (0, 1); b: inside (0.5, 3); s: both signs, with fractions
MATH: Mapping[str, tuple[str, Reference]] = {
    "acos": ("acos(a)", lambda a, b, s: np.arccos(a)),
    "acosh": ("acosh(T(1) + b)", lambda a, b, s: np.arccosh(1 + b)),
    "asin": ("asin(a)", lambda a, b, s: np.arcsin(a)),
    "asinh": ("asinh(s)", lambda a, b, s: np.arcsinh(s)),
    "atan": ("atan(s)", lambda a, b, s: np.arctan(s)),
    "atan2": ("atan2(s, b)", lambda a, b, s: np.arctan2(s, b)),
    "atanh": ("atanh(a)", lambda a, b, s: np.arctanh(a)),
    "ceil": ("ceil(s)", lambda a, b, s: np.ceil(s)),
    "copysign": ("copysign(a, s)", lambda a, b, s: np.copysign(a, s)),
    "cos": ("cos(s)", lambda a, b, s: np.cos(s)),
    "cosh": ("cosh(s)", lambda a, b, s: np.cosh(s)),
    "cospi": ("cospi(a)", lambda a, b, s: np.cos(np.pi * a)),
    "divide": ("divide(s, b)", lambda a, b, s: s / b),
    "exp": ("exp(s)", lambda a, b, s: np.exp(s)),
    "exp10": ("exp10(a)", lambda a, b, s: 10.0**a),
    "exp2": ("exp2(s)", lambda a, b, s: np.exp2(s)),
    "fabs": ("fabs(s)", lambda a, b, s: np.abs(s)),
    "fdim": ("fdim(s, b)", lambda a, b, s: np.maximum(s - b, 0)),
    "floor": ("floor(s)", lambda a, b, s: np.floor(s)),
    "fma": ("fma(a, b, s)", lambda a, b, s: a * b + s),
    "fmax": ("fmax(s, b)", lambda a, b, s: np.maximum(s, b)),
    "fmax3": ("fmax3(a, b, s)", lambda a, b, s: np.maximum(np.maximum(a, b), s)),
    "fmedian3": ("fmedian3(a, b, s)", lambda a, b, s: middle(a, b, s)),
    "fmin": ("fmin(s, b)", lambda a, b, s: np.minimum(s, b)),
    "fmin3": ("fmin3(a, b, s)", lambda a, b, s: np.minimum(np.minimum(a, b), s)),
    "fmod": ("fmod(s, b)", lambda a, b, s: np.fmod(s, b)),
    "fract": ("fract(s)", lambda a, b, s: s - np.floor(s)),
    "frexp": ("frexp(b, e) + T(e)", lambda a, b, s: sum(np.frexp(b))),
    "ilogb": ("T(ilogb(b))", lambda a, b, s: np.floor(np.log2(b))),
    "ldexp": ("ldexp(a, I(3))", lambda a, b, s: 8 * a),
    "log": ("log(a)", lambda a, b, s: np.log(a)),
    "log10": ("log10(a)", lambda a, b, s: np.log10(a)),
    "log2": ("log2(a)", lambda a, b, s: np.log2(a)),
    "modf": ("modf(s, t) - t", lambda a, b, s: np.modf(s)[0] - np.modf(s)[1]),
    "nan": ("T(isnan(NAN_OF(7)))", lambda a, b, s: np.ones_like(a)),
    "nextafter": ("T(nextafter(a, b) > a) - T(nextafter(b, a) < b)", lambda a, b, s: np.zeros_like(a)),
    "pow": ("pow(b, s)", lambda a, b, s: b**s),
    "powr": ("powr(b, s)", lambda a, b, s: b**s),
    "rint": ("rint(s)", lambda a, b, s: np.rint(s)),
    "round": ("round(s)", lambda a, b, s: half_away(s)),
    "rsqrt": ("rsqrt(b)", lambda a, b, s: b**-0.5),
    "sin": ("sin(s)", lambda a, b, s: np.sin(s)),
    "sincos": ("sincos(s, t) + t", lambda a, b, s: np.sin(s) + np.cos(s)),
    "sincospi": ("sincospi(a, t) + t", lambda a, b, s: np.sin(np.pi * a) + np.cos(np.pi * a)),
    "sinh": ("sinh(s)", lambda a, b, s: np.sinh(s)),
    "sinpi": ("sinpi(a)", lambda a, b, s: np.sin(np.pi * a)),
    "sqrt": ("sqrt(b)", lambda a, b, s: np.sqrt(b)),
    "tan": ("tan(a)", lambda a, b, s: np.tan(a)),
    "tanh": ("tanh(s)", lambda a, b, s: np.tanh(s)),
    "tanpi": ("tanpi(a * T(0.25))", lambda a, b, s: np.tan(np.pi * a / 4)),
    "trunc": ("trunc(s)", lambda a, b, s: np.trunc(s)),
}
COMMON: Mapping[str, tuple[str, Reference]] = {
    "abs": ("abs(s)", lambda a, b, s: np.abs(s)),
    "clamp": ("clamp(s, a, b)", lambda a, b, s: np.minimum(np.maximum(s, a), b)),
    "max": ("max(s, b)", lambda a, b, s: np.maximum(s, b)),
    "max3": ("max3(a, b, s)", lambda a, b, s: np.maximum(np.maximum(a, b), s)),
    "median3": ("median3(a, b, s)", lambda a, b, s: middle(a, b, s)),
    "min": ("min(s, b)", lambda a, b, s: np.minimum(s, b)),
    "min3": ("min3(a, b, s)", lambda a, b, s: np.minimum(np.minimum(a, b), s)),
    "mix": ("mix(s, b, a)", lambda a, b, s: s + (b - s) * a),
    "saturate": ("saturate(s)", lambda a, b, s: np.clip(s, 0, 1)),
    "sign": ("sign(s)", lambda a, b, s: np.sign(s)),
    "smoothstep": ("smoothstep(T(-1), T(2), s)", lambda a, b, s: smooth(-1.0, 2.0, s)),  # type: ignore[arg-type]
    "step": ("step(a, s)", lambda a, b, s: (s >= a).astype(float)),
}
# n: s divided by zero where its fraction is small, so that infinities and NaNs are among the values
RELATIONAL: Mapping[str, tuple[str, Reference]] = {
    "all": ("T(all(s > T(0)))", lambda a, b, s: (s > 0).astype(float)),
    "any": ("T(any(s > T(0)))", lambda a, b, s: (s > -1).astype(float)),  # the other lanes are larger by 1
    "isfinite": (
        "T(isfinite(s / floor(a * T(2))))",
        lambda a, b, s: np.isfinite(s / np.floor(a * 2)).astype(float),
    ),
    "isinf": ("T(isinf(s / floor(a * T(2))))", lambda a, b, s: np.isinf(s / np.floor(a * 2)).astype(float)),
    "isnan": ("T(isnan(sqrt(s)))", lambda a, b, s: (s < 0).astype(float)),
    "isnormal": (
        "T(isnormal(s * floor(a * T(2))))",
        lambda a, b, s: (s * np.floor(a * 2) != 0).astype(float),
    ),
    "isordered": ("T(isordered(a, sqrt(s)))", lambda a, b, s: (s >= 0).astype(float)),
    "isunordered": ("T(isunordered(sqrt(s), a))", lambda a, b, s: (s < 0).astype(float)),
    "select": ("select(a, b, s > T(0))", lambda a, b, s: np.where(s > 0, b, a)),
    "signbit": ("T(signbit(s))", lambda a, b, s: np.signbit(s).astype(float)),
}


INTEGERS = {
    "char": (8, True),
    "uchar": (8, False),
    "short": (16, True),
    "ushort": (16, False),
    "int": (32, True),
    "uint": (32, False),
    "long": (64, True),
    "ulong": (64, False),
}


@dataclass(frozen=True)
class Word:
    """An integer type, for the references: they compute on Python's integers."""

    bits: int
    signed: bool

    @property
    def low(self) -> int:
        return -(1 << self.bits - 1) if self.signed else 0

    @property
    def high(self) -> int:
        return (1 << self.bits - self.signed) - 1

    def wrap(self, x: int) -> int:
        x &= (1 << self.bits) - 1
        return x - (1 << self.bits) if self.signed and x >> self.bits - 1 else x

    def saturate(self, x: int) -> int:
        return min(max(x, self.low), self.high)

    def pattern(self, x: int) -> str:
        return f"{x & (1 << self.bits) - 1:0{self.bits}b}"

    def low24(self, x: int) -> int:
        return Word(24, self.signed).wrap(x)

    def inserted(self, base: int, x: int, offset: int, bits: int) -> int:
        mask = (1 << bits) - 1 << offset
        return self.wrap(base & ~mask | x << offset & mask)


# a, b: any values; c: small and not negative
INTEGER: Mapping[str, tuple[str, Callable[[Word, int, int, int], int]]] = {
    "absdiff": ("absdiff(a, b)", lambda w, a, b, c: abs(a - b)),
    "addsat": ("addsat(a, b)", lambda w, a, b, c: w.saturate(a + b)),
    "clz": ("clz(c)", lambda w, a, b, c: w.bits - c.bit_length()),
    "ctz": ("ctz(a)", lambda w, a, b, c: (w.pattern(a)[::-1] + "1").index("1")),
    "extract_bits": ("extract_bits(a, 2u, 4u)", lambda w, a, b, c: Word(4, w.signed).wrap(a >> 2)),
    "hadd": ("hadd(a, b)", lambda w, a, b, c: a + b >> 1),
    "insert_bits": ("insert_bits(a, b, 3u, 4u)", lambda w, a, b, c: w.inserted(a, b, 3, 4)),
    "mad24": ("mad24(a, b, c)", lambda w, a, b, c: w.wrap(w.low24(a) * w.low24(b) + c)),
    "madhi": ("madhi(a, b, c)", lambda w, a, b, c: w.wrap((a * b >> w.bits) + c)),
    "madsat": ("madsat(a, b, c)", lambda w, a, b, c: w.saturate(a * b + c)),
    "mul24": ("mul24(a, b)", lambda w, a, b, c: w.wrap(w.low24(a) * w.low24(b))),
    "mulhi": ("mulhi(a, b)", lambda w, a, b, c: a * b >> w.bits),
    "popcount": ("popcount(a)", lambda w, a, b, c: w.pattern(a).count("1")),
    "reverse_bits": ("reverse_bits(a)", lambda w, a, b, c: w.wrap(int(w.pattern(a)[::-1], 2))),
    "rhadd": ("rhadd(a, b)", lambda w, a, b, c: a + b + 1 >> 1),
    "rotate": ("rotate(a, c)", lambda w, a, b, c: w.wrap(int((w.pattern(a) * 2)[c % w.bits :][: w.bits], 2))),
    "subsat": ("subsat(a, b)", lambda w, a, b, c: w.saturate(a - b)),
    "abs": ("T(abs(a))", lambda w, a, b, c: w.wrap(abs(a))),
    "clamp": ("clamp(a, T(1), c + T(1))", lambda w, a, b, c: min(max(a, 1), c + 1)),
    "max": ("max(a, b)", lambda w, a, b, c: max(a, b)),
    "max3": ("max3(a, b, c)", lambda w, a, b, c: max(a, b, c)),
    "median3": ("median3(a, b, c)", lambda w, a, b, c: sorted([a, b, c])[1]),
    "min": ("min(a, b)", lambda w, a, b, c: min(a, b)),
    "min3": ("min3(a, b, c)", lambda w, a, b, c: min(a, b, c)),
}
GEOMETRIC: Mapping[str, tuple[str, Reference]] = {
    "cross": ("cross(p, q).SWIZZLE", lambda p, q, r: np.cross(p, q)),
    "distance": ("distance(p, q)", lambda p, q, r: np.linalg.norm(p - q, axis=-1)),
    "distance_squared": ("distance_squared(p, q)", lambda p, q, r: ((p - q) ** 2).sum(-1)),
    "dot": ("dot(p, q)", lambda p, q, r: (p * q).sum(-1)),
    "faceforward": ("faceforward(p, q, r)", lambda p, q, r: np.where(((q * r).sum(-1) < 0)[:, None], p, -p)),
    "length": ("length(p)", lambda p, q, r: np.linalg.norm(p, axis=-1)),
    "length_squared": ("length_squared(p)", lambda p, q, r: (p**2).sum(-1)),
    "normalize": ("normalize(p)", lambda p, q, r: p / np.linalg.norm(p, axis=-1, keepdims=True)),
    "reflect": ("reflect(p, q)", lambda p, q, r: reflected(p, q)),
    "refract": ("refract(normalize(p), normalize(q), 0.5)", lambda p, q, r: refracted(p, q, 0.5)),
}


def reflected(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return the reflection at a surface, whose normal the specification normalises first."""
    n = q / np.linalg.norm(q, axis=-1, keepdims=True)
    return p - 2 * (p * n).sum(-1, keepdims=True) * n


def refracted(p: np.ndarray, q: np.ndarray, eta: float) -> np.ndarray:
    """Return Snell's refraction of unit vectors, as the specification writes it."""
    i, n = (v / np.linalg.norm(v, axis=-1, keepdims=True) for v in (p, q))
    cosine = (n * i).sum(-1, keepdims=True)
    k = 1 - eta**2 * (1 - cosine**2)
    return np.where(k < 0, 0, eta * i - (eta * cosine + np.sqrt(np.abs(k))) * n)


def listed(group: str) -> set[str]:
    """Return the functions in a row of the reference page."""
    row = re.search(rf"^\| {group}[^|]*\| `([^`]*)` \|$", PAGE.read_text(), re.MULTILINE)
    assert row is not None
    return set(row[1].split())


def kernel(kind: str, lanes: str, expressions: list[str]) -> str:
    """Return a kernel that writes the last lane of each expression; the other lanes hold other values."""
    spread = "{0}" if not lanes else f"T({', '.join(['{0} + {1}(1)'] * (int(lanes) - 1))}, {{0}})"
    load = "\n".join(f"  const T {name} = {spread.format(f'{name}s[i]', kind)};" for name in "abs")
    last = "xyzw"[int(lanes) - 1] if lanes else ""
    stores = "\n".join(
        f"  {{ I e; T t; const T r = {text}; outs[{k} * {N} + i] = float(r{'.' + last if last else ''}); }}"
        for k, text in enumerate(expressions)
    )
    nan = {"float": f"uint{lanes}", "half": f"ushort{lanes}", "bfloat": f"ushort{lanes}"}[kind]
    return f"""
using T = {kind}{lanes};
using I = int{lanes};
#define NAN_OF(x) nan({nan}(x))
kernel void k(device const {kind}* as, device const {kind}* bs, device const {kind}* ss, device float* outs,
              uint i [[thread_position_in_grid]]) {{
{load}
{stores}
}}
"""


BOTH = pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])


@BOTH
@pytest.mark.parametrize("lanes", ["", "3", "4"])
@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("group", ["math", "common", "relational"])
def test_functions_of_floats(group: str, kind: str, lanes: str, checked: bool) -> None:
    table = {"math": MATH, "common": COMMON, "relational": RELATIONAL}[group]
    if not lanes:
        table = {name: row for name, row in table.items() if name not in ("all", "any")}
    random = np.random.default_rng(5)
    a = random.uniform(0.05, 0.95, N).astype(DTYPES[kind])
    b = random.uniform(0.6, 3, N).astype(DTYPES[kind])
    s = (random.uniform(0.1, 3, N) * random.choice([-1, 1], N)).astype(DTYPES[kind])
    outs = np.full((len(table), N), np.nan, np.float32)
    program = whole(kernel(kind, lanes, [text for text, _ in table.values()]), checked=checked)
    launch(program, {"as": a, "bs": b, "ss": s}, {"outs": outs}, N, N)
    values = [value.astype(np.float64) for value in (a, b, s)]
    for (name, (text, reference)), got in zip(table.items(), outs, strict=True):
        with np.errstate(all="ignore"):
            expected = reference(*values)
        # an expression of several operations rounds several times
        scale = np.maximum(np.abs(expected), 1.0) * 4
        wrong = np.flatnonzero(~(np.abs(got - expected) <= scale * 0.5 ** DIGITS[kind]))
        assert not wrong.size, f"{name}: {text}: {got[wrong[:4]]} for {expected[wrong[:4]]}"


@BOTH
@pytest.mark.parametrize("lanes", ["", "3", "4"])
@pytest.mark.parametrize("kind", INTEGERS)
def test_functions_of_integers(kind: str, lanes: str, checked: bool) -> None:
    """Exact, at the limits too; each lane holds other values, and the last one is looked at."""
    word = Word(*INTEGERS[kind])
    narrow = ("int", "uint")
    table = {name: row for name, row in INTEGER.items() if "24" not in name or kind in narrow}
    random = np.random.default_rng(6)
    edges = [word.low, word.high, 0, 1, word.high - 1, word.low + 1]
    dtype = np.dtype(f"{'i' if word.signed else 'u'}{word.bits // 8}")
    anything = random.integers(word.low, word.high, (2, N - len(edges)), dtype).tolist()
    a, b = [*edges, *anything[0]], [*reversed(edges), *anything[1]]
    c = [int(x) for x in random.integers(0, word.bits, N)]
    last = "." + "xyzw"[int(lanes) - 1] if lanes else ""
    spread = f"T({', '.join(['{0} ^ E(1)'] * (int(lanes) - 1))}, {{0}})" if lanes else "{0}"
    loads = " ".join(f"const T {name} = {spread.format(f'{name}s[i]')};" for name in "abc")
    stores = "\n".join(
        f"  {{ const auto r = {text}; outs[{k} * {N} + i] = r{last}; }}"
        for k, (text, _) in enumerate(table.values())
    )
    program = whole(
        f"""
using E = {kind};
using T = {kind}{lanes};
kernel void k(device const E* as, device const E* bs, device const E* cs, device E* outs,
              uint i [[thread_position_in_grid]]) {{
  {loads}
{stores}
}}
""",
        checked=checked,
    )
    outs = np.zeros((len(table), N), dtype)
    inputs = {name: np.array(values, dtype) for name, values in (("as", a), ("bs", b), ("cs", c))}
    launch(program, inputs, {"outs": outs}, N, N)
    for (name, (text, reference)), got in zip(table.items(), outs.tolist(), strict=True):
        # absdiff is unsigned; its bits are stored
        expected = [word.wrap(reference(word, *values)) for values in zip(a, b, c, strict=True)]
        assert got == expected, f"{name}: {text}"


@BOTH
@pytest.mark.parametrize("lanes", [2, 3, 4])
@pytest.mark.parametrize("kind", ["float", "half"])
def test_geometric_functions(kind: str, lanes: int, checked: bool) -> None:
    table = {name: row for name, row in GEOMETRIC.items() if name != "cross" or lanes == 3}
    p, q, r = (np.random.default_rng(s).uniform(-1, 1, (N, lanes)).astype(DTYPES[kind]) for s in (7, 8, 9))
    vector = f"{kind}{lanes}"
    read = "(" + ", ".join(f"{{0}}[{lanes} * i + {lane}]" for lane in range(lanes)) + ")"
    loads = " ".join(f"const {vector} {name}{read.format(name + 's')};" for name in "pqr")
    stores = "\n".join(
        f"  {{ const auto v = {vector}({text.replace('SWIZZLE', 'xyz')}); "
        + " ".join(f"outs[({k} * {N} + i) * {lanes} + {lane}] = v[{lane}];" for lane in range(lanes))
        + " }"
        for k, (text, _) in enumerate(table.values())
    )
    program = whole(
        f"""
kernel void k(device const {kind}* ps, device const {kind}* qs, device const {kind}* rs, device float* outs,
              uint i [[thread_position_in_grid]]) {{
  {loads}
{stores}
}}
""",
        checked=checked,
    )
    outs = np.zeros((len(table), N, lanes), np.float32)
    launch(program, {"ps": p, "qs": q, "rs": r}, {"outs": outs}, N, N)
    values = [value.astype(np.float64) for value in (p, q, r)]
    for (name, (_, reference)), got in zip(table.items(), outs, strict=True):
        expected = reference(*values)
        expected = expected if expected.ndim == 2 else np.repeat(expected[:, None], lanes, axis=1)
        np.testing.assert_allclose(got, expected, rtol=0, atol=8 * 0.5 ** DIGITS[kind], err_msg=name)


def test_every_listed_function_is_called() -> None:
    assert listed("math") == set(MATH)
    assert listed("common") == set(COMMON)
    assert listed("relational") == set(RELATIONAL)
    assert listed("integer") == set(INTEGER) - set(COMMON)
    assert listed("geometric") == set(GEOMETRIC)
