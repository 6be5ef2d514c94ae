"""Vectors of 8 and 16 components, of ``metal_extended_vector``: subscripts, arithmetic, conversions, memory."""

from __future__ import annotations

import pytest
import torch

from metalwright import compile_shader

SOURCE = """
#include <metal_stdlib>
#include <metal_extended_vector>
using namespace metal;
template <class T, int N>
void combine(device T* a, device float* out) {
  static_assert(sizeof(vec<T, N>) == N * sizeof(T));
  vec<T, N> x;
  for (short i = 0; i < N; i++) x[i] = a[i];
  vec<T, N> y(T(2));
  y = x * y + x;
  y[1] = T(5);
  vec<T, N> z = *(const device vec<T, N>*)(a + N);
  z += y;
  *(device vec<float, N>*)(out) = vec<float, N>(z);
}
kernel void float_8(device float* a, device float* out) { combine<float, 8>(a, out); }
kernel void half_8(device half* a, device float* out) { combine<half, 8>(a, out); }
kernel void bfloat_16(device bfloat* a, device float* out) { combine<bfloat, 16>(a, out); }
kernel void int8_t_16(device int8_t* a, device float* out) { combine<int8_t, 16>(a, out); }
"""
DTYPES = {"float": torch.float32, "half": torch.float16, "bfloat": torch.bfloat16, "int8_t": torch.int8}


@pytest.mark.parametrize("name", ["float_8", "half_8", "bfloat_16", "int8_t_16"])
def test_vectors(name: str) -> None:
    element, count = name.rsplit("_", 1)
    n = int(count)
    a = torch.arange(2 * n).to(DTYPES[element])
    # a vector of 64 bytes must lie on a multiple of 64 bytes
    memory = torch.zeros(n + 16)
    out = memory[-memory.data_ptr() // 4 % 16 :][:n]
    compile_shader(SOURCE)[name](a, out, threads=1)
    expected = 3 * a[:n].double()
    expected[1] = 5
    assert torch.equal(out.double(), expected + a[n:].double())
