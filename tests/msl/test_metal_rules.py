"""What Metal's compiler refuses is refused here too, where it stands; what it takes is never refused.

The rules are those of the Metal Shading Language specification ("Address Spaces", "Function and Variable
Declarations", "C++ Feature Restrictions"). A ``¦`` in a case stands before the place that the message must point at.
"""

from __future__ import annotations

import pytest

from metalwright.errors import CompileError, RefusedSourceError
from tests.msl._refused import refused
from tests.support import whole

HELPERS = """
struct Pair { float a, b; };
void put(device float* p, uint i) { p[i] = 1; }
void set(thread float& v) { v = 2; }
float sum(threadgroup float* p, uint n = 4) { float s = 0; for (uint i = 0; i < n; ++i) s += p[i]; return s; }
template <typename T> T first(device const T* p) { return p[0]; }
constant float table[3] = {1, 2, 3};
"""
HEAD = """kernel void k(device float* x [[buffer(0)]], constant float* c [[buffer(1)]], device float* out [[buffer(2)]],
  constant float& scale [[buffer(3)]], threadgroup float* given [[threadgroup(0)]],
  uint gid [[thread_position_in_grid]], uint tid [[thread_position_in_threadgroup]]) {
  threadgroup float tile[32];
  threadgroup float total;
  float local[4] = {};
  float v = 0;
"""


def in_kernel(statements: str) -> str:
    return HELPERS + HEAD + statements + "\n}\n"


@pytest.mark.parametrize(
    ("statement", "given", "wanted"),
    [
        ("put(¦tile, gid);", "threadgroup", "device"),
        ("put(¦given, gid);", "threadgroup", "device"),
        ("put(¦tile + 4, gid);", "threadgroup", "device"),
        ("put(¦tile + tid * 2, gid);", "threadgroup", "device"),
        ("put(¦&tile[tid], gid);", "threadgroup", "device"),
        ("put(¦(tile + 1), gid);", "threadgroup", "device"),
        ("put(¦&total, 0);", "threadgroup", "device"),
        ("put(¦local, gid);", "thread", "device"),
        ("put(¦&v, gid);", "thread", "device"),
        ("put(¦c, gid);", "constant", "device"),
        ("put(¦&scale, gid);", "constant", "device"),
        ("put(¦table, gid);", "constant", "device"),
        ("if (gid > 3) put(¦tile, gid);", "threadgroup", "device"),
        ("if (gid > 3) { v = 1; } else put(¦tile, gid);", "threadgroup", "device"),
        ("for (uint i = 0; i < 4; ++i) put(¦tile, i);", "threadgroup", "device"),
        ("for (uint i = 0; i < 4; ++i) { put(¦tile, i); }", "threadgroup", "device"),
        ("for (uint i = 0; i < 2; ++i) for (uint j = 0; j < 2; ++j) put(¦tile, j);", "threadgroup", "device"),
        ("out[gid] = sum(¦x, 3);", "device", "threadgroup"),
        ("out[gid] = 2 * sum(¦x) + 1;", "device", "threadgroup"),
        ("out[gid] = sum(¦local);", "thread", "threadgroup"),
        ("out[gid] = first(¦tile);", "threadgroup", "device"),
        ("out[gid] = first<float>(¦tile);", "threadgroup", "device"),
        ("set(¦tile[tid]);", "threadgroup", "thread"),
        ("set(¦x[gid]);", "device", "thread"),
        ("set(¦*out);", "device", "thread"),
        ("set(¦total);", "threadgroup", "thread"),
    ],
)
def test_arguments_in_another_address_space(statement: str, given: str, wanted: str) -> None:
    message = refused(in_kernel(statement))
    assert message.startswith("argument 1 of ")
    assert f"must be a {wanted} " in message
    assert f"got {'a ' if 'pointer and' in message else ''}{given} " in message
    assert message.endswith("Metal has no conversion between address spaces")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("device float* p = ¦tile;", "'p' is a device pointer and cannot be set to a threadgroup pointer"),
        (
            "device float* p = x; p = ¦tile + 1;",
            "'p' is a device pointer and cannot be set to a threadgroup pointer",
        ),
        (
            "float threadgroup* p = tile; p = ¦&x[3];",
            "'p' is a threadgroup pointer and cannot be set to a device pointer",
        ),
        ("const device float* p = ¦c;", "'p' is a device pointer and cannot be set to a constant pointer"),
        ("constant float* p = ¦x;", "'p' is a constant pointer and cannot be set to a device pointer"),
        ("thread float* p = ¦tile;", "'p' is a thread pointer and cannot be set to a threadgroup pointer"),
        (
            "thread float* p = local; { p = ¦x; }",
            "'p' is a thread pointer and cannot be set to a device pointer",
        ),
        (
            "for (device float* p = ¦tile; p; ++p) { }",
            "'p' is a device pointer and cannot be set to a threadgroup",
        ),
        (
            "device float& r = ¦tile[0];",
            "'r' is a device reference and cannot be bound to threadgroup memory",
        ),
        ("thread float& r = ¦x[gid];", "'r' is a thread reference and cannot be bound to device memory"),
        (
            "threadgroup float* p = (threadgroup float*)¦x;",
            "a device pointer cannot be cast to a threadgroup pointer",
        ),
        ("device uint* p = (device uint*)¦tile;", "a threadgroup pointer cannot be cast to a device pointer"),
        (
            "device uint* p = (device uint*)¦&tile[3];",
            "a threadgroup pointer cannot be cast to a device pointer",
        ),
        (
            "device uint* p = (device uint*)¦(tile + 3) + 1;",
            "a threadgroup pointer cannot be cast to a device pointer",
        ),
        (
            "device uint* p = reinterpret_cast<device uint*>(¦tile);",
            "a threadgroup pointer cannot be cast to a device",
        ),
        (
            "device float* p = static_cast<device float*>(¦tile);",
            "a threadgroup pointer cannot be cast to a device",
        ),
        (
            "atomic_fetch_add_explicit((device atomic_uint*)¦tile, 1u, memory_order_relaxed);",
            "a threadgroup pointer cannot be cast to a device pointer",
        ),
    ],
)
def test_pointers_do_not_change_their_address_space(statement: str, message: str) -> None:
    said = refused(in_kernel(statement))
    assert said.startswith(message)
    assert said.endswith("Metal has no conversion between address spaces")


def test_a_pointer_that_is_returned() -> None:
    text = "device float* f(threadgroup float* p, device float* q) {\n  if (q) return ¦p + 1;\n  return q;\n}"
    assert refused(text).startswith("the function returns a device pointer and this is a threadgroup pointer")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (in_kernel("float ¦* p = x;"), "pointer needs an address space in Metal: write 'thread float* p'"),
        (in_kernel("const float¦* p = x;"), "write 'thread float* p'"),
        (in_kernel("uint4 ¦*p = 0;"), "write 'thread uint4* p'"),
        (in_kernel("float ¦& r = v;"), "reference needs an address space in Metal: write 'thread float& r'"),
        (in_kernel("const float¦& r = v;"), "write 'thread float& r'"),
        (in_kernel("Pair pair = {}; Pair¦* p = &pair;"), "write 'thread Pair* p'"),
        (in_kernel("Pair pair = {}; Pair¦& p = pair;"), "write 'thread Pair& p'"),
        (in_kernel("device float* p = (float¦*)x;"), "write 'thread float*'"),
        ("void f(float¦* p) { }", "write 'thread float* p'"),
        ("void f(uint n, const metal::float4¦& v) { }", "write 'thread float4& v'"),
        ("struct S { int a; };\nvoid f(thread S& a, S ¦& b) { }", "write 'thread S& b'"),
        ("struct S { float¦* p; };", "write 'thread float* p'"),
        ("struct S { int a; S operator+(const S¦& other) const { return other; } };", "write 'thread S& other'"),
        ("template <typename T> void f(device T* p, float¦* q) { }", "write 'thread float* q'"),
        ("float¦* f() { return 0; }", "write 'thread float* f'"),
        ("void f(unsigned int ¦* p) { }", "write 'thread int* p'"),
        ("kernel void k(float¦* p [[buffer(0)]]) { }", "write 'thread float* p'"),
        ("using P = float¦*;", "write 'thread float*'"),
        ("typedef const float ¦* P;", "write 'thread float* P'"),
        ("struct S { int a; };\ntypedef const S¦* P;", "write 'thread S* P'"),
        ("struct S { int a; };\nusing P = S¦*;", "write 'thread S*'"),
        ("struct S { int a; };\nS¦& f(thread S& s) { return s; }", "write 'thread S& f'"),
        ("struct S { int a; };\nvoid f(S¦*, int);", "write 'thread S*'"),
        ("struct S { int a; };\nvoid f(S¦* = nullptr);", "write 'thread S*'"),
        ("struct S { int a; };\nvoid f(S const¦& s) { }", "write 'thread S& s'"),
        ("struct S { int a; };\nstruct T { S¦& r; };", "write 'thread S& r'"),
        ("struct S { int a; };\nvoid f(device S* s) { auto p = (const S¦*)s; }", "write 'thread S*'"),
        ("struct S { int a; };\nvoid f(device S* s) { for (S¦* p = s; p; ++p) { } }", "write 'thread S* p'"),
        ("enum class Mode { a };\nvoid f(Mode¦& m) { }", "write 'thread Mode& m'"),
        ("template <typename T, int N> struct Row { T v[N]; };\nvoid f(const Row<float, 4>¦& r) { }", "write 'thread Row& r'"),
        ("void f(float const¦* p) { }", "write 'thread float* p'"),
        ("void f(metal::vec<float, 4>¦& v) { }", "write 'thread vec& v'"),
        ("void f(metal::array<int, 4>¦& v) { }", "write 'thread array& v'"),
        ("void f(const float (¦&a)[4]) { }", "write 'thread float& a'"),
        ("void f() { float (¦*p)[4] = 0; }", "write 'thread float* p'"),
        ("void f(float¦&& v) { }", "a reference needs an address space in Metal: write 'thread float&& v'"),
        ("void f() { auto g = [](float¦* p) { }; }", "write 'thread float* p'"),
        ("void f() { auto g = []() -> float¦* { return 0; }; }", "write 'thread float*'"),
        ("struct S { operator float¦*() const { return 0; } };", "write 'thread float*'"),
        ("void f(device uint* x) { auto p = reinterpret_cast<float¦*>(x); }", "write 'thread float*'"),
        ("void f(device int* x) { auto p = static_cast<const int¦*>(x); }", "write 'thread int*'"),
    ],
)  # fmt: skip
def test_pointers_and_references_name_their_address_space(text: str, written: str) -> None:
    assert written in refused(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("const float ¦K = 2;", "program-scope variable 'K' must be in the constant address space: write 'constant float K'"),
        ("static constexpr int ¦K = 2;", "write 'constant int K'"),
        ("int ¦counter;", "write 'constant int counter'"),
        ("namespace { float4 ¦v; }", "write 'constant float4 v'"),
        ("thread float ¦v;", "must be in the constant address space"),
        ("device float ¦v[4];", "must be in the constant address space"),
        ("struct S { int a; };\nS ¦s;", "write 'constant S s'"),
        ("¦threadgroup float t[4];", "a threadgroup variable can only stand in a kernel's body"),
        ("void f() { threadgroup float ¦t[4]; }", "threadgroup variable 't' can only be declared in a kernel's body"),
        ("void f() { if (true) { threadgroup float ¦t; } }", "threadgroup variable 't' can only be declared in a kernel's"),
        ("void f() { ¦static int n = 0; }", "a variable in a function cannot be static in Metal: 'n'"),
        ("void f() { const ¦static float n = 0; }", "a variable in a function cannot be static in Metal: 'n'"),
        ("void f() { device float ¦v = 0; }", "a variable in a function cannot be in device memory: write 'float v'"),
        ("struct P { int a; };\nint f(int n) { threadgroup P ¦t[4]; return n; }", "threadgroup variable 't' can only be"),
        ("template <typename T> T f(T n) { threadgroup T ¦t; return n; }", "threadgroup variable 't' can only be"),
        ("struct S { int f() { threadgroup int ¦t[2]; return 1; } };", "threadgroup variable 't' can only be"),
        ("struct S { threadgroup int ¦t[4]; };", "member 't' cannot be in threadgroup memory: it lies where its struct does"),
        ("struct S { int a; device float ¦b; };", "member 'b' cannot be in device memory"),
        ("float f(float v) { return v + ¦1.5L; }", "'long double' does not exist in Metal: write 1.5"),
        ("float f(float v) { return v + ¦1e3l; }", "'long double' does not exist in Metal: write 1e3"),
        ("float f(float v) { return v + ¦0x1.8p3L; }", "'long double' does not exist in Metal: write 0x1.8p3"),
        ("int f(¦auto v) { return v; }", "a parameter cannot be 'auto' in Metal, which is C++17"),
        ("int f(int a, const thread ¦auto& v) { return a; }", "a parameter cannot be 'auto' in Metal"),
        ("bool f(int a, int b) { return (a ¦<=> b) < 0; }", "'<=>' does not exist in Metal: it is C++17"),
        ("int g(int n) { return n; }\nconstant int ¦v = g(3);\nkernel void k(device int* p) { p[0] = v; }", "the value of program-scope variable 'v' is not known"),
        ("constant float a = 1, ¦v = metal::sin(a);\nkernel void k(device float* p) { p[0] = v; }", "program-scope variable 'v'"),
        ("float g(float n) { return n; }\nnamespace n {\nconstant float ¦v[2] = {g(1), 2};\n}\nkernel void k(device float* p) { p[0] = n::v[1]; }", "program-scope variable 'v'"),
        ("struct A { int a; };\nstruct B ¦: A { int b; };", "derived classes do not exist in Metal"),
        ("class A { };\nclass B ¦: public A { };", "derived classes do not exist in Metal"),
        ("kernel void k(device int* x) { auto f = [&](int n) { threadgroup int ¦g; g = n; return g; }; x[0] = f(1); }", "threadgroup variable 'g' can only be"),
        ("kernel void k(device int* x) { x[0] = [] { if (true) { threadgroup int ¦g[4]; g[0] = 1; } return 1; }(); }", "threadgroup variable 'g' can only be"),
        ("kernel void k(device int* x) { auto f = [=](auto n) -> int { threadgroup int ¦g; g = n; return g; }; x[0] = f(1); }", "threadgroup variable 'g' can only be"),
        ("int ¦main() { return 0; }", "a function cannot be called 'main' in Metal"),
        ("void f(¦double v) { }", "'double' does not exist in Metal: use float"),
        ("¦double f() { return 1; }", "'double' does not exist in Metal"),
        ("void f() { ¦register int n = 0; }", "'register' does not exist in Metal"),
        ("¦thread_local int n;", "'thread_local' does not exist in Metal"),
        ("struct A { ¦virtual void f() { } };", "virtual functions do not exist in Metal"),
        ("void f() { ¦throw 1; }", "exceptions do not exist in Metal"),
        ("void f() { ¦try { } catch (...) { } }", "exceptions do not exist in Metal"),
        ("void f() { thread int* p = ¦new int; }", "'new' does not exist in Metal"),
        ("void f(thread int* p) { ¦delete p; }", "'delete' does not exist in Metal"),
        ("void f() { ¦goto end; end:; }", "'goto' does not exist in Metal"),
        ("void f(thread int* p) { ¦dynamic_cast<thread int*>(p); }", "'dynamic_cast' does not exist in Metal"),
        ("void f() { ¦typeid(int); }", "'typeid' does not exist in Metal"),
        ("template <typename T> ¦concept C = true;", "concepts do not exist in Metal: it is C++17"),
        ("template <typename T> ¦requires true void f(T) { }", "concepts do not exist in Metal"),
        ("¦consteval int f() { return 1; }", "'consteval' does not exist in Metal"),
        ("void f(int n) {\n  ¦long long v = n;\n}", "'long long' does not exist in Metal: use long"),
        ("void f(¦unsigned long long v) { }", "'long long' does not exist in Metal: use long"),
        (
            "kernel void a(device int* p) { }\nkernel void b(device int* p) { ¦a(p); }",
            "'a' is a kernel and cannot be called",
        ),
        ("kernel void a(device int* p) { }\nvoid f(device int* p) { ¦a(p); }", "'a' is a kernel and cannot be called"),
    ],
)  # fmt: skip
def test_declarations_that_metal_does_not_take(text: str, message: str) -> None:
    assert message in refused(text)


@pytest.mark.parametrize(
    ("types", "declaration"),
    [
        ("struct S { int a = 3; };", "int q = 1; threadgroup S ¦g;"),
        ("struct S { int a = 3; };", "threadgroup int n, m[2]; threadgroup float e; threadgroup S ¦g[2];"),
        ("struct S { int a = 3; };\nstruct T { int b; S s[2]; };", "threadgroup T ¦g[2][3];"),
        ("struct S { int a; S() : a(7) { } };", "if (true) {\n  threadgroup S ¦g;\n}"),
        ("struct S { int a; S(int b) : a(b) { } };", "threadgroup S ¦g;"),
        ("template <typename T> struct S { T a = 1; };", "threadgroup S<int> ¦g[4];"),
        ("union S { int a = 1; float b; };", "threadgroup S ¦g;"),
    ],
)
def test_threadgroup_variables_whose_type_has_an_initial_value(types: str, declaration: str) -> None:
    message = refused(f"{types}\nkernel void k(device int* x) {{ {declaration} }}")
    assert message == "threadgroup variable 'g' cannot have an initial value in Metal: its type has one"


def test_threadgroup_variables_whose_type_has_none() -> None:
    text = """
    enum Mode { first, second };
    union Either { int a; float4 b; };
    struct Plain { int a; float3 b; half4 c; packed_float3 d; float2x2 e; metal::array<float4, 3> f; simdgroup_float8x8 g; };
    struct Defaulted { int a; Defaulted() = default; Defaulted(int b) : a(b) { } };
    struct Placed {
      float a;
      constexpr Placed(float b) thread : a(b) { }
      constexpr Placed() thread : a(0) { }
      constexpr Placed() threadgroup : a(0) { }
    };
    template <typename T> kernel void t(device T* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
      threadgroup T v[64]; v[i] = x[i]; x[63 - i] = v[i];
    }
    template [[host_name("k")]] kernel void t<Placed>(device Placed* x [[buffer(0)]], uint i [[thread_position_in_grid]]);
    kernel void m(device int* x) {
      threadgroup Mode mode; threadgroup Either either[2]; threadgroup Plain plain; threadgroup Defaulted d[4];
      threadgroup atomic_int a; threadgroup atomic_uint b[3]; threadgroup atomic_float c; threadgroup atomic<uint> e;
      threadgroup simdgroup_half8x8 f; threadgroup metal::array<atomic_int, 4> g; threadgroup float4x4 h[2];
      threadgroup bfloat4 n[3]; threadgroup vec<float, 4> o; threadgroup packed_half4 p[2]; threadgroup float* q[3];
      x[0] = 1;
    }
    """
    whole(text, "k")


@pytest.mark.parametrize(
    "text",
    [
        "namespace a { kernel void k(device int* x) { } }\nnamespace b { kernel void ¦k(device int* x) { } }",
        "kernel void k(device int* x) { }\nnamespace b { kernel void ¦k(device int* x) { } }",
        'kernel void k(device int* x) { }\n[[host_name("k")]] kernel void ¦other(device int* x) { }',
        "template <typename T> kernel void t(device T* x) { }\nkernel void k(device int* x) { }\n"
        'template [[host_name("k")]] kernel void ¦t<int>(device int* x);',
    ],
)
def test_two_kernels_of_one_name(text: str) -> None:
    assert refused(text).startswith("there are two kernels called 'k': give this one another name")


def test_two_kernels_of_one_name_with_host_names() -> None:
    kernel = "kernel void k(device int* x) { x[0] = 1; }"
    text = f'kernel void k(device int* x);\n{kernel}\nnamespace b {{ [[host_name("other")]] {kernel} }}'
    whole(text, "other")
    whole(text, "k")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel int ¦k(device int* a) { return 1; }", "kernel 'k' must return void"),
        ("struct S { kernel void ¦k(device int* p) { } };", "kernel 'k' must stand outside functions and structs"),
        ("kernel void k(device int* ¦x [[buffer]]) { }", "[[buffer]] of parameter 'x' needs a number: [[buffer(0)]]"),
        ("constant int a [[function_constant(0)]] ¦= 3;", "function constant 'a' cannot have an initial value"),
        ("kernel void k(device int* x [[buffer(0), function_constant(¦c)]]) { }", "use of undeclared identifier 'c'"),
        ("kernel void k(device int* a [[buffer(0)]], device int* b [[¦buffer(0)]]) { }", "already taken by 'a'"),
        ("kernel void k(threadgroup int* a [[threadgroup(1)]], threadgroup int* b [[¦threadgroup(1)]]) { }", "already"),
        ("kernel void k(device int* a [[¦buffer(31)]]) { }", "[[buffer(31)]] is out of range: Metal has buffers 0 to 30"),
        ("kernel void k(threadgroup int* a [[¦threadgroup(31)]]) { }", "Metal has threadgroups 0 to 30"),
        ("kernel void k(thread int* ¦a [[buffer(0)]]) { }", "a buffer is in device or constant memory"),
        ("kernel void k(threadgroup int* ¦a [[buffer(0)]]) { }", "a buffer is in device or constant memory"),
        ("kernel void k(device int* ¦a [[threadgroup(0)]]) { }", "[[threadgroup(n)]] is threadgroup memory"),
        ("kernel void k(float ¦a [[buffer(0)]]) { }", "must be a pointer, a reference or a tensor: write 'constant float& a'"),
        ("kernel void k(uint ¦gid) { }", "parameter 'gid' of a kernel needs an attribute"),
        ("kernel void k(int gid [[¦thread_position_in_grid]]) { }", "is a ushort or a uint, or a vector"),
        ("kernel void k(float2 gid [[¦thread_position_in_grid]]) { }", "is a ushort or a uint, or a vector"),
        ("kernel void k(uint2 i [[¦thread_index_in_simdgroup]]) { }", "is a ushort or a uint, not a uint2"),
        (
            "kernel void k(constant uint& ¦gid [[thread_position_in_grid]]) { }",
            "[[thread_position_in_grid]] is passed by value: write 'uint gid'",
        ),
        ("template <typename T> [[kernel]] void k(T ¦gid) { }", "parameter 'gid' of a kernel needs an attribute"),
    ],
)  # fmt: skip
def test_kernel_parameters(text: str, message: str) -> None:
    assert message in refused(text)


def test_the_first_mistake_comes_first() -> None:
    with pytest.raises(CompileError) as caught:
        whole(in_kernel("float* p = x;\ndevice float* q = tile;\ndouble d = 1;"))
    sites = [d.site.line for d in caught.value.diagnostics if d.site]
    assert sites == sorted(sites)
    assert len(sites) == 3


@pytest.mark.parametrize(
    "statements",
    [
        "put(x, gid); put(x + gid, 0); put(&x[gid], 0); put(out, gid);",
        "out[gid] = sum(tile) + sum(tile + 1, 2) + sum(&tile[2], 3) + sum(given);",
        "set(v); set(local[2]); thread float& r = v; set(r);",
        "out[gid] = first(x) + first<float>(out);",
        "auto p = tile; auto q = x; out[gid] = p[0] + q[0];",
        "device auto* p = x; thread auto& r = v; out[gid] = p[0] + r;",
        # names in inner scopes hide those outside
        "{ device float* tile = x; put(tile, gid); } out[gid] = sum(tile);",
        "for (device float* tile = x; tile < x + 1; ++tile) put(tile, 0);",
        "auto f = [&](device float* tile) { put(tile, 0); }; f(x);",
        "auto f = [](float tile, thread float& given) { given = tile; }; f(1, v);",
        "auto f = [=](auto tile) { put(tile, 0); }; f(x);",
        "{ auto [tile, other] = Pair{1, 2}; set(tile); out[gid] = other; }",
        "{ thread float (&given)[4] = local; set(given[0]); }",
        "{ decltype(x) tile = x; put(tile, gid); }",
        "struct Inner { device float* tile; }; Inner inner = {x}; put(inner.tile, gid);",
        # what comes out of an expression is not what goes in
        "long n = x - out; device float* p = x + (x - out); out[gid] = n + p[0];",
        "device float* p = gid > 2 ? x : out; p = p + 1; put(p, 0);",
        "device float* p = x + uint(tile[0]); put(p, uint(c[1]));",
        "device float* p = &x[uint(tile[tid])]; p[0] = local[uint(v)];",
        "threadgroup float4* p = (threadgroup float4*)tile; device uint* q = (device uint*)(x + 1); q[0] = p[0].x;",
        "device atomic_uint* p = reinterpret_cast<device atomic_uint*>(x); atomic_fetch_add_explicit(p, 1u, memory_order_relaxed);",
        "atomic_fetch_add_explicit((threadgroup atomic_uint*)&tile[0], 1u, memory_order_relaxed);",
        "ulong address = (ulong)x; uint bits = as_type<uint>(tile[0]); out[gid] = float(address) + bits;",
        "float a = 2, b = 3; out[gid] = a * b; uint s = 1, t = 2; out[gid] = float(s & t) + float(s * t);",
        "Pair pair = {1, 2}; thread Pair* p = &pair; out[gid] = p->a + (*p).b;",
        "constexpr float k[2] = {1, 2}; out[gid] = k[gid & 1];",
        "static constant float k[2] = {1, 2}; out[gid] = k[gid & 1];",
        "threadgroup float* rows[2] = {tile, tile + 8}; out[gid] = rows[1][0];",
        "thread float* p = &local[0]; device const float* q = &x[0]; p[0] = q[0]; const thread float* r = p; v = r[0];",
        "const thread float& r = x[gid] + 1; out[gid] = r;",
        "switch (gid) { case 0: put(x, 0); break; default: out[gid] = sum(tile); }",
        "do { device float* p = x; p = out; } while (false);",
        "if (device float* p = x; p) put(p, 0);",
    ],
)
def test_valid_statements_are_taken(statements: str) -> None:
    whole(in_kernel(statements))


@pytest.mark.parametrize(
    "text",
    [
        "template <typename T> void f(T p) { *p = 1; }\nkernel void k(device float* x) { f(x); thread float v[2]; f(v); }",
        "template <typename P> struct S { P p; };\nkernel void k(device float* x) { S<device float*> s = {x}; s.p[0] = 1; }",
        "using Out = device float*;\nkernel void k(device float* x) { Out p = x; p[0] = 1; }",
        "typedef device float* Out;\nkernel void k(Out x [[buffer(0)]]) { x[0] = 1; }",
        "typedef device float Cell;\nkernel void k(Cell* x [[buffer(0)]]) { Cell* p = x; p[0] = 1; }",
        "constant float K = 2;\nstatic constant constexpr int N = 3;\nconstexpr constant uint M[2] = {1, 2};\n"
        "kernel void k(device float* x) { x[0] = K * N + M[1]; }",
        "template <typename T> constexpr constant bool is_it = false;\nkernel void k(device float* x) { x[0] = is_it<int>; }",
        "struct S { static constexpr constant int n = 4; int a : 3; int b : 5; };\nkernel void k(device float* x) { x[0] = S::n; }",
        "kernel void k(device float* x) { auto f = [](auto a) { return a; }; x[0] = f(1.5f) + 1ul + 2l + 0xelu + 1.; }",
        "struct S { float v; S(float a) : v(a) { } S(thread const S& o) : v{o.v} { } float get() const thread { return v; } };\n"
        "kernel void k(device float* x) { S s(2); x[0] = s.get(); }",
        "union U { uint i; float f; };\nkernel void k(device float* x) { U u; u.i = 5; x[0] = u.f; }",
        "enum class E : uint { a, b };\nkernel void k(device float* x) { x[0] = uint(E::b); }",
        "int f(int main) { return main; }\nkernel void k(device int* x) { x[0] = f(1); }",
        "#pragma METAL internals : enable\nstruct A { int a; };\nstruct B : A { int b; };\n#pragma METAL internals : disable\n"
        "kernel void k(device int* x) { B b; b.a = 1; x[0] = b.a; }",
        # what could be a pointer and is none
        "struct S { int a; };\nint f(int a, int b, int N) { int S = 1; return (a < N) & (b > N) & a * S & S; }\n"
        "bool g(int a, int b, int c) { return a < b && b > c; }\nkernel void k(device int* x) { x[0] = f(1, 2, 3) + g(1, 2, 3); }",
        "template <typename T, int N> struct Row { T v[N]; };\nvoid f(Row<int, 2> const thread& r, device Row<int, 2>* q, float device* p) { q->v[0] = r.v[1]; p[0] = 1; }\n"
        "kernel void k(device int* x) { thread float* p = nullptr, *q = p; auto& r = x[0]; auto* s = &r; *s = q == p; }",
        "float f(device float* p) { return p[0]; }\nstruct S { float f(threadgroup float* p) { return p[0]; }\n"
        "  float g(threadgroup float* p) { return f(p); } };\n"
        "kernel void k(device float* x) { threadgroup float t[2]; S s; x[0] = s.g(t) + f(x); }",
        "kernel void k(device float* a, device float* b, constant int& n [[buffer(5)]], ushort3 g [[thread_position_in_grid]],\n"
        "  uint16_t lane [[thread_index_in_simdgroup]]) { a[0] = b[0] + n + g.x + lane; }",
        "template <typename T> [[kernel]] void k(device T* a [[buffer(0)]]) { threadgroup T t[4]; t[0] = 1; a[0] = t[0]; }\n"
        'template [[host_name("k0")]] [[kernel]] void k<float>(device float* a [[buffer(0)]]);',
        "long unsigned f(unsigned long v, long int w) { return v + w; }\nkernel void k(device long* x) { x[0] = f(1, 2); }",
        "namespace n { void put(threadgroup float* p) { p[0] = 1; } }\nvoid put(device float* p) { p[0] = 1; }\n"
        "kernel void k(device float* x) { threadgroup float t[2]; n::put(t); put(x); }",
    ],
)  # fmt: skip
def test_valid_sources_are_taken(text: str) -> None:
    whole(text, _any_kernel(text))


def test_an_index_may_be_any_constant() -> None:
    text = (
        "enum Slot { first = 2, second };\nconstant int n = 1;\n"
        "kernel void k(device float* a [[buffer(first)]], device float* b [[buffer(Slot::second)]],\n"
        "  device float* c [[buffer(n + 0)]], device float* d [[buffer({0})]]) { a[0] = b[0] + c[0] + d[0]; }"
    )
    (kernel,) = whole(text).module.kernels
    assert [(p.name, p.index) for p in kernel.parameters] == [("a", 2), ("b", 3), ("c", 1), ("d", 0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "constant int n = 70000;\nkernel void k(device float* a [[buffer(¦n * 2)]]) { a[0] = 1; }",
            "[[buffer(140000)]] is out of range: Metal has buffers 0 to 30",
        ),
        (
            "constant bool c [[function_constant(0)]];\n"
            "kernel void k(device int* a, device int* b [[¦buffer(31), function_constant(c)]]) { a[0] = 1; }",
            "[[buffer(31)]] is out of range: Metal has buffers 0 to 30",
        ),
        (
            "constant int n = 30;\nkernel void k(device int* x, threadgroup float* a [[threadgroup(¦n + 1)]]) { }",
            "[[threadgroup(31)]] is out of range: Metal has threadgroups 0 to 30",
        ),
        (
            "constant int n = 1;\nkernel void k(device float* a [[buffer(1)]], device float* b [[ buffer( ¦n) ]]) { }",
            "[[buffer(1)]] is already taken by 'a': give 'b' another index",
        ),
        (
            "kernel void k(device float* a [[buffer(0)]],\n  device float* b [[buffer(¦missing)]]) { a[0] = 1; }",
            "use of undeclared identifier 'missing'",
        ),
        (
            "template <typename T, int N> [[kernel]] void k(device T* a [[buffer(¦N + 30)]]) { a[0] = 1; }\n"
            'template [[host_name("k")]] [[kernel]] void k<float, 1>(device float*);',
            "[[buffer(31)]] is out of range: Metal has buffers 0 to 30",
        ),
        (
            "int n(int i) { return i; }\nkernel void k(device float* a [[buffer(¦n(1))]]) { a[0] = 1; }",
            "not a constant expression",
        ),
    ],
)
def test_an_index_that_is_computed(text: str, message: str) -> None:
    assert message in refused(text)


def test_an_index_may_depend_on_template_parameters() -> None:
    text = (
        "template <typename T, int N, int M = N + 2> [[kernel]] void k(\n"
        "  device T* a [[buffer(N)]], device T* b [[buffer(M * 2)]], device T* c [[buffer(sizeof(T))]]) { a[0] = b[0] + c[0]; }\n"
        'template [[host_name("one")]] [[kernel]] void k<float, 1>(device float*, device float*, device float*);\n'
        'template [[host_name("two")]] [[kernel]] decltype(k<half, 3, 4>) k<half, 3, 4>;'
    )
    one, two = whole(text, "one").module.kernels
    assert [p.index for p in one.parameters] == [1, 6, 4]
    assert [p.index for p in two.parameters] == [3, 8, 2]


def _any_kernel(text: str) -> str:
    return "k0" if "host_name" in text else "k"


def test_assembly_is_still_refused_as_such() -> None:
    with pytest.raises(RefusedSourceError):
        whole('void f(float* p) { asm("nop"); }')


def test_deep_nesting_is_left_to_the_compiler() -> None:
    depth = 400
    whole(f"kernel void k(device float* x) {{ {'{' * depth} x[0] = {'(' * 150}1{')' * 150}; {'}' * depth} }}")
