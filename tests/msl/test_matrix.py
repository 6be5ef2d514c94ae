"""Matrices of every size and element type against NumPy: layout, constructors, operators, transpose, determinant."""

from __future__ import annotations

import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from _snippet import SIZES, check_static

from metalwright.errors import CompileError, MemoryFault
from tests.support import launch, whole

DTYPES = {"float": np.dtype(np.float32), "half": np.dtype(np.float16), "bfloat": np.dtype(ml_dtypes.bfloat16)}
SHAPES = list(itertools.product((2, 3, 4), repeat=2))  # columns, rows
# every shape in float; a few in the others, whose code is the same
SHAPES_OF = {
    "float": SHAPES,
    "half": [(2, 3), (3, 3), (4, 2), (4, 4)],
    "bfloat": [(2, 2), (3, 4), (4, 3), (4, 4)],
}
INCLUDE = "#include <metal_matrix>\nusing namespace metal;\n"


def test_sizes_and_alignments_are_metals() -> None:
    assertions = []
    for element, (columns, rows) in itertools.product(("float", "half"), SHAPES):
        column = SIZES[element] * (2 if rows == 2 else 4)
        name = f"{element}{columns}x{rows}"
        assertions += [f"sizeof({name}) == {column * columns}", f"alignof({name}) == {column}"]
        assertions += [f"is_same_v<{name}, matrix<{element}, {columns}, {rows}>>"]
        assertions += [f"is_trivially_copyable_v<{name}>", f"is_trivially_default_constructible_v<{name}>"]
    assertions += ["sizeof(matrix<bfloat, 4, 3>) == 32", "is_same_v<matrix<float, 3>, float3x3>"]
    check_static(*assertions, before=INCLUDE)


def test_constants_of_the_program_are_made_by_the_compiler() -> None:
    check_static(
        "float2x2(2)[0][0] == 2 && float2x2(2)[0][1] == 0 && float2x2(2)[1][1] == 2",
        "float3x2(1, 2, 3, 4, 5, 6)[2][1] == 6",
        "transpose(float2x3(float3(1, 2, 3), float3(4, 5, 6)))[2][1] == 6",
        "half2x2(float2x2(1, 2, 3, 4))[1][0] == 3",
        before=INCLUDE,
    )


# One kernel a shape, which writes matrices and vectors element by element, columns first.
KERNELS = """
template <typename V> void put(device T*& o, V v, int n) {{ for (int i = 0; i < n; i++) *o++ = v[i]; }}
template <int C, int R> void put(device T*& o, matrix<T, C, R> m) {{ for (int i = 0; i < C; i++) put(o, m[i], R); }}

template <int C, int R> void run(device const T* x, device T* o) {{
  using M = matrix<T, C, R>;
  M a, b;
  matrix<T, R, C> w;
  vec<T, C> v;
  vec<T, R> u;
  for (int i = 0; i < C; i++) for (int j = 0; j < R; j++) a[i][j] = *x++;
  for (int i = 0; i < C; i++) {{ vec<T, R> column; for (int j = 0; j < R; j++) column[j] = *x++; b[i] = column; }}
  for (int i = 0; i < R; i++) for (int j = 0; j < C; j++) w[i][j] = *x++;
  for (int i = 0; i < C; i++) v[i] = *x++;
  for (int i = 0; i < R; i++) u[i] = *x++;
  put(o, a + b);
  put(o, a - b);
  put(o, a * T(3));
  put(o, 3 * a);
  put(o, a / T(2));
  put(o, a * v, R);
  put(o, u * a, C);
  put(o, a * w);
  put(o, transpose(a));
  put(o, M(T(5)));
  put(o, M(matrix<float, C, R>(a)));
  put(o, M(matrix<half, C, R>(b)));
  M c = a;
  c += b; c *= 2; c -= a;
  put(o, c);
  if constexpr (C == R) *o++ = determinant(a);
}}
{entries}
"""


def kernels(element: str) -> str:
    entries = "\n".join(
        f"kernel void k{c}x{r}(device const T* x [[buffer(0)]], device T* o [[buffer(1)]]) {{ run<{c}, {r}>(x, o); }}"
        for c, r in SHAPES_OF[element]
    )
    return f"using T = {element};\n" + KERNELS.format(entries=entries)


def exact_determinant(m: np.ndarray) -> Fraction:
    if len(m) == 1:
        return Fraction(float(m[0, 0]))
    return sum(
        (
            (-1) ** i * Fraction(float(m[0, i])) * exact_determinant(np.delete(m[1:], i, 1))
            for i in range(len(m))
        ),
        Fraction(0),
    )


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("element", DTYPES)
def test_operators_and_functions_of_every_shape(element: str, checked: bool) -> None:
    dtype, rng = DTYPES[element], np.random.default_rng(7)
    for columns, rows in SHAPES_OF[element]:
        # small whole numbers: everything but a determinant is exact in every type
        numbers = rng.integers(-3, 4, 3 * columns * rows + columns + rows)
        first, second, third = (numbers[i * columns * rows :][: columns * rows] for i in range(3))
        a, b = first.reshape(columns, rows).T, second.reshape(columns, rows).T
        w = third.reshape(rows, columns).T
        v, u = numbers[3 * columns * rows :][:columns], numbers[-rows:]
        expected = [
            a + b, a - b, a * 3, a * 3, a / 2, a @ v, u @ a, a @ w, a.T, 5 * np.eye(rows, columns), a, b,
            (a + b) * 2 - a,
        ]  # fmt: skip
        flat = [np.asarray(e, float).T.ravel() for e in expected]
        if columns == rows:
            flat.append(np.array([float(exact_determinant(a))]))
        out = np.zeros(sum(f.size for f in flat), dtype)
        program = whole(kernels(element), f"k{columns}x{rows}", checked=checked)
        launch(program, {"x": numbers.astype(dtype)}, {"o": out}, 1, 1)
        np.testing.assert_array_equal(out, np.concatenate(flat).astype(dtype), err_msg=f"{columns}x{rows}")


@pytest.mark.parametrize("size", [2, 3, 4])
def test_determinants_are_close_to_exact(size: int) -> None:
    text = f"""
kernel void k(device const float* x [[buffer(0)]], device float* o [[buffer(1)]], uint i [[thread_position_in_grid]]) {{
  float{size}x{size} m;
  for (int c = 0; c < {size}; c++) for (int r = 0; r < {size}; r++) m[c][r] = x[(i * {size} + c) * {size} + r];
  o[i] = determinant(m);
}}"""
    x = np.random.default_rng(3).normal(size=(200, size, size)).astype(np.float32)
    out = np.zeros(200, np.float32)
    launch(whole(text), {"x": x}, {"o": out}, 200, 32)
    for m, got in zip(x, out, strict=True):
        exact = float(exact_determinant(m.T))
        assert abs(got - exact) <= 2**-24 * abs(exact) + 1e-14


@pytest.mark.parametrize("checked", [True, False])
def test_matrices_in_every_address_space(checked: bool) -> None:
    text = """
constant float3x3 turn = float3x3(0, 1, 0, -1, 0, 0, 0, 0, 1);
struct Both { float2x3 a; half3x3 b; };
kernel void k(device const float3x3* in [[buffer(0)]], device float3x3* out [[buffer(1)]],
              constant float3x3& scale [[buffer(2)]], uint i [[thread_position_in_threadgroup]]) {
  threadgroup float3x3 shared[4];
  shared[i] = in[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  Both both = {float2x3(shared[3 - i][0], shared[3 - i][1].xyz), half3x3(1)};
  float3x3 m = float3x3(both.a[0], both.a[1], float3(0, 0, 1)) * turn;
  out[i] = float3x3(both.b) * m * scale;
  out[i][2].xy = packed_float2(i, 7);
}"""
    rng = np.random.default_rng(0)
    x, scale = (rng.integers(-4, 5, (n, 3, 4)).astype(np.float32) for n in (4, 1))
    out = np.zeros((4, 3, 4), np.float32)
    launch(whole(text, checked=checked), {"in": x}, {"out": out, "scale": scale}, 4, 4)
    turn = np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 1]]).T
    for i in range(4):
        m = np.array([x[3 - i, 0, :3], x[3 - i, 1, :3], [0, 0, 1]]).T
        expected = (m @ turn @ scale[0, :, :3].T).T
        expected[2, :2] = [i, 7]
        np.testing.assert_array_equal(out[i, :, :3], expected)


def test_what_programs_define_themselves_does_not_collide() -> None:
    # Metal has none of these, and programs that were generated from other shading languages bring them along
    text = """
template <typename T, int C, int R> matrix<T, C, R> operator-(matrix<T, C, R> m) {
  for (int i = 0; i < C; i++) m[i] = -m[i];
  return m;
}
template <typename T, int C, int R>
thread matrix<T, C, R>& operator*=(thread matrix<T, C, R>& a, matrix<T, C, C> b) { a = a * b; return a; }
bool operator==(const float2x2 a, const float2x2 b) { return all(a[0] == b[0]) && all(a[1] == b[1]); }
kernel void k(device float* o [[buffer(0)]]) {
  float2x2 m = float2x2(1, 2, 3, 4), n = -m;
  n *= m;
  m *= 2.0;
  o[0] = n[0][0]; o[1] = n[1][1]; o[2] = m == m; o[3] = m == n; o[4] = m[1][1];
}"""
    out = np.zeros(5, np.float32)
    launch(whole(text), {}, {"o": out}, 1, 1)
    square = np.array([[1, 2], [3, 4]]) @ np.array([[1, 2], [3, 4]])
    assert out.tolist() == [-square[0, 0], -square[1, 1], 1, 0, 8]


@pytest.mark.parametrize(
    "statement",
    [
        "float2x2 m = float2x2(1, 2);",
        "float2x2 m = float2x2(1, 2, 3);",
        "float2x3 m = float2x3(float2(1, 2), float2(3, 4));",
        "float2x2 m = float2x2(half2(1), half2(2));",
        "float3x3 m; float3x2 n; m = m + n;",
        "float3x3 m; float2 v; v = m * v;",
        "float3x3 m; m = m * float2x2(1);",
        "half2x2 m = float2x2(1);",
        "bool same = float2x2(1) == float2x2(1);",
        "float2x2 m(1); m = -m;",
        "float d = determinant(float2x3(1));",
        "matrix<int, 2, 2> m;",
        "matrix<float, 5, 2> m;",
    ],
)
def test_what_is_not_a_matrix_operation_is_an_error(statement: str) -> None:
    with pytest.raises(CompileError) as caught:
        whole(f"kernel void k() {{ {statement} }}")
    assert caught.value.diagnostics[0].site is not None


def test_a_column_that_is_not_there_is_a_fault() -> None:
    text = """
kernel void k(device const int* x [[buffer(0)]], device float* o [[buffer(1)]]) {
  float4x4 m = float4x4(1);
  o[0] = m[x[0]][0];
}"""
    out = np.zeros(1, np.float32)
    launch(whole(text), {"x": np.array([3], np.int32)}, {"o": out}, 1, 1)
    with pytest.raises(MemoryFault) as caught:
        launch(whole(text), {"x": np.array([4], np.int32)}, {"o": out}, 1, 1)
    assert caught.value.site is not None
    assert caught.value.site.line == 4


def test_names_of_headers_that_the_host_shares() -> None:
    text = """
#include <simd/simd.h>
#define SIZE 2
struct Shared { simd_float4x4 m; vector_float3 v; matrix_half2x3 h; simd_uint2 u[SIZE]; };
static_assert(sizeof(Shared) == 64 + 16 + 16 + 16, "as on the host");
kernel void k(device float* o [[buffer(0)]]) {
  Shared s = {float4x4(2), float3(1, 2, 3), half2x3(1), {uint2(4, 5)}};
  o[0] = (s.m * float4(s.v, s.u[0].y))[3] + s.h[1][1];
}"""
    out = np.zeros(1, np.float32)
    launch(whole(text), {}, {"o": out}, 1, 1)
    assert out[0] == 2 * 5 + 1
