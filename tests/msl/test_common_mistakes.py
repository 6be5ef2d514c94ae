"""The mistakes that people make most: each message is in Metal's words, at the place, with what to do about it.

A ``¦`` stands before the place that the message must point at.
"""

from __future__ import annotations

import re

import pytest

from metalwright import compile_shader
from metalwright.errors import CompileError, Diagnostic
from tests.support import body, tensor

PARAMETERS = (
    tensor("float", 1, "x", 0),
    tensor("float", 1, "out", 1),
    "uint gid [[thread_position_in_grid]]",
)
HELPER = """float twice(float v) { return v + v; }
template <typename T> T larger(T a, T b) { return a > b ? a : b; }
struct Point { float a; int b; };
void fill(thread Point& p) { p.a = 1; }
"""
INTERNAL = re.compile(r"__|_Float16|enable_if|ext_vector|/metalwright|18446744073709551615|note:|candidate")


def message(src: str) -> Diagnostic:
    before, _, rest = src.partition("¦")
    with pytest.raises(CompileError) as caught:
        body(before + rest, *PARAMETERS, helper=HELPER)
    first = caught.value.diagnostics[0]
    assert first.site is not None, str(caught.value)
    column = len(before) - (before.rfind("\n") + 1) + 1
    assert (first.site.file, first.site.line, first.site.column) == (
        "k.src",
        before.count("\n") + 1,
        column,
    ), str(caught.value)
    assert not INTERNAL.search(str(caught.value)), str(caught.value)
    assert "\n" not in first.message
    return first


@pytest.mark.parametrize(
    ("src", "said"),
    [
        ("out[gid] = ¦xx[gid];", "use of undeclared identifier 'xx'"),
        ("float total = 0; ¦totl += 1;", "use of undeclared identifier 'totl': did you mean 'total'?"),
        ("out[gid] = ¦sqroot(2.0f);", "use of undeclared identifier 'sqroot': did you mean 'sqrt'?"),
        ("out[gid] = ¦powf(2.0f, 1.0f);", "use of undeclared identifier 'powf': Metal has 'pow' for every type"),
        ("out[gid] = ¦std::max(1, 2);", "the C++ standard library does not exist in Metal"),
        ('¦printf("x");', "write to the log with os_log_default.log("),
        ("¦flaot y = 1;", "unknown type name 'flaot': did you mean 'float'?"),
        ("¦Foo y;", "unknown type name 'Foo'"),
        ("out[gid] = metal::¦foo(1);", "no member named 'foo' in namespace 'metal'"),
        ("threadgroup_barrier(mem_flags::¦mem_all);", "no member named 'mem_all' in 'mem_flags'"),
        ("out[gid] = x[gid]¦\nfloat y = 1;", "expected ';' after expression"),
        ("¦while (true) { out[gid] = 1;".replace("¦while (true) {", "while (true) ¦{"), "'{' is never closed"),
        ("out[gid] = (x[gid] + 1¦;", "expected ')'"),
        ("for (uint i = 0; i < 3, ++i¦) { }", "expected ';' in 'for' statement specifier"),
        ("while ¦gid { }", "expected '(' after 'while'"),
        ("float ¦3v = 1;", "expected unqualified-id"),
        ("out[gid] = ¦twice(1, 2);", "no matching function for call to 'twice': it takes 1 argument, got 2"),
        ("out[gid] = ¦twice();", "no matching function for call to 'twice': it takes 1 argument, got 0"),
        ("out[gid] = ¦clamp(x[gid], 0);", "no matching function for call to 'clamp': it takes 3 arguments, got 2"),
        ("out[gid] = ¦fma(1.0f, 2.0f);", "no matching function for call to 'fma': it takes 3 arguments, got 2"),
        ("out[gid] = ¦max(1, 2.0f, 3);", "no matching function for call to 'max': it takes 2 arguments, got 3"),
        ("out[gid] = ¦dot(float3(1), float4(1));", "no 'dot' takes arguments of these types"),
        ("out[gid] = ¦cross(float2(1), float2(2)).x;", "no 'cross' takes arguments of these types"),
        ("out[gid] = ¦larger(1, 2.0f);", "the arguments must have one type, got 'int' and 'float'"),
        ("int n = 1; ¦fill(n);", "no matching function for call to 'fill': argument 1 must be 'Point &', got 'int'"),
        ("¦threadgroup_barrier();", "it takes 1 argument or 2 arguments, got 0"),
        ("¦simd_shuffle(1.0f);", "it takes 2 arguments, got 1"),
        ("float4 v = 1; out[gid] = v.¦q;", "no member named 'q' in 'float4'"),
        ("float2 v = 1; out[gid] = v.¦z;", "no member named 'z' in 'float2'"),
        ("float4 v = 1; v.¦xx = float2(1);", "a component that 'xx' names twice cannot be written"),
        ("Point p; out[gid] = p.¦c;", "no member named 'c' in 'Point'"),
        ("out[gid] = x.¦size();", "no member named 'size' in 'tensor<float, dextents<int, 1>"),
        ("float4 v = 1; out[gid] = ¦v;", "assigning to 'float' from incompatible type 'float4'"),
        ("float4 a = 1; int4 ¦b = a;", "Metal converts vectors only where it is asked to, as in int4(v)"),
        ("float2 a = 1; float3 ¦b = a;", "a float2 has 2 components, a float3 has 3"),
        ("float4 a = 1; int4 b = 1; a = a ¦* b;", "the vectors of '*' differ in element type or length"),
        ("half h = 1; bfloat ¦b = h;", "cannot initialize a variable of type 'bfloat' with an lvalue of type 'half'"),
        ("float3 v = ¦float3(1, 2);", "no matching constructor for initialization of 'float3'"),
        ("if (¦float4(1) < float4(2)) { }", "value of type 'bool4' is not contextually convertible to 'bool'"),
        ("const float k = 1; k ¦= 2;", "cannot assign to variable 'k' with const-qualified type 'const float'"),
        ("¦return 1;", "void function 'k' should not return a value"),
        ("out[gid] = ¦as_type<float>(1.0h);", "as_type needs two types of the same size"),
        ("auto ¦v;", "declaration of variable 'v' with deduced type 'auto' requires an initializer"),
        ("int a[2] = {1, 2, ¦3};", "excess elements in array initializer"),
    ],
)  # fmt: skip
def test_what_is_said(src: str, said: str) -> None:
    assert said in message(src).message


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("kernel void k(device float* o) { o[0] = clamp(o[0], 0.0f, 1.0f); }", "clamp"),
        ("kernel void k(device atomic_uint* o) { }", "atomic_uint"),
        ("kernel void k(device float* o) { threadgroup_barrier(mem_flags::mem_none); }", "mem_flags"),
        ("kernel void k(device float* o) { vec<float, 4> v = 1; o[0] = v.x; }", "vec"),
    ],
)
def test_a_missing_using_namespace(text: str, name: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_shader("#include <metal_stdlib>\n" + text)
    assert f"it is in namespace metal: write 'metal::{name}', or 'using namespace metal;' first" in str(
        caught.value
    )
