"""What libraries of kernels write that a single kernel does not: overloads by address space, operators, internals."""

from __future__ import annotations

import pytest
import torch

from metalwright import UnsupportedFeatureError, compile_shader


def run(source: str, *arguments: torch.Tensor, threads: int = 1, **options: object) -> None:
    compile_shader("using namespace metal;\n" + source, **options).k(*arguments, threads=threads)  # type: ignore[arg-type]


PAIR = """
template <typename T> struct pair {
  T a, b;
  constexpr pair(T a, T b) thread : a(a), b(b) {}
  constexpr pair() thread : a(1), b(2) {}
  constexpr pair() threadgroup : a(1), b(2) {}
  template <typename U> constexpr pair(U x) thread : a(x), b(x) {}
  template <typename U> constexpr pair(U x) constant : a(x), b(x) {}
  constexpr operator vec<T, 2>() const thread { return vec<T, 2>(a, b); }
  constexpr operator vec<T, 2>() const device { return vec<T, 2>(a, b); }
  T sum() const constant { return a + b; }
  T sum() const thread { return a + b; }
};
template <typename T> struct target {};
template <typename T> struct target<device T*> { using type = T; };
template <typename T> struct target<threadgroup T*> { using type = T; };
float total(device const float* x, int n) { float s = 0; for (int i = 0; i < n; ++i) s += x[i]; return s; }
float total(threadgroup const float* y, int m) { float s = 0; for (int i = 0; i < m; ++i) s += y[i]; return s; }
float total(const constant float* x, int n) { float s = 0; for (int i = 0; i < n; ++i) s += x[i]; return s; }
"""


def test_overloads_that_differ_in_address_spaces_alone() -> None:
    out = torch.zeros(5)
    # the parameters' names differ in the second total(), so its body is another text
    run(
        PAIR.replace("y, int m) { float s = 0; for (int i = 0; i < m; ++i) s += y[i]", "x, int n) "
                     "{ float s = 0; for (int i = 0; i < n; ++i) s += x[i]")
        + """
constant pair<float> table = pair<float>(4.0f);
kernel void k(device float* out, device const float* x, constant float* y) {
  threadgroup pair<float> shared;
  shared = pair<float>();
  target<device float*>::type t = pair<float>(1.5f, 2).sum();
  float2 v = shared;
  out[0] = t; out[1] = v.x + v.y; out[2] = table.sum(); out[3] = total(x, 3); out[4] = total(y, 2);
}""",
        out,
        torch.tensor([1.0, 2.0, 4.0]),
        torch.tensor([8.0, 16.0]),
    )  # fmt: skip
    assert out.tolist() == [3.5, 3.0, 8.0, 7.0, 24.0]


def test_overloads_by_address_space_with_different_bodies_are_named() -> None:
    with pytest.raises(UnsupportedFeatureError, match="overloads of 'which' that differ in address spaces"):
        run(
            "int which(device int* p) { return 1; }\nint which(threadgroup int* p) { return 2; }\n"
            "kernel void k(device int* out) { out[0] = which(out); }",
            torch.zeros(1, dtype=torch.int32),
        )


OPERATORS = """
struct number { float value; };
number operator+(number a, number b) { return {a.value + b.value}; }
number operator-(number a) { return {-a.value}; }
bool operator<(number a, number b) { return a.value < b.value; }
template <typename T> T operator+=(thread number& a, T b) { a.value += b; return b; }
template <typename T> vec<T, 2> places(uint3 at, constant T* strides) {
  vec<T, 2> place = {T(at.x * strides[0]), T(at.x * strides[1])};
  place.x += at.y * strides[0];
  place.y += at.y * strides[1];
  return place;
}
template <typename T, int N> void body(device T* out, constant T* strides, uint3 at) {
  auto place = places<T>({N * at.x, at.y, 0}, strides);
  for (int i = 0; i < N; ++i) {
    out[i] = place.x + place.y;
    place.x += strides[0], place.y += 10;
  }
  out[N] = -place.x + (place.x < place.y ? 1000 : 2000);
}
kernel void k(device long* out, constant long* strides) { body<long, 3>(out, strides, {2, 1, 0}); }
"""


def test_swizzles_in_templates_beside_operators_that_the_text_declares() -> None:
    out = torch.zeros(4, dtype=torch.int64)
    run(OPERATORS, out, torch.tensor([3, 5]))
    x, y, expected = 6 * 3 + 3, 6 * 5 + 5, []
    for _ in range(3):
        expected.append(x + y)
        x, y = x + 3, y + 10
    assert out.tolist() == [*expected, -x + 1000]


def test_uniform_values_and_traits_without_address_spaces() -> None:
    out = torch.zeros(2, dtype=torch.int32)
    run(
        """
static_assert(is_same_v<remove_addrspace_t<device int*>, int*>);
#pragma METAL internals : enable
static_assert(_disjunction<is_same<int, float>, is_same<int, int>>::value);
kernel void k(device int* out) {
  constexpr const uniform<int> step = make_uniform(4);
  const uniform<int> last = make_uniform(10) / 3;
  for (int i = 0; i < 20; i += step) out[0] += 1;
  out[1] = last;
}""",
        out,
    )
    assert out.tolist() == [5, 3]


INTERNALS = """
inline bfloat root(bfloat x) { return static_cast<bfloat>(__metal_sqrt(static_cast<float>(x), __METAL_FAST_MATH__)); }
kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  constexpr int log = __builtin_ctz(64);
  ushort lane = __metal_get_thread_index_in_simdgroup(ushort());
  float next = __metal_simd_shuffle_down(float(lane), 1);
  if (i == 3) {
    int exponent;
    out[0] = root(bfloat(6.25f));
    out[1] = __metal_fmax3(1.0f, 5.0f, 2.0f, __METAL_MAYBE_FAST_MATH__);
    out[2] = __metal_frexp(12.0f, &exponent) * exponent;
    out[3] = next;
    out[4] = log + __metal_get_simdgroup_size(ushort());
    out[5] = __metal_fma(2.0f, 3.0f, 4.0f);
  }
}"""


def test_names_of_the_standard_library_that_are_no_part_of_the_specification() -> None:
    out = torch.zeros(6)
    run(INTERNALS, out, threads=32)
    assert out.tolist() == [2.5, 5.0, 0.75 * 4, 4.0, 38.0, 10.0]


def test_a_function_constant_with_other_qualifiers() -> None:
    out = torch.zeros(2)
    source = """
static constant constexpr const int steps [[function_constant(0)]];
static constant constexpr const bool up [[function_constant(1)]];
typedef bool flag;
constant flag twice [[function_constant(2)]];
kernel void k(device float* out) {
  if (up) out[0] = steps * (twice ? 2 : 1);
  else out[1] = steps;
}"""
    run(source, out, constants={0: 7, "up": True, 2: True})
    assert out.tolist() == [14.0, 0.0]


def test_a_kernel_with_the_name_of_a_function_of_metal() -> None:
    source = """
    using namespace metal;
    kernel void min(device float* x, uint i [[thread_position_in_grid]]) { x[i] = min(x[i], 2.0f); }
    template <typename T> kernel void clamp(device T* x, uint i [[thread_position_in_grid]]) { x[i] = metal::clamp(x[i], T(1), T(2)); }
    template [[host_name("clamp_float")]] kernel decltype(clamp<float>) clamp<float>;
    """
    library = compile_shader(source)
    for name, expected in (("min", [0, 1, 2, 2]), ("clamp_float", [1, 1, 2, 2])):
        x = torch.arange(4.0)
        library[name](x)
        assert x.tolist() == expected, name


def test_operators_for_any_type_are_not_for_vectors() -> None:
    """A program's operator templates mean classes of its own; in Metal a vector is none, and they never see one."""
    out = torch.zeros(6)
    run(
        """
struct tile { float v; static constexpr constant int count = 1; };
template <class T> T operator*(const thread T& a, float s) { T o; o.v = a.v * s * T::count; return o; }
template <class T> T operator*(const thread T& a, const thread T& b) { T o; o.v = a.v * b.v * T::count; return o; }
template <class T> T operator+(const thread T& a, float s) { T o; o.v = a.v + s + T::count; return o; }
template <class T> T operator-(const thread T& a) { T o; o.v = -a.v - T::count; return o; }
kernel void k(device float* out) {
  tile t = {3};
  out[0] = (-(t * 2.0f * t) + 0.5f).v;
  float4 v = -(float4(1, 2, 3, 4) * 2.0f + 1.0f);
  v = v * v + 2;
  vec<float, 8> w = 3;
  w = w * 0.5f + w;
  half2 h = half2(1, 2) * 3.0h;
  short2 s = short2(3, 300) * short(200) + short(1);
  out[1] = v.x; out[2] = v.w; out[3] = w[7]; out[4] = h.y; out[5] = s.y;
}""",
        out,
    )
    # 300 * 200 wraps in 16 bits
    assert out.tolist() == [-18 - 1 + 0.5 + 1, 11, 83, 4.5, 6, (300 * 200 + 1) - 65536]
