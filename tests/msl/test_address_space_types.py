"""A pointer keeps its address space on every way through a program: templates, members, ``auto``, results, arrays.

A ``¦`` in a case stands before the place that the message must point at.
"""

from __future__ import annotations

import pytest

from metalwright.errors import CompileError
from metalwright.msl import CompileOptions, Section, compile_msl
from tests.msl._refused import refused
from tests.support import whole

HELPERS = """
struct Pair { device float* p; threadgroup float* t; };
struct Cell { float v[4]; float get() const { return v[0]; } void set(float a) { v[0] = a; } };
using Out = device float*;
template <typename T> struct Holder { T p; T get() const { return p; } };
template <typename T> T same(T p) { return p; }
template <typename T> T first(device const T* p) { return p[0]; }
template <typename T> void fill(thread T& v) { v = 1; }
void put(device float* p, uint i) { p[i] = 1; }
float sum(const threadgroup float* p, uint n) { return p[n]; }
threadgroup float* shared(threadgroup float* p) { return p; }
"""
HEAD = """kernel void k(device float* x [[buffer(0)]], constant float* c [[buffer(1)]], device Pair* pairs [[buffer(2)]],
  device Cell* cells [[buffer(3)]], constant Cell& cell [[buffer(4)]], uint gid [[thread_position_in_grid]]) {
  threadgroup float tile[32];
  threadgroup Cell board[4];
  float local[4] = {};
  float v = 0;
  Pair pair = {x, tile};
"""
NEVER = "Metal has no conversion between address spaces"


def in_kernel(statements: str) -> str:
    return HELPERS + HEAD + statements + "\n}\n"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        # members
        ("pair.p = ¦tile;", "a device pointer cannot be set to a threadgroup pointer"),
        ("pair.t = ¦x;", "a threadgroup pointer cannot be set to a device pointer"),
        ("pair.p = pair.¦t;", "a device pointer cannot be set to a threadgroup pointer"),
        ("pair.p = ¦local;", "a device pointer cannot be set to a thread pointer"),
        ("Pair other = {¦tile, tile};", "a device pointer cannot be set to a threadgroup pointer"),
        ("device float* ¦p = pair.t;", "a device pointer cannot be set to a threadgroup pointer"),
        ("put(¦pair.t, gid);", "argument 1 of 'put' must be a device pointer and got a threadgroup pointer"),
        ("put(¦pairs[gid].t, 0);", "argument 1 of 'put' must be a device pointer and got a threadgroup pointer"),
        ("v = sum(¦pairs->p, 2);", "argument 1 of 'sum' must be a threadgroup pointer and got a device pointer"),
        # auto
        ("auto p = tile; device float* ¦q = p;", "a device pointer cannot be set to a threadgroup pointer"),
        ("auto p = &tile[3]; put(¦p + 1, 0);", "argument 1 of 'put' must be a device pointer and got a threadgroup"),
        ("auto p = &v; put(¦p, 0);", "argument 1 of 'put' must be a device pointer and got a thread pointer"),
        ("auto p = local; put(¦p, 0);", "argument 1 of 'put' must be a device pointer and got a thread pointer"),
        ("auto p = x; thread float* ¦q = p;", "a thread pointer cannot be set to a device pointer"),
        ("auto p = c; v = sum(¦p, 1);", "argument 1 of 'sum' must be a threadgroup pointer and got a constant"),
        ("const auto p = c; device const float* ¦q = p;", "a device pointer cannot be set to a constant pointer"),
        # results
        ("put(¦shared(tile), 0);", "argument 1 of 'put' must be a device pointer and got a threadgroup pointer"),
        ("device float* ¦p = shared(tile);", "a device pointer cannot be set to a threadgroup pointer"),
        ("auto p = shared(tile); put(¦p, 0);", "argument 1 of 'put' must be a device pointer and got a threadgroup"),
        # templates
        ("device float* ¦p = same(pair.t);", "a device pointer cannot be set to a threadgroup pointer"),
        ("Holder<device float*> h = {¦tile};", "a device pointer cannot be set to a threadgroup pointer"),
        ("Holder<threadgroup float*> h = {tile}; put(¦h.get(), 1);", "argument 1 of 'put' must be a device pointer"),
        ("v = first(¦shared(tile));", "argument 1 of 'first' must be a device pointer and got a threadgroup pointer"),
        # names for types
        ("Out ¦p = pair.t;", "a device pointer cannot be set to a threadgroup pointer"),
        ("using In = threadgroup float*; In ¦p = pair.p;", "a threadgroup pointer cannot be set to a device pointer"),
        # casts
        ("device uint* p = (device uint*)¦pair.t;", "a threadgroup pointer cannot be cast to a device pointer"),
        ("auto p = tile; device uint* q = (device uint*)¦p;", "a threadgroup pointer cannot be cast to a device pointer"),
        ("auto q = ¦reinterpret_cast<device uint*>(pair.t);", "a threadgroup pointer cannot be cast to a device pointer"),
        ("auto q = ¦static_cast<Out>(pair.t);", "a threadgroup pointer cannot be cast to a device pointer"),
        # references
        ("thread float& ¦r = pair.p[1];", "a thread reference cannot be bound to device memory"),
        ("auto p = cells; threadgroup Cell& ¦r = p[1];", "a threadgroup reference cannot be bound to device memory"),
        ("auto p = tile; device float& ¦r = *p;", "a device reference cannot be bound to threadgroup memory"),
        ("¦fill(pair.p[0]);", "an argument of 'fill' must be a thread reference and got device memory"),
        # expressions of two kinds
        ("auto p = gid > 2 ¦? pair.p : pair.t;", "a device pointer and a threadgroup pointer have no type in common"),
        ("if (pair.p ¦== pair.t) v = 1;", "a device pointer and a threadgroup pointer have no type in common"),
        # functions without a name
        ("auto f = [](device float* p) { p[0] = 1; }; f(¦pair.t);", "argument 1 must be a device pointer and got a thread"),
    ],
)  # fmt: skip
def test_in_a_kernel(statement: str, message: str) -> None:
    said = refused(in_kernel(statement))
    assert said.startswith(message), said
    assert said.endswith(NEVER)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "threadgroup float* f(device float* a) { auto b = a; return ¦b; }",
            "the function returns a threadgroup pointer and this is a device pointer",
        ),
        (
            "template <typename T> void f(T p) { thread float* ¦q = p; q[0] = 1; }\n"
            "kernel void k(device float* x) { f(x); }",
            "a thread pointer cannot be set to a device pointer",
        ),
        (
            "template <typename T> void f(T p) { thread float* ¦q = p; q[0] = 1; }\n"
            "template <typename T> void g(T p) { f(p); }\n"
            "kernel void k(device float* x) { float v[2]; g(v); g(x); }",
            "a thread pointer cannot be set to a device pointer",
        ),
        (
            "template <typename T> struct S { T p; void set(threadgroup float* q) { p = ¦q; } };\n"
            "kernel void k(device float* x) { threadgroup float t[4]; S<device float*> s; s.set(t); s.p = x; }",
            "a device pointer cannot be set to a threadgroup pointer",
        ),
        (
            "struct S { device float* p; device float* get() const thread { return p; } };\n"
            "kernel void k(device float* x) { S s = {x}; threadgroup float* ¦q = s.get(); q[0] = 1; }",
            "a threadgroup pointer cannot be set to a device pointer",
        ),
        (
            "template <typename T> [[kernel]] void k(device T* x [[buffer(0)]]) {\n"
            "  threadgroup T t[4]; auto p = t; device T* ¦q = p; q[0] = x[0]; }\n"
            'template [[host_name("k")]] [[kernel]] void k<half>(device half* x);',
            "a device pointer cannot be set to a threadgroup pointer",
        ),
        (
            "#define SET(a, b) a.p = b\nstruct S { device float* p; };\n"
            "kernel void k(device float* x) { S s = {x}; threadgroup float t[4]; SET(s, ¦t); }",
            "a device pointer cannot be set to a threadgroup pointer",
        ),
        (
            "namespace n { struct S { device int* p; }; void f(threadgroup int* p) { p[0] = 1; } }\n"
            "kernel void k(device int* x) { n::S s = {x}; n::f(¦s.p); }",
            "the parameter is a threadgroup pointer and cannot be given a device pointer",
        ),
    ],
)
def test_outside_a_kernel(text: str, message: str) -> None:
    said = refused(text)
    assert said.startswith(message), said
    assert said.endswith(NEVER)


@pytest.mark.parametrize(
    "statements",
    [
        "pair.p = x; pair.t = tile; pair.p = pairs[1].p; pairs[0].p = x + 2;",
        "auto p = x; device float* q = p; auto t = tile; threadgroup float* u = t; put(q, 0); v = sum(u, 1);",
        "Holder<device float*> h = {x}; put(h.get(), 1); Holder<threadgroup float*> t = {tile}; v = sum(t.p, 1);",
        "Cell a = cells[gid]; cells[gid] = a; board[0] = a; a = board[1]; a = cell; cells[1].set(board[0].get());",
        "v = cell.get() + cells[1].get() + cells->v[2] + board[gid & 3].v[1]; cells[0].v[1] = v;",
        "device Cell& r = cells[1]; r.set(2); Cell a = r; thread Cell& s = a; s = r; device float* p = r.v; p[1] = 2;",
        "thread float* p = local; p = &v; p = &local[2]; fill(*p); fill(p[1]); fill(v); fill(local[3]); fill(pair.p == x ? v : *p);",
        "const thread float& r = pair.p[1]; v = r; v = first(x) + first(pair.p) + first(same(x));",
        "put(gid > 2 ? x : pair.p, 1); if (pair.p != nullptr && pair.p == x) pair.t = nullptr;",
        "device uint* u = (device uint*)pair.p; u[0] = 1; device uint* w = reinterpret_cast<device uint*>(same(x)); w[1] = 2;",
        "ulong bits = (ulong)pair.t; device float* p = (device float*)bits; if (p == x) v = 1;",
        "auto f = [&](device float* p) { p[0] = local[1] + v; }; f(pair.p); auto g = [local, v](uint i) { return local[i] + v; }; v = g(1);",
        "for (auto a : local) v += a; v += sizeof(local) / sizeof(local[0]); thread float (&all)[4] = local; all[1] = 2;",
        "float2 a = float2(x[0], tile[1]); a += c[1]; a.x = fract(a.y); float whole; v = modf(a.x, whole) + whole;",
        "device atomic_uint* n = (device atomic_uint*)pair.p; atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);",
        "threadgroup atomic_uint* n = (threadgroup atomic_uint*)shared(tile); atomic_store_explicit(n, 1u, memory_order_relaxed);",
        "threadgroup float (*rows)[8] = (threadgroup float (*)[8])tile; rows[1][2] = v; v = sum(rows[1], 2);",
        "metal::array<float, 4> a = {}; a[1] = x[1]; thread float* p = &a[1]; *p = 2; thread auto& q = a; q[2] = 3;",
        "simdgroup_float8x8 m; simdgroup_load(m, tile, 4); simdgroup_store(m, x, 8); m.thread_elements()[0] = tile[1];",
    ],
)  # fmt: skip
def test_valid_statements_are_taken(statements: str) -> None:
    whole(in_kernel(statements))


@pytest.mark.parametrize(
    "text",
    [
        # one function for each space
        "float at(device float* p) { return p[0]; }\nfloat at(threadgroup float* p) { return p[0]; }\n"
        "float at(thread float* p) { return p[0]; }\nstruct S { threadgroup float* p; };\n"
        "kernel void k(device float* x) { threadgroup float t[2]; float l[2]; S s = {t}; t[0] = l[0] = 1; auto p = t;\n"
        "  x[0] = at(x) + at(p) + at(s.p) + at(l); }",
        # methods for each space
        "struct S { float v; S() thread = default; S(float a) thread : v(a) { } S(float a) threadgroup : v(a) { }\n"
        "  float get() const thread { return v; } float get() const device { return v; } float get() const constant { return v; }\n"
        "  thread float& ref() thread { return v; } device float& ref() device { return v; } };\n"
        "kernel void k(device S* x, constant S& c) { S s(2); s.ref() = x->get() + c.get(); x->ref() = s.get(); }",
        # what a type points to
        "template <typename T> struct Space { static constant constexpr int n = 0; };\n"
        "template <typename T> struct Space<device T*> { static constant constexpr int n = 1; };\n"
        "template <typename P> int f(P p) { return Space<P>::n; }\nkernel void k(device int* x) { x[0] = f(x); }",
        # tensors
        "void f(device float* p) { p[0] = 1; }\n"
        "kernel void k(tensor<device float, dextents<int, 2>, tensor_handle> x [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n"
        "  threadgroup float t[4]; t[i] = x[i, 0]; auto s = x.slice(1, 0); s[i, 0] = t[i]; float v = x[0, 0]; thread float* p = &v; *p = 2; }",
        "template <typename T, int N> struct Rows { threadgroup T* t; device const T* x; short lane;\n"
        "  Rows(threadgroup T* t_, device const T* x_, short l) : t(t_), x(x_), lane(l) { }\n"
        "  void load() const { for (short i = 0; i < N; ++i) t[lane * N + i] = x[lane * N + i]; } };\n"
        "kernel void k(device float* x, device float* y [[buffer(1)]], ushort i [[thread_index_in_simdgroup]]) {\n"
        "  threadgroup float t[128]; Rows<float, 4> rows(t, x, i); rows.load(); y[i] = t[i]; }",
    ],
)  # fmt: skip
def test_valid_sources_are_taken(text: str) -> None:
    whole(text, "k")


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ("¦both(tile, x);", "an argument of 'both' must be a threadgroup pointer and got a device pointer"),
        ("auto p = tile; p = ¦x;", "a threadgroup pointer cannot be set to a device pointer"),
        ("v = *(gid > 2 ¦? x : tile);", "a device pointer and a threadgroup pointer have no type in common"),
    ],
)
def test_without_a_pointer_that_is_written_down(statements: str, message: str) -> None:
    text = (
        "template <typename T> void both(T p, T q) { *p = *q; }\n"
        "kernel void k(device float* x, constant float* c, constant float& n, uint gid [[thread_position_in_grid]]) {\n"
        f"  threadgroup float tile[4]; float v = n; {statements} x[gid] = v + tile[0]; }}"
    )
    said = refused(text)
    assert said.startswith(message), said
    assert said.endswith(NEVER)


def test_one_space_each_without_a_pointer_that_is_written_down() -> None:
    whole(
        "template <typename T> void both(T p, T q) { *p = *q; }\n"
        "template <typename T, typename U> void each(T p, U q) { *p = *q; }\n"
        "kernel void k(device float* x, device float* y [[buffer(1)]], constant float* c [[buffer(2)]],\n"
        "              uint i [[thread_position_in_grid]]) {\n"
        "  threadgroup float tile[4]; float local[4] = {c[0]}; auto p = tile; p = tile + 1; auto q = i > 1 ? x : y;\n"
        "  both(x, y); both(p, tile); each(x, tile); each(tile, c); each(local, c); both(q, y); }"
    )


def test_in_a_body_and_its_helpers() -> None:
    helpers = "struct S { device float* p; };\ninline void put(device float* p) { p[0] = 1; }"
    src = "threadgroup float t[4];\nS s = {&out[0]};\ns.p = t;"
    head = "[[kernel]] void k(tensor<device float, dextents<int, 1>, tensor_handle> out [[buffer(0)]]) {"
    sections = (
        Section("#include <metal_stdlib>\nusing namespace metal;\n"),
        Section(helpers, "k.helper_src"),
        Section(head),
        Section(src, "k.src"),
        Section("}"),
    )
    with pytest.raises(CompileError) as caught:
        compile_msl(sections, CompileOptions(), "k")
    first = caught.value.diagnostics[0]
    assert first.render().split("\n") == [
        f"k.src:3:7: error: a device pointer cannot be set to a threadgroup pointer: {NEVER}",
        "    s.p = t;",
        "          ^",
    ]


def test_in_a_file_that_is_included(tmp_path) -> None:
    (tmp_path / "lib.h").write_text(
        "struct S { device float* p; };\ntemplate <typename T> void set(thread S& s, T q) {\n  s.p = q;\n}\n"
    )
    text = (
        '#include "lib.h"\nkernel void k(device float* x) { threadgroup float t[4]; S s = {x}; set(s, t); }\n'
    )
    options = CompileOptions(include_folders=(str(tmp_path),))
    with pytest.raises(CompileError) as caught:
        compile_msl((Section("using namespace metal;\n"), Section(text, "k.metal")), options, "k")
    first = caught.value.diagnostics[0]
    assert first.site is not None
    assert (first.site.file, first.site.line, first.site.column) == (str(tmp_path / "lib.h"), 3, 9)
    assert first.message == f"a device pointer cannot be set to a threadgroup pointer: {NEVER}"
    assert first.excerpt == "  s.p = q;"
