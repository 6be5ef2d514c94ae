"""The Metal headers' types and their functions that are not transcendental: layout, swizzles, constructors, operators,
conversions, and the integer, common, relational and geometric functions, limits, macros and traits.

What C++ can decide at compile time is asserted there; the rest runs and is compared with Python's integers, NumPy,
or torch (bfloat16).
"""

from __future__ import annotations

import itertools
import math
import operator
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from _jit import COMPILER, FLAGS, INCLUDE, compile_ir
from _snippet import (
    FLOATS,
    HEADERS,
    INTEGERS,
    PARSE,
    SCALARS,
    SIZES,
    Raw,
    aligned,
    check_static,
    error_of,
    float_values,
    integer_values,
    reference_dtype,
    run,
)

# ---- layout ----------------------------------------------------------------------------------------------------


def test_sizes_and_alignments_are_metals() -> None:
    assertions = []
    for t, size in SIZES.items():
        for n, stored in ((2, 2), (3, 4), (4, 4)):
            assertions += [f"sizeof({t}{n}) == {size * stored}", f"alignof({t}{n}) == {size * stored}"]
            assertions += [f"sizeof(packed_{t}{n}) == {size * n}", f"alignof(packed_{t}{n}) == {size}"]
            assertions += [f"is_same_v<{t}{n}, metal::vec<{t}, {n}>>", f"is_same_v<metal::{t}{n}, ::{t}{n}>"]
            assertions += [
                f"is_trivially_copyable_v<{t}{n}>",
                f"is_trivially_default_constructible_v<{t}{n}>",
            ]
    names = ("int8_t", 1), ("uint8_t", 1), ("int16_t", 2), ("uint16_t", 2), ("int32_t", 4), ("uint32_t", 4)
    for t, size in (*names, ("int64_t", 8), ("uint64_t", 8), ("size_t", 8), ("ptrdiff_t", 8)):
        assertions += [f"sizeof({t}) == {size}", f"is_same_v<metal::{t}, ::{t}>"]
    check_static(*assertions)


def test_other_lengths_are_refused_by_name() -> None:
    assert "a Metal vector has 2, 3 or 4 components" in error_of("metal::vec<float, 5> v;")


# ---- swizzles --------------------------------------------------------------------------------------------------


def swizzles(lanes: int, distinct: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every swizzle of a vector in both alphabets, with its lane numbers."""
    for alphabet, length in itertools.product(("xyzw", "rgba"), range(1, 5)):
        for picked in itertools.product(range(lanes), repeat=length):
            if not distinct or len(set(picked)) == length:
                yield "".join(alphabet[i] for i in picked), picked


@pytest.mark.parametrize("kind", ["vec", "packed_vec"])
@pytest.mark.parametrize("lanes", [2, 3, 4])
def test_every_swizzle_reads(kind: str, lanes: int) -> None:
    values = [10, 11, 12, 13][:lanes]
    assertions = []
    for name, picked in swizzles(lanes, distinct=False):
        if len(picked) == 1:
            assertions += [f"v.{name} == {values[picked[0]]}", f"is_same_v<decltype(v.{name}), short>"]
        else:
            expected = ", ".join(str(values[i]) for i in picked)
            assertions += [f"all(v.{name} == short{len(picked)}({expected}))"]
            assertions += [f"is_same_v<decltype(v.{name}), short{len(picked)}>"]
    assert len(assertions) == 4 * sum(lanes**k for k in range(1, 5))
    check_static(*assertions, before=f"constexpr {kind}<short, {lanes}> v({', '.join(map(str, values))});\n")


@pytest.mark.parametrize("lanes", [2, 3, 4])
def test_every_swizzle_writes_in_constant_expressions(lanes: int) -> None:
    before, assertions = "", []
    for k, (name, picked) in enumerate(swizzles(lanes, distinct=True)):
        new = ", ".join(str(20 + i) for i in range(len(picked)))
        value = new if len(picked) == 1 else f"int{len(picked)}({new})"
        after = [20 + picked.index(i) if i in picked else 10 + i for i in range(lanes)]
        start = ", ".join(str(10 + i) for i in range(lanes))
        before += f"constexpr int{lanes} w{k}() {{ int{lanes} v({start}); v.{name} = {value}; return v; }}\n"
        assertions.append(f"all(w{k}() == int{lanes}({', '.join(map(str, after))}))")
    check_static(*assertions, before=before)


@pytest.mark.parametrize("kind", ["vec", "packed_vec"])
@pytest.mark.parametrize("type_", ["half", "uint", "bool"])
def test_every_swizzle_of_a_vec4_writes_in_memory(kind: str, type_: str) -> None:
    """At run time lanes are written through memory: a code path of its own."""
    all_ = list(swizzles(4, distinct=True))
    body = ""
    for k, (name, picked) in enumerate(all_):
        source = f"s[{k}]." + ("x" if len(picked) == 1 else "xyzw"[: len(picked)])
        body += f"v[{k}].{name} = {source};\n"
    library = run(
        f'extern "C" void f({kind}<{type_}, 4>* v, const {kind}<{type_}, 4>* s) {{ {body} }}', ["f"]
    )
    dtype = {"half": np.float16, "uint": np.uint32, "bool": np.uint8}[type_]
    rng = np.random.default_rng(1)
    source, target = (
        rng.integers(0, 2 if type_ == "bool" else 999, (len(all_), 4)).astype(dtype) for _ in "ab"
    )
    expected = target.copy()
    for k, (_, picked) in enumerate(all_):
        expected[k, list(picked)] = source[k, : len(picked)]
    library("f", target, source)
    np.testing.assert_array_equal(target, expected)


def test_swizzles_in_expressions() -> None:
    check_static(
        "run() == 1234",
        before="""
        template <class V> constexpr V twice(V v) {
          V w = v.yx * v.xy + v.yx;  // both operands are properties of a dependent type
          w.xy = -w.yx;
          w = 1 + w.xy - 1;
          w.xy += v.xy - v.xy;
          if (any(w.xy != w.xy) || !all(w.xy == w.xy) || w.xy[0] != w.x || (v.x < 0 && v.y > 0)) return V(0);
          return w;
        }
        constexpr int run() {
          int4 v(1, 2, 3, 4), u(0, 0, 0, 0);
          v.xy += v.zw;             // 4 6 3 4
          v.zw *= 2;                // 4 6 6 8
          v.x -= 3;                 // 1 6 6 8
          u.wz = v.xy = v.yx;       // v 6 1 6 8, u 0 0 1 6
          int x = u.x = 7;
          if (u.x != 7 || x != 7 || any(u != int4(7, 0, 1, 6))) return 1;
          if (any(v.xxyy != int4(6, 6, 1, 1)) || any(v.rgb != int3(6, 1, 6))) return 2;
          v.xyz = 5;
          if (any(v != int4(5, 5, 5, 8)) || (v.x > 4 ? v.xy : v.zw).y != 5) return 3;
          if (any(twice(int2(2, 3)) != int2(-8, -9))) return 4;
          v.xy = {1, 2};
          int parts[] = {v.x, v.y};
          return parts[0] == 1 && parts[1] == 2 && v.zyx.zy.x == 1 ? 1234 : 5;
        }""",
    )


def test_step_operators_and_run_time_subscripts() -> None:
    library = run(
        """extern "C" void f(int4* v, const int* k, int* out) {
          v->x++; --v->y; (*v)[*k] += 10; ++*v; v->w--;
          const int4 c = *v;
          out[0] = c[*k]; out[1] = v->z++; out[2] = (*v)[*k]--;
          (*v)++;
        }""",
        ["f"],
    )
    v, k, out = np.array([1, 2, 3, 4], np.int32), np.array([2], np.int32), np.zeros(3, np.int32)
    library("f", v, k, out)
    assert v.tolist() == [4, 3, 15, 5]
    assert out.tolist() == [14, 14, 15]


def test_a_lane_is_written_alone() -> None:
    """Writing .y must not read or write the neighbours, which other threads may own."""
    ir = compile_ir(HEADERS + 'extern "C" void f(float4* v, float x) { v->y = x; v->wz = x; }')
    body = ir[ir.index("@f(") :]
    body = body[: body.index("\n}")]
    assert "load" not in body
    stored = sum(4 * (2 if "<2 x float>" in line else 1) for line in body.splitlines() if " store " in line)
    assert stored == 12


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ("float4 v; v.xx = float2(1);", "no setter defined for property 'xx'"),
        ("float4 v; auto u = v.xg;", "no member named 'xg'"),
        ("float2 v; auto u = v.z;", "no member named 'z'"),
        ("float3 v; auto u = v.xyw;", "no member named 'xyw'"),
        ("const float4 v(1); v.x = 1;", "__mw_set_x"),
    ],
)
def test_swizzles_that_do_not_exist(statements: str, message: str) -> None:
    assert message in error_of(statements)


# ---- constructors and conversions ------------------------------------------------------------------------------


def compositions(total: int) -> Iterator[tuple[int, ...]]:
    """Ways to fill so many lanes with at least two pieces of 1 to 3 lanes."""
    for count in range(2, total + 1):
        for pieces in itertools.product((1, 2, 3), repeat=count):
            if sum(pieces) == total:
                yield pieces


@pytest.mark.parametrize("type_", ["float", "half", "bfloat", "uchar", "long", "bool"])
def test_constructors_take_every_composition(type_: str) -> None:
    assertions = []
    for n in (2, 3, 4):
        for pieces in compositions(n):
            for form in (f"{type_}", f"packed_{type_}"):
                arguments, k = [], 0
                for length in pieces:
                    values = ", ".join(
                        f"{type_}({(k + i) % 2 if type_ == 'bool' else k + i})" for i in range(length)
                    )
                    arguments.append(values if length == 1 else f"{form}{length}({values})")
                    k += length
                for i in range(n):
                    value = i % 2 if type_ == "bool" else i
                    assertions.append(f"{form}{n}({', '.join(arguments)})[{i}] == {type_}({value})")
    check_static(*assertions)


def test_constructors() -> None:
    check_static(
        "all(float4(2) == float4(2, 2, 2, 2))",
        "all(splat == float3(1.5f))",
        "all(float4(true, 2u, half(3), bfloat(4)) == braces)",
        "all(float4{1, 2, 3, 4} == braces)",
        "all(zero == float4(0))",
        "all(half3{} == half3(0))",
        "all(uchar4(300) == uchar4(44))",
        "all(bool2(3, 0) == bool2(true, false))",
        "all(int2(Lane::second) == int2(1))",
        "all(int2(plain, 5) == int2(2, 5))",
        "!is_convertible_v<float4, int4>",
        "!is_convertible_v<float4, half4>",
        "!is_convertible_v<float4, float3>",
        "!is_constructible_v<float3, float4>",
        "!is_constructible_v<float4, float3>",
        "!is_constructible_v<float4, float2, float>",
        "!is_constructible_v<float4, float, float, float>",
        "!is_constructible_v<float4, half2, float, float>",  # pieces keep the element type, as in Metal
        "is_constructible_v<float4, int4>",
        "is_convertible_v<packed_float3, float3> && is_convertible_v<float3, packed_float3>",
        "is_convertible_v<half, float4> && is_convertible_v<int, bfloat4>",
        before="""
        constexpr float3 splat = 1.5f;
        constexpr float4 braces = {1, 2, 3, 4}, zero = {};
        struct Lane { enum { first, second }; };
        enum Plain { plain = 2 };
        """,
    )
    compile_ir(
        HEADERS
        + """void f(int i, uint u, bool c, half h) {
          float4 v{i}; uint3 t = {u, u, u}; float2 w = {i, h}; v = 0; v = {1, 2, 3, 4}; v = c ? v : 1; v = c ? h : v;
          float2 s; s.x = i; s = w; (void)t; (void)[=] { float4 q; q.x = 1; return q; }();
        }""",
        [*PARSE, "-Wno-unused-but-set-variable"],
    )


def test_conversions_between_all_element_types() -> None:
    names, source = [], ""
    for a, b in itertools.product(SCALARS, SCALARS):
        names.append(f"{a}_to_{b}")
        source += f'extern "C" void {a}_to_{b}(const {a}4* x, {b}4* y) {{ y[0] = {b}4(x[0]); y[1] = {b}4(x[1]); }}\n'
    library = run(source, names)
    # Values that every type but bool holds or truncates in range; 100.5 and 0.4 show truncation and rounding.
    values = torch.tensor([0, 1, 2, 3.75, 100.5, 127, 0.4, 77.25], dtype=torch.float64)
    for a, b in itertools.product(SCALARS, SCALARS):
        x = values.to(reference_dtype(a))
        y = torch.zeros(8, dtype=reference_dtype(b))
        library(f"{a}_to_{b}", Raw(x), Raw(y))
        assert torch.equal(y, x.to(reference_dtype(b))), (a, b)


def test_conversions_wrap_and_round() -> None:
    check_static(
        "all(uchar4(int4(-1, 256, 511, 3)) == uchar4(255, 0, 255, 3))",
        "all(char2(uint2(200, 4294967295u)) == char2(-56, -1))",
        "all(bool4(float4(0.0f, -0.0f, 0.25f, NAN)) == bool4(0, 0, 1, 1))",
        "all(int2(float2(-2.75f, 2.75f)) == int2(-2, 2))",
        "all(half2(float2(65519.0f, 2049.0f)) == half2(65504.0f, 2048.0f))",
        "all(bfloat2(half2(257.0f, 3.0f)) == bfloat2(256.0f, 3.0f))",
        "all(float3(packed_uchar3(1, 2, 255)) == float3(1, 2, 255))",
        "all(packed_half3(float3(1, 2, 3)) == half3(1, 2, 3))",
    )


def test_as_type() -> None:
    check_static(
        "as_type<uint>(1.0f) == 0x3f800000",
        "as_type<half>(ushort(0x3c00)) == half(1)",
        "as_type<ushort>(bfloat(1)) == 0x3f80",
        "all(as_type<uint4>(float4(1, -2, 0, 4)) == uint4(0x3f800000, 0xc0000000, 0, 0x40800000))",
        "all(as_type<float3>(int3(0x3f800000)) == float3(1))",
        "all(as_type<ushort2>(0x00020001u) == ushort2(1, 2))",
        "as_type<uint>(half2(1, 2)) == 0x40003c00u",
        "as_type<ulong>(uchar8()) == 0x0807060504030201ul",
        "all(metal::as_type<char4>(-2) == char4(-2, -1, -1, -1))",
        before="constexpr packed_vec<uint, 2> uchar8() { return packed_uint2(0x04030201u, 0x08070605u); }",
    )
    assert "as_type needs two types of the same size" in error_of("(void)as_type<uint>(half(1));")


# ---- operators -------------------------------------------------------------------------------------------------

BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^"}
SHIFTS = {"shl": "<<", "shr": ">>"}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">="}
UNARY = {"neg": "-", "plus": "+", "inv": "~"}


def operator_source(t: str, n: int) -> tuple[str, list[str]]:
    """Loops over an array of vectors: vector with vector, with its first lane on each side, and in compound form."""
    source, names = "", []
    integer = t in INTEGERS
    v = f"{t}{n}"

    def loop(name: str, out: str, statement: str) -> None:
        nonlocal source
        names.append(f"{name}_{v}")
        head = f'extern "C" void {name}_{v}(const {v}* a, const {v}* b, {out}* o, long n)'
        source += f"{head} {{ for (long i = 0; i < n; ++i) {{ {statement} }} }}\n"

    for name, op in (BINARY | (SHIFTS if integer else {})).items():
        if integer or name in ("add", "sub", "mul", "div"):
            loop(name, v, f"o[i] = a[i] {op} b[i];")
            loop(f"{name}s", v, f"o[i] = a[i] {op} b[i].x;")
            loop(f"{name}r", v, f"o[i] = a[i].x {op} b[i];")
            loop(f"{name}c", v, f"o[i] = a[i]; o[i] {op}= b[i];")
    for name, op in UNARY.items():
        if integer or name != "inv":
            loop(name, v, f"o[i] = {op}a[i]; (void)b;")
    for name, op in COMPARE.items():
        loop(name, f"bool{n}", f"o[i] = a[i] {op} b[i];")
    return source, names


def numpy_operator(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The same in NumPy, whose integers wrap; division truncates as C's does."""
    bits = a.dtype.itemsize * 8
    if name == "div" and a.dtype.kind in "iu":
        q = np.abs(a.astype(object)) // np.abs(b.astype(object))
        return np.where((a < 0) != (b < 0), -q, q).astype(a.dtype)
    if name == "rem":
        return a - (numpy_operator("div", a, b) * b).astype(a.dtype)
    if name in ("shl", "shr"):
        count = (b.astype(object) % bits).astype(a.dtype)
        return np.left_shift(a, count) if name == "shl" else np.right_shift(a, count)
    functions: dict[str, Callable] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
    functions |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    functions |= {k: getattr(operator, k) for k in COMPARE}
    functions |= {
        "neg": lambda x, _: np.negative(x),
        "plus": lambda x, _: x,
        "inv": lambda x, _: np.invert(x),
    }
    return functions[name](a, b)


# Lengths 2 and 3 have no code of their own; four types stand for all.
OPERATOR_CASES = [(t, 4) for t in (*INTEGERS, *FLOATS)] + [
    (t, n) for t in ("float", "half", "uchar", "int") for n in (2, 3)
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("type_", "lanes"), OPERATOR_CASES)
def test_operators(type_: str, lanes: int) -> None:
    dtype = (INTEGERS | FLOATS)[type_]
    source, names = operator_source(type_, lanes)
    library = run(source, names)
    rng = np.random.default_rng(lanes)
    make = integer_values if type_ in INTEGERS else float_values
    count, stride = 128, 4 if lanes == 3 else lanes
    a, b = (aligned(make(dtype, rng, count * stride).reshape(count, stride)) for _ in "ab")
    for full in names:
        name = full.rsplit("_", 1)[0]
        form = name[-1] if name not in (*BINARY, *SHIFTS, *UNARY, *COMPARE) else ""
        base = name[: -len(form)] if form else name
        right = aligned(b)
        if base in ("div", "rem") and type_ in INTEGERS:
            # Division by zero and of the least value by -1 are undefined.
            right[(right == 0) | ((right == dtype(0) - dtype(1)) & (np.iinfo(dtype).min < 0))] = 3
        out = aligned(np.zeros((count, stride), np.uint8 if base in COMPARE else dtype))
        library(full, a, right, out, count)
        x = a[:, :1] if form == "r" else a
        y = right[:, :1] if form == "s" else right
        expected = np.broadcast_to(numpy_operator(base, x, y), a.shape)
        np.testing.assert_array_equal(out[:, :lanes], expected[:, :lanes].astype(out.dtype), err_msg=full)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_bfloat_rounds_after_every_operation(name: str) -> None:
    op = BINARY[name]
    head = 'extern "C" void f(const bfloat4* a, const bfloat4* b, bfloat4* o, long n)'
    body = f"for (long i = 0; i < n; ++i) o[i] = (a[i] {op} b[i]) * b[i].wzyx + a[i];"
    library = run(f"{head} {{ {body} }}", ["f"])
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(256, 4, generator=generator).to(torch.bfloat16) for _ in "ab")
    out = torch.zeros(256, 4, dtype=torch.bfloat16)
    library("f", Raw(a), Raw(b), Raw(out), 256)
    functions = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}
    expected = functions[name](a, b) * b.flip(1) + a
    assert torch.equal(out, expected)


def test_operators_keep_the_element_type() -> None:
    check_static(
        *(f"is_same_v<decltype({t}4(1) {op} {t}4(1)), {t}4>" for t in SCALARS[1:] for op in "+-*/"),
        *(f"is_same_v<decltype({t}3(1) == {t}3(1)), bool3>" for t in SCALARS),
        *(f"is_same_v<decltype(2.5f * {t}2(1)), {t}2>" for t in SCALARS[1:]),
        "all(char4(100) + char4(100) == char4(-56))",
        "all(-char2(-128) == char2(-128))",
        "all(int2(2147483647) + 1 == int2(-2147483647 - 1))",
        "all((uint4(1) << int4(33, 1, 2, 3)) == uint4(2, 2, 4, 8))",
        "all((1 << uint2(3, 4)) == uint2(8, 16))",
        "all(!float2(0, 3) == bool2(true, false))",
        "all((bool2(1, 0) && bool2(1, 1)) == bool2(1, 0)) && all((bool2(1, 0) || bool2(0, 0)) == bool2(1, 0))",
        "all((bool2(1, 0) ^ bool2(1, 1)) == bool2(0, 1))",
        "all(packed_float3(1, 2, 3) + packed_float3(1) * 2 == float3(3, 4, 5))",
        "all(-packed_int3(1, 2, 3) == int3(-1, -2, -3))",
    )


def test_packed_vectors_in_memory() -> None:
    library = run(
        """extern "C" void f(packed_half3* v) {
          v[0] += 1; v[1] *= v[0]; v[2] = v[0].zyx + half3(v[1]); v[3].y = v[2].x; v[4].xz = v[2].yy; v[5][2] -= 4;
        }""",
        ["f"],
    )
    v = np.arange(18, dtype=np.float16).reshape(6, 3)
    e = v.copy()
    e[0] += 1
    e[1] *= e[0]
    e[2] = e[0, ::-1] + e[1]
    e[3, 1] = e[2, 0]
    e[4, [0, 2]] = e[2, 1]
    e[5, 2] -= 4
    library("f", v)
    np.testing.assert_array_equal(v, e)


@pytest.mark.parametrize(
    "expression",
    [
        "float4(1) + int4(1)",
        "half4(1) * float4(1)",
        "float4(1) - float3(1)",
        "int2(1) == uint2(1)",
        "float2(1) < half2(1)",
    ],
)
def test_mismatched_vectors_are_refused_in_one_line(expression: str) -> None:
    said = error_of(f"(void)({expression});")
    assert "differ in element type or length: convert one, as in float4(v)" in said
    assert said.count("error:") == 1
    assert said.splitlines()[0].startswith("<stdin>")  # at the user's line, not in a header


@pytest.mark.parametrize(
    "expression", ["bool2(1) + bool2(1)", "float2(1) % float2(1)", "~float2(1)", "int2(1) && int2(1)"]
)
def test_operators_that_do_not_exist(expression: str) -> None:
    assert "invalid" in error_of(f"(void)({expression});")


def test_shared_helpers_of_the_headers() -> None:
    check_static(
        "is_same_v<__mw::element_t<const half3&>, half> && __mw::lanes_v<packed_int2> == 2",
        "__mw::lanes_v<int> == 1",
        "__mw::is_vec_v<half3> && !__mw::is_vec_v<packed_half3> && __mw::is_any_vec_v<packed_half3>",
        "is_same_v<__mw::rebind<float4, bool>, bool4> && is_same_v<__mw::rebind<float, int>, int>",
        "is_same_v<__mw::common_t<float4, int>, float4> && is_same_v<__mw::common_t<short, short>, short>",
        "is_same_v<__mw::common_t<int, uint>, uint> && is_same_v<__mw::common_t<half, bfloat>, float>",
        "all(__mw::map([](float a, float b) { return a > b; }, float4(1, 2, 3, 4), 2.5f) == bool4(0, 0, 1, 1))",
        "__mw::map([](int a) { return a + 1; }, 4) == 5",
    )


def test_internal_names_stay_out_of_overload_resolution() -> None:
    """A user's unqualified call with vectors must not find the headers' helpers, nor clash with them."""
    names = (
        "map",
        "gather",
        "scatter",
        "unwrap",
        "at",
        "wrap",
        "truth",
        "convert",
        "lane",
        "magnitude",
        "float_max",
    )
    own = "".join(
        f"template <class A, class B> constexpr int {name}(const A&, B) {{ return 7; }}\n" for name in names
    )
    check_static(
        *(f"{name}(float4(1), float4(2)) == 7" for name in names),
        "is_same_v<decltype(length(float3(1))), float> && is_same_v<decltype(normalize(half3(1))), half3>",
        "is_same_v<decltype(dot(half3(1), half3(1))), half>",
        "is_same_v<decltype(distance(bfloat2(1), bfloat2(1))), bfloat>",
        before=own,
    )


# ---- integer functions -----------------------------------------------------------------------------------------


def wrap(x: int, info: np.iinfo) -> int:
    x &= (1 << info.bits) - 1
    return x - (1 << info.bits) if info.min < 0 and x >> (info.bits - 1) else x


def saturate_to(x: int, info: np.iinfo) -> int:
    return min(max(x, int(info.min)), int(info.max))


def unsigned(x: int, info: np.iinfo) -> int:
    return x & ((1 << info.bits) - 1)


def extract(x: int, offset: int, bits: int, info: np.iinfo) -> int:
    field = unsigned(x, info) >> offset & ((1 << bits) - 1)
    return field - (1 << bits) if info.min < 0 and bits and field >> (bits - 1) else field


def insert(base: int, new: int, offset: int, bits: int, info: np.iinfo) -> int:
    mask = ((1 << bits) - 1) << offset
    return wrap(unsigned(base, info) & ~mask | (unsigned(new, info) << offset & mask), info)


def rotate(x: int, count: int, info: np.iinfo) -> int:
    count %= info.bits
    u = unsigned(x, info)
    return wrap(u << count | u >> (info.bits - count), info)


INTEGER_FUNCTIONS: dict[str, tuple[int, Callable[..., int]]] = {
    "abs": (1, lambda x, i: wrap(abs(x), i)),
    "clz": (1, lambda x, i: i.bits - unsigned(x, i).bit_length()),
    "ctz": (1, lambda x, i: (unsigned(x, i) & -unsigned(x, i)).bit_length() - 1 if x else i.bits),
    "popcount": (1, lambda x, i: unsigned(x, i).bit_count()),
    "reverse_bits": (1, lambda x, i: wrap(int(f"{unsigned(x, i):0{i.bits}b}"[::-1], 2), i)),
    "absdiff": (2, lambda x, y, i: abs(x - y)),
    "addsat": (2, lambda x, y, i: saturate_to(x + y, i)),
    "subsat": (2, lambda x, y, i: saturate_to(x - y, i)),
    "hadd": (2, lambda x, y, i: (x + y) >> 1),
    "rhadd": (2, lambda x, y, i: (x + y + 1) >> 1),
    "max": (2, lambda x, y, i: max(x, y)),
    "min": (2, lambda x, y, i: min(x, y)),
    "mulhi": (2, lambda x, y, i: (x * y) >> i.bits),
    "rotate": (2, rotate),
    "clamp": (3, lambda x, y, z, i: min(max(x, y), z)),
    "max3": (3, lambda x, y, z, i: max(x, y, z)),
    "min3": (3, lambda x, y, z, i: min(x, y, z)),
    "median3": (3, lambda x, y, z, i: sorted((x, y, z))[1]),
    "madhi": (3, lambda x, y, z, i: wrap(((x * y) >> i.bits) + z, i)),
    "madsat": (3, lambda x, y, z, i: saturate_to(x * y + z, i)),
}
INTEGER_FUNCTIONS_32 = {
    "mul24": (2, lambda x, y, i: wrap(extract(x, 0, 24, i) * extract(y, 0, 24, i), i)),
    "mad24": (3, lambda x, y, z, i: wrap(extract(x, 0, 24, i) * extract(y, 0, 24, i) + z, i)),
}


@pytest.mark.parametrize("type_", list(INTEGERS))
def test_integer_functions(type_: str) -> None:
    dtype = INTEGERS[type_]
    info = np.iinfo(dtype)
    functions = INTEGER_FUNCTIONS | (INTEGER_FUNCTIONS_32 if info.bits == 32 else {})
    names, source = [], ""
    for (name, (arity, _)), form in itertools.product(functions.items(), ("", "4")):
        names.append(f"{name}{form}")
        out = f"u{type_}" if name == "absdiff" and type_[0] != "u" else type_
        called = f"metal::{name}({', '.join(f'{x}[i]' for x in 'xyz'[:arity])})"
        head = (
            f"const {type_}{form}* x, const {type_}{form}* y, const {type_}{form}* z, {out}{form}* o, long n"
        )
        check = f"static_assert(is_same_v<decltype({called}), {out}{form}>);"
        source += f'extern "C" void {name}{form}({head}) {{ (void)y; (void)z;'
        source += f" for (long i = 0; i < n; ++i) {{ {check.replace('[i]', '[0]')} o[i] = {called}; }} }}\n"
    for form in ("", "4"):
        t = f"{type_}{form}"
        names += [f"extract_bits{form}", f"insert_bits{form}"]
        head = f"const {t}* x, const {t}* y, {t}* o, long n, long offset, long bits"
        loop = "for (long i = 0; i < n; ++i)"
        calls = {"extract": "(void)y; o[i] = extract_bits(x[i], offset, bits);"}
        calls["insert"] = "o[i] = insert_bits(x[i], y[i], offset, bits);"
        for name, call in calls.items():
            source += f'extern "C" void {name}_bits{form}({head}) {{ {loop} {{ {call} }} }}\n'
    library = run(source, names)
    rng = np.random.default_rng(7)
    count = 400
    x, y, z = (aligned(integer_values(dtype, rng, count)) for _ in "xyz")
    x[:144], y[:144] = (v.ravel() for v in np.meshgrid(x[:12], y[:12]))
    for (name, (arity, reference)), form in itertools.product(functions.items(), ("", "4")):
        low, high = (aligned(np.minimum(y, z)), aligned(np.maximum(y, z))) if name == "clamp" else (y, z)
        out = aligned(np.zeros(count, np.dtype(f"u{info.bits // 8}") if name == "absdiff" else dtype))
        library(name + form, x, low, high, out, count // (4 if form else 1))
        rows = list(zip(x.tolist(), low.tolist(), high.tolist(), strict=True))
        expected = [reference(*row[:arity], info) for row in rows]
        assert out.tolist() == expected, name + form
    fields = [(0, 0), (0, info.bits), (info.bits - 1, 1), (info.bits, 0), (3, 4), (1, info.bits - 1), (0, 1)]
    for (offset, bits), form in itertools.product(fields, ("", "4")):
        out = aligned(np.zeros(count, dtype))
        library(f"extract_bits{form}", x, y, out, count // (4 if form else 1), offset, bits)
        assert out.tolist() == [extract(v, offset, bits, info) for v in x.tolist()], (offset, bits, form)
        library(f"insert_bits{form}", x, y, out, count // (4 if form else 1), offset, bits)
        pairs = zip(x.tolist(), y.tolist(), strict=True)
        assert out.tolist() == [insert(v, w, offset, bits, info) for v, w in pairs], (offset, bits, form)


def test_integer_operands_of_different_types() -> None:
    check_static(
        "min(5u, 16) == 5u && is_same_v<decltype(min(5u, 16)), uint>",
        "max(short(3), 7) == 7 && min(7ul, 3) == 3",
        "is_same_v<decltype(min(short(1), short(2))), short> && is_same_v<decltype(abs(char(1))), char>",
        "all(clamp(int4(-5, 3, 300, 9), 0, 255) == int4(0, 3, 255, 9))",
        "all(min(uchar2(9, 1), 4) == uchar2(4, 1)) && all(max(4, int2(9, 1)) == int2(9, 4))",
        "all(max3(int2(1, 2), 0, int2(5, 1)) == int2(5, 2))",
        "max(plain, 1) == 2 && metal::clamp(7, 0, 3) == 3",
        "all(min(packed_int3(1, 5, 9), 4) == int3(1, 4, 4))",
        "extract_bits(0xabcdu, 4, 8) == 0xbcu && extract_bits(short(0x0f80), 7, 5) == -1",
        "extract_bits(0xabcdu, 30, 8) == 0u",  # a field past the end is cut, never undefined
        "madsat(int2(1 << 30), 4, 5)[1] == 2147483647 && absdiff(-2147483647 - 1, 2147483647) == 4294967295u",
        before="enum Plain { plain = 2 };",
    )
    assert "no matching function" in error_of("(void)mul24(short(1), short(1));")
    assert "no matching function" in error_of("(void)min(int4(1), uint4(1));")


# ---- common, relational, geometric -----------------------------------------------------------------------------

COMMON = {
    "clamp": "clamp(x[i], min(y[i], z[i]), max(y[i], z[i]))",
    "saturate": "saturate(x[i])",
    "mix": "mix(x[i], y[i], z[i])",
    "sign": "sign(x[i])",
    "smoothstep": "smoothstep(min(y[i], z[i]), max(y[i], z[i]), x[i])",
    "step": "step(y[i], x[i])",
}


def common_reference(name: str, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Written with NumPy's fmin and fmax, and each operation rounded to the type."""
    one, zero, low, high = x.dtype.type(1), x.dtype.type(0), np.fmin(y, z), np.fmax(y, z)
    if name == "clamp":
        return np.fmin(np.fmax(x, low), high)
    if name == "saturate":
        return np.fmin(np.fmax(x, zero), one)
    if name == "mix":
        return x + (y - x) * z
    if name == "sign":
        return np.where(np.isnan(x), zero, np.where(x == 0, x, np.sign(x)))
    if name == "step":
        return np.where(x < y, zero, one)
    t = np.fmin(np.fmax((x - low) / (high - low), zero), one)
    return t * t * (x.dtype.type(3) - x.dtype.type(2) * t)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("type_", list(FLOATS))
def test_common_functions(type_: str) -> None:
    dtype = FLOATS[type_]
    names, source = [], ""
    for (name, called), form in itertools.product(COMMON.items(), ("", "4")):
        names.append(f"{name}{form}")
        t = f"{type_}{form}"
        body = f"(void)y; (void)z; for (long i = 0; i < n; ++i) o[i] = {called};"
        head = f"const {t}* x, const {t}* y, const {t}* z, {t}* o, long n"
        source += f'extern "C" void {name}{form}({head}) {{ {body} }}\n'
    library = run("#include <metal_math>\n" + source, names)
    rng = np.random.default_rng(5)
    x, y, z = (float_values(dtype, rng, 1024) for _ in "xyz")
    y[y == z] += 1
    for name, form in itertools.product(COMMON, ("", "4")):
        out = np.zeros(1024, dtype)
        library(name + form, x, y, z, out, 1024 // (4 if form else 1))
        expected = common_reference(name, x, y, z).astype(dtype)
        judged = ~(np.isnan(y) | np.isnan(z)) if name in ("clamp", "smoothstep") else np.ones(1024, bool)
        np.testing.assert_array_equal(out[judged], expected[judged], err_msg=name + form)
        zeros = judged & (x == 0) & (name == "sign")
        np.testing.assert_array_equal(np.signbit(out[zeros]), np.signbit(x[zeros]))


def test_common_functions_mix_scalars_and_vectors() -> None:
    check_static(
        "all(clamp(float4(-1, 0.25f, 2, 1), 0.0f, 1.0f) == float4(0, 0.25f, 1, 1))",
        "all(clamp(half3(-1, 2, 9), 0, 1) == half3(0, 1, 1))",
        "is_same_v<decltype(clamp(half(2), half(0), half(1))), half>",
        "clamp(2.5f, 0, 1) == 1.0f && is_same_v<decltype(clamp(half(2), 0.0f, 1.0f)), float>",
        "all(mix(float2(0, 10), float2(10, 20), 0.5f) == float2(5, 15)) && mix(0.0f, 8.0f, 0.25f) == 2.0f",
        "all(step(0.5f, float2(0.25f, 0.5f)) == float2(0, 1))",
        "all(smoothstep(0.0f, 1.0f, float2(0.5f, 2)) == float2(0.5f, 1))",
        "all(saturate(bfloat2(-3, 0.5f)) == bfloat2(0, 0.5f)) && sign(bfloat(-2)) == bfloat(-1)",
        "saturate(NAN) == 0.0f && clamp(NAN, 1.0f, 2.0f) == 1.0f && sign(NAN) == 0.0f",
        "fast::clamp(3.0f, 0.0f, 1.0f) == 1.0f && precise::saturate(3.0f) == 1.0f",
        "all(clamp(packed_float3(-1, 1, 3), 0, 2) == float3(0, 1, 2))",
    )


RELATIONAL = {"isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite", "signbit": "signbit"}


@pytest.mark.parametrize("flags", [(), ("-ffast-math", "-fno-finite-math-only")])
@pytest.mark.parametrize("type_", ["float", "half", "bfloat"])
def test_relational_functions(type_: str, flags: tuple[str, ...]) -> None:
    names, source = [], ""
    for name, form in itertools.product((*RELATIONAL, "isnormal"), ("", "4")):
        names.append(name + form)
        head = f"const {type_}{form}* x, bool{form}* o, long n"
        loop = f"for (long i = 0; i < n; ++i) o[i] = metal::{name}(x[i]);"
        source += f'extern "C" void {name}{form}({head}) {{ {loop} }}\n'
    library = run(source, names, ("-O2", *flags))
    dtype = reference_dtype(type_)
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    if type_ == "float":  # the same patterns as upper and lower halves of a float
        bits = torch.cat([bits.to(torch.int32) << 16, bits.to(torch.int32)])
    x = bits.view(dtype)
    tiny = torch.finfo(dtype).tiny
    expected = {name: getattr(torch, name)(x) for name in RELATIONAL}
    expected["isnormal"] = torch.isfinite(x) & (x.float().abs() >= tiny)
    for name, form in itertools.product(expected, ("", "4")):
        out = torch.zeros(len(x), dtype=torch.bool)
        library(name + form, Raw(x), Raw(out), len(x) // (4 if form else 1))
        assert torch.equal(out, expected[name]), name + form


def test_relational_functions_of_vectors() -> None:
    check_static(
        "all(bool3(true)) && !all(bool4(1, 1, 0, 1)) && any(bool4(0, 0, 1, 0))",
        "!any(bool2(false)) && all(true) && !any(false)",
        "all(isunordered(float2(NAN, 1), float2(1, 1)) == bool2(1, 0)) && isordered(1.0f, 2)",
        "!isordered(half(NAN), half(1))",
        "all(select(float4(1), float4(2), bool4(1, 0, 0, 1)) == float4(2, 1, 1, 2)) && select(1, 2, true) == 2",
        "all(select(int2(1), int2(2), false) == int2(1)) && all(select(float2(3), 0, bool2(0, 1)) == float2(3, 0))",
        "all(select(bool2(1), bool2(0), bool2(1, 0)) == bool2(0, 1)) && all(not(bool2(1, 0)) == bool2(0, 1))",
        "is_same_v<decltype(isnan(half3(1))), bool3> && is_same_v<decltype(isnan(1.0f)), bool>",
    )
    assert "no matching function" in error_of("(void)select(float4(1), float4(2), bool2(1));")


def test_geometric_functions() -> None:
    calls = {
        "dot": "float s = dot(x[i], y[i]); o[i] = s;",
        "cross": "o[i] = cross(x[i], y[i]);",
        "length": "o[i] = length(x[i]);",
        "length_squared": "o[i] = length_squared(x[i]);",
        "distance": "o[i] = distance(x[i], y[i]);",
        "distance_squared": "o[i] = distance_squared(x[i], y[i]);",
        "normalize": "o[i] = normalize(x[i]);",
        "reflect": "o[i] = reflect(x[i], y[i]);",
        "refract": "o[i] = refract(normalize(x[i]), normalize(y[i]), (decltype(x[i].x))0.75f);",
        "faceforward": "o[i] = faceforward(x[i], y[i], x[i].zxy);",
    }
    names, source = [], ""
    for (name, statement), t in itertools.product(calls.items(), ("float3", "half3", "bfloat3")):
        names.append(f"{name}_{t}")
        loop = f"(void)y; for (long i = 0; i < n; ++i) {{ {statement} }}"
        source += f'extern "C" void {name}_{t}(const {t}* x, const {t}* y, {t}* o, long n) {{ {loop} }}\n'
    library = run(source, names)
    generator = torch.Generator().manual_seed(11)
    for name, t in itertools.product(calls, ("float3", "half3", "bfloat3")):
        dtype = reference_dtype(t[:-1])
        x, y = (torch.randn(64, 4, generator=generator).to(dtype) for _ in "xy")
        out = torch.zeros(64, 4, dtype=dtype)
        library(f"{name}_{t}", Raw(x), Raw(y), Raw(out), 64)
        expected = geometric_reference(name, x[:, :3].double(), y[:, :3].double())
        # Relative to the size of what is summed: sums of products may cancel.
        eps = torch.finfo(dtype).eps
        scale = 1 + x.double().norm(dim=1, keepdim=True) * (1 + y.double().norm(dim=1, keepdim=True)) ** 2
        error = (out[:, :3].double() - expected).abs() / scale
        assert error.max() < 3 * eps, (name, t)


def geometric_reference(name: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    def dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a * b).sum(1, keepdim=True)

    def unit(a: torch.Tensor) -> torch.Tensor:
        return a / dot(a, a).sqrt()

    if name == "refract":
        i, n, eta = unit(x), unit(y), 0.75
        k = 1 - eta**2 * (1 - dot(n, i) ** 2)
        return eta * i - (eta * dot(n, i) + k.sqrt()) * n
    table: dict[str, Callable[[], torch.Tensor]] = {
        "dot": lambda: dot(x, y).expand(-1, 3),
        "cross": lambda: torch.linalg.cross(x, y),
        "length": lambda: dot(x, x).sqrt().expand(-1, 3),
        "length_squared": lambda: dot(x, x).expand(-1, 3),
        "distance": lambda: dot(x - y, x - y).sqrt().expand(-1, 3),
        "distance_squared": lambda: dot(x - y, x - y).expand(-1, 3),
        "normalize": lambda: unit(x),
        "reflect": lambda: x - 2 * dot(unit(y), x) * unit(y),
        "faceforward": lambda: torch.where(dot(x[:, [2, 0, 1]], y) < 0, x, -x),
    }
    return table[name]()


def test_geometric_edges() -> None:
    library = run(
        """extern "C" void f(const float* in, float* out) {
          const float2 v(in[0], in[1]);
          out[0] = length(v); out[1] = normalize(v).x; out[2] = fast::length(v * 0); out[3] = precise::distance(v, v);
          out[4] = refract(float2(1, 0), normalize(float2(-0.1f, 1)), 2.0f).x;
          out[5] = length(packed_float3(2, 3, 6)); out[6] = dot(half4(1, 2, 3, 4), half4(1));
        }""",
        ["f"],
    )
    out = np.zeros(7, np.float32)
    library("f", np.array([3e30, 4e30], np.float32), out)
    np.testing.assert_allclose(out, [5e30, 0.6, 0, 0, 0, 7, 10], rtol=1e-6)
    check_static(
        "dot(float4(1, 2, 3, 4), float4(1)) == 10.0f",
        "all(cross(half3(1, 0, 0), half3(0, 1, 0)) == half3(0, 0, 1))",
    )
    assert "no matching function" in error_of("(void)cross(float2(1), float2(1));")
    assert "no matching function" in error_of("(void)dot(int2(1), int2(1));")


# ---- limits, macros, traits, array -----------------------------------------------------------------------------


def test_numeric_limits() -> None:
    assertions = []
    for t, dtype in INTEGERS.items():
        info = np.iinfo(dtype)
        signed = info.min < 0
        limits = f"numeric_limits<{t}>"
        assertions += [f"{limits}::digits == {info.bits - signed}", f"{limits}::is_signed == {int(signed)}"]
        assertions += [f"{limits}::digits10 == {len(str(info.max)) - 1}", f"{limits}::is_integer"]
        assertions += [
            f"{limits}::max() == {info.max}u{'l' * (info.bits == 64)}",
            f"{limits}::lowest() == {limits}::min()",
        ]
        assertions += [
            f"{limits}::min() == {f'(-{info.max}l - 1)' if signed else 0}",
            f"is_same_v<decltype({limits}::max()), {t}>",
        ]
    for t in ("float", "half", "bfloat"):
        info = torch.finfo(reference_dtype(t))
        digits = 1 - round(math.log2(info.eps))
        top = math.frexp(info.max)[1]
        limits = f"numeric_limits<{t}>"
        for name, value in {
            "max": info.max,
            "lowest": info.min,
            "min": info.tiny,
            "epsilon": info.eps,
        }.items():
            assertions.append(f"{limits}::{name}() == {t}({float(value).hex()})")
        assertions += [
            f"{limits}::digits == {digits}",
            f"{limits}::max_exponent == {top}",
            f"{limits}::min_exponent == {3 - top}",
        ]
        assertions += [
            f"{limits}::denorm_min() == {t}({(info.tiny * info.eps).hex()})",
            f"{limits}::round_error() == {t}(0.5f)",
        ]
        assertions += [f"isinf({limits}::infinity()) && {limits}::infinity() > {limits}::max()"]
        assertions += [f"isnan({limits}::quiet_NaN()) && isnan({limits}::signaling_NaN())"]
        assertions += [f"{limits}::max_exponent10 == {int(math.log10(info.max))}"]
        assertions += [f"{limits}::min_exponent10 == {math.ceil(math.log10(info.tiny))}"]
        assertions += [f"{limits}::digits10 == {int((digits - 1) * math.log10(2))}"]
        assertions += [f"{limits}::max_digits10 == {math.ceil(1 + digits * math.log10(2))}"]
        assertions += [
            f"is_same_v<decltype({limits}::max()), {t}> && !{limits}::is_integer && {limits}::has_infinity"
        ]
    assertions += [
        "numeric_limits<bool>::max() && !numeric_limits<bool>::min() && numeric_limits<bool>::digits == 1"
    ]
    assertions += ["numeric_limits<const float>::max() == FLT_MAX && !numeric_limits<float4>::is_specialized"]
    check_static(*assertions)


def test_macros() -> None:
    e, pi = math.e, math.pi
    constants = {
        "E": e,
        "LOG2E": 1 / math.log(2),
        "LOG10E": 1 / math.log(10),
        "LN2": math.log(2),
        "LN10": math.log(10),
    }
    constants |= {"PI": pi, "PI_2": pi / 2, "PI_4": pi / 4, "1_PI": 1 / pi, "2_PI": 2 / pi}
    constants |= {"2_SQRTPI": 2 / math.sqrt(pi), "SQRT2": math.sqrt(2), "SQRT1_2": math.sqrt(0.5)}
    assertions = []
    for suffix, t in (("F", "float"), ("H", "half"), ("BF", "bfloat")):
        for name, value in constants.items():
            rounded = torch.tensor(value, dtype=torch.float64).to(reference_dtype(t)).item()
            assertions.append(
                f"M_{name}_{suffix} == {t}({rounded!r}) && is_same_v<decltype(M_{name}_{suffix}), {t}>"
            )
    for prefix, t in (("FLT", "float"), ("HALF", "half"), ("BFLT", "bfloat")):
        limits = f"numeric_limits<{t}>"
        for name, member in {"MAX": "max()", "MIN": "min()", "EPSILON": "epsilon()"}.items():
            assertions.append(
                f"{prefix}_{name} == {limits}::{member} && is_same_v<decltype({prefix}_{name}), {t}>"
            )
        for name, member in {
            "MANT_DIG": "digits",
            "MAX_EXP": "max_exponent",
            "MIN_EXP": "min_exponent",
        }.items():
            assertions.append(f"{prefix}_{name} == {limits}::{member} && {prefix}_RADIX == 2")
        assertions.append(
            f"{prefix}_MAX_10_EXP == {limits}::max_exponent10 && {prefix}_MIN_10_EXP == {limits}::min_exponent10"
        )
        assertions.append(f"{prefix}_DIG == {limits}::digits10")
    names = {"CHAR": "char", "SCHAR": "signed char", "UCHAR": "uchar", "SHRT": "short", "USHRT": "ushort"}
    for name, t in (names | {"INT": "int", "UINT": "uint", "LONG": "long", "ULONG": "ulong"}).items():
        assertions.append(f"{name}_MAX == numeric_limits<{t}>::max()")
        if name[0] != "U":
            assertions.append(f"{name}_MIN == numeric_limits<{t}>::min()")
    assertions += [
        "isinf(INFINITY) && isnan(NAN) && HUGE_VALF == INFINITY && MAXFLOAT == FLT_MAX && CHAR_BIT == 8"
    ]
    assertions += ["isinf(HUGE_VALH) && is_same_v<decltype(HUGE_VALH), half> && MAXHALF == HALF_MAX"]
    assertions += ["isinf(HUGE_VALBF) && is_same_v<decltype(HUGE_VALBF), bfloat> && MAXBFLOAT == BFLT_MAX"]
    assertions += ["__METAL_VERSION__ == 400 && defined_func() == 1"]
    check_static(*assertions, before="METAL_FUNC constexpr int defined_func() { return __METAL__; }\n")


def test_macros_header_declares_nothing() -> None:
    """It is read before anything is declared, and its macros are object-like."""
    text = (INCLUDE / "metalwright" / "macros.h").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("//")]
    assert all(line.startswith(("#define ", "#pragma once")) for line in lines)
    assert not [line for line in lines if line.startswith("#define") and "(" in line.split()[1]]


def test_type_traits() -> None:
    check_static(
        *(
            f"is_floating_point_v<{t}> && is_arithmetic<{t}>::value && !is_integral_v<{t}> && is_signed_v<{t}>"
            for t in ("half", "bfloat", "float")
        ),
        *(
            f"is_integral_v<{t}> && is_arithmetic_v<{t}> && !is_floating_point_v<{t}>"
            for t in ("bool", *INTEGERS)
        ),
        *(
            f"is_unsigned_v<{t}> == {int(t[0] == 'u')} && is_signed<{t}>::value == {int(t[0] != 'u')}"
            for t in INTEGERS
        ),
        *(
            f"is_same_v<make_unsigned_t<{t}>, u{t}> && is_same_v<make_signed_t<u{t}>, {t}>"
            for t in ("short", "int", "long")
        ),
        "is_floating_point_v<const half> && !is_floating_point_v<half4> && is_scalar_v<bfloat>",
        "is_same<int, int>::value && !is_same_v<int, uint> && is_same<int, int>()",
        "true_type::value && !false_type()",
        "is_same_v<remove_cv_t<const volatile int>, int> && is_same_v<typename remove_reference<int&&>::type, int>",
        "is_same_v<conditional_t<true, int, float>, int> && is_same_v<conditional<false, int, float>::type, float>",
        "is_same_v<enable_if_t<true, half>, half> && has_no_type<enable_if<false>>",
        "is_same_v<decay_t<const int(&)[3]>, const int*> && is_same_v<remove_pointer_t<float*>, float>",
        "is_same_v<common_type_t<int, float>, float> && is_same_v<common_type_t<char, short, long>, long>",
        "is_same_v<underlying_type_t<E>, ushort> && is_enum_v<E> && is_class_v<Empty>",
        "is_convertible_v<int, float> && !is_convertible_v<int*, float> && is_base_of_v<Empty, Derived>",
        "conjunction_v<is_integral<int>, is_signed<int>> && !conjunction_v<is_integral<half>, NoValue>",
        "disjunction_v<is_integral<int>, NoValue> && negation_v<is_integral<half>>",
        "is_pointer_v<int*> && is_reference_v<int&> && is_array_v<int[2]>",
        "extent_v<int[2][5], 1> == 5 && rank_v<int[2][5]> == 2",
        "is_same_v<invoke_result_t<int (*)(float), float>, int>",
        "is_invocable_v<int (*)(float), int> && alignment_of_v<float3> == 16",
        "integral_constant<int, 3>() == 3 && is_constructible_v<float3, float2, int> && swapped() == 21",
        before="""
        enum class E : ushort {}; struct Empty {}; struct Derived : Empty {}; struct NoValue;
        template <class T> concept has_no_type = !requires { typename T::type; };
        constexpr int swapped() { int a = 1, b = 2; swap(a, b); return metal::move(a) * 10 + metal::forward<int>(b); }
        """,
    )


def test_array() -> None:
    check_static(
        "a.size() == 3 && a[2] == 3 && a.front() == 1 && a.back() == 3 && *a.data() == 1 && a.end() - a.begin() == 3",
        "is_same_v<decltype(array{1.0f, 2.0f}), array<float, 2>>",
        "sizeof(array<half, 5>) == 10 && is_aggregate_v<array<int, 2>>",
        "a == array<int, 3>{1, 2, 3} && a != array<int, 3>{1, 2, 4}",
        "a < array<int, 3>{1, 3, 0} && a >= a && get<1>(a) == 2",
        "sum() == 27 && sizeof(array<float3, 2>) == 32",
        before="""
        constexpr array<int, 3> a = {1, 2, 3};
        constexpr int sum() {
          array<int, 4> b{}; b.fill(7); b[0] = 6; int s = 0; for (int x : b) s += x;
          return s;
        }""",
    )


# ---- compilation -----------------------------------------------------------------------------------------------

HEADER_NAMES = ("types", "type_traits", "limits", "array", "integer", "common", "relational", "geometric")


@pytest.mark.parametrize(
    "flags", [(), ("-ffast-math",), ("-Wshadow", "-Wconversion", "-Wno-sign-conversion")]
)
def test_headers_compile_alone_and_without_warnings(flags: tuple[str, ...]) -> None:
    for name in HEADER_NAMES:
        if name == "geometric" and "-Wshadow" in flags:
            continue  # it includes metal_math, which promises -Wall -Wextra
        compile_ir(f"#include <metal_{name}>\n", [*PARSE, *flags])


def test_a_precompiled_header_holds_them(tmp_path: Path) -> None:
    """Kernels are compiled against a precompiled header: the headers must survive the round trip."""
    (tmp_path / "all.h").write_text(HEADERS)
    flags = [f if f != "c++" else "c++-header" for f in FLAGS if f not in ("-S", "-emit-llvm")]
    made = [str(COMPILER), "clang", *flags, f"-I{INCLUDE}", "all.h", "-o", "all.pch"]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    kernel = 'extern "C" void k(float4* p, half4* h) { p->wzyx = max(float4(h->xxyy), 0.5f); h->xy *= half2(p->zw); }'
    ir = compile_ir(kernel, ["-include-pch", str(tmp_path / "all.pch")])
    assert ir.count("define") == 1  # everything inlined
