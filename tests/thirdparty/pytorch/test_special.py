"""The functions of PyTorch's ``special_math.h`` and ``random.h``, against torch and a Philox of our own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import special

import metalwright
from metalwright import UnsupportedFeatureError, compile_shader
from metalwright.authoring import ShaderLibrary

Reference = Callable[..., torch.Tensor]
MATH = "special_math.h"


@dataclass(frozen=True)
class Function:
    """A function of a header: torch's, the inputs from ``low`` to ``high``, and how far they may be apart.

    ``tolerance`` is relative to the result, or to 1 where that is larger. Both sides have the same polynomials, here in
    float: a few roundings for most, more where terms cancel.
    """

    name: str
    reference: Reference
    low: float
    high: float
    tolerance: float = 4e-6
    header: str = MATH


ONE = (
    Function("erf", special.erf, -3, 3),
    Function("erfc", special.erfc, -3, 3),
    Function("erfinv", special.erfinv, -0.99, 0.99),
    Function("erfcx", special.erfcx, -2, 5),
    Function("i0", special.i0, -6, 6),
    Function("i0e", special.i0e, -6, 6),
    Function("i1", special.i1, -6, 6),
    Function("i1e", special.i1e, -6, 6),
    # gamma and log_gamma call each other; a power of e to the 40 has lost bits of its exponent's fraction
    Function("gamma", lambda x: torch.lgamma(x).exp(), 0.05, 30, 2e-5),
    Function("log_gamma", torch.lgamma, -9.97, 30, 8e-6),
    Function("digamma", special.digamma, 0.5, 9),
    Function("trigamma", lambda x: special.polygamma(1, x), 0.5, 9),
    Function("sinc", special.sinc, -3, 3),
    Function("entr", special.entr, 0.1, 4),
    Function("spherical_bessel_j0", special.spherical_bessel_j0, -9, 9),
    Function("bessel_j0_forward", special.bessel_j0, -20, 20),
    Function("bessel_y0_forward", special.bessel_y0, 0.1, 20, 1e-5),
    Function("bessel_j1_forward", special.bessel_j1, -20, 20),
    Function("bessel_y1_forward", special.bessel_y1, 0.1, 20, 1e-5),
    Function("modified_bessel_i0_forward", special.modified_bessel_i0, -6, 6),
    Function("modified_bessel_i1_forward", special.modified_bessel_i1, -6, 6),
    Function("modified_bessel_k0_forward", special.modified_bessel_k0, 0.1, 6, 1e-5),
    Function("modified_bessel_k1_forward", special.modified_bessel_k1, 0.1, 6, 1e-5),
    Function("scaled_modified_bessel_k0_forward", special.scaled_modified_bessel_k0, 0.1, 6, 1e-5),
    Function("scaled_modified_bessel_k1_forward", special.scaled_modified_bessel_k1, 0.1, 6, 1e-5),
    # the header takes the leading part of ln 2 alone out of its argument, so it errs by 1.4e-6 for each
    Function("expm1f", torch.expm1, -4, 4, 1.2e-5, "expm1f.h"),
    Function("log1p", torch.log1p, -0.9, 9, header="utils.h"),
)
TWO = (
    Function("zeta", special.zeta, 1.5, 4, 3e-5),
    Function("logaddexp", torch.logaddexp, -4, 4),
    Function("logaddexp2", torch.logaddexp2, -4, 4),
    Function("xlogy", torch.xlogy, 0.1, 4),
    Function("xlog1py", special.xlog1py, 0.1, 4),
    Function("hypot", torch.hypot, 0, 4, header="utils.h"),
)
# the recurrences lose a few bits a step, relative to the largest of the results
ORDER = tuple(
    Function(f"{name}_forward", getattr(special, name), 0.05, 0.95, 2e-5)
    for name in (
        *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
        *("hermite_polynomial_h", "hermite_polynomial_he"),
    )
)
COUNT = 200
GROUPS = 4


def _switch(functions: tuple[Function, ...], arguments: str) -> str:
    cases = "".join(f" case {i}: return {f.name}({arguments});" for i, f in enumerate(functions))
    return f"switch (which) {{{cases} }} return -99;"


def _unary(group: int) -> str:
    """Return a kernel of every GROUPS-th function: one of all would take long to compile."""
    return f"""
inline float one{group}(float x, int which) {{ {_switch(ONE[group::GROUPS], "x")} }}
kernel void unary{group}(constant float* x, device float* out, constant int& which,
                         uint i [[thread_position_in_grid]]) {{ out[i] = one{group}(x[i], which); }}"""


def unary(function: Function, x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    which, group = divmod(ONE.index(function), GROUPS)
    library()[f"unary{group}"](x, out, which)
    return out


@functools.cache
def library() -> ShaderLibrary:
    # the deepest nest of calls that these functions need; emulate("torch") allows more
    return compile_shader(
        f"""
#include <c10/metal/special_math.h>
#include <c10/metal/expm1f.h>
#include <c10/metal/random.h>
using namespace c10::metal;
inline float two(float x, float y, int which) {{ {_switch(TWO, "x, y")} }}
inline float ordered(float x, long n, int which) {{ {_switch(ORDER, "x, n")} }}
{"".join(map(_unary, range(GROUPS)))}
kernel void binary(constant float* x, constant float* y, device float* out, constant int& which,
                   uint i [[thread_position_in_grid]]) {{ out[i] = two(x[i], y[i], which); }}
kernel void with_order(constant float* x, device float* out, constant long& n, constant int& which,
                       uint i [[thread_position_in_grid]]) {{ out[i] = ordered(x[i], n, which); }}
kernel void of_gamma(constant float* x, device float* out, constant long& n, uint i [[thread_position_in_grid]]) {{
  out[i] = polygamma(n, x[i]);
}}
kernel void philox(device uint4* out, constant long& seed, uint i [[thread_position_in_grid]]) {{
  out[i] = c10::metal::philox4::rand(seed, i);
}}
kernel void uniform_and_normal(device float2* out, constant long& seed, uint i [[thread_position_in_grid]]) {{
  out[i] = float2(c10::metal::rand(seed, i), c10::metal::randn(seed, i));
}}
kernel void whole(device long* out, constant long& seed, uint i [[thread_position_in_grid]]) {{
  out[i] = c10::metal::randint64(seed, i, -5, 17);
}}
""",
        recursion=2,
    )


def spread(low: float, high: float, seed: int = 3) -> torch.Tensor:
    return torch.rand(COUNT, generator=torch.Generator().manual_seed(seed)) * (high - low) + low


def assert_near(
    actual: torch.Tensor, expected: torch.Tensor, tolerance: float, scale: float | None = None
) -> None:
    assert torch.isfinite(expected).all()
    scales = expected.abs().clamp(min=1.0) if scale is None else max(scale, 1.0)
    assert ((actual.double() - expected).abs() / scales).max().item() <= tolerance


@pytest.mark.parametrize("function", ONE, ids=lambda f: f.name)
def test_unary(function: Function, ran: Callable[..., None]) -> None:
    ran(function.header, function.name)
    x = spread(function.low, function.high)
    assert_near(unary(function, x), function.reference(x.double()), function.tolerance)


@pytest.mark.parametrize("function", TWO, ids=lambda f: f.name)
def test_binary(function: Function, ran: Callable[..., None]) -> None:
    ran(function.header, function.name)
    x, y = spread(function.low, function.high), spread(function.low, function.high, seed=4)
    out = torch.empty_like(x)
    library().binary(x, y, out, TWO.index(function))
    assert_near(out, function.reference(x.double(), y.double()), function.tolerance)


@pytest.mark.parametrize("function", ORDER, ids=lambda f: f.name)
def test_polynomials(function: Function, ran: Callable[..., None]) -> None:
    ran(function.header, function.name)
    x = spread(function.low, function.high)
    for n in (0, 1, 2, 5, 9):
        out = torch.empty_like(x)
        library().with_order(x, out, n, ORDER.index(function))
        expected = function.reference(x.double(), torch.tensor(n))
        assert_near(out, expected, function.tolerance, expected.abs().max().item())


@pytest.mark.parametrize("n", [0, 1, 2, 5, 14])
def test_polygamma(n: int, ran: Callable[..., None]) -> None:
    ran(MATH, "polygamma", f"{n}")
    x = spread(0.8, 5)
    out = torch.empty_like(x)
    library().of_gamma(x, out, n)
    # the factorial of 14 is e to a power that float has to a few units of 1e-6
    expected = special.polygamma(n, x.double())
    torch.testing.assert_close(out.double(), expected, rtol=5e-5, atol=1e-5)


def test_special_values(ran: Callable[..., None]) -> None:
    """Where the functions branch: zero, poles, infinities."""
    ran(MATH, "log_gamma", "poles")
    inf = float("inf")
    for name, given, expected in (
        ("log_gamma", (0.0, 1.0, 2.0, -1.0), (inf, 0.0, 0.0, inf)),
        ("digamma", (0.0, -0.0, -1.0), (-inf, inf, float("nan"))),
        ("entr", (0.0, -1.0, 1.0), (0.0, -inf, 0.0)),
        ("erfinv", (1.0, -1.0, 2.0), (inf, -inf, float("nan"))),
    ):
        out = unary(next(function for function in ONE if function.name == name), torch.tensor(given))
        torch.testing.assert_close(out, torch.tensor(expected), rtol=0, atol=2e-6, equal_nan=True)


def test_calls_that_nest_are_refused_unless_allowed() -> None:
    text = (
        "#include <c10/metal/special_math.h>\n"
        "kernel void k(device float* x) { x[0] = c10::metal::log_gamma(x[0]); }"
    )
    with pytest.raises(UnsupportedFeatureError, match="function '(log_)?gamma' calls itself through"):
        compile_shader(text)
    with metalwright.emulate("torch"):
        emulated = torch.mps.compile_shader(text)
    x = torch.tensor([4.0])
    emulated.k(x)
    assert abs(x.item() - 1.791759469228055) < 4e-6  # the logarithm of 6


def philox(seed: int, count: int) -> np.ndarray:
    """Philox4x32 as the header has it: a round fewer than it says, the index in the last two words, swapped halves."""
    counter = np.zeros((count, 4), np.uint64)
    counter[:, 3] = np.arange(count)
    key = np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint64)
    low = np.uint64(0xFFFFFFFF)
    for _ in range(9):
        a, b = counter[:, 0] * np.uint64(0xD2511F53), counter[:, 2] * np.uint64(0xCD9E8D57)
        # mulhilo gives (high, low) of each product
        counter = np.stack(
            [
                (b >> np.uint64(32)) ^ counter[:, 1] ^ key[0],
                b & low,
                (a >> np.uint64(32)) ^ counter[:, 3] ^ key[1],
                a & low,
            ],
            axis=1,
        )
        key = (key + np.array([0x9E3779B9, 0xBB67AE85], np.uint64)) & low
    return counter.astype(np.uint32)


@pytest.mark.parametrize("seed", [0, 42, 0x1234567890])
def test_random(seed: int, ran: Callable[..., None]) -> None:
    for name in ("rand", "randn", "randint64"):
        ran("random.h", name, f"seed {seed}")
    made = library()
    bits = torch.empty(COUNT, 4, dtype=torch.int32)
    made.philox(bits, seed, threads=COUNT)
    expected = philox(seed, COUNT)
    np.testing.assert_array_equal(bits.numpy().view(np.uint32), expected)

    pair = torch.empty(COUNT, 2)
    made.uniform_and_normal(pair, seed, threads=COUNT)
    uniform = (expected[:, :2] & np.uint32(0x7FFFFFFF)).astype(np.float32) * np.float32(4.6566127342e-10)
    np.testing.assert_array_equal(pair[:, 0].numpy(), uniform[:, 0])
    u = 1.0 - uniform.astype(np.float64)
    normal = np.sqrt(-2 * np.log(u[:, 0])) * np.cos(2 * np.pi * u[:, 1])
    np.testing.assert_allclose(pair[:, 1].numpy(), normal, rtol=1e-4, atol=2e-6)  # cos of a float near 2 pi

    whole = torch.empty(COUNT, dtype=torch.int64)
    made.whole(whole, seed, threads=COUNT)
    np.testing.assert_array_equal(whole.numpy(), -5 + (uniform[:, 0] * np.float32(22)).astype(np.int64))
