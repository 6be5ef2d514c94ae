"""``metal_kernel``: bodies of kernels as ``mx.fast.metal_kernel`` takes them, on tensors and NumPy arrays."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import metalwright
from metalwright import (
    ArgumentError,
    CompileError,
    DispatchError,
    KernelDefinitionError,
    MemoryFault,
    metal_kernel,
)
from metalwright.authoring import CustomKernel
from metalwright.authoring.mlx.source import utilities

COPY = "uint i = thread_position_in_grid.x; out[i] = inp[i];"


def one_to_one(source: str, **options: Any) -> CustomKernel:
    return metal_kernel("k", ["inp"], ["out"], source, **options)


def flat(size: int, group: int = 64) -> dict[str, Any]:
    return {"grid": (size, 1, 1), "threadgroup": (group, 1, 1)}


def like(value: Any, **changed: Any) -> dict[str, Any]:
    size = int(np.prod(value.shape))
    return {
        "inputs": [value],
        "output_shapes": [tuple(value.shape)],
        "output_dtypes": [value.dtype],
        **flat(size),
        **changed,
    }


# -- elementwise ----------------------------------------------------------------------------------------------------


def test_an_elementwise_function_computes_in_the_template_s_type() -> None:
    kernel = one_to_one("uint i = thread_position_in_grid.x; T x = inp[i]; out[i] = metal::exp(x);")
    x = torch.randn(4, 16).half()
    [out] = kernel(**like(x, template=[("T", torch.float32)]))
    assert out.dtype == torch.float16 and out.shape == (4, 16)
    torch.testing.assert_close(out, x.double().exp().half(), rtol=2**-10, atol=0)


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_arrays_with_strides(contiguous: bool, library: str) -> None:
    source = """
      uint i = thread_position_in_grid.x;
      out[i] = inp[elem_to_loc(i, inp_shape, inp_strides, inp_ndim)];
    """
    base = np.arange(2 * 8 * 6, dtype=np.float32).reshape(2, 8, 6)
    for view in (
        base[:, ::3, 1::2],
        base.transpose(2, 0, 1),
        np.broadcast_to(base[0, 0], (5, 6)),
        base[1:, 2:3],
    ):
        given: Any = view
        if library == "torch":
            offset = (view.__array_interface__["data"][0] - base.ctypes.data) // 4
            given = torch.from_numpy(base).as_strided(view.shape, [n // 4 for n in view.strides], offset)
        [out] = one_to_one(source, ensure_row_contiguous=contiguous)(**like(given))
        assert type(out) is type(given)
        np.testing.assert_array_equal(np.asarray(out), view)


def test_what_the_body_sees_of_a_view() -> None:
    source = """
      for (int d = 0; d < inp_ndim; ++d) { out[d] = inp_shape[d]; out[3 + d] = inp_strides[d]; }
      out[6] = inp_ndim;
    """
    view = np.zeros((4, 5, 6), np.int16).transpose(2, 0, 1)[::2]
    sizes = {"output_shapes": [(7,)], "output_dtypes": [np.int64], **flat(1)}
    [seen] = one_to_one(source, ensure_row_contiguous=False)(inputs=[view], **sizes)
    assert seen.tolist() == [3, 4, 5, 2, 30, 6, 3]
    [seen] = one_to_one(source)(inputs=[view], **sizes)
    assert seen.tolist() == [3, 4, 5, 20, 5, 1, 3]


def test_only_what_lies_between_a_view_s_elements_can_be_read() -> None:
    x = np.arange(10, dtype=np.float32)
    view = x[2:8:2]  # elements 2, 4, 6: five elements of memory
    kernel = one_to_one("out[0] = inp[at];", ensure_row_contiguous=False)
    call = {"inputs": [view], "output_shapes": [(1,)], "output_dtypes": [np.float32], **flat(1)}
    assert kernel(template=[("at", 4)], **call)[0][0] == 6
    with pytest.raises(MemoryFault, match="element 5 of 'inp', which has 5"):
        kernel(template=[("at", 5)], **call)


# -- a bilinear sampler and its gradient ----------------------------------------------------------------------------

# PyTorch's grid_sample with align_corners=False and zeros outside, channels last
LOCATE = """
  int height = x_shape[1], width = x_shape[2], channels = x_shape[3];
  uint i = thread_position_in_grid.x;
  uint point = i / CHANNELS;
  int channel = i % CHANNELS;
  int image = point / (points_shape[1] * points_shape[2]);
  float u = ((points[2 * point] + 1) * width - 1) / 2, v = ((points[2 * point + 1] + 1) * height - 1) / 2;
  int left = int(floor(u)), top = int(floor(v));
  float du = u - left, dv = v - top;
"""
SAMPLE = (
    LOCATE
    + """
  T sum = 0;
  for (int corner = 0; corner < 4; ++corner) {
    int column = left + (corner & 1), row = top + (corner >> 1);
    if (column < 0 || column >= width || row < 0 || row >= height) continue;
    float weight = (corner & 1 ? du : 1 - du) * (corner >> 1 ? dv : 1 - dv);
    sum += T(weight) * x[((image * height + row) * width + column) * channels + channel];
  }
  out[i] = sum;
"""
)
# each point has a whole simdgroup for every 32 channels, so that a simdgroup sums for one point
GRADIENT = (
    LOCATE
    + """
  float pull_u = 0, pull_v = 0;
  if (channel < channels) {
    T back = given[point * channels + channel];
    for (int corner = 0; corner < 4; ++corner) {
      int column = left + (corner & 1), row = top + (corner >> 1);
      if (column < 0 || column >= width || row < 0 || row >= height) continue;
      float wu = corner & 1 ? du : 1 - du, wv = corner >> 1 ? dv : 1 - dv;
      int at = ((image * height + row) * width + column) * channels + channel;
      atomic_fetch_add_explicit(&to_x[at], T(wu * wv) * back, memory_order_relaxed);
      pull_u += (corner & 1 ? wv : -wv) * x[at] * back;
      pull_v += (corner >> 1 ? wu : -wu) * x[at] * back;
    }
  }
  pull_u = simd_sum(pull_u) * width / 2;
  pull_v = simd_sum(pull_v) * height / 2;
  if (thread_index_in_simdgroup == 0) {
    atomic_fetch_add_explicit(&to_points[2 * point], pull_u, memory_order_relaxed);
    atomic_fetch_add_explicit(&to_points[2 * point + 1], pull_v, memory_order_relaxed);
  }
"""
)


@pytest.fixture(scope="module")
def sampling() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(2, 5, 7, 3, generator=generator)
    return x, torch.rand(2, 4, 6, 2, generator=generator) * 2.4 - 1.2


def test_sampling_an_image(sampling: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, points = sampling
    kernel = metal_kernel("sample", ["x", "points"], ["out"], SAMPLE)
    [out] = kernel(
        inputs=[x, points],
        template=[("T", torch.float32), ("CHANNELS", 3)],
        output_shapes=[(2, 4, 6, 3)],
        output_dtypes=[torch.float32],
        **flat(2 * 4 * 6 * 3, 256),
    )
    expected = torch.nn.functional.grid_sample(x.permute(0, 3, 1, 2), points, align_corners=False)
    torch.testing.assert_close(out, expected.permute(0, 2, 3, 1), rtol=1e-5, atol=1e-5)


def test_a_gradient_with_atomics_and_a_simdgroup_sum(sampling: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, points = (value.clone().requires_grad_() for value in sampling)
    given = torch.randn(2, 4, 6, 3, generator=torch.Generator().manual_seed(6))
    sampled = torch.nn.functional.grid_sample(x.permute(0, 3, 1, 2), points, align_corners=False)
    expected = torch.autograd.grad(sampled.permute(0, 2, 3, 1), (x, points), given)
    kernel = metal_kernel(
        "pull", ["x", "points", "given"], ["to_x", "to_points"], GRADIENT, atomic_outputs=True
    )
    outputs = kernel(
        inputs=[x.detach(), points.detach(), given],
        template=[("T", torch.float32), ("CHANNELS", 32)],
        output_shapes=[x.shape, points.shape],
        output_dtypes=[torch.float32, torch.float32],
        init_value=0,
        **flat(2 * 4 * 6 * 32, 256),
    )
    for out, wanted in zip(outputs, expected, strict=True):
        torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-4)


# -- dtypes ---------------------------------------------------------------------------------------------------------

NUMPY_DTYPES = [
    np.dtype(name)
    for name in "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 complex64".split()
] + [np.dtype(ml_dtypes.bfloat16)]


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
def test_every_dtype_goes_in_and_comes_out(dtype: np.dtype[Any]) -> None:
    size = 2 if dtype.kind == "b" else 256 ** min(dtype.itemsize, 4)
    bits = np.arange(0, size, max(size // 300, 1), np.uint64)
    x = bits.astype(f"u{dtype.itemsize}").view(dtype)  # among them the smallest, the largest, infinities
    if dtype.itemsize == 8 and dtype.kind in "iu":
        x = np.concatenate([x, np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)])
    [out] = one_to_one(COPY)(**like(x))
    assert out.dtype == dtype
    assert out.tobytes() == x.tobytes()
    if dtype.kind == "c" or dtype in (np.dtype(ml_dtypes.bfloat16), np.dtype(np.uint64)):
        return
    [out] = one_to_one(COPY)(**like(torch.from_numpy(x)))
    assert out.dtype == torch.from_numpy(x).dtype and out.numpy().tobytes() == x.tobytes()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64, torch.uint64])
def test_tensors_of_dtypes_that_numpy_lacks(dtype: torch.dtype) -> None:
    x = torch.arange(20).to(dtype) * 3
    [out] = one_to_one(COPY)(**like(x))
    assert out.dtype == dtype and torch.equal(out.view(torch.uint8), x.view(torch.uint8))


@pytest.mark.parametrize(
    ("given", "msl"),
    [
        (np.float32, "float"), (np.dtype("float16"), "float16_t"), (ml_dtypes.bfloat16, "bfloat16_t"),
        (torch.int64, "int64_t"), (torch.bool, "bool"), (torch.uint8, "uint8_t"), (np.complex64, "complex64_t"),
        (True, "bool"), (False, "bool"), (-3, "int"), (2**31 - 1, "int"), (np.int64(7), "int"), (np.bool_(True), "bool"),
    ],
)  # fmt: skip
def test_template_arguments(given: Any, msl: str) -> None:
    """The body is told apart by the type that the parameter is or has."""
    value = isinstance(given, (bool, int, np.bool_, np.integer))
    what = "decltype(P)" if value else "P"
    source = f"out[0] = metal::is_same_v<metal::remove_cv_t<{what}>, {msl}>; out[1] = {'P' if value else 'sizeof(P)'};"
    [out] = one_to_one(source)(
        inputs=[np.zeros(1, np.float32)],
        template=[("P", given)],
        output_shapes=[(2,)],
        output_dtypes=[np.int32],
        **flat(1),
    )
    assert out[0] == 1
    if value:
        assert out[1] == int(given)
    else:
        assert out[1] == (given.itemsize if isinstance(given, torch.dtype) else np.dtype(given).itemsize)


def test_true_and_one_are_two_templates() -> None:
    kernel = one_to_one("out[0] = metal::is_same_v<metal::remove_cv_t<decltype(P)>, bool>;")
    x = np.zeros(1, np.float32)
    seen = [kernel(**like(x, template=[("P", value)]))[0][0] for value in (1, True, 0, False)]
    assert seen == [0, 1, 0, 1]


# -- inputs ---------------------------------------------------------------------------------------------------------


def test_small_arrays_and_scalars_lie_in_constant_memory() -> None:
    kernel = metal_kernel(
        "k", ["a", "b", "c"], ["out"],
        "constant float* p = a; device const float* q = b; constant int& r = c; out[0] = p[6] + q[7] + r;",
    )  # fmt: skip
    a, b = np.arange(7, dtype=np.float32), np.arange(8, dtype=np.float32)
    [out] = kernel(inputs=[a, b, 100], output_shapes=[(1,)], output_dtypes=[np.float32], **flat(1))
    assert out[0] == 6 + 7 + 100


@pytest.mark.parametrize(
    ("number", "kind", "value"),
    [
        (2.5, "float", 2.5), (3, "int", 3), (2**31, "int64_t", 2**31), (True, "bool", 1), (np.float16(1.5), "half", 1.5),
        (np.uint8(200), "uint8_t", 200), (np.array(4, np.int16), "int16_t", 4), (1 + 2j, "complex64_t", 1),
    ],
)  # fmt: skip
def test_numbers_have_the_type_that_mlx_gives_them(number: Any, kind: str, value: float) -> None:
    source = f"out[0] = float(inp); out[1] = metal::is_same_v<decltype(inp), const constant {kind}&>;"
    [out] = one_to_one(source)(inputs=[number], output_shapes=[(2,)], output_dtypes=[np.float32], **flat(1))
    assert out.tolist() == [value, 1]


def test_no_inputs_and_several_outputs() -> None:
    kernel = metal_kernel(
        "k",
        [],
        ["a", "b"],
        "a[thread_position_in_grid.x] = thread_position_in_grid.x; b[0] = threads_per_grid.x;",
    )
    a, b = kernel(inputs=[], output_shapes=[(5,), ()], output_dtypes=[torch.int32, torch.bfloat16], **flat(5))
    assert torch.equal(a, torch.arange(5, dtype=torch.int32)) and b.shape == () and b.item() == 5


def test_the_threadgroup_is_cut_to_the_grid() -> None:
    source = """
      if (thread_index_in_threadgroup == 0) {
        out[0] = threads_per_threadgroup.x; out[1] = threads_per_threadgroup.y; out[2] = threadgroups_per_grid.x;
        out[3] = dispatch_threads_per_threadgroup.x; out[4] = simdgroups_per_threadgroup;
      }
    """
    [out] = one_to_one(source)(
        inputs=[0], output_shapes=[(5,)], output_dtypes=[np.int32], grid=(3, 2, 1), threadgroup=(256, 1, 1)
    )
    assert out.tolist() == [3, 1, 1, 3, 1]


def test_every_attribute_has_its_type() -> None:
    names = [
        "dispatch_quadgroups_per_threadgroup", "dispatch_simdgroups_per_threadgroup", "quadgroup_index_in_threadgroup",
        "quadgroups_per_threadgroup", "simdgroup_index_in_threadgroup", "simdgroups_per_threadgroup",
        "thread_execution_width", "thread_index_in_quadgroup", "thread_index_in_simdgroup", "thread_index_in_threadgroup",
        "threads_per_simdgroup", "dispatch_threads_per_threadgroup", "grid_origin", "grid_size", "thread_position_in_grid",
        "thread_position_in_threadgroup", "threadgroup_position_in_grid", "threadgroups_per_grid", "threads_per_grid",
        "threads_per_threadgroup",
    ]  # fmt: skip
    source = "\n".join(
        f"out[{i}] = metal::is_same_v<decltype({name}), {'uint' if i < 11 else 'uint3'}>;"
        for i, name in enumerate(names)
    )
    [out] = one_to_one(source)(inputs=[0], output_shapes=[(20,)], output_dtypes=[np.bool_], **flat(1))
    assert out.all()


# -- outputs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
def test_outputs_begin_with_the_initial_value(dtype: np.dtype[Any]) -> None:
    call = {"inputs": [0], "output_shapes": [(3,)], "output_dtypes": [dtype], **flat(1)}
    [out] = one_to_one("out[1] = inp;")(init_value=1.0, **call)
    assert out.dtype == dtype and out.tolist() == np.array([1, 0, 1], dtype).tolist()


def test_the_initial_value_is_cast() -> None:
    kernel = metal_kernel("k", [], ["a", "b", "c"], "")
    a, b, c = kernel(
        inputs=[], output_shapes=[(1,)] * 3, output_dtypes=[torch.int8, torch.float16, torch.bool],
        init_value=-2.75, **flat(1),
    )  # fmt: skip
    assert (a.item(), b.item(), c.item()) == (-2, -2.75, True)
    for half in (torch.float16, np.float16):
        a, b, c = kernel(
            inputs=[], output_shapes=[(), (2, 0), (2,)], output_dtypes=[half, half, half], init_value=1e9, **flat(1)
        )  # fmt: skip
        assert float(a) == math.inf and b.shape == (2, 0) and float(c[1]) == math.inf


def test_elements_that_no_thread_writes_are_told_by_their_value() -> None:
    kernel = metal_kernel("k", [], ["a", "b"], "a[0] = 1; b[0] = 1;")
    for dtypes in ([torch.float32, torch.int32], [np.float32, np.int32]):
        a, b = kernel(inputs=[], output_shapes=[(2,), (2,)], output_dtypes=dtypes, **flat(1))
        assert float(a[0]) == 1 and np.isnan(float(a[1]))
        assert int(b[0]) == 1 and int(b[1]) & 0xFFFFFFFF == 0xA5A5A5A5


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32, torch.float32, torch.uint64])
def test_atomic_outputs(dtype: torch.dtype) -> None:
    # Metal has no more than min and max in 64 bits, and neither gives the old value
    operation = "max" if dtype == torch.uint64 else "fetch_add"
    source = f"""
      uint i = thread_position_in_grid.x;
      atomic_{operation}_explicit(&out[i % 3], OUT(inp[i]), memory_order_relaxed);
    """
    x = torch.arange(300, dtype=torch.int32)
    [out] = one_to_one(source, atomic_outputs=True)(
        inputs=[x], template=[("OUT", dtype)], output_shapes=[(3,)], output_dtypes=[dtype], init_value=0, **flat(300)
    )  # fmt: skip
    columns = x.reshape(100, 3)
    expected = columns.amax(0) if operation == "max" else columns.sum(0)
    assert out.dtype == dtype and out.tolist() == expected.tolist()


def test_a_row_reduction_through_threadgroup_memory() -> None:
    """The shape of most custom kernels: a threadgroup for a row, simdgroups first, then their sums."""
    source = """
      constexpr int most = 32;
      threadgroup float sums[most];
      uint row = threadgroup_position_in_grid.y;
      float sum = 0;
      for (uint i = thread_position_in_threadgroup.x; i < uint(inp_shape[1]); i += threads_per_threadgroup.x) {
        float x = inp[row * inp_shape[1] + i];
        sum += x * x;
      }
      sum = simd_sum(sum);
      if (thread_index_in_simdgroup == 0) sums[simdgroup_index_in_threadgroup] = sum;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (simdgroup_index_in_threadgroup == 0) {
        sum = thread_index_in_simdgroup < simdgroups_per_threadgroup ? sums[thread_index_in_simdgroup] : 0;
        sum = simd_sum(sum);
        if (thread_index_in_simdgroup == 0) out[row] = T(metal::rsqrt(sum / inp_shape[1]));
      }
    """
    x = torch.randn(5, 1000, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    [out] = one_to_one(source)(
        inputs=[x],
        template=[("T", torch.bfloat16)],
        grid=(256, 5, 1),
        threadgroup=(256, 1, 1),
        output_shapes=[(5,)],
        output_dtypes=[torch.bfloat16],
    )
    torch.testing.assert_close(out, x.double().square().mean(1).rsqrt().bfloat16(), rtol=2**-7, atol=0)


# -- what MLX puts before a kernel ----------------------------------------------------------------------------------


def evaluate(source: str, count: int, header: str = "", dtype: Any = np.float32, **options: Any) -> list[Any]:
    kernel = metal_kernel("k", [], ["out"], source, header=header, **options)
    return kernel(inputs=[], output_shapes=[(count,)], output_dtypes=[dtype], **flat(1))[0].tolist()


LIMITS = {
    **{f"{name}_t": np.dtype(name) for name in "uint8 uint16 uint32 uint64 int8 int16 int32 int64".split()},
    "float16_t": np.dtype(np.float16),
    "bfloat16_t": np.dtype(ml_dtypes.bfloat16),
    "float": np.dtype(np.float32),
}


def test_limits() -> None:
    outputs = [f"of_{msl}" for msl in LIMITS]
    fields = ("max", "min", "finite_max", "finite_min")
    source = "\n".join(
        f"of_{msl}[{i}] = Limits<{msl}>::{field};" for msl in LIMITS for i, field in enumerate(fields)
    )
    made = metal_kernel("k", [], outputs, source)(
        inputs=[], output_shapes=[(4,)] * len(LIMITS), output_dtypes=list(LIMITS.values()), **flat(1)
    )
    for dtype, found in zip(LIMITS.values(), made, strict=True):
        info = np.iinfo(dtype) if dtype.kind in "iu" else ml_dtypes.finfo(dtype)
        finite = [info.max, info.min]
        expected = finite if dtype.kind in "iu" else [np.inf, -np.inf]
        assert found.tolist() == np.array([*expected, *finite], dtype).tolist()


def test_limits_of_bool_and_complex() -> None:
    assert evaluate("out[0] = Limits<bool>::max; out[1] = Limits<bool>::min;", 2) == [1, 0]
    source = "complex64_t z = Limits<complex64_t>::min; out[0] = z.real; out[1] = z.imag;"
    assert evaluate(source, 2) == [-np.inf, -np.inf]


@pytest.mark.parametrize("math_mode", ["safe", "relaxed", "fast"])
def test_infinity_keeps_its_meaning_in_every_math_mode(math_mode: str) -> None:
    assert evaluate("out[0] = metal::exp(Limits<float>::min);", 1, math_mode=math_mode) == [0]


def test_calculation() -> None:
    source = "out[0] = ceildiv(10, 4); out[1] = ceildiv(12u, 4); out[2] = WorkPerThread<half>::n; out[3] = cast_to<bool>(0.5f);"
    assert evaluate(source, 4) == [3, 3, 4, 1]


def test_log1p() -> None:
    x = np.array([0.0, 1e-30, 1e-7, -1e-4, 0.3, -0.75, 5.0, 1e8, np.inf, -1.0, -2.0], np.float32)
    narrow = x.astype(ml_dtypes.bfloat16)
    source = "uint i = thread_position_in_grid.x; wide[i] = log1p(x[i]); low[i] = log1p(bfloat16_t(x[i]));"
    wide, low = metal_kernel("k", ["x"], ["wide", "low"], source)(
        inputs=[x], output_shapes=[x.shape] * 2, output_dtypes=[x.dtype, narrow.dtype], **flat(x.size)
    )
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(wide, np.log1p(x.astype(np.float64)), rtol=3e-7)
        np.testing.assert_allclose(low.astype(np.float64), np.log1p(narrow.astype(np.float64)), rtol=2**-8)


def test_hypot() -> None:
    x = np.array([3, 0, 1e30, 1e-30, np.inf, np.nan, -7], np.float32)
    y = np.array([4, 0, 1e30, 2e-30, np.nan, 1, 0], np.float32)
    source = "uint i = thread_position_in_grid.x; out[i] = hypot(x[i], y[i]);"
    [out] = metal_kernel("k", ["x", "y"], ["out"], source)(
        inputs=[x, y], output_shapes=[x.shape], output_dtypes=[x.dtype], **flat(x.size)
    )
    np.testing.assert_allclose(out, np.hypot(x.astype(np.float64), y.astype(np.float64)), rtol=2e-7)


COMPLEX_OPERATIONS = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a / b": lambda a, b: a / b,
    "-a": lambda a, b: -a,
    "a + 2.0f": lambda a, b: a + 2,
    "2 + a": lambda a, b: a + 2,
    "a - 0.5f": lambda a, b: a - 0.5,
    "3 - a": lambda a, b: 3 - a,
    "1.0f / b": lambda a, b: 1 / b,
    "log1p(a)": lambda a, b: np.log1p(a),
    "complex64_t(complex32_t(half(a.real), half(a.imag)))": lambda a, b: (
        a.real.astype(np.float16) + 1j * a.imag.astype(np.float16)
    ),
}


def test_complex_numbers() -> None:
    random = np.random.default_rng(3)
    a, b = (random.normal(size=(2, 200)) + 1j * random.normal(size=(2, 200))).astype(np.complex64)
    b[:3] = [1, 1j, 1e30 - 1e30j]
    source = "uint i = thread_position_in_grid.x; complex64_t a = x[i], b = y[i];\n" + "\n".join(
        f"out[{200 * n} + i] = {expression};" for n, expression in enumerate(COMPLEX_OPERATIONS)
    )
    kernel = metal_kernel("k", ["x", "y"], ["out"], source)
    shape = (len(COMPLEX_OPERATIONS), 200)
    [out] = kernel(inputs=[a, b], output_shapes=[shape], output_dtypes=[np.complex64], **flat(200))
    for found, (expression, compute) in zip(out, COMPLEX_OPERATIONS.items(), strict=True):
        expected = compute(a.astype(np.complex128), b.astype(np.complex128))
        assert np.all(np.abs(found - expected) <= 1e-6 * np.abs(expected)), expression


def test_complex_numbers_compare_add_up_and_leave_a_remainder() -> None:
    source = """
      complex64_t a(1, 2), b(1, 3), c(2, 0);
      out[0] = (a < b) + 2 * (b < c) + 4 * (a >= a) + 8 * (c > b) + 16 * (a == b) + 32 * (b <= a);
      a += b;
      out[1] = a.real; out[2] = a.imag;
      complex64_t r = complex64_t(7, -7) % complex64_t(3, 3);
      out[3] = r.real; out[4] = r.imag;
      out[5] = cast_to<bool>(complex64_t(0, 1)) + 2 * cast_to<bool>(complex64_t(0, 0));
      float2 pair = complex64_t(4, 5);
      out[6] = pair.y;
    """
    assert evaluate(source, 7) == [1 + 2 + 4 + 8, 2, 5, 7 % 3, -7 % 3, 1, 5]


def test_shuffles_of_wide_values() -> None:
    source = """
      uint lane = thread_index_in_simdgroup;
      uint64_t wide = (uint64_t(lane) << 40) + lane;
      complex64_t z(lane, -float(lane));
      out[lane] = float(simd_shuffle_down(wide, 1) >> 40) + simd_shuffle_up(int64_t(wide), 1) / exp2(60.0f)
                + simd_shuffle(z, 7).imag * 0 + simd_shuffle_down(z, 2).real * 100 + simd_shuffle(bool(lane & 1), 3) * 0.5;
      if (lane == 0) out[32] = simd_shuffle_and_fill_up(z, complex64_t(9, 8), 1).imag;
    """
    got = evaluate_grid(source, 33, 32)
    for lane in range(1, 30):
        # 40 bits up, a lane's number is that times 2**40: it shows as a fraction after division by 2**60
        assert got[lane] == pytest.approx(lane + 1 + (lane - 1) * 2.0**-20 + (lane + 2) * 100 + 0.5, rel=1e-6)
    assert got[32] == 8


def evaluate_grid(source: str, count: int, threads: int) -> list[Any]:
    kernel = metal_kernel("k", [], ["out"], source)
    return kernel(
        inputs=[], output_shapes=[(count,)], output_dtypes=[np.float32], grid=(threads, 1, 1), threadgroup=(32, 1, 1)
    )[0].tolist()  # fmt: skip


def test_every_way_from_an_element_to_its_place() -> None:
    view = np.arange(2 * 3 * 4 * 5, dtype=np.int32).reshape(2, 3, 4, 5).transpose(3, 1, 0, 2)[1:, ::2]
    a, b, c, d = view.shape
    source = """
      uint3 at = thread_position_in_grid;
      uint i = (at.z * inp_shape[2] + at.y) * inp_shape[3] + at.x;
      auto two = elem_to_loc_2_nd(at, inp_shape, inp_strides, inp_strides, inp_ndim);
      auto three = elem_to_loc_3_nd<int>(at, inp_shape, inp_strides, inp_strides, inp_strides, inp_ndim);
      LoopedElemToLoc<4> walk(inp_ndim);
      for (uint n = 0; n < i; ++n) walk.next(inp_shape, inp_strides);
      LoopedElemToLoc<2, uint> jump(inp_ndim);
      jump.next(i, inp_shape, inp_strides);
      long place = elem_to_loc(at, inp_shape, inp_strides, inp_ndim);
      bool same = place == elem_to_loc(int64_t(i), inp_shape, inp_strides, inp_ndim) && two.x == place &&
                  two.y == place && three.x == place && three.z == place && long(walk.location()) == place &&
                  long(jump.location()) == place && elem_to_loc<uint>(i, inp_shape, inp_strides, inp_ndim) == place;
      out[i] = same ? inp[place] : -1;
    """
    [out] = one_to_one(source, ensure_row_contiguous=False)(
        inputs=[view], output_shapes=[view.shape], output_dtypes=[np.int32], grid=(d, c, a * b), threadgroup=(4, 4, 4)
    )  # fmt: skip
    np.testing.assert_array_equal(out, view)


def test_places_in_one_two_and_three_dimensions() -> None:
    source = """
      out[0] = elem_to_loc_1(4, inp_strides[2]);
      out[1] = elem_to_loc_2(uint2(3, 2), inp_strides + 1);
      out[2] = elem_to_loc_3(uint3(3, 2, 1), inp_strides);
      LoopedElemToLoc<1, size_t, false> walk(1);
      walk.next(inp_shape, inp_strides);
      walk.next(3, inp_shape, inp_strides);
      out[3] = walk.location();
    """
    view = np.zeros((4, 8, 16), np.int32)[::2, ::2, ::2]
    [out] = one_to_one(source, ensure_row_contiguous=False)(
        inputs=[view], output_shapes=[(4,)], output_dtypes=[np.int32], **flat(1)
    )
    assert out.tolist() == [4 * 2, 3 * 2 + 2 * 32, 3 * 2 + 2 * 32 + 256, 4 * 256]


def test_tiles_of_rows_find_their_group() -> None:
    height, sizes = 8, [3, 0, 8, 17, *([1] * 40), 0, 9]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    tiles = [
        (group, start + first, min(height, size - first))
        for group, (start, size) in enumerate(zip(starts.tolist(), sizes, strict=True))
        for first in range(0, size, height)
    ]
    count = len(tiles) + 2  # more than there are: for those there is nothing to do
    source = """
      int row = -1, group = -1;
      short rows = -1;
      uint tile = threadgroup_position_in_grid.x;
      bool found = schedule_row_tile<8>(starts, starts_shape[0], total, tile, thread_index_in_simdgroup, row, group, rows);
      if (thread_index_in_simdgroup == 0) {
        out[4 * tile] = found; out[4 * tile + 1] = group; out[4 * tile + 2] = row; out[4 * tile + 3] = rows;
      }
    """
    kernel = metal_kernel("k", ["starts", "total"], ["out"], source)
    [out] = kernel(
        inputs=[starts, sum(sizes)],
        output_shapes=[(count, 4)],
        output_dtypes=[np.int32],
        **flat(32 * count, 32),
    )
    assert out.tolist() == [*([1, *tile] for tile in tiles), *[[0, -1, -1, -1]] * 2]


def test_a_header_s_functions_and_macros() -> None:
    header = "#define TWICE(x) ((x) * 2)\ntemplate <typename T> T thrice(T x) { return x * 3; }\n"
    assert evaluate("out[0] = TWICE(thrice(7.0f));", 1, header) == [42]


# -- what is wrong is said ------------------------------------------------------------------------------------------


def test_compile_errors_point_into_the_body_and_the_header() -> None:
    x = np.zeros(4, np.float32)
    with pytest.raises(CompileError) as caught:
        one_to_one("uint i = thread_position_in_grid.x;\nout[i] = inp[i] + missing;")(**like(x))
    [found] = caught.value.diagnostics
    assert str(found.site) == "k.source:2:19" and "missing" in found.message
    assert found.excerpt == "out[i] = inp[i] + missing;"
    with pytest.raises(CompileError) as caught:
        one_to_one(COPY, header="float f() {\n  return nothing;\n}\n")(**like(x))
    [found] = caught.value.diagnostics
    assert str(found.site) == "k.header:2:10"


def test_faults_point_into_the_body() -> None:
    x = np.zeros(4, np.float32)
    with pytest.raises(MemoryFault) as caught:
        one_to_one("uint i = thread_position_in_grid.x;\nout[i] = inp[i + 1];")(**like(x))
    assert str(caught.value.site) == "k.source:2:10" and caught.value.thread == (3, 0, 0)
    # inside a function of MLX's, the place is where the body calls it
    source = "out[0] = inp[elem_to_loc(2u, inp_shape, inp_strides, inp_ndim + 2)];"
    with pytest.raises(MemoryFault, match="'inp_shape', which has 1") as caught:
        one_to_one(source)(**like(x))
    assert caught.value.site is not None and caught.value.site.file == "k.source"


def test_unchecked_kernels_run_too() -> None:
    x = torch.randn(1000)
    assert torch.equal(one_to_one(COPY, checked=False)(**like(x))[0], x)


@pytest.mark.parametrize("header", ["// the end", "#define A 1", "int a; /* open"])
def test_a_header_that_would_swallow_the_signature(header: str) -> None:
    with pytest.raises(CompileError, match="swallows the kernel's signature") as caught:
        one_to_one(COPY, header=header)(**like(np.zeros(4, np.float32)))
    assert caught.value.diagnostics[0].site is not None
    assert caught.value.diagnostics[0].site.file == "k.header"


@pytest.mark.parametrize(
    ("changed", "kind", "message"),
    [
        ({"inputs": []}, ArgumentError, "inputs: expected 1 \\(inp\\), got 0"),
        ({"inputs": np.zeros(3)}, ArgumentError, "inputs: expected a list, got ndarray"),
        ({"inputs": ["x"]}, ArgumentError, "input 'inp': expected an array or a number, got str"),
        ({"inputs": [np.zeros(4)]}, ArgumentError, "input 'inp': dtype float64 does not exist"),
        ({"inputs": [np.zeros(4, ">f4")]}, ArgumentError, "input 'inp': dtype >f4 does not exist"),
        ({"inputs": [2**70]}, ArgumentError, "input 'inp': .* does not fit in 64 bits"),
        ({"inputs": [torch.zeros(4, device="meta")]}, ArgumentError, "input 'inp': is on device 'meta'"),
        ({"inputs": [torch.zeros(4).to_sparse()]}, ArgumentError, "input 'inp': has layout torch.sparse_coo"),
        ({"output_shapes": [(4,), (4,)]}, ArgumentError, "output_shapes: expected 1 \\(out\\), got 2"),
        ({"output_shapes": [4]}, ArgumentError, "output 'out': output_shapes: .*got 4"),
        ({"output_shapes": [(-1,)]}, ArgumentError, "output 'out': output_shapes: .*got \\(-1,\\)"),
        ({"output_shapes": [(2**20, 2**12)]}, ArgumentError, "output 'out': output_shapes: .*fewer than"),
        ({"output_dtypes": ["float32"]}, ArgumentError, "output 'out': output_dtypes: .*got 'float32'"),
        ({"output_dtypes": [np.float64]}, ArgumentError, "output 'out': output_dtypes: expected"),
        ({"grid": (0, 1, 1)}, DispatchError, "grid.x: expected 1 to"),
        ({"grid": (4, 1)}, DispatchError, "grid must be a 3-tuple"),
        ({"grid": (4.5, 1, 1)}, DispatchError, "grid: expected three integers"),
        ({"threadgroup": (64, 32, 1)}, DispatchError, "threadgroup: at most 1024 threads"),
        ({"template": [("T", "float")]}, ArgumentError, "template: 'T': expected a dtype, an int or a bool"),
        ({"template": [("T", 2**31)]}, ArgumentError, "template: 'T': .*does not fit"),
        ({"template": [("for", 1)]}, ArgumentError, "template: 'for' is a keyword"),
        ({"template": [("T", 1), ("T", 2)]}, ArgumentError, "template: 'T' is there twice"),
        ({"template": ["T"]}, ArgumentError, "template: expected pairs"),
        ({"init_value": "0"}, ArgumentError, "init_value: expected a number"),
        ({"init_value": [1, 2]}, ArgumentError, "init_value: expected a number"),
        ({"init_value": np.zeros(2)}, ArgumentError, "init_value: expected a number"),
        ({"init_value": 10**400}, ArgumentError, "init_value: expected a number"),
        ({"init_value": 300, "output_dtypes": [np.uint8]}, ArgumentError, "init_value: 300 is no uint8 \\(output 'out'\\)"),
        ({"init_value": float("nan"), "output_dtypes": [np.int32]}, ArgumentError, "init_value: nan is no int32"),
    ],
)  # fmt: skip
def test_wrong_calls(changed: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match="kernel 'k'.*" + message):
        one_to_one(COPY)(**like(np.zeros(4, np.float32), **changed))


def test_libraries_are_not_mixed() -> None:
    kernel = metal_kernel("k", ["a", "b"], ["out"], "out[0] = a[0] + b[0];")
    with pytest.raises(ArgumentError, match="arrays of one library, got those of numpy and torch"):
        kernel(
            inputs=[np.zeros(1, np.float32), torch.zeros(1)], output_shapes=[(1,)], output_dtypes=[np.float32], **flat(1)
        )  # fmt: skip


def test_views_that_have_no_place_in_a_buffer() -> None:
    x = np.arange(4, dtype=np.float32)
    kernel = one_to_one(COPY, ensure_row_contiguous=False)
    with pytest.raises(ArgumentError, match="input 'inp': strides .* are negative"):
        kernel(**like(x[::-1]))
    fields = np.zeros(4, np.dtype([("a", np.complex64), ("b", np.float32)]))["a"]
    with pytest.raises(ArgumentError, match="no whole elements"):
        kernel(**like(fields))
    np.testing.assert_array_equal(one_to_one(COPY)(**like(x[::-1]))[0], x[::-1])


def test_a_tensor_whose_storage_was_taken_away() -> None:
    x = torch.zeros(100)
    x.untyped_storage().resize_(40)
    with pytest.raises(
        ArgumentError, match="input 'inp': its storage has 40 bytes and its elements need 400"
    ):
        one_to_one(COPY)(**like(x))


def test_atomics_that_metal_does_not_have() -> None:
    with pytest.raises(ArgumentError, match="output 'out': Metal has no atomic<float16_t>"):
        one_to_one("", atomic_outputs=True)(**like(torch.zeros(4).half()))


def test_too_many_buffers() -> None:
    names = [f"a{i}" for i in range(15)]
    source = "out[0] = " + " + ".join(f"{name}_shape[0]" for name in names) + ";"
    kernel = metal_kernel("k", names, ["out"], source)
    call = {"output_shapes": [(1,)], "output_dtypes": [np.float32], **flat(1)}
    [out] = kernel(inputs=[np.zeros(1, np.float32)] * 15, **call)
    assert out[0] == 15
    kernel = metal_kernel("k", [*names, "b"], ["out"], source)
    with pytest.raises(ArgumentError, match="at most 31 buffers, got 32"):
        kernel(inputs=[np.zeros(1, np.float32)] * 16, **call)


def test_derivatives_are_no_silent_zeros() -> None:
    x = torch.ones(4, requires_grad=True)
    [out] = one_to_one(COPY)(**like(x))
    assert torch.equal(out.detach(), x.detach())
    with pytest.raises(ArgumentError, match="kernel 'k' has no gradient"):
        out.sum().backward()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"input_names": "inp"}, "input_names: expected a list of names"),
        ({"input_names": ["device"]}, "input_names: 'device' is a keyword"),
        ({"input_names": ["grid_size"]}, "'grid_size' is the name of a thread attribute"),
        ({"input_names": ["out"]}, "'out' is there twice"),
        ({"output_names": []}, "output_names: expected at least one name"),
        ({"source": None}, "source: expected MSL"),
        ({"header": 3}, "header: expected MSL"),
        ({"math_mode": "exact"}, "math_mode: expected 'safe', 'relaxed', 'fast', got 'exact'"),
        ({"checked": 1}, "checked"),
        ({"compile_options": {"fast": True}}, "compile_options"),
        ({"compile_options": {"math_mode": "exact"}}, "math_mode"),
    ],
)  # fmt: skip
def test_wrong_definitions(changed: dict[str, Any], message: str) -> None:
    given = {"name": "k", "input_names": ["inp"], "output_names": ["out"], "source": COPY, **changed}
    with pytest.raises(KernelDefinitionError, match=message):
        metal_kernel(**given)


# -- the rest -------------------------------------------------------------------------------------------------------


def test_verbose_prints_what_is_generated(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = metal_kernel(
        "scaled", ["x", "factor"], ["y"],
        "uint i = thread_position_in_grid.x;\ny[i] = T(x[elem_to_loc(i, x_shape, x_strides, x_ndim)]) * factor;",
        header="// a header\n",
    )  # fmt: skip
    kernel(
        inputs=[torch.zeros(8).half(), 2.0],
        template=[("T", torch.float32), ("N", -4)],
        output_shapes=[(8,)],
        output_dtypes=[torch.bfloat16],
        verbose=True,
        **flat(8),
    )
    printed = capsys.readouterr().out
    name = "custom_kernel_scaled_float_m4_float16_t_floats_bfloat16_t"
    assert printed == (
        "Generated source code for `scaled`:\n```\n// a header\n\n"
        "template <typename T, int N>\n"
        f"[[kernel]] void {name}(\n"
        "  const device float16_t* x [[buffer(0)]],\n"
        "  const constant int* x_shape [[buffer(1)]],\n"
        "  const constant int64_t* x_strides [[buffer(2)]],\n"
        "  const constant int& x_ndim [[buffer(3)]],\n"
        "  const constant float& factor [[buffer(4)]],\n"
        "  device bfloat16_t* y [[buffer(5)]],\n"
        "  uint3 thread_position_in_grid [[thread_position_in_grid]]) {\n"
        "uint i = thread_position_in_grid.x;\ny[i] = T(x[elem_to_loc(i, x_shape, x_strides, x_ndim)]) * factor;\n}\n"
        f'template [[host_name("{name}")]] [[kernel]] decltype({name}<float, -4>) {name}<float, -4>;\n```\n'
    )


def test_recursion_is_asked_for() -> None:
    header = "float power(float x, int n) { return n == 0 ? 1 : x * power(x, n - 1); }"
    source = "uint i = thread_position_in_grid.x; out[i] = power(inp[i], 3);"
    inputs = like(np.array([2.0, 3.0], np.float32))
    with pytest.raises(CompileError, match="recursion=N"):
        one_to_one(source, header=header)(**inputs)
    (out,) = one_to_one(source, header=header, recursion=4)(**inputs)
    assert out.tolist() == [8, 27]


def test_the_utilities_need_no_preprocessor() -> None:
    """It costs a process for each kernel."""
    assert "#" not in utilities()


def test_one_program_serves_equal_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    from metalwright.authoring.mlx import kernel as mlx_kernel

    compiled: list[str] = []
    monkeypatch.setattr(
        mlx_kernel, "load", lambda module, name: compiled.append(name) or original(module, name)
    )
    original = metalwright.engine.load
    kernel = one_to_one(COPY)
    for size in (100, 200, 4):
        kernel(**like(np.zeros(size, np.float32)))
    assert compiled == ["custom_kernel_k_float_float", "custom_kernel_k_floatc_float"]


def test_it_is_public() -> None:
    assert "metal_kernel" in metalwright.__all__ and metalwright.metal_kernel is metal_kernel
    assert repr(one_to_one(COPY)) == "<CustomKernel k: inp -> out>"
