"""What is refused when a kernel is called or launched: the class, and what the message says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from metalwright.authoring import MetalKernel, MetalParameter, execute, launch
from metalwright.errors import ArgumentError, CompileError, DispatchError

Make = Callable[..., MetalKernel]
Over = Callable[..., dict[str, Any]]
X = torch.ones(8)


def check(caught: pytest.ExceptionInfo[Exception], kernel: MetalKernel, *fragments: str) -> None:
    for fragment in [f"kernel {kernel.name!r}", *fragments]:
        assert fragment in str(caught.value)


SIZES = [
    ({"threads_per_grid": (8, 1)}, ["threads_per_grid", "3-tuple", "got 2"]),
    ({"threads_per_grid": (8, 1, 1, 1)}, ["threads_per_grid", "3-tuple", "got 4"]),
    ({"threads_per_grid": 8}, ["threads_per_grid", "three integers", "8"]),
    ({"threads_per_grid": (8.0, 1, 1)}, ["threads_per_grid", "three integers", "8.0"]),
    ({"threads_per_grid": ("8", 1, 1)}, ["threads_per_grid", "three integers"]),
    ({"threads_per_grid": (0, 1, 1)}, ["threads_per_grid.x", "expected 1 to 4294967295", "got 0"]),
    ({"threads_per_grid": (8, -1, 1)}, ["threads_per_grid.y", "got -1"]),
    ({"threads_per_grid": (8, 1, 2**32)}, ["threads_per_grid.z", "got 4294967296"]),
    ({"threads_per_thread_group": (4,)}, ["threads_per_thread_group", "3-tuple", "got 1"]),
    ({"threads_per_thread_group": (0, 1, 1)}, ["threads_per_thread_group.x", "got 0"]),
    ({"threads_per_thread_group": (4, 1, -2)}, ["threads_per_thread_group.z", "got -2"]),
    (
        {"threads_per_thread_group": (32, 33, 1)},
        ["threads_per_thread_group", "at most 1024 threads", "32 * 33 * 1 = 1056"],
    ),
]


@pytest.mark.parametrize(("changed", "fragments"), SIZES, ids=[str(i) for i in range(len(SIZES))])
def test_sizes(changed: dict[str, Any], fragments: list[str], make: Make, over: Over) -> None:
    kernel = make()
    with pytest.raises(DispatchError) as caught:
        kernel(X, X, 2.0, **{**over(8), **changed})
    check(caught, kernel, *fragments)
    assert isinstance(caught.value, ValueError)


def test_launch_names_its_own_argument(make: Make) -> None:
    kernel = make()
    with pytest.raises(DispatchError) as caught:
        launch(kernel, [X, X, 1.0], threads_per_grid=(8, 1, 1), threads_per_threadgroup=(2048, 1, 1),
               result_shapes=[[8]])  # fmt: skip
    check(caught, kernel, "threads_per_threadgroup:", "2048")


INPUTS: list[tuple[list[Any], list[str]]] = [
    ([X, X], ["expected 3 inputs (x, y, alpha)", "got 2"]),
    ([X, X, 1.0, 1.0], ["expected 3 inputs", "got 4"]),
    ([X, None, 1.0], ["input 'y'", "expected a tensor", "NoneType None"]),
    ([X, 2.0, 1.0], ["input 'y'", "expected a tensor", "float 2.0"]),
    ([X.double(), X, 1.0], ["input 'x'", "torch.float64", "float32", "Metal has no double"]),
    ([X, X.to(torch.complex64), 1.0], ["input 'y'", "torch.complex64", "real and imaginary"]),
    (
        [torch.ones(4, 8).T, X, 1.0],
        ["input 'x'", "contiguous", "shape [8, 4]", "strides [1, 8]", "x.contiguous()"],
    ),
    ([torch.ones(16)[::2], X, 1.0], ["input 'x'", "contiguous", "strides [2]"]),
    ([torch.ones(1).expand(8), X, 1.0], ["input 'x'", "contiguous", "strides [0]"]),
    ([torch.ones(8, 8).to_sparse(), X, 1.0], ["input 'x'", "torch.sparse_coo", "x.to_dense()"]),
    ([torch.ones(0), torch.ones(0), 1.0], ["input 'x'", "at least one element", "shape [0]"]),
    ([torch.ones((1,) * 17), X, 1.0], ["input 'x'", "at most rank 16", "rank 17"]),
    ([X, X, X], ["input 'alpha'", "expected a float", "shape [8]"]),
    ([X, X, "1"], ["input 'alpha'", "expected a float", "str '1'"]),
    ([X, X, None], ["input 'alpha'", "expected a float", "NoneType"]),
    ([X, X, float("nan")], ["input 'alpha'", "finite", "nan"]),
    ([X, X, float("-inf")], ["input 'alpha'", "finite", "-inf"]),
    ([X, X, 1e39], ["input 'alpha'", "32 bits", "1e+39"]),
    ([X, X, 1j], ["input 'alpha'", "expected a float", "complex"]),
]


@pytest.mark.parametrize(("inputs", "fragments"), INPUTS, ids=[str(i) for i in range(len(INPUTS))])
def test_inputs(inputs: list[Any], fragments: list[str], make: Make, over: Over) -> None:
    kernel = make()
    with pytest.raises(ArgumentError) as caught:
        kernel(*inputs, **over(8))
    check(caught, kernel, *fragments)
    assert isinstance(caught.value, ValueError)


def test_layout_is_checked_again_for_a_shape_that_ran_before(make: Make, over: Over) -> None:
    kernel = make()
    kernel(X, X, 1.0, **over(8))
    with pytest.raises(ArgumentError, match="contiguous"):
        kernel(torch.ones(16)[::2], X, 1.0, **over(8))


def test_arrays_are_for_launch(make: Make, over: Over) -> None:
    kernel = make()
    with pytest.raises(ArgumentError) as caught:
        kernel(np.ones(8, np.float32), X, 1.0, **over(8))
    check(caught, kernel, "input 'x'", "torch.Tensor", "metalwright.launch")


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 1.5, "1", None, X])
def test_int_scalars(value: Any, make: Make, over: Over) -> None:
    def times(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n

    kernel = make("times", input_names=["x", "n"], torch_defn=times, src="out[gid] = x[gid] * n;",
                  template_dtypes=None)  # fmt: skip
    with pytest.raises(ArgumentError) as caught:
        kernel(X, value, **over(8))
    check(caught, kernel, "input 'n'", "an int")


META = torch.ones(8, device="meta")
LAUNCHES: list[tuple[list[Any], list[str]]] = [
    ([META, META, 1.0], ["input 'x'", "'meta'", "CPU tensor"]),
    ([np.ones(8), np.ones(8), 1.0], ["input 'x'", "float64", "float32"]),
    ([np.ones(8, ">f4"), np.ones(8, np.float32), 1.0], ["input 'x'", "byte order"]),
    (
        [np.ones(16, np.float32)[::2], np.ones(8, np.float32), 1.0],
        ["input 'x'", "contiguous array", "numpy.ascontiguousarray(x)"],
    ),
    ([np.ones(8, np.float32), X, 1.0], ["all inputs as tensors or all as NumPy arrays", "got both"]),
    (X, ["inputs", "list of inputs", "Tensor"]),  # type: ignore[list-item]
    ({"x": X, "y": X}, ["x, y, alpha", "got x, y"]),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("inputs", "fragments"), LAUNCHES, ids=[str(i) for i in range(len(LAUNCHES))])
def test_launch_inputs(inputs: Any, fragments: list[str], make: Make) -> None:
    kernel = make()
    with pytest.raises(ArgumentError) as caught:
        launch(
            kernel, inputs, threads_per_grid=(8, 1, 1), threads_per_threadgroup=(8, 1, 1), result_shapes=[[8]]
        )
    check(caught, kernel, *fragments)


@pytest.mark.parametrize("device", ["cuda:0", "mps:0"])
def test_devices(device: str, make: Make) -> None:
    """No such device is needed to say what to do with its tensors: a fake tensor has the same ``device``."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    kernel = make()
    with FakeTensorMode():
        elsewhere = torch.empty(8, device=device)
    with pytest.raises(ArgumentError) as caught:
        launch(kernel, [elsewhere, X, 1.0], threads_per_grid=(8, 1, 1), threads_per_threadgroup=(8, 1, 1),
               result_shapes=[[8]])  # fmt: skip
    check(caught, kernel, "input 'x'", device.split(":")[0], "CPU tensor", "x.cpu()")


def test_launch_takes_kernels() -> None:
    with pytest.raises(ArgumentError, match="expected a MetalKernel"):
        not_a_kernel: Any = print
        launch(
            not_a_kernel,
            [X],
            threads_per_grid=(8, 1, 1),
            threads_per_threadgroup=(8, 1, 1),
            result_shapes=[[8]],
        )


def pair(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x, x.sum(0, keepdim=True)


RESULTS: list[tuple[Any, list[str]]] = [
    ([[8]], ["result_shapes", "expected 2", "['out', 'total']", "got 1"]),
    ([[8], [1], [1]], ["expected 2", "got 3"]),
    ([[8], [2]], ["result 'total'", "[2]", "the reference returns [1]"]),
    ([[2, 4], [1]], ["result 'out'", "[2, 4]", "the reference returns [8]"]),
    ([[8], []], ["result 'total'", "rank 0", "shape [1]"]),
    ([[8], [0]], ["result 'total'", "at least one element", "[0]"]),
    ([[8], [-1]], ["result 'total'", "positive extents", "[-1]"]),
    ([[8], 1], ["result_shapes", "list of integers"]),
    ([[8], [1.5]], ["result_shapes", "list of integers", "1.5"]),
    (8, ["result_shapes", "list of shapes", "8"]),
]


@pytest.mark.parametrize(("shapes", "fragments"), RESULTS, ids=[str(i) for i in range(len(RESULTS))])
def test_result_shapes(shapes: Any, fragments: list[str], make: Make, over: Over) -> None:
    kernel = make("pair", input_names=["x"], result_names=["out", "total"], torch_defn=pair, src="",
                  template_dtypes=None)  # fmt: skip
    with pytest.raises(ArgumentError) as caught:
        kernel(X, **{**over(8), "result_shapes": shapes})
    check(caught, kernel, *fragments)


def raising(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("no luck")


def by_value(x: torch.Tensor) -> torch.Tensor:
    return x[: int(x[0])]


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x.double()


def many(x: torch.Tensor) -> list[torch.Tensor]:
    return [x, x]


REFERENCES = [
    (raising, ["the reference cannot be traced", "x=float32[8]", "RuntimeError: no luck"]),
    (by_value, ["the reference cannot be traced", "x=float32[8]", "without the values"]),
    (doubled, ["result 'out'", "the reference returns dtype torch.float64"]),
    (many, ["the reference returned 2 tensors", "expected 1", "out"]),
]


@pytest.mark.parametrize(("reference", "fragments"), REFERENCES, ids=[r.__name__ for r, _ in REFERENCES])
def test_references(reference: Any, fragments: list[str], make: Make, over: Over) -> None:
    kernel = make(
        "refers", input_names=["x"], torch_defn=reference, src="out[gid] = x[gid];", template_dtypes=None
    )
    with pytest.raises(ArgumentError) as caught:
        kernel(X, **over(8))
    check(caught, kernel, *fragments)


def test_int64_beyond_32_bits(make: Make, over: Over) -> None:
    kernel = make()
    wide = torch.tensor([1, 2**31])
    with pytest.raises(ArgumentError) as caught:
        kernel(wide, wide, 1.0, **over(2))
    check(caught, kernel, "input 'x'", "int64", "32-bit", "2147483648")


def test_options(make: Make, over: Over) -> None:
    kernel = make()
    sizes: Any = ((8, 1, 1), (8, 1, 1), [[8]])
    with pytest.raises(ArgumentError, match="math_mode: expected 'safe' or 'fast', got 'quick'"):
        execute(kernel, [X, X, 1.0], *sizes, math_mode="quick")
    with pytest.raises(ArgumentError, match="track_written needs checked=True"):
        execute(kernel, [X, X, 1.0], *sizes, checked=False, track_written=True)


BROKEN_BODIES = [
    ("out[gid] = x[gid]; // done", 1, "a comment"),
    ("out[gid] = x[gid];\n/* done", 2, "an unfinished comment"),
    ("\n#if 1\nout[gid] = x[gid];\n#endif", 4, "a directive"),
    ("#define N 4\nout[gid] = x[gid];\n", 1, "first line"),
]


@pytest.mark.parametrize(("src", "line", "fragment"), BROKEN_BODIES)
def test_a_body_that_the_generated_text_breaks(
    src: str, line: int, fragment: str, make: Make, over: Over
) -> None:
    def same(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    kernel = make("same", input_names=["x"], torch_defn=same, src=src, template_dtypes=None)
    with pytest.raises(CompileError) as caught:
        kernel(X, **over(8))
    check(caught, kernel, fragment, f"{kernel.name}.src:{line}")


@pytest.mark.parametrize(
    "src", ["out[gid] = x[gid]; /* // */", "out[gid] = x[gid]; // done\n", "out[gid] = x[gid] /* a */ ;"]
)
def test_a_body_that_only_looks_so(src: str, make: Make, over: Over) -> None:
    def same(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    kernel = make("same", input_names=["x"], torch_defn=same, src=src, template_dtypes=None,
                  metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")])  # fmt: skip
    assert torch.equal(kernel(X, **over(8)), X)
