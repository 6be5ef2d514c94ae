"""Tensors with a plane of block scales against NumPy and ml_dtypes: products, slices, elements, what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from test_matmul2d import HEAD
from test_packed_products import packed

from metalwright import CompileError, MemoryFault, compile_shader

FORMATS: dict[str, tuple[int, Any]] = {
    "metal_fp8_e4m3_format": (8, ml_dtypes.float8_e4m3fn),
    "metal_fp8_e5m2_format": (8, ml_dtypes.float8_e5m2),
    "metal_fp4_e2m1_format": (4, ml_dtypes.float4_e2m1fn),
}
TYPES = """
using scales = tensor_blockwise<tensor_plane_scales, device metal_fp8_ue8m0_format, 32, 1>;
using plain = tensor<device LEFT, shape, tensor_inline>;
using scaled = tensor<device FORMAT, shape, tensor_inline, scales>;
"""
PRODUCT = """
kernel void product(device uchar* A, device uchar* As, device uchar* B, device uchar* Bs, device float* C,
                    constant int4& size, uint2 group [[threadgroup_position_in_grid]]) {
  const int m = size.x, n = size.y, k = size.z;
  scaled a(A, shape(k, m), array<int, 2>({1, k}), scales(As));
  scaled b(B, shape(k, n), array<int, 2>({1, k}), scales(Bs));
  tensor<device float, shape, tensor_inline> c(C, shape(n, m));
  constexpr auto descriptor = matmul2d_descriptor(16, 32, dynamic_length_v<int>, false, true);
  matmul2d<descriptor, execution_simdgroups<2>> op;
  auto ta = a.slice(0, group.y * 16);
  auto tb = b.slice(0, group.x * 32);
  auto tc = c.slice(group.x * 32, group.y * 16);
  op.run(ta, tb, tc);
}
"""


def operand(name: str, rows: int, k: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Return random codes as bytes, their scales as bytes, and the matrix that they stand for."""
    bits, dtype = FORMATS[name]
    rng = np.random.default_rng(seed)
    all_codes = np.arange(1 << bits, dtype=np.uint8)
    with np.errstate(invalid="ignore"):
        meaning = all_codes.view(dtype).astype(np.float64)
    usual = all_codes[np.isfinite(meaning) & (np.abs(meaning) < 1000)]
    codes = rng.choice(usual, (rows, k))
    scales = rng.integers(120, 135, (rows, -(-k // 32)), dtype=np.uint8)
    factors = np.repeat(2.0 ** (scales.astype(np.float64) - 127), 32, axis=1)[:, :k]
    return packed(torch.from_numpy(codes), bits), torch.from_numpy(scales), meaning[codes] * factors


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("k", [32, 96, 80])
def test_products_of_two_scaled_matrices(name: str, k: int) -> None:
    m, n = 27, 50
    a, a_scales, left = operand(name, m, k, 1)
    b, b_scales, right = operand(name, n, k, 2)
    c = torch.full((m, n), torch.nan)
    size = torch.tensor([m, n, k, 0], dtype=torch.int32)
    library = compile_shader(HEAD + TYPES.replace("FORMAT", name).replace("LEFT", "half") + PRODUCT)
    library.product(a, a_scales, b, b_scales, c, size, threads=(128, 2), group_size=(64, 1))
    bound = (np.abs(left) @ np.abs(right).T) * k * 2.0**-24
    assert (np.abs(c.double().numpy() - left @ right.T) <= bound).all()


def kernel(body: str, name: str = "metal_fp4_e2m1_format") -> str:
    """Return a kernel around a tensor ``b`` of 64 by 8 elements with scales."""
    text = HEAD + TYPES.replace("FORMAT", name).replace("LEFT", "half")
    return f"""{text}
kernel void k(device half* A, device uchar* B, device uchar* S, device float* C,
              uint i [[thread_index_in_threadgroup]]) {{
  plain a(A, shape(64, 4));
  scaled b(B, shape(64, 8), array<int, 2>({{1, 64}}), scales((device metal_fp8_ue8m0_format*)S));
  tensor<device float, shape, tensor_inline> c(C, shape(8, 4));
  {body}
}}"""


@pytest.mark.parametrize(("offset", "depth"), [(32, 32), (16, 32), (40, 24)])
def test_a_slice_along_k_takes_its_scales_along(offset: int, depth: int) -> None:
    body = f"""
  constexpr auto descriptor = matmul2d_descriptor(4, 4, {depth}, false, true);
  matmul2d<descriptor, execution_simdgroup> op;
  auto ta = a.slice({offset}, 0);
  auto first = b.slice(8, 1);
  auto tb = first.slice<{depth}, 4>({offset - 8}, 2);
  auto out = op.get_destination_cooperative_tensor<decltype(ta), decltype(tb), float>();
  op.run(ta, tb, out);
  auto tc = c.slice<4, 4>(0, 0);
  out.store(tc);"""
    b, scales, right = operand("metal_fp4_e2m1_format", 8, 64, 3)
    a, c = torch.arange(-128, 128).reshape(4, 64).half() / 16, torch.zeros(4, 8)
    compile_shader(kernel(body)).k(a, b, scales, c, threads=32, group_size=32)
    left = a.double().numpy()[:, offset : offset + depth]
    expected = left @ right[3:7, offset : offset + depth].T
    bound = (np.abs(left) @ np.abs(right[3:7, offset : offset + depth]).T) * depth * 2.0**-24
    assert (np.abs(c[:, :4].double().numpy() - expected) <= bound).all()
    assert not c[:, 4:].any()


def test_an_element_is_read_from_the_plane_of_the_data() -> None:
    body = "if (i < 32) { auto t = b.slice(32, 1); C[i] = t[i, 2]; static_assert(sizeof(a) < sizeof(b)); }"
    b, scales, _ = operand("metal_fp8_e5m2_format", 8, 64, 4)
    scales.fill_(130)  # a factor of 8 that an element read does not show
    c = torch.zeros(4, 8)
    compile_shader(kernel(body, "metal_fp8_e5m2_format")).k(
        torch.zeros(4, 64).half(), b, scales, c, threads=32
    )
    expected = b.view(torch.float8_e5m2).float()[3, 32:]
    assert torch.equal(c.flatten(), expected)


def test_extreme_scales() -> None:
    body = """
  constexpr auto descriptor = matmul2d_descriptor(4, 8, 64, false, true);
  matmul2d<descriptor, execution_simdgroup> op;
  op.run(a, b, c);"""
    codes = torch.zeros(8, 64, dtype=torch.uint8)
    codes[:, 0] = 4  # 2 in e2m1; all others are zero
    scales = torch.full((8, 2), 127, dtype=torch.uint8)
    scales[:, 0] = torch.tensor([0, 1, 126, 127, 128, 200, 253, 255])
    a, c = torch.zeros(4, 64).half(), torch.zeros(4, 8)
    a[:, 0] = 1
    compile_shader(kernel(body)).k(a, packed(codes, 4), scales, c, threads=32, group_size=32)
    factors = scales[:, 0].numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    np.testing.assert_array_equal(c.numpy(), np.tile(factors * np.float32(2), (4, 1)))


def test_scales_that_end_early_are_a_fault() -> None:
    body = """
  constexpr auto descriptor = matmul2d_descriptor(4, 8, 64, false, true);
  matmul2d<descriptor, execution_simdgroup> op;
  op.run(a, b, c);"""
    b, scales, _ = operand("metal_fp4_e2m1_format", 8, 64, 3)
    short = scales.flatten()[:15].clone()
    with pytest.raises(MemoryFault, match="'S'"):
        compile_shader(kernel(body)).k(torch.zeros(4, 64).half(), b, short, torch.zeros(4, 8), threads=32)


REFUSED = {
    "a right operand of matmul2d with scales is transposed": ("32, 1", "a, b, c", "false, false"),
    "a left operand of matmul2d with scales is not transposed": ("32, 1", "b, a, c", "true, true"),
    "the blocks of an operand of matmul2d are 32, 1": ("16, 1", "a, b, c", "false, true"),
    "a plane's blocks have as many sizes as the tensor has dimensions": ("32", "a, b, c", "false, true"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_metal_refuses(message: str) -> None:
    blocks, operands, transposes = REFUSED[message]
    body = f"""
  constexpr auto descriptor = matmul2d_descriptor(4, 8, 64, {transposes});
  matmul2d<descriptor, execution_simdgroup> op;
  op.run({operands});"""
    text = kernel(body, "metal_fp8_e4m3_format").replace("32, 1>", f"{blocks}>")
    if operands.startswith("b"):  # only the same format stands on the left
        text = text.replace("device half, shape", "device metal_fp8_e4m3_format, shape").replace(
            "half* A", "uchar* A"
        )
    with pytest.raises(CompileError, match=message):
        compile_shader(text)


def test_scales_of_another_type() -> None:
    body = """
  constexpr auto descriptor = matmul2d_descriptor(4, 8, 64, false, true);
  matmul2d<descriptor, execution_simdgroup> op;
  op.run(a, b, c);"""
    text = kernel(body).replace("metal_fp8_ue8m0_format", "metal_fp8_e4m3_format")
    with pytest.raises(CompileError, match="scales of an operand of matmul2d are metal_fp8_ue8m0_format"):
        compile_shader(text)


@pytest.mark.parametrize("tags", ["", ", scales"])
def test_a_handle_of_a_packed_format_is_no_parameter(tags: str) -> None:
    text = HEAD + TYPES.replace("FORMAT", "metal_fp8_e4m3_format").replace("LEFT", "half")
    text += f"kernel void k(tensor<device metal_fp8_e4m3_format, shape, tensor_handle{tags}> t [[buffer(0)]]) {{}}"
    with pytest.raises(CompileError, match="takes a packed format as its bytes"):
        compile_shader(text)


def test_a_tensor_with_scales_does_not_become_one_without() -> None:
    with pytest.raises(CompileError):
        compile_shader(
            kernel("tensor<device metal_fp4_e2m1_format, shape, tensor_inline> bare(b); (void)bare;")
        )


def test_a_cooperative_tensor_does_not_leave_scales_out() -> None:
    body = """
  constexpr auto descriptor = matmul2d_descriptor(4, 8, 64, false, true);
  matmul2d<descriptor, execution_simdgroup> op;
  auto right = op.get_right_input_cooperative_tensor<half, float, float>();
  right.load(b);"""
    with pytest.raises(CompileError, match="does not load from a tensor with scales"):
        compile_shader(kernel(body))


def test_macros_tell_that_it_is_there() -> None:
    text = """
kernel void k(device int* out) {
#if defined(__HAVE_TENSOR__) && defined(__HAVE_TENSOR_MULTIPLANE__) && defined(__HAVE_METAL_FP4_E2M1_FORMAT_TYPE__)
  out[0] = 1;
#endif
}"""
    out = torch.zeros(1, dtype=torch.int32)
    compile_shader(text).k(out)
    assert out.item() == 1
