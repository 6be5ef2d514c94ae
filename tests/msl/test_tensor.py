"""Tensors: reversed coordinates, extents and strides, subscripts, slices, tensors made around a pointer."""

from __future__ import annotations

import numpy as np
import pytest

from metalwright.errors import CompileError, MemoryFault
from tests.support import body, launch, tensor, whole

SHAPES = {1: (7,), 2: (5, 7), 3: (2, 5, 7), 4: (3, 2, 5, 7), 5: (2, 3, 2, 5, 7)}


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("rank", SHAPES)
def test_subscripts_count_the_contiguous_dimension_first(rank: int, checked: bool) -> None:
    shape = SHAPES[rank]
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    # each thread takes its flat position apart into coordinates by the extents, and reads in three ways
    places = "\n".join(
        f"int c{d} = rest % x.get_extent({d}); rest /= x.get_extent({d});" for d in range(rank)
    )
    indices = ", ".join(f"c{d}" for d in range(rank))
    src = f"""
int rest = gid;
{places}
metal::array<int, {rank}> all = {{{indices}}};
metal::array<uint, {rank}> unsigned_all = {{{", ".join(f"uint(c{d})" for d in range(rank))}}};
out[0, gid] = x[{indices}];
out[1, gid] = x[all];
out[2, gid] = x[unsigned_all];
out[3, gid] = *(&x[{", ".join("0" * rank)}] + gid);
"""
    parameters = (
        tensor("int", rank, "x", 0),
        tensor("int", 2, "out", 1),
        "uint gid [[thread_position_in_grid]]",
    )
    out = np.zeros((x.size, 4), np.int32)
    launch(body(src, *parameters, checked=checked), {"x": x}, {"out": out}, x.size, 32)
    np.testing.assert_array_equal(out, np.stack([x.ravel()] * 4, 1))


@pytest.mark.parametrize("rank", SHAPES)
def test_extents_strides_and_rank(rank: int) -> None:
    lines = [f"out[{d}] = x.get_extent({d}); out[{rank + d}] = x.get_stride({d});" for d in range(rank)]
    lines.append(f"out[{2 * rank}] = x.get_rank();\nstatic_assert(decltype(x)::get_rank() == {rank});")
    lines.append(f"out[{2 * rank + 1}] = x.get_static_extent(0) == dynamic_extent;")
    lines.append(f"out[{2 * rank + 2}] = x.get_extents().extent({rank - 1});")
    x, out = np.zeros(SHAPES[rank], np.float32), np.zeros(2 * rank + 3, np.int32)
    launch(
        body("\n".join(lines), tensor("float", rank, "x", 0), tensor("int", 1, "out", 1)),
        {"x": x},
        {"out": out},
        1,
        1,
    )
    strides = [step // x.itemsize for step in x.strides[::-1]]
    assert out.tolist() == [*x.shape[::-1], *strides, rank, 1, x.shape[0]]


def test_a_transpose_swaps_the_coordinates() -> None:
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    out = np.zeros((7, 5), np.float32)
    parameters = (
        tensor("float", 2, "x", 0),
        tensor("float", 2, "out", 1),
        "uint2 gid [[thread_position_in_grid]]",
    )
    launch(body("out[gid.y, gid.x] = x[gid.x, gid.y];", *parameters), {"x": x}, {"out": out}, (7, 5), (4, 4))
    np.testing.assert_array_equal(out, x.T)


@pytest.mark.parametrize(
    ("metal", "dtype"),
    [("bool", np.bool_), ("char", np.int8), ("uchar", np.uint8), ("short", np.int16), ("ushort", np.uint16),
     ("uint", np.uint32), ("long", np.int64), ("ulong", np.uint64), ("half", np.float16), ("float", np.float32)],
)  # fmt: skip
def test_elements_of_every_type(metal: str, dtype: type) -> None:
    x = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
    out = np.zeros((4, 3), dtype)
    parameters = (
        tensor(metal, 2, "x", 0),
        tensor(metal, 2, "out", 1),
        "ushort2 gid [[thread_position_in_grid]]",
    )
    program = body("out[gid.y, gid.x] = x[gid.x, gid.y];", *parameters)
    launch(program, {"x": x}, {"out": out}, (4, 3), (4, 3))
    np.testing.assert_array_equal(out, x.T)


@pytest.mark.parametrize("checked", [True, False])
def test_slices_share_the_memory_and_shift_the_coordinates(checked: bool) -> None:
    src = """
auto part = x.slice(2, 1);
auto fixed = x.slice<3, 2>(1, 2);
auto half_fixed = x.slice<dynamic_extent, 2>(4, 0);
auto again = part.slice(1, 1);
out[0, gid] = part[gid % 3, 1]; out[1, gid] = fixed[gid % 3, 1]; out[2, gid] = half_fixed[gid % 3, 1]; out[3, gid] = again[gid % 3, 0];
out[4, gid] = part.get_extent(0) * 100 + part.get_extent(1);
out[5, gid] = fixed.get_extent(0) * 100 + fixed.get_extent(1);
out[6, gid] = half_fixed.get_extent(0) * 100 + half_fixed.get_extent(1);
out[7, gid] = again.get_extent(0) * 100 + again.get_extent(1);
out[8, gid] = part.get_stride(1);
static_assert(decltype(fixed)::get_static_extent(0) == 3 && decltype(fixed)::get_static_extent(1) == 2);
auto mine = out.slice(9, gid);
mine[0, 0] = 5;
"""
    x = np.arange(35, dtype=np.int32).reshape(5, 7)
    parameters = (
        tensor("int", 2, "x", 0),
        tensor("int", 2, "out", 1),
        "uint gid [[thread_position_in_grid]]",
    )
    out = np.zeros((6, 10), np.int32)
    launch(body(src, *parameters, checked=checked), {"x": x}, {"out": out}, 6, 6)
    for i in range(6):
        parts = [x[1:, 2:], x[2:4, 1:4], x[0:2, 4:], x[2:, 3:]]
        read = [parts[0][1, i % 3], parts[1][1, i % 3], parts[2][1, i % 3], parts[3][0, i % 3]]
        sizes = [part.shape[1] * 100 + part.shape[0] for part in parts]
        assert out[i].tolist() == [*read, *sizes, 7, 5]


@pytest.mark.parametrize("checked", [True, False])
def test_tensors_around_a_pointer(checked: bool) -> None:
    text = """
kernel void k(device int* x [[buffer(0)]], device int* out [[buffer(1)]], uint i [[thread_position_in_grid]],
              uint l [[thread_position_in_threadgroup]]) {
  tensor<device int, dextents<int, 2>, tensor_inline> a(x, dextents<int, 2>(4, 3));
  tensor<device int, extents<int, 3, 2, 2>, tensor_inline> b(x, extents<int, 3, 2, 2>());
  tensor<device int, extents<int, 4, dynamic_extent>, tensor_inline> c(x, extents<int, 4, dynamic_extent>(3));
  tensor<device int, dextents<int, 2>, tensor_inline> d(x, dextents<int, 2>(3, 4), metal::array<int, 2>{4, 1});
  threadgroup int memory[12];
  tensor<threadgroup int, dextents<int, 1>, tensor_inline> t(memory, dextents<int, 1>(12));
  t[l] = x[11 - i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  device int* o = out + i * 6;
  o[0] = a[i % 4, i / 4]; o[1] = b[i % 3, i / 3 % 2, i / 6]; o[2] = c[i % 4, i / 4]; o[3] = d[i % 3, i / 3]; o[4] = t[11 - l];
  o[5] = a.get_stride(1) * 1000 + b.get_stride(2) * 100 + c.get_extent(1) * 10 + d.get_stride(0);
}"""
    x = np.arange(100, 112, dtype=np.int32)
    out = np.zeros((12, 6), np.int32)
    launch(whole(text, checked=checked), {"x": x}, {"out": out}, 12, 12)
    strided = x.reshape(3, 4).T.ravel()  # stride 4 between neighbours of the first dimension
    np.testing.assert_array_equal(out, np.stack([x, x, x, strided, x, np.full(12, 4634)], 1))


def test_tensors_of_fixed_extents_are_bound_by_the_host() -> None:
    parameter = "tensor<device float, extents<int, 4, dynamic_extent>, tensor_handle> x [[buffer(0)]]"
    src = "out[0] = x.get_extent(0) * 10 + x.get_extent(1);\nout[1] = x[3, 2];\nstatic_assert(decltype(x)::get_static_extent(0) == 4);"
    x, out = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros(2, np.float32)
    launch(body(src, parameter, tensor("float", 1, "out", 1)), {"x": x}, {"out": out}, 1, 1)
    assert out.tolist() == [43, 11]


def test_tensors_are_given_to_functions() -> None:
    helper = """
template <typename T> float total(T t) {
  float sum = 0;
  for (int i = 0; i < t.get_extent(0); i++) sum += t[i];
  return sum;
}
float first(tensor<device float, dextents<int, 2>, tensor_handle> t, int row) { return t[0, row]; }
template <typename E, typename X, typename D> float last(thread const tensor<E, X, D>& t) { return t[t.get_extent(0) - 1, t.get_extent(1) - 1]; }
"""
    src = "out[gid] = total(y) + first(x, gid) + last(x);"
    parameters = (
        tensor("float", 2, "x", 0),
        tensor("float", 1, "y", 1),
        tensor("float", 1, "out", 2),
        "uint gid [[thread_position_in_grid]]",
    )
    x, y, out = (
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.arange(5, dtype=np.float32),
        np.zeros(3, np.float32),
    )
    launch(body(src, *parameters, helper=helper), {"x": x, "y": y}, {"out": out}, 3, 3)
    np.testing.assert_array_equal(out, y.sum() + x[:, 0] + x[-1, -1])


def test_constant_tensors_are_read() -> None:
    parameters = (
        tensor("const float", 1, "x", 0),
        tensor("float", 1, "out", 1),
        "uint gid [[thread_position_in_grid]]",
    )
    x, out = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    launch(body("out[gid] = x[gid] + 1;", *parameters), {"x": x}, {"out": out}, 5, 5)
    np.testing.assert_array_equal(out, x + 1)
    with pytest.raises(CompileError, match=r"k\.src:1:\d+: error: .*const"):
        body("x[gid] = 1;", *parameters)


def test_an_empty_dimension_has_no_elements() -> None:
    x, out = np.zeros((0, 4), np.float32), np.zeros(2, np.int32)
    parameters = (tensor("float", 2, "x", 0), tensor("int", 1, "out", 1))
    launch(
        body("out[0] = x.get_extent(0); out[1] = x.get_extent(1);", *parameters), {"x": x}, {"out": out}, 1, 1
    )
    assert out.tolist() == [4, 0]
    with pytest.raises(MemoryFault, match="'x'|nothing"):
        launch(body("out[0] = int(x[0, 0]);", *parameters), {"x": x}, {"out": out}, 1, 1)


def test_types_of_tensors_and_their_slices() -> None:
    src = """
using handle = tensor<device float, dextents<int, 2>, tensor_handle>;
using fixed = extents<int, 4, dynamic_extent>;
static_assert(is_same_v<tensor<device float, dextents<int, 2>>, handle> && is_tensor_handle_v<handle>);
static_assert(!is_tensor_inline_v<handle> && !has_tensor_offset_v<handle>);
auto part = x.slice(1, 1);
static_assert(is_same_v<decltype(part), tensor<device float, dextents<int, 2>, tensor_handle, tensor_offset>>);
static_assert(is_same_v<decltype(part.slice<4, dynamic_extent>(0, 0)), tensor<device float, fixed, tensor_handle, tensor_offset>>);
static_assert(is_tensor_handle_v<decltype(part)> && has_tensor_offset_v<decltype(part)>);
auto made = tensor(&x[0, 0], dextents<int, 2>{4, 3}, array<int, 2>{1, 4});
static_assert(is_same_v<decltype(made), tensor<device float, dextents<int, 2>, tensor_inline>>);
static_assert(is_same_v<decltype(made.slice(0, 0)), decltype(made)> && is_tensor_inline_v<decltype(made)>);
static_assert(is_same_v<handle::index_type, int> && is_same_v<handle::size_type, uint> && is_same_v<handle::value_type, float>);
static_assert(fixed::rank() == 2 && fixed::rank_dynamic() == 1 && fixed::static_extent(0) == 4);
static_assert(extents<int, 2, 3>() == dextents<int, 2>(2, 3) && extents<int, 2, 3>() != fixed(3));
"""
    body(src, tensor("float", 2, "x", 0))


def test_extents_and_tensors_convert_to_more_general_ones() -> None:
    text = """
template <class T> int total(tensor<T, dextents<int, 2>, tensor_inline> t) {
  int sum = 0;
  for (int j = 0; j < t.get_extent(1); j++)
    for (int i = 0; i < t.get_extent(0); i++) sum += t[i, j] * (i + 10 * j);
  return sum;
}
kernel void k(tensor<device int, dextents<int, 2>> x [[buffer(0)]], device int* out [[buffer(1)]]) {
  tensor<device int, extents<int, 4, 3>, tensor_inline> fixed(&x[0, 0], extents<int, 4, 3>());
  out[0] = total<device const int>(fixed);
  out[1] = total<device int>(x.slice(1, 1));
  dextents<int, 2> sizes = extents<int, 4, dynamic_extent>(dextents<int, 2>(array<int, 2>{4, 3}));
  out[2] = sizes.extent(0) * 10 + sizes.extent(1);
  tensor<device int, dextents<int, 2>, tensor_inline> turned(x.get_data(), dextents<int, 2>(3, 4), array<uint, 2>{4, 1});
  out[3] = total<device const int>(turned.slice<2, 3>(1, 0));
}"""
    x, out = np.arange(1, 13, dtype=np.int32).reshape(3, 4), np.zeros(4, np.int32)
    launch(whole(text), {"x": x}, {"out": out}, 1, 1)

    def total(part: np.ndarray) -> int:
        return sum(int(value) * (i + 10 * j) for (j, i), value in np.ndenumerate(part))

    assert out.tolist() == [total(x), total(x[1:, 1:]), 43, total(x.T[:3, 1:3])]


@pytest.mark.parametrize(
    ("src", "sentence"),
    [
        ("auto s = x.static_slice<2, 2>(0, 0);", "use slice<...>"),
        ("auto s = x.slice<2>(0);", "slice"),
        ("tensor<device float, dextents<int, 2>, tensor_offset> t;", "tensor_handle or tensor_inline"),
        ("tensor<device float, dextents<int, 2>, tensor_inline, tensor_offset> t;", "host bound"),
    ],
)
def test_what_is_no_tensor(src: str, sentence: str) -> None:
    with pytest.raises(CompileError, match=sentence):
        body(src, tensor("float", 2, "x", 0))


@pytest.mark.parametrize(
    "src",
    [
        "out[gid, 0] = 1;",
        "out[x] = 1;",
        "float v = out;",
        "auto t = out.slice<2, 2>(0);",
        "out[metal::array<int, 2>{0, 0}] = 1;",
    ],
)
def test_wrong_numbers_of_coordinates_are_errors_of_the_users_line(src: str) -> None:
    parameters = (
        tensor("float", 1, "x", 0),
        tensor("float", 1, "out", 1),
        "uint gid [[thread_position_in_grid]]",
    )
    with pytest.raises(CompileError) as caught:
        body(src, *parameters)
    site = caught.value.diagnostics[0].site
    assert site is not None
    assert (site.file, site.line) == ("k.src", 1)
