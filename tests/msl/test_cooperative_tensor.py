"""Cooperative tensors: who owns which element, loads and stores, products of them, reductions, iterators."""

from __future__ import annotations

import pytest
import torch
from test_matmul2d import HEAD, check, values

from metalwright import CompileError, KernelFault, MemoryFault, compile_shader

OWNERS = """
kernel void owners(device int* rows, device int* cols, device int* valid, device int* capacity,
                   uint thread_index [[thread_index_in_threadgroup]]) {
  constexpr auto descriptor = matmul2d_descriptor(ROWS, COLS, 16);
  matmul2d<descriptor, SCOPE> op;
  using operand = tensor<device float, shape, tensor_inline>;
  auto c = op.get_destination_cooperative_tensor<operand, operand, float>();
  capacity[thread_index] = c.get_capacity();
  for (ushort i = 0; i < c.get_capacity(); ++i) {
    auto at = c.get_multidimensional_index(i);
    rows[thread_index * c.get_capacity() + i] = at[1];
    cols[thread_index * c.get_capacity() + i] = at[0];
    valid[thread_index * c.get_capacity() + i] = c.is_valid_element(i) && c.get_mask(i);
  }
}
"""


def owners(
    rows: int, cols: int, simdgroups: int, capacity: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the row, the column and the validity of each element of each thread."""
    scope = f"execution_simdgroups<{simdgroups}>" if simdgroups else "execution_thread"
    text = HEAD + OWNERS.replace("SCOPE", scope).replace("ROWS", str(rows)).replace("COLS", str(cols))
    threads = 32 * simdgroups or 1
    found = [torch.full((threads, capacity), -1, dtype=torch.int32) for _ in range(3)]
    counts = torch.zeros(threads, dtype=torch.int32)
    compile_shader(text).owners(*found, counts, threads=threads, group_size=threads)
    assert (counts == capacity).all()
    return found[0], found[1], found[2]


@pytest.mark.parametrize(
    ("rows", "cols", "simdgroups", "capacity"),
    [(16, 32, 1, 16), (20, 9, 1, 16), (64, 64, 4, 32), (8, 100, 4, 16), (48, 16, 2, 16), (5, 6, 0, 30)],
)
def test_each_element_has_one_owner(rows: int, cols: int, simdgroups: int, capacity: int) -> None:
    row, col, valid = owners(rows, cols, simdgroups, capacity)
    assert torch.equal(valid == 1, (row < rows) & (col < cols))
    places = (row * cols + col)[valid == 1]
    assert places.sort().values.tolist() == list(range(rows * cols))


def test_the_lanes_hold_what_public_kernels_take_for_granted() -> None:
    """Fragments of 16x16, as MLX's kernels fill them, and two by two simdgroups over a tile of 64x64."""
    row, col, _ = owners(16, 32, 1, 16)
    for lane in range(32):
        quad = lane >> 2
        first_row, first_col = quad & 4 | lane >> 1 & 3, (quad & 2 | lane & 1) * 4
        for i in range(16):
            assert row[lane, i] == first_row + (i >> 2 & 1) * 8
            assert col[lane, i] == first_col + i % 4 + (i >> 3) * 16
    row, col, _ = owners(64, 64, 4, 32)
    for thread in range(128):
        lane, simdgroup = thread % 32, thread // 32
        m = 16 * (simdgroup >> 1) + (lane >> 4 & 1) * 4 + (lane >> 1 & 3)
        n = 16 * (simdgroup & 1) + ((lane >> 3 & 1) * 2 + (lane & 1)) * 4
        for i in range(32):
            assert row[thread, i] == m + 8 * (i >> 2 & 1) + 32 * (i >> 4 & 1)
            assert col[thread, i] == n + (i & 3) + 32 * (i >> 3 & 1)


CHAIN = """
template <int M, int N, int K, bool TL, bool TR, class Scope, class T>
void multiply(device T* A, device T* B, device float* C, int m, int n, int k) {
  constexpr auto descriptor =
      matmul2d_descriptor(M, N, K, TL, TR, false, matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<descriptor, Scope> op;
  auto a = op.template get_left_input_cooperative_tensor<T, T, float>();
  auto b = op.template get_right_input_cooperative_tensor<T, T, float>();
  auto c = op.template get_destination_cooperative_tensor<decltype(a), decltype(b), float>();
  auto ta = tensor(A, TL ? shape(m, k) : shape(k, m));
  auto tb = tensor(B, TR ? shape(k, n) : shape(n, k));
  auto tc = tensor(C, shape(n, m));
  c.load(tc);
  a.load(ta);
  b.load(tb);
  op.run(a, b, c);
  c.store(tc);
}
"""
# name, shape of the tile, transposes, scope
INPUTS = {
    "plain": "16, 32, 16, false, false, execution_simdgroup",
    "deep": "16, 16, 32, false, false, execution_simdgroup",
    "left": "32, 16, 24, true, false, execution_simdgroup",
    "right": "16, 32, 16, false, true, execution_simdgroup",
    "both": "24, 40, 20, true, true, execution_simdgroup",
    "alone": "6, 10, 7, true, false, execution_thread",
    "alone_right": "6, 10, 7, false, true, execution_thread",
}
CHAIN += "".join(
    f"kernel void {name}(device half* A, device half* B, device float* C, constant int4& size) "
    f"{{ multiply<{parameters}>(A, B, C, size.x, size.y, size.z); }}\n"
    for name, parameters in INPUTS.items()
)


@pytest.mark.parametrize("name", INPUTS)
def test_a_product_of_cooperative_tensors(name: str) -> None:
    parameters = [word.strip() for word in INPUTS[name].split(",")]
    tile, transposes = [int(word) for word in parameters[:3]], [word == "true" for word in parameters[3:5]]
    threads = 1 if parameters[5] == "execution_thread" else 32
    kernel = compile_shader(HEAD + CHAIN)[name]
    # a full tile, and tensors that end before it does
    for m, n, k in (tile, [size - 3 for size in tile]):
        a, b, before = values(torch.float16, m, k), values(torch.float16, k, n), values(torch.float32, m, n)
        c, size = before.clone(), torch.tensor([m, n, k, 0], dtype=torch.int32)
        stored_a = a.T.contiguous() if transposes[0] else a
        stored_b = b.T.contiguous() if transposes[1] else b
        kernel(stored_a, stored_b, c, size, threads=threads, group_size=threads)
        check(c, a, b, before)


FUSED = """
kernel void fused(device half* A, device half* B, device half* V, device float* C, device int* compatible) {
  constexpr auto first = matmul2d_descriptor(16, 32, 24);
  constexpr auto second = matmul2d_descriptor(16, 48, 32);
  constexpr auto third = matmul2d_descriptor(16, 48, 48);
  matmul2d<first, execution_simdgroup> op1;
  matmul2d<second, execution_simdgroup> op2;
  matmul2d<third, execution_simdgroup> op3;
  auto a = tensor(A, shape(24, 16));
  auto b = tensor(B, shape(32, 24));
  auto v = tensor(V, shape(48, 32));
  auto out = tensor(C, shape(48, 16));
  auto s = op1.get_destination_cooperative_tensor<decltype(a), decltype(b), float>();
  op1.run(a, b, s);
  for (auto it = s.begin(); it != s.end(); ++it) *it = max(*it, 0.0f);
  compatible[0] = op2.is_compatible_as_left_input<half, half, float>(s);
  compatible[1] = op3.is_compatible_as_left_input<half, half, float>(s);
  auto p = op2.get_left_input_cooperative_tensor<half, half, float>(s);
  auto c = op2.get_destination_cooperative_tensor<decltype(p), decltype(v), float>();
  op2.run(p, v, c);
  c.store(out);
}
"""


def test_a_result_becomes_the_input_of_the_next_product() -> None:
    a, b, v = (values(torch.float16, *size) for size in ((16, 24), (24, 32), (32, 48)))
    c, compatible = torch.zeros(16, 48), torch.full((2,), -1, dtype=torch.int32)
    compile_shader(HEAD + FUSED).fused(a, b, v, c, compatible, threads=32, group_size=32)
    # half inputs of few bits: the sums are nearly exact in float, and rounded once to half
    scores = (a.double() @ b.double()).clamp(min=0).to(torch.float16)
    assert torch.allclose(c.double(), scores.double() @ v.double(), rtol=1e-3, atol=2e-2)
    assert compatible.tolist() == [1, 0]


REDUCTION = """
template <int M, int N>
void reduce(device float* A, device float* lines, device float* scaled, int operation, float identity, bool rows) {
  constexpr auto descriptor = matmul2d_descriptor(M, N, 1);
  matmul2d<descriptor, execution_simdgroup> op;
  auto t = tensor(A, shape(N, M));
  auto out = tensor(scaled, shape(N, M));
  auto m = op.template get_destination_cooperative_tensor<decltype(t), decltype(t), float>();
  m.load(t);
  auto kind = reduction_operation(operation);
  if (rows) {
    auto r = op.template get_row_reduction_destination_cooperative_tensor<decltype(t), decltype(t), float>();
    reduce_rows(m, r, kind, identity);
    auto tr = tensor(lines, dextents<int, 1>(M));
    r.store(tr);
    if (is_iterator_compatible(m, r))
      for (auto it = m.begin(); it != m.end(); it++) *it -= *r.map_iterator(it);
  } else {
    auto r = op.template get_column_reduction_destination_cooperative_tensor<decltype(t), decltype(t), float>();
    reduce_columns(m, r, kind, identity);
    auto tr = tensor(lines, dextents<int, 1>(N));
    r.store(tr);
    if (is_iterator_compatible(m, r))
      for (auto it = m.begin(); it != m.end(); it++) *it -= *r.map_iterator(it);
  }
  m.store(out);
}
""" + "".join(
    f"kernel void reduce_{m}x{n}(device float* A, device float* lines, device float* scaled, constant int& operation, "
    f"constant float& identity, constant bool& rows) {{ reduce<{m}, {n}>(A, lines, scaled, operation, identity, rows); }}\n"
    for m, n in ((16, 32), (64, 48), (21, 7))
)


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize(("m", "n"), [(16, 32), (64, 48), (21, 7)])
def test_reductions(m: int, n: int, rows: bool) -> None:
    a = values(torch.float32, m, n)
    kernel = compile_shader(HEAD + REDUCTION)[f"reduce_{m}x{n}"]
    dimension = 1 if rows else 0
    expected = (
        a.double().sum(dimension) + 2.5,
        a.amax(dimension).clamp(min=2.5),
        a.amin(dimension).clamp(max=2.5),
    )
    for operation, reduced in enumerate(expected):
        lines, scaled = torch.full((m if rows else n,), 99.0), torch.zeros(m, n)
        kernel(a, lines, scaled, operation, 2.5, rows, threads=32, group_size=32)
        torch.testing.assert_close(lines, reduced.float(), rtol=0, atol=2e-5 if operation == 0 else 0)
        torch.testing.assert_close(scaled, a - lines.unsqueeze(dimension), rtol=0, atol=0)


def test_the_identity_that_is_left_out_is_that_of_a_sum() -> None:
    """Metal's default argument: the maximum of negative numbers is then zero."""
    text = REDUCTION.replace("reduce_rows(m, r, kind, identity)", "reduce_rows(m, r, kind)")
    a, lines = -values(torch.float32, 16, 32).abs() - 1, torch.full((16,), 99.0)
    compile_shader(HEAD + text)["reduce_16x32"](
        a, lines, torch.zeros(16, 32), 1, 0.0, True, threads=32, group_size=32
    )
    assert lines.tolist() == [0] * 16


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (96, "of execution_simdgroups<4> in a threadgroup of 96 threads: it needs 128"),
        (256, "of execution_simdgroups<4> in a threadgroup of 256 threads: it needs 128"),
    ],
)
def test_a_threadgroup_that_is_not_the_scope(group: int, message: str) -> None:
    text = """
kernel void k(device float* A, device float* B, device float* C) {
  auto a = tensor(A, shape(16, 32)); auto b = tensor(B, shape(32, 16)); auto c = tensor(C, shape(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  op.run(a, b, c);
}
"""
    a, b, c = torch.zeros(32, 16), torch.zeros(16, 32), torch.zeros(32, 32)
    with pytest.raises(KernelFault, match=message) as caught:
        compile_shader(HEAD + text).k(a, b, c, threads=group, group_size=group)
    assert "op.run(a, b, c);" in str(caught.value)


def test_lanes_that_do_not_come_along() -> None:
    text = (
        CHAIN
        + """
kernel void some(device half* A, device half* B, device float* C, uint lane [[thread_index_in_simdgroup]]) {
  if (lane < 20) multiply<16, 16, 16, false, false, execution_simdgroup>(A, B, C, 16, 16, 16);
}
"""
    )
    a, b, c = torch.zeros(16, 16).half(), torch.zeros(16, 16).half(), torch.zeros(16, 16)
    with pytest.raises(KernelFault, match="with 20 of a simdgroup's 32 lanes"):
        compile_shader(HEAD + text)["some"](a, b, c, threads=32, group_size=32)


def test_an_element_past_the_capacity() -> None:
    text = """
kernel void past(device float* C, constant int& i) {
  constexpr auto descriptor = matmul2d_descriptor(16, 16, 16);
  matmul2d<descriptor, execution_simdgroup> op;
  auto t = tensor(C, shape(16, 16));
  auto c = op.get_destination_cooperative_tensor<decltype(t), decltype(t), float>();
  c[i] = 1;
  c.store(t);
}
"""
    kernel = compile_shader(HEAD + text).past
    kernel(torch.zeros(256), 7, threads=32, group_size=32)
    with pytest.raises(MemoryFault, match="just past the end of a private variable") as caught:
        kernel(torch.zeros(256), 8, threads=32, group_size=32)
    assert "c[i] = 1;" in str(caught.value)


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (
            "constexpr auto d = matmul2d_descriptor(16, 16, 16); matmul2d<d, execution_simdgroups<2>> op; "
            "auto a = op.get_left_input_cooperative_tensor<half, half, float>();",
            "needs the scope execution_simdgroup",
        ),
        (
            "constexpr auto d = matmul2d_descriptor(16, 16); matmul2d<d, execution_simdgroup> op; "
            "auto a = op.get_left_input_cooperative_tensor<half, half, float>();",
            "needs a descriptor that says k",
        ),
        (
            "constexpr auto d = matmul2d_descriptor(16, 16); matmul2d<d, execution_simdgroups<2>> op; "
            "auto a = op.get_row_reduction_destination_cooperative_tensor<half, half, float>();",
            "reductions of a cooperative tensor need the scope execution_simdgroup",
        ),
        (
            "constexpr auto d = matmul2d_descriptor(16, 16); matmul2d<d, int> op; op.run(C, C, C);",
            "the scope is execution_thread, execution_simdgroup",
        ),
        (
            "constexpr auto d = matmul2d_descriptor(16, 16); matmul2d<d, execution_simdgroup> op; op.run(C, C, C);",
            "an operand of matmul2d is a tensor or a cooperative_tensor",
        ),
    ],
)
def test_what_does_not_compile(statements: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile_shader(HEAD + "kernel void k(device half* C) { " + statements + " }")


FRAGMENTS = """
using piece = vec<half, 8>;
piece read(const device half* from, int stride, uint lane) {
  const short quad = lane >> 2, row = (quad & 4) | ((lane >> 1) & 3), col = ((quad & 2) | (lane & 1)) * 4;
  piece made;
  for (short i = 0; i < 8; ++i) made[i] = from[(row + i / 4 * 8) * stride + col + i % 4];
  return made;
}
kernel void by_fragments(const device half* A, const device half* B, device float* C,
                         uint lane [[thread_index_in_simdgroup]]) {
  constexpr auto descriptor = matmul2d_descriptor(16, 32, 16, false, true, true,
                                                  matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<descriptor, execution_simdgroup> op;
  auto a = op.get_left_input_cooperative_tensor<half, half, float>();
  auto b = op.get_right_input_cooperative_tensor<half, half, float>();
  auto c = op.get_destination_cooperative_tensor<remove_addrspace_t<decltype(a)>, remove_addrspace_t<decltype(b)>,
                                                 float>();
  for (short i = 0; i < 16; ++i) c[i] = 0;
  for (short k = 0; k < 48; k += 16) {
    const piece left = read(A + k, 48, lane), first = read(B + k, 48, lane);
    const piece second = read(B + 16 * 48 + k, 48, lane);
    for (short i = 0; i < 8; ++i) a[i] = left[i], b[i] = first[i], b[8 + i] = second[i];
    op.run(a, b, c);
  }
  const short quad = lane >> 2, row = (quad & 4) | ((lane >> 1) & 3), col = ((quad & 2) | (lane & 1)) * 4;
  for (short i = 0; i < 16; ++i) C[(row + i / 4 % 2 * 8) * 32 + col + i % 4 + i / 8 * 16] = c[i];
}
"""


def test_fragments_that_a_kernel_fills_by_lane() -> None:
    """The way of MLX's kernels for the M5: no index is asked for, the lanes' places are known."""
    a, b, c = values(torch.float16, 16, 48), values(torch.float16, 32, 48), torch.zeros(16, 32)
    compile_shader(HEAD + FRAGMENTS).by_fragments(a, b, c, threads=32, group_size=32)
    check(c, a, b.T)
