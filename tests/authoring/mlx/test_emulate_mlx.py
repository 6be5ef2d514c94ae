"""emulate("mlx"): code that makes kernels with ``mx.fast.metal_kernel`` runs unchanged; compared with MLX's own CPU ops.

MLX's CPU build for Linux needs a C library as new as glibc 2.35; where it is not installed, these tests are skipped.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from metalwright import metal_kernel
from metalwright.authoring import emulate, intercept
from metalwright.authoring.mlx import kernel as mlx_kernel
from metalwright.errors import ArgumentError, KernelDefinitionError, MemoryFault, ToolchainError

mx = pytest.importorskip("mlx.core", reason="MLX is not installed (pip install 'mlx[cpu]' on Linux)")

without_gpu = pytest.mark.skipif(mx.metal.is_available(), reason="shows that an MLX without a GPU refuses")
DTYPES = "bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 complex64".split()
EXP = "uint i = thread_position_in_grid.x; T x = inp[i]; out[i] = metal::exp(x);"


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = mx.fast.metal_kernel
    yield
    assert mx.fast.metal_kernel is before


def exp_kernel(source: str = EXP, **options: Any) -> Any:
    """What a user's code does, knowing nothing of Metalwright."""
    return mx.fast.metal_kernel(
        name="my_exp", input_names=["inp"], output_names=["out"], source=source, **options
    )


def exp(x: Any, kernel: Any = None, **changed: Any) -> Any:
    call = {
        "inputs": [x],
        "template": [("T", mx.float32)],
        "grid": (x.size, 1, 1),
        "threadgroup": (256, 1, 1),
        "output_shapes": [x.shape],
        "output_dtypes": [x.dtype],
        "stream": mx.gpu,
        **changed,
    }
    return (kernel or exp_kernel())(**call)[0]


def numbers(*shape: int) -> Any:
    x = mx.random.normal(shape, key=mx.random.key(4))
    mx.eval(x)  # another thread cannot: MLX's streams belong to threads
    return x


@without_gpu
def test_inside_and_outside() -> None:
    x = numbers(4, 16)
    with pytest.raises(RuntimeError, match="No Metal back-end"):
        exp(x)
    with emulate("mlx"):
        kernel = exp_kernel()
        out = exp(x, kernel)
        assert isinstance(out, mx.array) and out.dtype == mx.float32
        np.testing.assert_allclose(np.array(out), np.array(mx.exp(x)), rtol=3e-7)
    # made inside, called outside: MLX's own kernel again
    with pytest.raises(RuntimeError, match="No Metal back-end"):
        exp(x, kernel)
    with emulate("mlx"):
        assert mx.array_equal(exp(x, kernel), out)


def test_it_is_among_all_that_is_installed() -> None:
    with emulate():
        assert mx.allclose(exp(numbers(8)), mx.exp(numbers(8)))


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_with_strides(name: str, contiguous: bool) -> None:
    dtype = getattr(mx, name)
    base = mx.arange(48).reshape(2, 4, 6) - (0 if name.startswith("uint") else 20)
    x = base.astype(dtype).transpose(2, 0, 1)[1::2]
    source = (
        "uint i = thread_position_in_grid.x; out[i] = inp[elem_to_loc(i, inp_shape, inp_strides, inp_ndim)];"
    )
    with emulate("mlx"):
        out = exp(x, exp_kernel(source, ensure_row_contiguous=contiguous))
    assert out.dtype == dtype and mx.array_equal(out, x)


def test_half_and_bfloat_round_like_mlx() -> None:
    x = numbers(1000)
    for dtype in (mx.float16, mx.bfloat16):
        with emulate("mlx"):
            out = exp(x.astype(dtype), output_dtypes=[mx.float32])
            narrow = exp(x.astype(dtype), exp_kernel("uint i = thread_position_in_grid.x; out[i] = T(inp[i]) * T(inp[i]);"),
                         template=[("T", dtype)])  # fmt: skip
        np.testing.assert_allclose(
            np.array(out), np.array(mx.exp(x.astype(dtype).astype(mx.float32))), rtol=3e-7
        )
        assert mx.array_equal(narrow, x.astype(dtype).square())


def test_what_is_not_evaluated_yet_is() -> None:
    x = mx.sin(numbers(50)) * 2 + mx.arange(50)[::-1] / 50
    with emulate("mlx"):
        assert mx.allclose(exp(x), mx.exp(x))


def test_scalars_numbers_and_numpy_arrays() -> None:
    """As ``mx.array`` converts them: NumPy's float64 is float32."""
    with emulate("mlx"):
        kernel = mx.fast.metal_kernel(
            "k", ["a", "b", "c", "d"], ["out"], "out[0] = a + b + c[1] + d[7]; out[1] = sizeof(c[0]);"
        )
        [out] = kernel(
            inputs=[mx.array(2.0), 3, np.array([0.0, 10.0]), np.arange(8)],
            grid=(1, 1, 1),
            threadgroup=(1, 1, 1),
            output_shapes=[(2,)],
            output_dtypes=[mx.float32],
        )
        assert isinstance(out, mx.array) and out.tolist() == [22, 4]
        [only_numpy] = kernel(
            inputs=[2.0, 3, np.array([0.0, 10.0]), np.arange(8)],
            grid=(1, 1, 1),
            threadgroup=(1, 1, 1),
            output_shapes=[(2,)],
            output_dtypes=[mx.float32],
        )
        assert isinstance(only_numpy, mx.array) and only_numpy.tolist() == [22, 4]


@pytest.mark.parametrize("name", DTYPES)
def test_outputs_without_dimensions(name: str) -> None:
    dtype = getattr(mx, name)
    with emulate("mlx"):
        kernel = exp_kernel("out[0] = inp[1];")
        out = exp(mx.array([0, 1]).astype(dtype), kernel, output_shapes=[()])
        unwritten = exp(mx.array([0, 1]).astype(dtype), exp_kernel(""), output_shapes=[()], init_value=1)
    assert out.shape == () and out.dtype == dtype and out.item() == 1
    assert unwritten.dtype == dtype and unwritten.item() == 1


SOFTMAX = """
  threadgroup float shared[32];
  uint row = threadgroup_position_in_grid.x, lane = thread_index_in_simdgroup, group = simdgroup_index_in_threadgroup;
  int width = x_shape[1];
  const device auto* line = x + row * width;
  float top = Limits<float>::min;
  for (int i = thread_index_in_threadgroup; i < width; i += int(threads_per_threadgroup.x)) top = metal::max(top, float(line[i]));
  top = simd_max(top);
  if (lane == 0) shared[group] = top;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  top = simd_max(lane < simdgroups_per_threadgroup ? shared[lane] : Limits<float>::min);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0;
  for (int i = thread_index_in_threadgroup; i < width; i += int(threads_per_threadgroup.x)) sum += metal::exp(line[i] - top);
  sum = simd_sum(sum);
  if (lane == 0) shared[group] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  sum = simd_sum(lane < simdgroups_per_threadgroup ? shared[lane] : 0);
  for (int i = thread_index_in_threadgroup; i < width; i += int(threads_per_threadgroup.x))
    out[row * width + i] = T(metal::exp(line[i] - top) / sum);
"""


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_a_masked_softmax_over_rows(name: str) -> None:
    dtype = getattr(mx, name)
    x = mx.where(mx.arange(700) > 600, -mx.inf, numbers(5, 700) * 3).astype(dtype)
    with emulate("mlx"):
        kernel = mx.fast.metal_kernel("softmax", ["x"], ["out"], SOFTMAX)
        [out] = kernel(
            inputs=[x],
            template=[("T", dtype)],
            grid=(5 * 256, 1, 1),
            threadgroup=(256, 1, 1),
            output_shapes=[x.shape],
            output_dtypes=[dtype],
        )
    expected = np.array(mx.softmax(x.astype(mx.float32), axis=1))
    step = {"float32": 1e-6, "float16": 2**-11, "bfloat16": 2**-8}[name]
    np.testing.assert_allclose(np.array(out.astype(mx.float32)), expected, rtol=1.01 * step + 1e-6, atol=6e-8)
    assert np.all(np.array(out.astype(mx.float32))[:, 601:] == 0)


def test_a_derivative_that_user_code_defines() -> None:
    """MLX's way: a custom function whose vjp is a kernel too, here one that scatters with atomics."""
    gather = "uint i = thread_position_in_grid.x; out[i] = x[index[i]];"
    scatter = "uint i = thread_position_in_grid.x; atomic_fetch_add_explicit(&out[index[i]], pull[i], memory_order_relaxed);"
    index = mx.array([3, 1, 3, 3, 0, 5, 1, 1, 2])
    sizes = {"grid": (index.size, 1, 1), "threadgroup": (32, 1, 1), "output_dtypes": [mx.float32]}

    def loss(take: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: (take(x) * mx.arange(index.size)).sum()

    with emulate("mlx"):
        forward = mx.fast.metal_kernel("gather", ["x", "index"], ["out"], gather)
        backward = mx.fast.metal_kernel("scatter", ["pull", "index"], ["out"], scatter, atomic_outputs=True)

        @mx.custom_function
        def take(x: Any) -> Any:
            return forward(inputs=[x, index], output_shapes=[index.shape], **sizes)[0]

        @take.vjp
        def pull_back(x: Any, pull: Any, _: Any) -> Any:
            return backward(inputs=[pull, index], output_shapes=[x.shape], init_value=0, **sizes)[0]

        x = numbers(6)
        value, gradient = mx.value_and_grad(loss(take))(x)
    expected_value, expected = mx.value_and_grad(loss(lambda x: x[index]))(x)
    assert mx.allclose(value, expected_value) and mx.array_equal(gradient, expected)


def test_derivatives_are_no_silent_zeros() -> None:
    x = numbers(6)
    with emulate("mlx"):
        kernel = exp_kernel()
        with pytest.raises(
            ArgumentError, match="'my_exp' has no derivative; give it one with mx.custom_function"
        ):
            mx.grad(lambda x: exp(x, kernel).sum())(x)
        with pytest.raises(ArgumentError, match="'my_exp' has no derivative"):
            mx.jvp(lambda x: exp(x, kernel), [x], [x])


def test_inside_a_trace_there_are_no_values() -> None:
    x = numbers(3, 6)
    with emulate("mlx"):
        kernel = exp_kernel()
        with pytest.raises(
            ArgumentError, match="input 'inp': has no value yet: inside mx.compile or mx.vmap"
        ):
            mx.compile(lambda x: exp(x, kernel))(x)
        with pytest.raises(ArgumentError, match="has no value yet"):
            mx.vmap(lambda x: exp(x, kernel))(x)
        mx.disable_compile()
        try:
            assert mx.allclose(mx.compile(lambda x: exp(x, kernel))(x), mx.exp(x))
        finally:
            mx.enable_compile()


def test_it_nests_and_ends_with_an_error() -> None:
    x = numbers(4)
    with pytest.raises(KeyError), emulate("mlx"):
        with emulate("mlx", checked=False):
            assert mx.allclose(exp(x), mx.exp(x))
        inside = mx.fast.metal_kernel
        assert mx.allclose(exp(x), mx.exp(x))
        raise KeyError
    assert mx.fast.metal_kernel is not inside


def test_the_innermost_options_count(monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[tuple[str, bool]] = []
    compiled = mlx_kernel.compile_msl

    def spy(sections: Any, given: Any, label: str) -> Any:
        options.append((given.math_mode, given.checked))
        return compiled(sections, given, label)

    monkeypatch.setattr(mlx_kernel, "compile_msl", spy)
    x = numbers(8)
    with emulate("mlx"):
        kernel = exp_kernel("out[thread_position_in_grid.x] = inp[AT];")
        exp(x, kernel, template=[("AT", 7)])
        with emulate("mlx", checked=False, math_mode="fast"):
            exp(x, kernel, template=[("AT", 7)])
        with pytest.raises(MemoryFault, match="element 9 of 'inp', which has 8"):
            exp(x, kernel, template=[("AT", 9)])
    assert options == [("safe", True), ("fast", False), ("safe", True)]


@without_gpu
def test_another_thread_is_not_concerned() -> None:
    x = numbers(4)
    seen: list[Any] = []

    def elsewhere() -> None:
        try:
            seen.append(np.array(exp(x)))
        except RuntimeError as error:
            seen.append(str(error))

    with emulate("mlx"):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        # a thread that is given this context is
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: context.run(elsewhere))
        thread.start()
        thread.join()
    assert "No Metal back-end" in seen[0]
    np.testing.assert_allclose(seen[1], np.array(mx.exp(x)), rtol=3e-7)


def test_blocks_in_several_threads_end_in_any_order() -> None:
    before = mx.fast.metal_kernel
    entered, leave, results = threading.Barrier(3), threading.Barrier(3), []

    def work(number: int) -> None:
        with emulate("mlx"):
            entered.wait(60)
            x = mx.full((8,), float(number))
            results.append(mx.allclose(exp(x), mx.exp(x)).item())
            leave.wait(60)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 3 and mx.fast.metal_kernel is before


def test_a_later_patch_stays() -> None:
    before = mx.fast.metal_kernel
    try:
        with emulate("mlx"):
            ours = mx.fast.metal_kernel

            def theirs(*args: Any, **kwargs: Any) -> Any:
                return ours(*args, **kwargs)

            mx.fast.metal_kernel = theirs
        assert mx.fast.metal_kernel is theirs
        with emulate("mlx"):
            assert mx.allclose(exp(numbers(4)), mx.exp(numbers(4)))
    finally:
        mx.fast.metal_kernel = before


def test_math_modes() -> None:
    """A kernel that asks for fast math keeps it; the emulation can ask for it too."""
    x = mx.array([1e-3] * 32)
    # (x + 1e8) - 1e8 is x where a compiler may reorder, and 0 where it may not
    source = "uint i = thread_position_in_grid.x; out[i] = (inp[i] + 1e8f) - 1e8f;"
    with emulate("mlx"):
        assert exp(x, exp_kernel(source))[0].item() == 0
        fast = exp(x, exp_kernel(source, compile_options={"math_mode": "fast"}))[0].item()
    with emulate("mlx", math_mode="fast"):
        assert exp(x, exp_kernel(source))[0].item() == fast
    assert fast == pytest.approx(1e-3)


def test_wrong_definitions_and_arguments_are_value_errors_as_in_mlx() -> None:
    with emulate("mlx"):
        with pytest.raises(KernelDefinitionError) as caught:
            mx.fast.metal_kernel("k", ["x"], [], "")
        assert isinstance(caught.value, ValueError)
        with pytest.raises(ArgumentError, match="inputs: expected 1 \\(inp\\), got 2") as wrong:
            exp(numbers(4), inputs=[numbers(4), numbers(4)])
        assert isinstance(wrong.value, ValueError)
        with pytest.raises(ArgumentError, match="dtype mlx.core.float64 does not exist"):
            exp(numbers(4).astype(mx.float64, stream=mx.cpu), output_dtypes=[mx.float32])


def test_an_mlx_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """``pip install mlx`` on Linux brings no back-end."""
    from metalwright.authoring.mlx import emulate as mlx_emulate

    def fail(name: str) -> Any:
        raise ImportError("libmlx.so: cannot open shared object file")

    handlers = intercept._handlers.get()
    with monkeypatch.context() as patch:
        patch.setattr(mlx_emulate.importlib, "import_module", fail)
        with pytest.raises(ToolchainError, match=r"libmlx.so.*pip install 'mlx\[cpu\]'"), emulate():
            pass
    assert intercept._handlers.get() == handlers


def test_metal_kernel_itself_takes_arrays_of_mlx() -> None:
    x = numbers(3, 5)
    [out] = metal_kernel("k", ["inp"], ["out"], EXP)(
        inputs=[x],
        template=[("T", mx.float32)],
        grid=(15, 1, 1),
        threadgroup=(15, 1, 1),
        output_shapes=[x.shape],
        output_dtypes=[mx.float32],
    )
    assert isinstance(out, mx.array) and mx.allclose(out, mx.exp(x))
