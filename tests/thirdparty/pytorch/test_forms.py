"""The kernels that the registration macros of ``indexing.h`` make of one operator: every form, and every type.

Every form runs checked, on floats. The forms that differ by type run on all types, unchecked.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from metalwright import compile_shader
from metalwright.authoring import ShaderLibrary
from tests.thirdparty.pytorch.operators import CODES, HEAD, TYPES

HEADER = "indexing.h"
# what a value of another type is read as, for kernels that are told the types of their inputs when they run
OTHER = {
    "float": "half",
    "half": "uchar",
    "bfloat": "short",
    "int": "char",
    "long": "int",
    "short": "bool",
    "char": "long",
    "uchar": "bool",
    "bool": "int",
    "float2": "float",
}
OPERATORS = """
struct add_functor { template <typename T> inline T operator()(const T x, const T y) { return T(x + y); } };
struct twice_functor { template <typename T> inline T operator()(const T x) { return T(x + x); } };
struct axpy_functor {
  template <typename T> inline T operator()(const T x, const T y, const T a) { return T(x + c10::metal::mul(a, y)); }
};
struct scaled_functor { template <typename T> inline T operator()(const T x, const T a) { return c10::metal::mul(a, x); } };
struct addcmul_functor {
  template <typename T> inline T operator()(const T x, const T y, const T z) { return T(x + c10::metal::mul(y, z)); }
};
struct less_functor { template <typename T> inline bool operator()(const T x, const T y) { return x < y; } };
"""


@functools.cache
def library(kind: str, checked: bool) -> ShaderLibrary:
    lines = [f"REGISTER_BINARY_OP(add, {kind}, {kind});", f"REGISTER_UNARY_OP(twice, {kind}, {kind});"]
    if kind != "bool":
        lines += [
            f"REGISTER_BINARY_ALPHA_OP(axpy, {kind}, {kind}, {kind});",
            f"REGISTER_UNARY_ALPHA_OP(scaled, {kind}, {kind}, {kind});",
            f"REGISTER_TERNARY_OP(addcmul, {kind}, {kind});",
        ]
    if kind == "float":
        lines.append("REGISTER_BINARY_CASTOUT_OP(less, float, bool);")
    return compile_shader(HEAD + OPERATORS + "\n".join(lines), checked=checked)


def whole(kind: str, seed: int, *shape: int, least: int = -4) -> torch.Tensor:
    """Whole numbers so small that every type computes with them exactly."""
    dtype = TYPES[kind]
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_complex:
        return torch.complex(*torch.randint(least, 5, (2, *shape), generator=generator).float())
    least = 0 if kind in ("uchar", "bool") else least
    return torch.randint(least, 2 if kind == "bool" else 5, shape, generator=generator).to(dtype)


def strides(*tensors: torch.Tensor) -> list[list[int]]:
    """Strides as the kernels take them: in bytes, the fastest dimension first."""
    return [[stride * tensor.element_size() for stride in reversed(tensor.stride())] for tensor in tensors]


def numbers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def raw(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor as bytes, for a kernel that is told the type when it runs."""
    return x.view(torch.uint8) if x.is_contiguous() and not x.is_complex() and x.dim() == 1 else x


@dataclass(frozen=True)
class Bench:
    """Launches the kernels of one type."""

    kind: str
    checked: bool
    ran: Callable[..., None]

    @property
    def dtype(self) -> torch.dtype:
        return TYPES[self.kind]

    @property
    def other(self) -> str:
        return OTHER[self.kind]

    def x(self, seed: int, *shape: int) -> torch.Tensor:
        return whole(self.kind, seed, *shape)

    def mixed(self, seed: int, *shape: int) -> torch.Tensor:
        return whole(self.other, seed, *shape, least=0)

    def alpha(self) -> torch.Tensor:
        return torch.tensor([3], dtype=self.dtype)

    def out(self, *shape: int) -> torch.Tensor:
        return torch.full(shape, 77 if self.kind != "bool" else 1).to(self.dtype)

    def launch(self, template: str, name: str, *arguments: Any, threads: int | tuple[int, ...]) -> None:
        self.ran(HEADER, template, self.kind)
        library(self.kind, self.checked)[name](*arguments, threads=threads)

    def codes(self, x: str, y: str) -> tuple[int, int]:
        return CODES[x], CODES[y]


Form = Callable[[Bench], None]


def strided_pair(b: Bench) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Three dimensions: a result whose last two are swapped, every second element, and one that is read again and again."""
    x = b.x(1, 2, 5, 12)[:, :, ::2]
    y = b.x(2, 6, 5).t().expand(2, 5, 6)
    return b.out(2, 6, 5).transpose(1, 2), x, y


def binary_strided(b: Bench) -> None:
    out, x, y = strided_pair(b)
    arguments = (out, x, y, [6, 5, 2], *strides(out, x, y), numbers(3, 0, 0, 0))
    b.launch("binary_strided", f"add_strided_{b.kind}_{b.kind}", *arguments, threads=60)
    assert torch.equal(out, x + y)


def binary_strided_cast(b: Bench) -> None:
    out, x, _ = strided_pair(b)
    y = b.mixed(2, 2, 5, 6)
    types = numbers(3, *b.codes(b.kind, b.other), 0)
    arguments = (out, x, y, [6, 5, 2], *strides(out, x, y), types)
    b.launch("binary_strided_cast", f"add_strided_cast_{b.kind}_{b.kind}", *arguments, threads=60)
    assert torch.equal(out, x + y.to(b.dtype))


def binary_dense(b: Bench) -> None:
    x, y, out = b.x(1, 61), b.x(2, 61), b.out(61)
    b.launch("binary_dense", f"add_dense_{b.kind}_{b.kind}", out, x, y, threads=61)
    assert torch.equal(out, x + y)


def binary_dense_ilp(b: Bench) -> None:
    x, y, out = b.x(1, 61), b.x(2, 61), b.out(61)
    b.launch("binary_dense_ilp", f"add_dense_ilp4_{b.kind}_{b.kind}", out, x, y, 61, threads=16)
    assert torch.equal(out, x + y)


def binary_dense_cast(b: Bench) -> None:
    x, y, out = b.x(1, 61), b.mixed(2, 61), b.out(61)
    facts = numbers(x.element_size(), y.element_size(), *b.codes(b.kind, b.other))
    b.launch("binary_dense_cast", f"add_dense_cast_{b.kind}_{b.kind}", out, x, raw(y), facts, threads=61)
    assert torch.equal(out, x + y.to(b.dtype))


def binary_broadcast(b: Bench) -> None:
    for side in ("", "_rhs"):
        x, row, out = b.x(1, 5, 12), b.x(2, 12), b.out(5, 12)
        inputs = (row, x) if side else (x, row)
        name = f"add_dense_broadcast{side}_{b.kind}_{b.kind}"
        b.launch(f"binary_dense_broadcast{side}", name, out, *inputs, 12, threads=60)
        assert torch.equal(out, x + row)


def binary_broadcast_cast(b: Bench) -> None:
    for side in ("", "_rhs"):
        x, row, out = b.x(1, 60), b.mixed(2, 12), b.out(60)
        facts = (x.element_size(), row.element_size(), *b.codes(b.kind, b.other))
        if side:
            facts = (facts[1], facts[0], facts[3], facts[2])
        inputs = (raw(row), x) if side else (x, raw(row))
        name = f"add_dense_broadcast{side}_cast_{b.kind}_{b.kind}"
        b.launch(f"binary_dense_broadcast{side}_cast", name, out, *inputs, 12, numbers(*facts), threads=60)
        assert torch.equal(out, x + row.to(b.dtype).repeat(5))


def binary_scalar(b: Bench) -> None:
    for side in ("", "_lhs"):
        x, one, out = b.x(1, 61), b.x(2, 1), b.out(61)
        inputs = (one, x) if side else (x, one)
        name = f"add_dense_scalar{side}_{b.kind}_{b.kind}"
        b.launch(f"binary_dense_scalar{side}", name, out, *inputs, threads=61)
        assert torch.equal(out, x + one)


def binary_scalar_cast(b: Bench) -> None:
    for side in ("", "_lhs"):
        x, one, out = b.mixed(1, 61), b.x(2, 1), b.out(61)
        facts = (x.element_size(), one.element_size(), *b.codes(b.other, b.kind))
        if side:
            facts = (facts[1], facts[0], facts[3], facts[2])
        inputs = (one, raw(x)) if side else (raw(x), one)
        name = f"add_dense_scalar{side}_cast_{b.kind}_{b.kind}"
        b.launch(f"binary_dense_scalar{side}_cast", name, out, *inputs, numbers(*facts), threads=61)
        assert torch.equal(out, x.to(b.dtype) + one)


def unary_dense(b: Bench) -> None:
    x, out = b.x(1, 61), b.out(61)
    b.launch("unary_dense_scalar", f"twice_dense_scalar_{b.kind}_{b.kind}", out, x, threads=61)
    assert torch.equal(out, x + x)
    out = b.out(61)
    b.launch("unary_dense", f"twice_dense_{b.kind}_{b.kind}", out, x, 61, threads=16)
    assert torch.equal(out, x + x)


def unary_strided(b: Bench) -> None:
    out, x, _ = strided_pair(b)
    arguments = (out, x, [6, 5, 2], *strides(x, out), 3)
    b.launch("unary_strided", f"twice_strided_{b.kind}_{b.kind}", *arguments, threads=(6, 10))
    assert torch.equal(out, x + x)


def unary_castout(b: Bench) -> None:
    result = "float2" if b.kind == "float2" else OTHER[b.other] if b.other == "bool" else b.other
    x = whole(b.kind, 1, 61, least=0)
    out = torch.ones(61, dtype=TYPES[result])
    facts = (out.element_size(), CODES[result])
    name = f"twice_dense_castout_{b.kind}"
    b.launch("unary_dense_castout", name, raw(out), x, numbers(*facts), threads=61)
    assert torch.equal(out, (x + x).to(out.dtype))
    out = torch.ones(61, dtype=TYPES[result])
    name = f"twice_dense_castout_ilp_{b.kind}"
    b.launch("unary_dense_castout_ilp", name, raw(out), x, numbers(*facts, 61, 0), threads=16)
    assert torch.equal(out, (x + x).to(out.dtype))
    x = whole(b.kind, 1, 5, 12, least=0)[:, ::2]
    out = torch.ones(6, 5, dtype=TYPES[result]).t()
    arguments = (out, x, [6, 5], *strides(x, out), numbers(2, CODES[result]))
    b.launch("unary_strided_castout", f"twice_strided_castout_{b.kind}", *arguments, threads=(6, 5))
    assert torch.equal(out, (x + x).to(out.dtype))


def unary_alpha(b: Bench) -> None:
    x, out, ends = b.x(1, 61), b.out(61), f"{b.kind}_{b.kind}_{b.kind}"
    b.launch("unary_alpha_dense", f"scaled_dense_{ends}", out, x, b.alpha(), threads=61)
    assert torch.equal(out, x * 3)
    out, x, _ = strided_pair(b)
    arguments = (out, x, [6, 5, 2], *strides(x, out), 3, b.alpha())
    b.launch("unary_alpha_strided", f"scaled_strided_{ends}", *arguments, threads=(6, 10))
    assert torch.equal(out, x * 3)


def alpha_dense(b: Bench) -> None:
    x, y, out = b.x(1, 61), b.x(2, 61), b.out(61)
    name = f"axpy_dense_{b.kind}_{b.kind}_{b.kind}"
    b.launch("binary_alpha_dense", name, out, x, y, b.alpha(), threads=61)
    assert torch.equal(out, x + 3 * y)


def alpha_strided(b: Bench) -> None:
    out, x, y = strided_pair(b)
    arguments = (out, x, y, b.alpha(), [6, 5, 2], *strides(out, x, y), numbers(3, 0, 0, 0))
    name = f"axpy_strided_{b.kind}_{b.kind}_{b.kind}"
    b.launch("binary_alpha_strided", name, *arguments, threads=60)
    assert torch.equal(out, x + 3 * y)


def alpha_strided_cast(b: Bench) -> None:
    out, x, _ = strided_pair(b)
    y = b.mixed(2, 2, 5, 6)
    types = numbers(3, *b.codes(b.kind, b.other), 0)
    arguments = (out, x, y, b.alpha(), [6, 5, 2], *strides(out, x, y), types)
    name = f"axpy_strided_cast_{b.kind}_{b.kind}_{b.kind}"
    b.launch("binary_alpha_strided_cast", name, *arguments, threads=60)
    assert torch.equal(out, x + 3 * y.to(b.dtype))


def alpha_dense_cast(b: Bench) -> None:
    x, y, out = b.x(1, 61), b.mixed(2, 61), b.out(61)
    facts = numbers(x.element_size(), y.element_size(), *b.codes(b.kind, b.other))
    name = f"axpy_dense_cast_{b.kind}_{b.kind}_{b.kind}"
    b.launch("binary_alpha_dense_cast", name, out, x, raw(y), b.alpha(), facts, threads=61)
    assert torch.equal(out, x + 3 * y.to(b.dtype))


def alpha_broadcast(b: Bench) -> None:
    for side in ("", "_rhs"):
        for cast in ("", "_cast"):
            x, row = b.x(1, 60), b.mixed(2, 12) if cast else b.x(2, 12)
            out, left = b.out(60), row.to(b.dtype).repeat(5)
            kinds = b.codes(b.kind, b.other)
            facts = (x.element_size(), row.element_size(), *kinds)
            inputs = (x, raw(row))
            if side:
                facts, inputs = (facts[1], facts[0], facts[3], facts[2]), inputs[::-1]
            told = (numbers(*facts),) if cast else ()
            name = f"axpy_dense_broadcast{side}{cast}_{b.kind}_{b.kind}_{b.kind}"
            template = f"binary_alpha_dense_broadcast{side}{cast}"
            b.launch(template, name, out, *inputs, 12, b.alpha(), *told, threads=60)
            assert torch.equal(out, left + 3 * x if side else x + 3 * left)


def alpha_scalar(b: Bench) -> None:
    for side in ("", "_lhs"):
        for cast in ("", "_cast"):
            x, one, out = b.mixed(1, 61) if cast else b.x(1, 61), b.x(2, 1), b.out(61)
            facts = (x.element_size(), one.element_size(), *b.codes(b.other, b.kind))
            inputs = (raw(x), one)
            if side:
                facts, inputs = (facts[1], facts[0], facts[3], facts[2]), inputs[::-1]
            told = (numbers(*facts),) if cast else ()
            name = f"axpy_dense_scalar{side}{cast}_{b.kind}_{b.kind}_{b.kind}"
            template = f"binary_alpha_dense_scalar{side}{cast}"
            b.launch(template, name, out, *inputs, b.alpha(), *told, threads=61)
            vector = x.to(b.dtype)
            assert torch.equal(out, one + 3 * vector if side else vector + 3 * one)


def ternary_dense(b: Bench) -> None:
    x, y, z, out = b.x(1, 61), b.x(2, 61), b.x(3, 61), b.out(61)
    b.launch("ternary_dense", f"addcmul_dense_{b.kind}_{b.kind}", out, x, y, z, threads=61)
    assert torch.equal(out, x + y * z)


def ternary_strided(b: Bench) -> None:
    out, x, y = strided_pair(b)
    z = b.x(3, 2, 5, 6)
    arguments = (out, x, y, z, [6, 5, 2], *strides(out, x, y, z), 3)
    b.launch("ternary_strided", f"addcmul_strided_{b.kind}_{b.kind}", *arguments, threads=60)
    assert torch.equal(out, x + y * z)


def ternary_casts(b: Bench) -> None:
    codes = (CODES[b.kind], CODES[b.other], CODES[b.kind])
    x, y, z, out = b.x(1, 61), b.mixed(2, 61), b.x(3, 61), b.out(61)
    sizes = numbers(x.element_size(), y.element_size(), z.element_size(), 0)
    name = f"addcmul_dense_cast_{b.kind}"
    b.launch("ternary_dense_cast", name, out, x, raw(y), z, sizes, numbers(*codes, 0), threads=61)
    assert torch.equal(out, x + y.to(b.dtype) * z)
    out, x, _ = strided_pair(b)
    y, z = b.mixed(2, 2, 5, 6), b.x(3, 2, 5, 6)
    arguments = (out, x, y, z, [6, 5, 2], *strides(out, x, y, z), 3, numbers(*codes, 0))
    b.launch("ternary_strided_cast", f"addcmul_strided_cast_{b.kind}", *arguments, threads=60)
    assert torch.equal(out, x + y.to(b.dtype) * z)


FORMS: tuple[Form, ...] = (
    *(binary_dense, binary_strided, binary_dense_cast, binary_broadcast, unary_strided),
    *(binary_dense_ilp, binary_strided_cast, binary_broadcast_cast, binary_scalar, binary_scalar_cast),
    *(unary_dense, unary_castout, unary_alpha, alpha_dense, alpha_strided, alpha_strided_cast),
    *(alpha_dense_cast, alpha_broadcast, alpha_scalar, ternary_dense, ternary_strided, ternary_casts),
)
OF_EVERY_TYPE = FORMS[:5]
OF_SOME_TYPES = (alpha_strided, ternary_casts, unary_alpha)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_every_form(form: Form, ran: Callable[..., None]) -> None:
    form(Bench("float", True, ran))


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind != "float"])
@pytest.mark.parametrize("form", OF_EVERY_TYPE, ids=lambda form: form.__name__)
def test_every_type(form: Form, kind: str, ran: Callable[..., None]) -> None:
    form(Bench(kind, False, ran))


@pytest.mark.parametrize("kind", ["half", "long", "float2"])
@pytest.mark.parametrize("form", OF_SOME_TYPES, ids=lambda form: form.__name__)
def test_forms_with_numbers_and_three_inputs(form: Form, kind: str, ran: Callable[..., None]) -> None:
    form(Bench(kind, False, ran))


@pytest.mark.parametrize("result", ["bool", "float", "uchar", "bfloat", "long"])
def test_a_comparison_into_another_type(result: str, ran: Callable[..., None]) -> None:
    ran(HEADER, "binary_strided_castout", result)
    out = torch.ones(6, 5, dtype=TYPES[result]).t()
    x, y = whole("float", 1, 5, 6), whole("float", 2, 5, 6)
    types = numbers(2, CODES["float"], CODES["float"], CODES[result])
    kernel = library("float", True)["less_strided_castout_bool_float"]
    kernel(out, x, y, [6, 5], *strides(out, x, y), types, threads=30)
    assert torch.equal(out, (x < y).to(TYPES[result]))


@functools.cache
def special_registrations() -> ShaderLibrary:
    """Operators whose results are floats where the inputs are integers, and such as compute half in float."""
    whole_kinds = ("int", "long", "short", "char", "uchar", "bool")
    lines = [
        "DEFINE_UNARY_FLOATING_FUNCTOR(rsqrt);",
        "DEFINE_BINARY_COMPARISON_FUNCTOR(smaller, <);",
        """struct truediv_functor {
  template <typename T> inline enable_if_t<is_integral_v<T>, float> operator()(const T x, const T y) {
    return float(x) / float(y); }
};
struct residue_functor { template <typename T> inline T operator()(const T x, const T y) { return T(x * y - x * x); } };
struct residue3_functor {
  template <typename T> inline T operator()(const T x, const T y, const T z) { return T(x * y - x * z); } };
""",
        *(f"REGISTER_BINARY_OP(truediv, {kind}, float);" for kind in whole_kinds),
        *(f"REGISTER_UNARY_OP(rsqrt, {kind}, float);" for kind in whole_kinds),
        "REGISTER_BINARY_OP(smaller, long, bool);",
        *(f"struct residue_{kind}_functor {{ template <typename T> inline {kind} operator()(const T x, const T y) {{"
          f" return {kind}(x * y - x * x); }} }};" for kind in ("half", "bfloat")),
        *(f"struct residue3_{kind}_functor {{ template <typename T> inline {kind} operator()(const T x, const T y, const T z)"
          f" {{ return {kind}(x * y - x * z); }} }};" for kind in ("half", "bfloat")),
        *(f"REGISTER_OPMATH_BINARY_OP(residue_{kind}, {kind}, {kind});" for kind in ("half", "bfloat")),
        *(f"REGISTER_OPMATH_TERNARY_OP(residue3_{kind}, {kind}, {kind});" for kind in ("half", "bfloat")),
    ]  # fmt: skip
    return compile_shader(HEAD + "\n".join(lines))


@pytest.mark.parametrize("kind", ["int", "long", "short", "char", "uchar", "bool"])
def test_integers_to_float(kind: str, ran: Callable[..., None]) -> None:
    ran(HEADER, "binary_dense", f"{kind} to float")
    x = whole(kind, 1, 61)
    y = whole(kind, 2, 61, least=1).clamp(min=1) if kind != "bool" else torch.ones(61, dtype=torch.bool)
    out = torch.full((61,), 77.0)
    special_registrations()[f"truediv_dense_float_{kind}"](out, x, y, threads=61)
    assert torch.equal(out, torch.true_divide(x, y))
    if kind in ("int", "uchar"):
        ran(HEADER, "unary_dense", f"{kind} to float")
        out = torch.full((61,), 77.0)
        special_registrations()[f"rsqrt_dense_float_{kind}"](out, y, 61, threads=16)
        torch.testing.assert_close(out, torch.rsqrt(y.float()), rtol=3e-7, atol=0)


def test_a_comparison_of_integers(ran: Callable[..., None]) -> None:
    ran(HEADER, "binary_dense", "long to bool")
    x, y = torch.tensor([2**60, 5, -(2**62)]), torch.tensor([2**60 + 1, 5, 2**62])
    out = torch.ones(3, dtype=torch.bool)
    special_registrations()["smaller_dense_bool_long"](out, x, y, threads=3)
    assert out.tolist() == [True, False, True]


@pytest.mark.parametrize("kind", ["half", "bfloat"])
def test_half_that_is_computed_in_float(kind: str, ran: Callable[..., None]) -> None:
    """The difference of two products, each of which half would round: float keeps what is left of them."""
    ran(HEADER, "binary_dense", f"{kind} in float")
    ran(HEADER, "ternary_dense", f"{kind} in float")
    generator = torch.Generator().manual_seed(8)
    x, y, z = ((torch.rand(3, 61, generator=generator) + 1).to(TYPES[kind])).unbind()
    out = torch.empty_like(x)
    special_registrations()[f"residue_{kind}_dense_{kind}_{kind}"](out, x, y, threads=61)
    expected = (
        x.double() * y.double() - x.double() ** 2
    )  # the float result is exact: the factors have few bits
    assert torch.equal(out, expected.to(x.dtype))
    assert not torch.equal(out, x * y - x * x)
    special_registrations()[f"residue3_{kind}_dense_{kind}_{kind}"](out, x, y, z, threads=61)
    assert torch.equal(out, (x.double() * y.double() - x.double() * z.double()).to(x.dtype))
    assert math.isfinite(out.float().sum().item())
