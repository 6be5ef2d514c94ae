"""Simdgroup matrices against NumPy: products, loads and stores, the elements of a lane, and what is caught."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from metalwright.errors import CompileError, KernelFault, MemoryFault
from tests.support import launch, whole

TYPES = {"float": np.float32, "half": np.float16, "bfloat": ml_dtypes.bfloat16}
LANES = np.arange(32)
# the places of a lane's two elements, as kernels compute them that use thread_elements()
QUAD = LANES // 4
ROW = (QUAD & 4) + (LANES // 2) % 4
COLUMN = (QUAD & 2) * 2 + (LANES % 2) * 2


def rounded_once(value: Fraction) -> np.float32:
    """The float nearest to a rational number: by way of a double that no second rounding can mislead."""
    near = float(value)
    if Fraction(near) != value and int(np.float64(near).view(np.int64)) % 2 == 0:
        near = float(np.nextafter(near, np.inf if Fraction(near) < value else -np.inf))
    return np.float32(near)


def multiplied(a: np.ndarray, b: np.ndarray, c: np.ndarray, dtype: type) -> np.ndarray:
    """a @ b + c: in float, one fused multiply-add after another in the order of k, and rounded to the type at the end."""
    out = np.empty((8, 8), dtype)
    for row in range(8):
        for column in range(8):
            total = np.float32(c[row, column])
            for k in range(8):
                exact = Fraction(float(a[row, k])) * Fraction(float(b[k, column])) + Fraction(float(total))
                total = rounded_once(exact)
            out[row, column] = total.astype(dtype)
    return out


def random(rng: np.random.Generator, *shape: int, dtype: type = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def assert_same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    bits = f"u{got.dtype.itemsize}"
    np.testing.assert_array_equal(got.view(bits), expected.view(bits))


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize(
    ("a_type", "b_type", "c_type", "d_type"),
    [
        ("float", "float", "float", "float"),
        ("half", "half", "half", "half"),
        ("bfloat", "bfloat", "bfloat", "bfloat"),
        ("half", "half", "float", "float"),
        ("bfloat", "bfloat", "float", "float"),
        ("half", "float", "float", "float"),
        ("float", "bfloat", "half", "bfloat"),
    ],
)
def test_products_sum_in_float_in_the_order_of_k(
    a_type: str, b_type: str, c_type: str, d_type: str, checked: bool
) -> None:
    text = f"""
#include <metal_simdgroup_matrix>
kernel void k(device const {a_type}* a, device const {b_type}* b, device const {c_type}* c,
              device {d_type}* sum, device {d_type}* product) {{
  simdgroup_matrix<{a_type}, 8, 8> A;
  simdgroup_matrix<{b_type}, 8, 8> B;
  simdgroup_matrix<{c_type}, 8, 8> C;
  simdgroup_matrix<{d_type}, 8, 8> D;
  simdgroup_load(A, a);
  simdgroup_load(B, b);
  simdgroup_load(C, c);
  simdgroup_multiply_accumulate(D, A, B, C);
  simdgroup_store(D, sum);
  simdgroup_multiply(D, A, B);
  simdgroup_store(D, product);
}}"""
    rng = np.random.default_rng(1)
    for scale in (1, 1e-4, 200):
        a, b = random(rng, 8, 8, dtype=TYPES[a_type]), random(rng, 8, 8, dtype=TYPES[b_type])
        a, c = (a * scale).astype(TYPES[a_type]), random(rng, 8, 8, dtype=TYPES[c_type])
        total, product = np.zeros((8, 8), TYPES[d_type]), np.zeros((8, 8), TYPES[d_type])
        launch(whole(text, checked=checked), {"a": a, "b": b, "c": c}, {"d": total, "p": product}, 32, 32)
        assert_same_bits(total, multiplied(a, b, c, TYPES[d_type]))
        assert_same_bits(product, multiplied(a, b, np.zeros((8, 8)), TYPES[d_type]))


@pytest.mark.parametrize("name", TYPES)
def test_constructors(name: str) -> None:
    text = f"""
kernel void k(device {name}* diagonal, device {name}* filled, device {name}* product) {{
  simdgroup_{name}8x8 a({name}(3)), b = make_filled_simdgroup_matrix<{name}, 8, 8>({name}(2));
  simdgroup_store(a, diagonal);
  simdgroup_store(b, filled);
  simdgroup_store(a * make_filled_simdgroup_matrix<{name}, 8>(5), product);
}}"""
    diagonal, filled, product = (np.zeros((8, 8), TYPES[name]) for _ in range(3))
    launch(whole(text), {}, {"diagonal": diagonal, "filled": filled, "product": product}, 32, 32)
    np.testing.assert_array_equal(diagonal.astype(np.float32), 3 * np.eye(8))
    np.testing.assert_array_equal(filled.astype(np.float32), np.full((8, 8), 2))
    np.testing.assert_array_equal(product.astype(np.float32), np.full((8, 8), 15))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("width", "x", "y"), [(8, 0, 0), (13, 4, 3), (29, 21, 1), (9, 1, 9)])
def test_loads_and_stores_anywhere(name: str, transpose: bool, width: int, x: int, y: int) -> None:
    flag = str(transpose).lower()
    text = f"""
kernel void k(device const {name}* from, device {name}* loaded, device {name}* to) {{
  simdgroup_matrix<{name}, 8, 8> m;
  simdgroup_load(m, from, {width}, ulong2({x}, {y}), {flag});
  simdgroup_store(m, loaded);
  simdgroup_store(m, to, {width}, ulong2({x}, {y}), {flag});
}}"""
    memory = random(np.random.default_rng(2), 17, width, dtype=TYPES[name])
    loaded, stored = np.zeros((8, 8), TYPES[name]), np.zeros_like(memory)
    launch(whole(text), {"from": memory}, {"loaded": loaded, "to": stored}, 32, 32)
    part = memory[y : y + 8, x : x + 8]
    assert_same_bits(loaded, part.T.copy() if transpose else part.copy())
    expected = np.zeros_like(memory)
    expected[y : y + 8, x : x + 8] = part
    assert_same_bits(stored, expected)


def test_the_elements_of_a_lane() -> None:
    text = """
template <typename T> struct Frag {
  using mat_type = simdgroup_matrix<T, 8, 8>;
  using frag_type = vec<T, 2>;
  static void mma(thread frag_type& d, thread frag_type& a, thread frag_type& b, thread frag_type& c) {
    mat_type D, A, B, C;
    reinterpret_cast<thread frag_type&>(A.thread_elements()) = a;
    reinterpret_cast<thread frag_type&>(B.thread_elements()) = b;
    reinterpret_cast<thread frag_type&>(C.thread_elements()) = c;
    simdgroup_multiply_accumulate(D, A, B, C);
    d = reinterpret_cast<thread frag_type&>(D.thread_elements());
  }
};
kernel void k(device const float* x, device float2* elements, device float* twice, device float2* product,
              uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 m;
  simdgroup_load(m, x);
  float2 own = m.thread_elements();
  elements[lane] = own;
  m.thread_elements()[0] *= 2;
  m.thread_elements().y *= 2;
  simdgroup_store(m, twice);
  float2 d, zero = 0;
  Frag<float>::mma(d, own, own, zero);
  product[lane] = d;
}"""
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    elements, product = np.zeros((32, 2), np.float32), np.zeros((32, 2), np.float32)
    twice = np.zeros_like(x)
    launch(whole(text), {"x": x}, {"e": elements, "t": twice, "p": product}, 32, 32)
    np.testing.assert_array_equal(elements, np.stack([x[ROW, COLUMN], x[ROW, COLUMN + 1]], 1))
    np.testing.assert_array_equal(twice, 2 * x)
    square = x @ x
    np.testing.assert_array_equal(product, np.stack([square[ROW, COLUMN], square[ROW, COLUMN + 1]], 1))


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_matrix_product_by_several_simdgroups(checked: bool, reverse: bool) -> None:
    """32 x 24 by 24 x 16: each of a threadgroup's four simdgroups makes one 16 x 8 block from threadgroup memory."""
    text = """
constant constexpr int K = 24, N = 16;
kernel void k(device const half* a, device const half* b, device float* c,
              uint thread_index [[thread_index_in_threadgroup]], uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup half left[32][8 + 4];
  threadgroup half right[8 * N];
  const int row = simd / 2 * 16, column = simd % 2 * 8;
  simdgroup_float8x8 sums[2];
  for (auto i = 0; i < 2; i++) sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0);
  for (int k = 0; k < K; k += 8) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = thread_index; i < 32 * 8; i += 128) left[i / 8][i % 8] = a[i / 8 * K + k + i % 8];
    for (int i = thread_index; i < 8 * N; i += 128) right[i] = b[k * N + i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_half8x8 x, y;
    simdgroup_load(y, right, N, ulong2(column, 0));
    for (int i = 0; i < 2; i++) {
      simdgroup_load(x, &left[row + 8 * i][0], 8 + 4);
      simdgroup_multiply_accumulate(sums[i], x, y, sums[i]);
    }
  }
  for (int i = 0; i < 2; i++) simdgroup_store(sums[i], c, N, ulong2(column, row + 8 * i));
}"""
    rng = np.random.default_rng(3)
    # small integers: every order of summation gives the same
    a, b = rng.integers(-9, 9, (32, 24)).astype(np.float16), rng.integers(-9, 9, (24, 16)).astype(np.float16)
    c = np.zeros((32, 16), np.float32)
    launch(whole(text, checked=checked), {"a": a, "b": b}, {"c": c}, 128, 128, reverse=reverse)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def test_a_constant_argument_can_be_loaded() -> None:
    text = """
kernel void k(constant float* x, device float* out) {
  simdgroup_float8x8 m;
  simdgroup_load(m, x, 8, ulong2(0), true);
  simdgroup_store(m, out);
}"""
    x = random(np.random.default_rng(4), 8, 8)
    out = np.zeros_like(x)
    launch(whole(text), {"x": x}, {"out": out}, 32, 32)
    np.testing.assert_array_equal(out, x.T)


def test_a_load_outside_a_buffer_names_it() -> None:
    text = """
kernel void k(device const float* narrow, device float* out) {
  simdgroup_float8x8 m;
  simdgroup_load(m, narrow, 8, ulong2(0, 1));
  simdgroup_store(m, out);
}"""
    with pytest.raises(MemoryFault, match="'narrow'") as caught:
        launch(
            whole(text), {"narrow": np.zeros((8, 8), np.float32)}, {"out": np.zeros(64, np.float32)}, 32, 32
        )
    assert caught.value.site is not None
    assert caught.value.site.line == 4


def test_a_store_outside_threadgroup_memory_names_the_variable() -> None:
    text = """
kernel void k(device float* out) {
  threadgroup float tile[8 * 8];
  simdgroup_float8x8 m(1);
  simdgroup_store(m, tile, 9);
  out[0] = tile[0];
}"""
    with pytest.raises(MemoryFault, match="'tile'") as caught:
        launch(whole(text), {}, {"out": np.zeros(1, np.float32)}, 32, 32)
    assert caught.value.site is not None
    assert caught.value.site.line == 5


@pytest.mark.parametrize(("condition", "threads", "count"), [("lane < 20", 32, 20), ("true", 40, 8)])
def test_a_product_needs_every_lane(condition: str, threads: int, count: int) -> None:
    text = f"""
kernel void k(device float* out, uint lane [[thread_index_in_simdgroup]], uint at [[thread_position_in_grid]]) {{
  simdgroup_float8x8 m(1);
  if ({condition})
    simdgroup_multiply(m, m, m);
  out[at] = m.thread_elements().x;
}}"""
    with pytest.raises(KernelFault, match=f"{count} of a simdgroup's 32 lanes") as caught:
        launch(whole(text), {}, {"out": np.zeros(64, np.float32)}, threads, threads)
    assert caught.value.site is not None
    assert caught.value.site.line == 5
    launch(whole(text, checked=False), {}, {"out": np.zeros(64, np.float32)}, threads, threads)


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("simdgroup_matrix<int, 8, 8> m;", "float, half or bfloat"),
        ("simdgroup_matrix<float, 16, 8> m;", "8 columns and 8 rows"),
        ("simdgroup_half8x8 m; simdgroup_load(m, out);", "simdgroup_load"),
    ],
)
def test_what_is_no_simdgroup_matrix(statement: str, sentence: str) -> None:
    with pytest.raises(CompileError, match=sentence):
        whole(f"kernel void k(device float* out) {{ {statement} }}")
