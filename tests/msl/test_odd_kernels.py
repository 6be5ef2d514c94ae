"""Legal kernels that few people write: corners of C++17 that Metal has, each with what it computes by hand.

Every kernel writes eight numbers, ``out[i]`` for thread ``i``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from metalwright.engine import Program
from tests.support import launch, whole

N = 8
KERNEL = "#define KERNEL(name) kernel void name(device int* out [[buffer(0)]], uint i [[thread_position_in_grid]])\n"

CLASSES = """
struct Pair {
  int a, b;
  Pair operator+(const thread Pair& o) const { return {a + o.a, b + o.b}; }
  Pair operator-() const { return {-a, -b}; }
  thread Pair& operator+=(int n) { a += n; return *this; }
  bool operator==(Pair o) const { return a == o.a && b == o.b; }
  int operator[](int n) const { return n ? b : a; }
  int operator()(int x, int y) const { return a * x + b * y; }
  explicit operator bool() const { return a != 0; }
};
Pair operator*(int n, Pair p) { return {n * p.a, n * p.b}; }
KERNEL(operators) {
  Pair p = {1, 2};
  Pair q = p + 3 * p;
  q += int(i);
  int equal = -q == Pair{-4 - int(i), -8} ? 7 : 0;
  out[i] = q[0] * 1000 + q(1, 2) + equal + (p ? 100000 : 0) + !(Pair{0, 1}) * 1000000;
}

struct Counter {
  int n;
  thread Counter& operator++() { ++n; return *this; }
  Counter operator++(int) { Counter old = *this; n++; return old; }
};
KERNEL(increments) {
  Counter c = {int(i)};
  int before = (c++).n;
  out[i] = before * 100 + (++c).n;
}

struct Guard {
  thread int* p;
  Guard(thread int* q) : p(q) { *p += 1; }
  ~Guard() { *p += 10; }
};
KERNEL(destructors) {
  int n = int(i);
  { Guard one(&n); Guard two(&n); }
  out[i] = n;
}

struct Defaults { int a = 4; int b{5}; Defaults() = default; Defaults(int x) : a(x) { } };
KERNEL(member_values) {
  Defaults d;
  Defaults e(7);
  Defaults f{};
  out[i] = d.a + e.a * 10 + e.b * 100 + f.b * 1000;
}

class Hidden {
  int v;
 public:
  Hidden(int a) : v(a) { }
  static int twice(int a) { return a * 2; }
  static constant constexpr int three = 3;
  friend int peek(Hidden h) { return h.v; }
};
KERNEL(access) { out[i] = peek(Hidden(int(i))) + Hidden::twice(Hidden::three); }

struct Bits { uint a : 3; uint b : 5; int c : 4; uint : 0; uint d; };
KERNEL(bit_fields) {
  Bits bits = {};
  bits.a = i + 2;
  bits.b = 33;
  bits.c = 9;
  out[i] = bits.a + bits.b * 10 + bits.c * 100 + sizeof(Bits) * 1000;
}

union Word { uint u; float f; uchar b[4]; struct { ushort low, high; } h; };
struct Tagged { int kind; union { int n; float f; }; };
KERNEL(unions) {
  Word w;
  w.f = 1.0f;
  Tagged t;
  t.f = 2.0f;
  out[i] = w.h.high + w.b[3] * 100000 + (t.n == 0x40000000);
}
"""

TEMPLATES = """
template <typename T> struct Outer {
  template <int N> struct Inner {
    T v[N];
    static constexpr constant int size = N * sizeof(T);
    template <typename U> U get(int k) const { return U(v[k]); }
  };
};
KERNEL(nested) {
  typename Outer<float>::template Inner<3> b = {{1.5, 2.5, 3.5}};
  out[i] = b.template get<int>(i % 3) + Outer<short>::Inner<5>::size;
}

template <typename T> enable_if_t<is_integral_v<T>, int> kind(T) { return 1; }
template <typename T> enable_if_t<is_floating_point_v<T>, int> kind(T) { return 2; }
template <typename...> using void_type = void;
template <typename T, typename = void> struct has_tag { static constexpr constant bool value = false; };
template <typename T> struct has_tag<T, void_type<typename T::tag>> { static constexpr constant bool value = true; };
struct With { using tag = int; };
KERNEL(sfinae) {
  out[i] = kind(1) + 10 * kind(1.0f) + 100 * kind(half(1)) + 1000 * has_tag<With>::value + has_tag<int>::value;
}

template <typename... T> int count(T...) { return sizeof...(T); }
int sum() { return 0; }
template <typename H, typename... T> int sum(H h, T... t) { return int(h) + sum(t...); }
template <typename... T> auto folded(T... t) { return (t + ... + 0); }
KERNEL(variadic) { out[i] = count(1, 2.0f, 'c') + 10 * sum(1, 2.0f, half(3)) + 100 * folded(1, 2, int(i)); }

template <typename T> int branch(T v) {
  if constexpr (is_same_v<T, float>) return int(v * 2);
  else if constexpr (sizeof(T) == 2) return v.x;
  else return v;
}
KERNEL(if_constexpr) { out[i] = branch(1.5f) + 10 * branch(char2(3, 4)) + 100 * branch(int(i)); }

template <int N> struct Fibonacci { static constexpr constant int v = Fibonacci<N - 1>::v + Fibonacci<N - 2>::v; };
template <> struct Fibonacci<0> { static constexpr constant int v = 0; };
template <> struct Fibonacci<1> { static constexpr constant int v = 1; };
template <typename T> struct Lanes { static constexpr constant int v = 1; };
template <typename T, int N> struct Lanes<vec<T, N>> { static constexpr constant int v = N * Lanes<T>::v; };
KERNEL(specialised) { out[i] = Fibonacci<20>::v * 10 + Lanes<float4>::v; }

template <typename T> struct Box { T v; };
template <typename T> Box(T) -> Box<T>;
template <template <typename> class H, typename T> T open(H<T> h) { return h.v; }
template <typename T = float, int N = 3> int bytes() { return sizeof(T) * N; }
KERNEL(deduced) {
  Box box{int(i)};
  out[i] = open(box) + bytes() * 10 + bytes<half>() * 1000;
}
"""

STATEMENTS = """
struct Division { int quotient, rest; };
Division divided(int a, int b) { return {a / b, a % b}; }
KERNEL(bindings) {
  auto [q, r] = divided(int(i) * 7, 5);
  int a[2] = {1, 2};
  auto& [x, y] = a;
  x += 5;
  out[i] = q * 100 + r + a[0] * 1000 + y * 10000;
}
KERNEL(ranges) {
  int a[4] = {1, 2, 3, 4};
  int s = 0;
  for (int v : a) s += v;
  for (thread auto& v : a) v *= 2;
  out[i] = s * 100 + a[i % 4];
}
KERNEL(fallthrough) {
  int s = 0;
  switch (i % 4) {
    case 3: s += 100; [[fallthrough]];
    case 2: s += 10;
    case 1: s += 1; break;
    default: s = -1;
  }
  if (int n = int(i) * 2; n > 6) s += 1000;
  out[i] = s;
}
KERNEL(loops) {
  int n = 0, s = 0;
  do { ++n; if (n == 3) continue; if (n > 6) break; s += n; } while (n < 100);
  for (int a = 0, b = 9; a < b; a++, --b) s += 100;
  out[i] = (s += 1, s + int(i));
}
KERNEL(lambdas) {
  int a = 3;
  auto times = [=](int b) { return a * b; };
  auto more = [&a](int b) -> int { a += b; return a; };
  auto kept = [n = int(i) * 2](int b) mutable { n += b; return n; };
  auto smaller = [](auto x, auto y) { return x < y ? x : y; };
  kept(1);
  out[i] = times(int(i)) + more(2) * 100 + kept(1) * 1000 + smaller(2.5f, 1.5f) * 100000;
}
enum class Color : uchar { red = 1, green = red << 3, blue = green + 2 };
enum Old { zero, one, many = -4 };
KERNEL(enumerations) {
  enum { A = 3, B };
  Color c = i > 3 ? Color::green : Color::blue;
  out[i] = int(many) + sizeof(Color) * 10 + static_cast<uint>(c) * 100 + B;
}
constant constexpr int digits[] = {3, 1, 4, 1, 5, 9, 2, 6};
constexpr int total() { int s = 0; for (int k = 0; k < 8; ++k) s += digits[k]; return s; }
KERNEL(constant_expressions) {
  constexpr int n = total();
  static_assert(n == 31, "known when it is compiled");
  int local[n] = {};
  local[i] = digits[i];
  out[i] = local[i] * 100 + n;
}
"""

MEMORY = """
void fill(threadgroup int (&a)[8], uint n) { a[n] = int(n) * 3; }
template <int N> int total(threadgroup const int (&a)[N]) {
  int s = 0;
  for (int k = 0; k < N; ++k) s += a[k];
  return s;
}
KERNEL(references_to_arrays) {
  threadgroup int a[8];
  fill(a, i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = total(a) * 100 + a[7 - i];
}
struct Board { int v[8]; atomic_int n; };
KERNEL(shared_struct) {
  threadgroup Board board;
  if (i == 0) atomic_store_explicit(&board.n, 0, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  board.v[i] = int(i);
  atomic_fetch_add_explicit(&board.n, 2, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = board.v[7 - i] + atomic_load_explicit(&board.n, memory_order_relaxed) * 10;
}
KERNEL(rows) {
  threadgroup int t[2][4];
  threadgroup int (*row)[4] = &t[i / 4];
  (*row)[i % 4] = int(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  threadgroup int* flat = &t[0][0];
  out[i] = flat[(i + 4) % 8];
}
KERNEL(pointers) {
  device int* p = out + i;
  device int* end = &out[8];
  *p = int(end - p);
  device int* const same = p;
  *same += 100;
  out[i] = *same + (p < end) * 1000;
}
struct Packed { packed_float3 v; float w; };
struct Wide { int3 a; packed_short3 b; char c[2]; };
KERNEL(layouts) {
  Packed p;
  p.v = packed_float3(1, 2, 3);
  p.v[1] += 5;
  float3 q = p.v;
  out[i] = int(q.y) * 10 + sizeof(Packed) * 100 + sizeof(Wide) * 10000;
}
KERNEL(matrices) {
  float2x3 m = float2x3(float3(1, 2, 3), float3(4, 5, 6));
  float3 v = m * float2(1, 2);
  float2 w = float3(1, 1, 1) * m;
  out[i] = int(v.z + w.x * 100 + m[1][i % 3] * 10000);
}
KERNEL(swizzles) {
  float4 v = float4(1, 2, 3, 4);
  v.xy = v.yx;
  v.zw += float2(10);
  float4 w = v.wzyx;
  w.rgb *= 2;
  out[i] = int(w.x + w.y * 100 + v.xxyy.z * 10000);
}
"""

SPELLING = """
// ünïcödé 漢字 🙂
#define CAT(a, b) a##b
#define BODY(n) \\
  out[i] = CAT(value, n) + \\
    max(1, 2);
#if defined(CAT) && !defined(NOPE) && __METAL_VERSION__ > 200
KERNEL(macros) { int value7 = int(i); BODY(7) }
#else
#error no
#endif
KERNEL(literals) { out[i] = int(0x1p-1 + 1'000 + 0b101 + 017 + .5e1f + 1.h + 2e0 + 0xFFu + 'a' + 3ul + 1e-0f + 0.5); }
KERNEL(alternative_tokens) {
  int a<:2:> = <%1, 2%>;
  bool b = true and not false or false;
  int c = 6 bitand 3;
  c xor_eq 1;
  out[i] = a<:i & 1:> + b * 10 + (compl c) * 100;
}
KERNEL(names) {
  int in = 1, var = 2, lambda = 4, global = 5, local = 6, None = 7, texture = 10, buffer = 11, lane = 12;
  out[i] = in + var + lambda + global + local + None + texture + buffer + lane;
}
KERNEL(integers) {
  uint wrapped = 0u - 1u;
  uchar small = 255;
  small += 2;
  short cut = short(40000);
  char sign = char(200);
  out[i] = int(wrapped >> 28) + small * 100 + (cut < 0) * 1000 + (1 << 3 >> 1) * 10000 + (-7 / 2) + (-7 % 3) + sign;
}
KERNEL(nothing) { ;;; { ; } if (i) ; else ; for (; false;) ; out[i] = 1;; }
int later(int);
auto trailing(int a) -> int { return later(a) * 2; }
KERNEL(declared_first) { out[i] = trailing(int(i)); }
int later(int a) { return a + 1; }
"""

EXPECTED: dict[str, dict[str, Callable[[int], int]]] = {
    CLASSES: {
        "operators": lambda i: (4 + i) * 1000 + (4 + i) + 16 + 7 + 100000 + 1000000,
        "increments": lambda i: i * 100 + i + 2,
        "destructors": lambda i: i + 2 * 1 + 2 * 10,
        "member_values": lambda i: 4 + 70 + 500 + 5000,
        "access": lambda i: i + 6,
        "bit_fields": lambda i: (i + 2) % 8 + 33 % 32 * 10 + (9 - 16) * 100 + 8 * 1000,
        "unions": lambda i: 0x3F80 + 0x3F * 100000 + 1,
    },
    TEMPLATES: {
        "nested": lambda i: i % 3 + 1 + 10,
        "sfinae": lambda i: 1 + 20 + 200 + 1000,
        "variadic": lambda i: 3 + 60 + 100 * (3 + i),
        "if_constexpr": lambda i: 3 + 30 + 100 * i,
        "specialised": lambda i: 67650 + 4,
        "deduced": lambda i: i + 120 + 6000,
    },
    STATEMENTS: {
        "bindings": lambda i: i * 7 // 5 * 100 + i * 7 % 5 + 6000 + 20000,
        "ranges": lambda i: 1000 + 2 * (i % 4 + 1),
        "fallthrough": lambda i: [-1, 1, 11, 111][i % 4] + 1000 * (2 * i > 6),
        "loops": lambda i: 1 + 2 + 4 + 5 + 6 + 500 + 1 + i,
        "lambdas": lambda i: 3 * i + 500 + (2 * i + 2) * 1000 + 150000,
        "enumerations": lambda i: -4 + 10 + (8 if i > 3 else 10) * 100 + 4,
        "constant_expressions": lambda i: int("31415926"[i]) * 100 + 31,
    },
    MEMORY: {
        "references_to_arrays": lambda i: 3 * 28 * 100 + 3 * (7 - i),
        "shared_struct": lambda i: 7 - i + 160,
        "rows": lambda i: (i + 4) % 8,
        "pointers": lambda i: 8 - i + 100 + 1000,
        "layouts": lambda i: 70 + 1600 + 320000,
        "matrices": lambda i: 15 + 600 + 10000 * (4 + i % 3),
        "swizzles": lambda i: 28 + 2600 + 10000,
    },
    SPELLING: {
        "macros": lambda i: i + 2,
        "literals": lambda i: 1000 + 5 + 15 + 5 + 1 + 2 + 255 + 97 + 3 + 1 + 1,
        "alternative_tokens": lambda i: 1 + i % 2 + 10 + ~(6 & 3 ^ 1) * 100,
        "names": lambda i: 1 + 2 + 4 + 5 + 6 + 7 + 10 + 11 + 12,
        "integers": lambda i: 15 + 100 + 1000 + 40000 - 3 - 1 - 56,
        "nothing": lambda i: 1,
        "declared_first": lambda i: (i + 1) * 2,
    },
}  # fmt: skip


def ran(program: Program) -> list[int]:
    out = np.full(N, -99, np.int32)
    launch(program, {}, {"out": out}, N, N)
    return out.tolist()


@functools.cache
def compiled(source: str, name: str) -> Program:
    return whole(KERNEL + source, name)


@pytest.mark.parametrize(
    ("source", "name"),
    [pytest.param(source, name, id=name) for source, names in EXPECTED.items() for name in names],
)
def test_it_computes_what_it_says(source: str, name: str) -> None:
    assert ran(compiled(source, name)) == [EXPECTED[source][name](i) for i in range(N)]


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        pytest.param(f"int {'x' * 3000} = 5; out[i] = {'x' * 3000};", lambda i: 5, id="a long name"),
        pytest.param(f"out[i] = {'(' * 90}i{')' * 90};", lambda i: i, id="deep parentheses"),
        pytest.param(
            f"int s = 0; {''.join(f'if (i >= {k}) {{ s++; ' for k in range(40))}{'}' * 40} out[i] = s;",
            lambda i: i + 1,
            id="deep blocks",
        ),
        pytest.param(
            f"{' else '.join(f'if (i == {k}u) out[i] = {3 * k};' for k in range(120))}",
            lambda i: 3 * i,
            id="a long chain of else",
        ),
        pytest.param(
            "int a = 2;\r\n out[i] = \\\r\n  a;\r\n", lambda i: 2, id="lines that end as on Windows"
        ),
        pytest.param(
            "int a = 2; // two\r out[i] = a; // a\r", lambda i: 2, id="lines that end as on old Macs"
        ),
    ],
)
def test_it_may_be_long_or_strangely_spaced(statements: str, expected: Callable[[int], int]) -> None:
    text = f"kernel void k(device int* out, uint i [[thread_position_in_grid]]) {{ {statements} }}// the end"
    assert ran(whole(text)) == [expected(i) for i in range(N)]


def test_a_huge_table() -> None:
    numbers = ", ".join(str(7 * n % 20011) for n in range(20000))
    text = (
        f"constant int table[20000] = {{{numbers}}};\n"
        "kernel void k(device int* out, uint i [[thread_position_in_grid]]) { out[i] = table[i * 2500]; }"
    )
    assert ran(whole(text)) == [7 * (i * 2500) % 20011 for i in range(N)]
