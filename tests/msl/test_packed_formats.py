"""Packed formats as elements of tensors, against ml_dtypes: every code, rows and slices, what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import metalwright
from metalwright.errors import ArgumentError, CompileError, MemoryFault
from tests.support import launch, whole

FLOATS: dict[str, Any] = {
    "metal_fp8_e4m3_format": ml_dtypes.float8_e4m3fn,
    "metal_fp8_e5m2_format": ml_dtypes.float8_e5m2,
    "metal_fp8_ue8m0_format": ml_dtypes.float8_e8m0fnu,
    "metal_fp4_e2m1_format": ml_dtypes.float4_e2m1fn,
}
INTEGERS = {"int4b_format": 4, "uint4b_format": 4, "int2b_format": 2, "uint2b_format": 2}
BITS = {name: 4 if "fp4" in name else 8 for name in FLOATS} | INTEGERS


def pack(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes of the last axis into bytes, the first in the low bits."""
    each = 8 // bits
    parts = codes.astype(np.uint8).reshape(*codes.shape[:-1], -1, each)
    return np.bitwise_or.reduce(parts << (bits * np.arange(each, dtype=np.uint8)), axis=-1, dtype=np.uint8)


def values(name: str, codes: np.ndarray) -> np.ndarray:
    """What reading an element gives: a number, or an integer's code without a sign."""
    if name in INTEGERS:
        return codes.astype(np.float32)
    # of a type narrower than a byte ml_dtypes keeps one in each byte
    return codes.astype(np.uint8).view(FLOATS[name]).astype(np.float32)


def random_codes(name: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 1 << BITS[name], shape)


@pytest.mark.parametrize(("checked", "math_mode"), [(True, "safe"), (False, "safe"), (False, "fast")])
@pytest.mark.parametrize("name", BITS)
def test_every_code(name: str, checked: bool, math_mode: str) -> None:
    codes = np.arange(1 << BITS[name])
    text = f"""
kernel void k(device uchar* w, device float* out, uint i [[thread_position_in_grid]]) {{
  tensor<device {name}, dextents<int, 1>, tensor_inline> t(w, dextents<int, 1>({codes.size}));
  out[i] = t[i];
}}"""
    out = np.zeros(codes.size, np.float32)
    program = whole(text, checked=checked, math_mode=math_mode)
    launch(program, {"w": pack(codes, BITS[name])}, {"out": out}, codes.size, 32)
    expected = values(name, codes)
    np.testing.assert_array_equal(out, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(out[numbers]), np.signbit(expected[numbers]))


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("width", [128, 72, 512])
def test_rows_begin_at_multiples_of_64_bytes_unless_strides_say_otherwise(name: str, width: int) -> None:
    bits = BITS[name]
    multiple = 512 // bits if bits < 8 else 1
    padded = -(-width // multiple) * multiple
    text = f"""
kernel void k(device uchar* dense, const device uchar* padded, device float* a, device float* b, device int* strides,
              uint2 at [[thread_position_in_grid]]) {{
  using packed = tensor<device {name}, dextents<int, 2>, tensor_inline>;
  tensor<device const {name}, dextents<int, 2>, tensor_inline> implied(padded, dextents<int, 2>({width}, 3));
  packed given(dense, dextents<int, 2>{{{width}, 3}}, array<int, 2>{{1, {width}}});
  packed cast((device {name}*)dense, dextents<int, 2>{{{width}, 3}}, array<int, 2>{{1, {width}}});
  a[at.y * {width} + at.x] = implied[at.x, at.y];
  b[at.y * {width} + at.x] = given[array<uint, 2>{{at.x, at.y}}] == cast[at.x, at.y] ? given[at.x, at.y] : NAN;
  strides[0] = implied.get_stride(1);
  strides[1] = given.get_stride(1);
  static_assert(is_same_v<decltype(given.get_data()), uchar*>);
}}"""
    codes = random_codes(name, 3, width)
    # every code of which reading is a number equal to itself
    codes[np.isnan(values(name, codes))] = 1
    rows = np.zeros((3, padded), int)
    rows[:, :width] = codes
    a, b, strides = np.zeros((3, width), np.float32), np.zeros((3, width), np.float32), np.zeros(2, np.int32)
    inputs = {"dense": pack(codes, bits), "padded": pack(rows, bits)}
    launch(whole(text), inputs, {"a": a, "b": b, "s": strides}, (width, 3), (32, 1))
    np.testing.assert_array_equal(a, values(name, codes))
    np.testing.assert_array_equal(b, values(name, codes))
    assert strides.tolist() == [padded, width]


@pytest.mark.parametrize(
    "name", ["int4b_format", "uint2b_format", "metal_fp4_e2m1_format", "metal_fp8_e5m2_format"]
)
def test_slices_may_begin_inside_a_byte(name: str) -> None:
    text = f"""
kernel void k(device uchar* w, device float* out, uint2 at [[thread_position_in_grid]]) {{
  tensor<device {name}, dextents<int, 2>, tensor_inline> t(w, dextents<int, 2>(24, 5), array<int, 2>{{1, 24}});
  auto part = t.slice(3, 1);
  auto inner = part.slice<6, 2>(2, 1);
  out[at.y * 21 + at.x] = part[at.x, at.y];
  if (at.x < 6 && at.y < 2) out[84 + at.y * 6 + at.x] = inner[at.x, at.y];
  if (at.x == 0 && at.y == 0) out[96] = part.get_extent(0) * 100 + part.get_extent(1) * 10 + inner.get_extent(1);
}}"""
    codes = random_codes(name, 5, 24)
    codes[np.isnan(values(name, codes))] = 1
    out = np.zeros(97, np.float32)
    launch(whole(text), {"w": pack(codes, BITS[name])}, {"out": out}, (21, 4), (21, 1))
    all_values = values(name, codes)
    np.testing.assert_array_equal(out[:84].reshape(4, 21), all_values[1:, 3:])
    np.testing.assert_array_equal(out[84:96].reshape(2, 6), all_values[2:4, 5:11])
    assert out[96] == 2100 + 40 + 2


def test_packed_codes_in_threadgroup_memory() -> None:
    text = """
kernel void k(device const uchar* w, device int* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup uchar bytes[16];
  if (i < 16) bytes[i] = w[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  tensor<threadgroup uint4b_format, dextents<int, 1>, tensor_inline> t(bytes, dextents<int, 1>(32));
  out[i] = (int)t[31 - i];
}"""
    codes = np.random.default_rng(6).integers(0, 16, 32)
    out = np.zeros(32, np.int32)
    launch(whole(text), {"w": pack(codes, 4)}, {"out": out}, 32, 32)
    np.testing.assert_array_equal(out, codes[::-1])


def test_a_read_outside_the_bytes_names_the_buffer() -> None:
    text = """
kernel void k(device uchar* weights, device float* out) {
  tensor<device int4b_format, dextents<int, 2>, tensor_inline> t(weights, dextents<int, 2>(8, 2));
  out[0] = t[7, 0];
  out[1] = t[0, 1];
}"""
    # dense rows, where the tensor's are 64 bytes apart
    with pytest.raises(MemoryFault, match="'weights'") as caught:
        launch(whole(text), {"weights": np.zeros((2, 4), np.uint8)}, {"out": np.zeros(2, np.float32)}, 1, 1)
    assert caught.value.site is not None
    assert caught.value.site.line == 5


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("kernel void k(device uchar* w) { T t(w, dextents<int, 1>(4)); t[0] = 1; }", "assign"),
        (
            "kernel void k(tensor<device int4b_format, dextents<int, 1>> t [[buffer(0)]]) {}",
            "device uchar\\*",
        ),
        ("kernel void k(device uchar* w) { int4b_format x; }", "incomplete"),
    ],
)
def test_what_packed_formats_are_not_for(text: str, sentence: str) -> None:
    with pytest.raises(CompileError, match=sentence):
        whole("using T = tensor<device int4b_format, dextents<int, 1>, tensor_inline>;\n" + text)


FLOAT8 = {
    torch.float8_e4m3fn: "metal_fp8_e4m3_format",
    torch.float8_e5m2: "metal_fp8_e5m2_format",
    torch.float8_e8m0fnu: "metal_fp8_ue8m0_format",
}


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_float8_tensors_are_bound_as_bytes(dtype: torch.dtype) -> None:
    source = f"""
kernel void widen(device uchar* w, device float* out, uint i [[thread_position_in_grid]]) {{
  tensor<device {FLOAT8[dtype]}, dextents<int, 1>, tensor_inline> t(w, dextents<int, 1>(64));
  out[i] = t[i];
}}
kernel void wrong(device float* w) {{ w[0] = 1; }}"""
    library = metalwright.compile_shader("#include <metal_stdlib>\nusing namespace metal;\n" + source)
    weights = torch.rand(64, generator=torch.Generator().manual_seed(1)).mul(3).to(dtype)
    out = torch.zeros(64)
    library.widen(weights, out, threads=64)
    assert torch.equal(out, weights.float())
    with pytest.raises(ArgumentError, match="takes its bytes"):
        library.wrong(weights)


def dequantised_product(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    codes = torch.stack([w & 15, w >> 4], -1).flatten(1).to(torch.int32)
    return x @ torch.where(codes > 7, codes - 16, codes).float() * scale


def test_a_kernel_of_core_ai_takes_packed_weights_as_uint8() -> None:
    """A dequantising product: x [K] with int4 weights [K, N] packed along N, a scale for each column."""
    columns, depth = 128, 12
    kernel = metalwright.MetalKernel(
        "dequantise",
        input_names=["x", "w", "scale"],
        result_names=["out"],
        src="""
tensor<device int4b_format, dextents<int, 2>, tensor_inline> q(&w[0, 0], dextents<int, 2>(out.get_extent(0), x.get_extent(0)));
float sum = 0;
for (int k = 0; k < x.get_extent(0); k++) {
  int code = (int)q[n, k];
  sum += x[k] * float(code > 7 ? code - 16 : code);
}
out[n] = sum * scale[n];
""",
        torch_defn=dequantised_product,
        metal_params=[metalwright.MetalParameter("n", "uint", "thread_position_in_grid")],
    )
    rng = np.random.default_rng(7)
    codes = rng.integers(-8, 8, (depth, columns))
    x, scale = torch.tensor(rng.integers(-4, 5, depth), dtype=torch.float32), torch.full((columns,), 0.5)
    w = torch.from_numpy(pack(codes & 15, 4))
    out = kernel(
        x, w, scale,
        threads_per_grid=(columns, 1, 1), threads_per_thread_group=(32, 1, 1), result_shapes=[(columns,)],
    )  # fmt: skip
    np.testing.assert_array_equal(out.numpy(), x.numpy() @ codes.astype(np.float32) * 0.5)
    assert torch.equal(out, kernel.reference(x, w, scale))
    with pytest.raises(ArgumentError, match=r"w\.view\(torch\.uint8\)"):
        kernel(
            x, w.view(torch.float8_e4m3fn), scale,
            threads_per_grid=(columns, 1, 1), threads_per_thread_group=(32, 1, 1), result_shapes=[(columns,)],
        )  # fmt: skip


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize(
    ("activations", "name", "result"),
    [
        ("half", name, "float")
        for name in ("int4b_format", "uint4b_format", "metal_fp8_e4m3_format", "metal_fp4_e2m1_format")
    ]
    + [
        ("int8_t", "int4b_format", "int"),
        ("uint8_t", "uint4b_format", "int"),
        ("int8_t", "int2b_format", "int"),
    ],
)
def test_matmul2d_takes_packed_weights(
    activations: str, name: str, result: str, transposed: bool, checked: bool
) -> None:
    m, n, k = 16, 32, 48
    rows, columns = (n, k) if transposed else (k, n)
    text = f"""
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace mpp::tensor_ops;
kernel void k(device {activations}* a, device uchar* w, device {result}* c) {{
  constexpr auto descriptor = matmul2d_descriptor({m}, {n}, {k}, false, {str(transposed).lower()});
  matmul2d<descriptor, execution_simdgroup> op;
  auto A = tensor(a, dextents<int, 2>{{{k}, {m}}}, array<int, 2>{{1, {k}}});
  tensor<device {name}, dextents<int, 2>, tensor_inline> W(
      w, dextents<int, 2>{{{columns}, {rows}}}, array<int, 2>{{1, {columns}}});
  auto C = tensor(c, dextents<int, 2>{{{n}, {m}}}, array<int, 2>{{1, {n}}});
  op.run(A, W, C);
}}"""
    rng = np.random.default_rng(8)
    codes = rng.integers(0, 0x78 if BITS[name] == 8 else 1 << BITS[name], (rows, columns))
    weights = values(name, codes)
    if name in ("int4b_format", "int2b_format"):
        weights = np.where(codes >> (BITS[name] - 1), codes - (1 << BITS[name]), codes).astype(np.float32)
    dtype = {"half": np.float16, "int8_t": np.int8, "uint8_t": np.uint8}[activations]
    # small integers: sums of the products with short fractions are exact
    a = rng.integers(0 if activations == "uint8_t" else -3, 4, (m, k)).astype(dtype)
    out = np.zeros((m, n), np.int32 if result == "int" else np.float32)
    launch(whole(text, checked=checked), {"a": a, "w": pack(codes, BITS[name])}, {"c": out}, 32, 32)
    expected = a.astype(np.float64) @ (weights.T if transposed else weights).astype(np.float64)
    np.testing.assert_array_equal(out, expected)
