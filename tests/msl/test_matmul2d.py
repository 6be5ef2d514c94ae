"""``matmul2d`` of Metal Performance Primitives against NumPy and torch: types, scopes, transposes, ragged edges."""

from __future__ import annotations

import pytest
import torch

from metalwright import CompileError, MemoryFault, compile_shader

HEAD = """
#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;
using shape = dextents<int32_t, 2>;
"""
TORCH = {
    "float": torch.float32,
    "half": torch.float16,
    "bfloat": torch.bfloat16,
    "int8_t": torch.int8,
    "uint8_t": torch.uint8,
    "int": torch.int32,
}
SCOPES = {"execution_thread": 1, "execution_simdgroup": 32, "execution_simdgroups<4>": 128}


def tiled(left: str, right: str, out: str, scope: str, descriptor: str, tile: tuple[int, int]) -> str:
    """Return a kernel whose threadgroups compute a tile of the result each."""
    threads, (m, n) = SCOPES[scope], tile
    transposes = [word.strip() == "true" for word in descriptor.split(",")[3:5]] + [False, False]
    a = f"a.slice(y * {m}, 0)" if transposes[0] else f"a.slice(0, y * {m})"
    b = f"b.slice(0, x * {n})" if transposes[1] else f"b.slice(x * {n}, 0)"
    return f"""{HEAD}
kernel void product(device {left}* A, device {right}* B, device {out}* C, constant int4& size,
                    uint2 group [[threadgroup_position_in_grid]]) {{
  const int m = size.x, n = size.y, k = size.z, x = group.x, y = group.y;
  auto a = tensor<device {left}, shape, tensor_inline>(A, {"shape(m, k)" if transposes[0] else "shape(k, m)"});
  auto b = tensor<device {right}, shape, tensor_inline>(B, {"shape(k, n)" if transposes[1] else "shape(n, k)"});
  auto c = tensor<device {out}, shape, tensor_inline>(C, shape(n, m));
  constexpr auto descriptor = matmul2d_descriptor({descriptor});
  matmul2d<descriptor, {scope}> op;
  auto ma = {a}; auto mb = {b}; auto mc = c.slice(x * {n}, y * {m});
  op.run(ma, mb, mc);
}}
// {threads} threads"""


def values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    if dtype in (torch.int8, torch.uint8):
        info = torch.iinfo(dtype)
        return torch.randint(info.min, info.max + 1, shape, generator=generator, dtype=dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the product of the matrices as they are, without rounding that a float would see."""
    return left.double() @ right.double()


def check(
    actual: torch.Tensor, left: torch.Tensor, right: torch.Tensor, before: torch.Tensor | None = None
) -> None:
    """Compare with the exact product; the bound is that of a float sum rounded once to the result's type."""
    expected = product(left, right) + (0 if before is None else before.double())
    if actual.dtype == torch.int32:
        assert torch.equal(actual.double(), expected)
        return
    size = left.double().abs() @ right.double().abs() + (0 if before is None else before.double().abs())
    bound = size * left.shape[1] * 2.0**-24 + expected.abs() * torch.finfo(actual.dtype).eps / 2 + 1e-30
    assert ((actual.double() - expected).abs() <= bound).all()


def run_tiles(
    kernel: str, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, k: int, scope: str, tile: tuple[int, int]
) -> None:
    (m, n), threads = c.shape, SCOPES[scope]
    size = torch.tensor([m, n, k, 0], dtype=torch.int32)
    groups = (-(-n // tile[1]), -(-m // tile[0]))
    library = compile_shader(kernel)
    library.product(a, b, c, size, threads=(groups[0] * threads, groups[1]), group_size=(threads, 1))


# from the table in Apple's documentation of matmul2d
TYPES = """
half half half | half int8_t half | int8_t half half | half half float | half float float | half int8_t float
float half float | float float float | float int8_t float | int8_t half float | int8_t float float
int8_t int8_t int | uint8_t uint8_t int | bfloat bfloat bfloat | bfloat bfloat float | bfloat float float
bfloat int8_t bfloat | uint8_t bfloat float | bfloat half half | half bfloat bfloat | half uint8_t half
"""


@pytest.mark.parametrize(
    "types", [row.strip() for line in TYPES.strip().splitlines() for row in line.split("|")]
)
def test_element_types(types: str) -> None:
    left, right, out = types.split()
    a, b = values(TORCH[left], 40, 37), values(TORCH[right], 37, 50)
    c = torch.full((40, 50), 3, dtype=TORCH[out])
    scope, tile = "execution_simdgroup", (32, 32)
    run_tiles(tiled(left, right, out, scope, "32, 32", tile), a, b, c, 37, scope, tile)
    check(c, a, b)


@pytest.mark.parametrize(
    "types",
    ["int8_t int8_t float", "half half bfloat", "int8_t uint8_t int", "float float half", "int int int"],
)
def test_element_types_that_metal_does_not_take_together(types: str) -> None:
    left, right, out = types.split()
    with pytest.raises(CompileError, match="matmul2d does not take these element types together"):
        compile_shader(tiled(left, right, out, "execution_simdgroup", "32, 32", (32, 32)))


@pytest.mark.parametrize("transposes", ["false, false", "false, true", "true, false", "true, true"])
@pytest.mark.parametrize(
    ("scope", "tile"), [("execution_thread", (5, 12)), ("execution_simdgroups<4>", (64, 32))]
)
def test_transposes_and_ragged_edges(scope: str, tile: tuple[int, int], transposes: str) -> None:
    kernel = tiled(
        "half", "half", "float", scope, f"{tile[0]}, {tile[1]}, dynamic_length_v<int>, {transposes}", tile
    )
    for m, n, k in ((64, 64, 16), (67, 35, 19), (1, 1, 1), (3, 70, 129)):
        a, b = values(torch.float16, m, k), values(torch.float16, k, n)
        guard = torch.full((m * n + 64,), -5.0)
        c = guard[32:-32].view(m, n)
        stored_a = a.T.contiguous() if transposes.startswith("true") else a
        stored_b = b.T.contiguous() if transposes.endswith("true") else b
        run_tiles(kernel, stored_a, stored_b, c, k, scope, tile)
        check(c, a, b)
        assert (guard[:32] == -5).all() and (guard[-32:] == -5).all()


@pytest.mark.parametrize("k", ["static_cast<int>(dynamic_extent)", "dynamic_length_v<int>", "0"])
def test_the_ways_to_leave_k_to_the_operands(k: str) -> None:
    a, b, c = values(torch.float32, 16, 50), values(torch.float32, 50, 32), torch.zeros(16, 32)
    scope, tile = "execution_simdgroup", (16, 32)
    run_tiles(tiled("float", "float", "float", scope, f"16, 32, {k}", tile), a, b, c, 50, scope, tile)
    check(c, a, b)


def test_a_descriptor_with_k_takes_that_much_of_the_operands() -> None:
    a, b, c = values(torch.float32, 16, 50), values(torch.float32, 50, 32), torch.zeros(16, 32)
    scope, tile = "execution_simdgroup", (16, 32)
    run_tiles(tiled("float", "float", "float", scope, "16, 32, 24", tile), a, b, c, 50, scope, tile)
    check(c, a[:, :24], b[:24])


LOOP = """
kernel void accumulate(device half* A, device half* B, device float* C, constant int4& size,
                       uint2 group [[threadgroup_position_in_grid]]) {
  const int m = size.x, n = size.y, k = size.z;
  auto a = tensor<device half, shape, tensor_inline>(A, shape(k, m));
  auto b = tensor<device half, shape, tensor_inline>(B, shape(n, k));
  auto c = tensor<device float, shape, tensor_inline>(C, shape(n, m));
  constexpr auto descriptor = matmul2d_descriptor(
      64, 32, 16, false, false, false, matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  for (int i = 0; i < k; i += 16) {
    auto ma = a.slice(i, group.y * 64);
    auto mb = b.slice(group.x * 32, i);
    auto mc = c.slice(group.x * 32, group.y * 64);
    op.run(ma, mb, mc);
  }
}
"""


def test_accumulating_over_slices_of_k_adds_to_what_is_there() -> None:
    library = compile_shader(HEAD + LOOP)
    for m, n, k in ((64, 32, 64), (70, 45, 50)):
        a, b = values(torch.float16, m, k), values(torch.float16, k, n)
        before = values(torch.float32, m, n)
        c = before.clone()
        size = torch.tensor([m, n, k, 0], dtype=torch.int32)
        groups = (-(-n // 32), -(-m // 64))
        library.accumulate(a, b, c, size, threads=(groups[0] * 128, groups[1]), group_size=(128, 1))
        check(c, a, b, before)


STATIC = """
kernel void inner(device float* A, device float* B, device float* C) {
  auto a = tensor<device float, shape, tensor_inline>(A, shape(8, ROWS));
  auto b = tensor<device float, shape, tensor_inline>(B, shape(16, 8));
  auto c = tensor<device float, shape, tensor_inline>(C, shape(16, ROWS));
  constexpr auto descriptor = matmul2d_descriptor(16, 16);
  matmul2d<descriptor, execution_simdgroup> op;
  auto ma = a.slice<8, 16>(0, 0);
  auto mb = b.slice<16, 8>(0, 0);
  auto mc = c.slice<16, 16>(0, 0);
  op.run(ma, mb, mc);
}
"""


def test_a_slice_of_static_size_is_taken_at_its_word() -> None:
    a, b, c = values(torch.float32, 16, 8), values(torch.float32, 8, 16), torch.zeros(16, 16)
    compile_shader(HEAD + STATIC.replace("ROWS", "16")).inner(a, b, c, threads=32, group_size=32)
    check(c, a, b)
    # eight rows of the sixteen exist
    with pytest.raises(MemoryFault, match="reads element .* of 'A'") as caught:
        short = a[:8].clone()
        compile_shader(HEAD + STATIC.replace("ROWS", "8")).inner(short, b, c, threads=32, group_size=32)
    assert "op.run(ma, mb, mc)" in str(caught.value)
