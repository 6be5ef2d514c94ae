"""``matmul2d`` with operands in packed formats against NumPy: integers of 4 and 2 bits, floats of 8 and 4."""

from __future__ import annotations

import pytest
import torch
from test_matmul2d import HEAD, TORCH, values

from metalwright import CompileError, compile_shader

KERNEL = """
kernel void product(device LEFT* A, device uchar* B, device OUT* C, constant int4& size) {
  auto a = tensor(A, shape(size.z, size.x));
  auto b = tensor<device RIGHT, shape, tensor_inline>(B, shape(size.z, size.y), array<int32_t, 2>{1, size.w});
  auto c = tensor(C, shape(size.y, size.x));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, dynamic_length_v<int>, false, true);
  matmul2d<descriptor, execution_simdgroups<2>> op;
  op.run(a, b, c);
}
"""
# from their definitions: the value of each code
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
MEANINGS = {
    "int4b_format": torch.tensor([*range(8), *range(-8, 0)], dtype=torch.float64),
    "uint4b_format": torch.arange(16, dtype=torch.float64),
    "int2b_format": torch.tensor([0, 1, -2, -1], dtype=torch.float64),
    "uint2b_format": torch.arange(4, dtype=torch.float64),
    "metal_fp4_e2m1_format": torch.tensor(E2M1 + [-x for x in E2M1], dtype=torch.float64),
    "metal_fp8_e4m3_format": torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).double(),
    "metal_fp8_e5m2_format": torch.arange(256, dtype=torch.uint8).view(torch.float8_e5m2).double(),
}
CASES = """
half int4b_format half | half uint4b_format float | bfloat int4b_format float | bfloat uint4b_format bfloat
int8_t int4b_format int | uint8_t uint4b_format int | half int2b_format float | uint8_t uint2b_format int
half metal_fp4_e2m1_format float | half metal_fp8_e4m3_format half | half metal_fp8_e5m2_format float
"""


def packed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Return codes as bytes, the first of each byte in its low bits."""
    each = 8 // bits
    return sum(codes[:, i::each].int() << (bits * i) for i in range(each)).to(torch.uint8)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "types", [row.strip() for line in CASES.strip().splitlines() for row in line.split("|")]
)
def test_products(types: str) -> None:
    left, right, out = types.split()
    meaning = MEANINGS[right]
    bits = len(meaning).bit_length() - 1
    m, n, k = 27, 30, 48
    finite = torch.nonzero(meaning.isfinite() & (meaning.abs() < 1000)).flatten()
    generator = torch.Generator().manual_seed(bits)
    codes = finite[torch.randint(len(finite), (n, k), generator=generator)]
    a, c = values(TORCH[left], m, k), torch.full((m, n), 7, dtype=TORCH[out])
    size = torch.tensor([m, n, k, k], dtype=torch.int32)
    text = HEAD + KERNEL.replace("LEFT", left).replace("RIGHT", right).replace("OUT", out)
    compile_shader(text).product(a, packed(codes, bits), c, size, threads=64, group_size=64)
    expected = a.double() @ meaning[codes].T
    if out == "int":
        assert torch.equal(c.double(), expected)
        return
    reach = a.double().abs() @ meaning[codes].T.abs()
    bound = reach * k * 2.0**-24 + expected.abs() * torch.finfo(c.dtype).eps / 2
    assert ((c.double() - expected).abs() <= bound).all()


@pytest.mark.parametrize(
    "types", ["uint8_t int4b_format int", "float int4b_format float", "half int4b_format bfloat"]
)
def test_types_that_metal_does_not_take_together(types: str) -> None:
    left, right, out = types.split()
    text = HEAD + KERNEL.replace("LEFT", left).replace("RIGHT", right).replace("OUT", out)
    with pytest.raises(CompileError, match="matmul2d does not take these element types together"):
        compile_shader(text)
