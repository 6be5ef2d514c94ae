"""Tests as Core AI's own are: export, convert, save, ``executable()``, arrays with Metal backing, compare.

They know nothing of Metalwright, but for the faults that only it sees. ``test_written_for_a_mac.py`` runs them, with the
plugin and without it; the name of this file keeps them out of the ordinary collection.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from coreai.authoring import AIModelAsset, AIProgram
from coreai.runtime import AIModel, NDArray, StorageKind
from coreai_torch import MetalParameter, TorchConverter, TorchMetalKernel, get_decomp_table

GID = MetalParameter("gid", "uint", "thread_position_in_grid")
GID2 = MetalParameter("gid", "uint2", "thread_position_in_grid")
GID3 = MetalParameter("gid", "uint3", "thread_position_in_grid")
TID = MetalParameter("tid", "uint", "thread_position_in_threadgroup")
GROUP = MetalParameter("group", "uint", "threadgroup_position_in_grid")

_numbers = itertools.count()


def named(stem: str) -> str:
    """Return a name for a kernel: PyTorch keeps operators for the whole process."""
    return f"mac_{stem}_{next(_numbers)}"


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x + x


def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def kernel_of(
    src: str,
    torch_defn: Any = doubled,
    *,
    name: str | None = None,
    inputs: Sequence[str] = ("x",),
    results: Sequence[str] = ("out",),
    params: Sequence[MetalParameter] = (GID,),
    **more: Any,
) -> TorchMetalKernel:
    return TorchMetalKernel(
        name or named("kernel"),
        input_names=list(inputs),
        result_names=list(results),
        src=src,
        torch_defn=torch_defn,
        metal_params=list(params),
        **more,
    )


def sizes(grid: Any, group: Any, *shapes: Any) -> dict[str, Any]:
    return {
        "threads_per_grid": grid,
        "threads_per_thread_group": group,
        "result_shapes": [list(shape) for shape in shapes],
    }


class Calls(torch.nn.Module):
    """A model that is a function of its inputs."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


class Calls2(Calls):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:  # type: ignore[override]
        return self.function(x, y)


class Calls3(Calls):
    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:  # type: ignore[override]
        return self.function(x, y, z)


def converted(
    model: torch.nn.Module,
    args: tuple[torch.Tensor, ...],
    kernels: Sequence[TorchMetalKernel],
    *,
    outputs: Sequence[str] = ("out",),
    dynamic_shapes: Any = None,
    **more: Any,
) -> AIProgram:
    exported = torch.export.export(model.eval(), args=args, dynamic_shapes=dynamic_shapes)
    exported = exported.run_decompositions(get_decomp_table())
    converter = TorchConverter()
    converter.register_custom_kernels(list(kernels))
    converter.add_exported_program(
        exported, input_names=["x", "y", "z"][: len(args)], output_names=list(outputs), **more
    )
    return converter.to_coreai()


def array(values: torch.Tensor, backing: StorageKind = StorageKind.METAL) -> NDArray:
    if values.dtype == torch.int64:  # as the converter narrows them
        values = values.to(torch.int32)
    if values.dtype == torch.bfloat16:
        return NDArray(values.view(torch.int16).numpy().view(ml_dtypes.bfloat16), backing=backing)
    return NDArray(data=values.numpy(), backing=backing)


def tensor(values: NDArray) -> torch.Tensor:
    numbers = values.numpy()
    if numbers.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(numbers.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(numbers.copy())


async def _run(asset: AIModelAsset, inputs: dict[str, NDArray]) -> dict[str, torch.Tensor]:
    async with asset.executable() as model:
        function = model.load_function("main")
        return {name: tensor(values) for name, values in (await function(inputs)).items()}


def run(program: AIProgram, *args: torch.Tensor, **named_args: NDArray) -> dict[str, torch.Tensor]:
    inputs = {**{name: array(values) for name, values in zip("xyz", args, strict=False)}, **named_args}
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_run(program.save_asset(Path(folder) / "model.aimodel"), inputs))


def check(
    model: Any, args: tuple[torch.Tensor, ...], kernels: Any, expected: torch.Tensor, **more: Any
) -> None:
    out = run(converted(model, args, kernels, **more), *args)["out"]
    assert out.dtype == expected.dtype
    torch.testing.assert_close(out, expected)


# --- element types ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32,
        torch.uint32,
    ],
    ids=str,
)  # fmt: skip
def test_element_types(dtype: torch.dtype) -> None:
    kernel = kernel_of(
        "TYPE value = x[gid]; out[gid] = TYPE(value + TYPE(3));",
        lambda_like(dtype),
        template_dtypes={"x": "TYPE"},
    )
    x = torch.arange(20).to(dtype)
    model = Calls(lambda x: kernel(x, **sizes((20, 1, 1), (8, 1, 1), (20,))))
    check(model, (x,), [kernel], (torch.arange(20) + 3).to(dtype))


def lambda_like(dtype: torch.dtype) -> Any:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return (x.to(torch.float32) + 3).to(dtype)

    return reference


def test_int64_is_narrowed() -> None:
    kernel = kernel_of("out[gid] = x[gid] * 2;")
    model = Calls(lambda x: kernel(x, **sizes((6, 1, 1), (6, 1, 1), (6,))))
    x = torch.tensor([-3, -2, 0, 5, 7, 2**30 - 1])
    check(model, (x,), [kernel], (2 * x).to(torch.int32))


def widened(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float32) * 0.5


def test_a_result_of_another_type() -> None:
    kernel = kernel_of("out[gid] = float(x[gid]) * 0.5f;", widened)
    model = Calls(lambda x: kernel(x, **sizes((9, 1, 1), (4, 1, 1), (9,))))
    x = torch.arange(9, dtype=torch.int8) - 4
    check(model, (x,), [kernel], x.float() / 2)


def test_extreme_values_survive() -> None:
    kernel = kernel_of("out[gid] = x[gid];", torch_clone)
    model = Calls(lambda x: kernel(x, **sizes((5, 1, 1), (5, 1, 1), (5,))))
    x = torch.tensor([float("inf"), float("-inf"), -0.0, 1e-42, 3.4e38])
    out = run(converted(model, (x,), [kernel]), x)["out"]
    assert torch.equal(out.view(torch.int32), x.view(torch.int32))


def torch_clone(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


# --- dynamic shapes --------------------------------------------------------------------------------------------------

N = torch.export.Dim("n", min=1, max=4096)
M = torch.export.Dim("m", min=1, max=4096)


@pytest.mark.parametrize("count", [1, 7, 64, 1000])
def test_a_dynamic_extent(count: int) -> None:
    kernel = kernel_of("out[gid] = x[gid] * x[gid];", squared)
    model = Calls(lambda x: kernel(x, **sizes((x.shape[0], 1, 1), (32, 1, 1), (x.shape[0],))))
    program = converted(model, (torch.rand(10),), [kernel], dynamic_shapes={"x": {0: N}})
    x = torch.rand(count)
    torch.testing.assert_close(run(program, x)["out"], x * x)


def squared(x: torch.Tensor) -> torch.Tensor:
    return x * x


@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (17, 40)], ids=str)
def test_two_dynamic_extents(shape: tuple[int, int]) -> None:
    kernel = kernel_of("out[gid.y, gid.x] = x[gid.x, gid.y];", transposed, params=[GID2])
    model = Calls(
        lambda x: kernel(x, **sizes((x.shape[1], x.shape[0], 1), (8, 8, 1), (x.shape[1], x.shape[0])))
    )
    program = converted(model, (torch.rand(4, 6),), [kernel], dynamic_shapes={"x": {0: N, 1: M}})
    x = torch.rand(*shape)
    torch.testing.assert_close(run(program, x)["out"], x.T.contiguous())


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1).contiguous()


def test_sizes_computed_from_a_dynamic_extent() -> None:
    kernel = kernel_of(
        "float total = 0; for (int i = 0; i < 4; ++i) { total += x[gid * 4 + i]; } out[gid] = total;", by_four
    )
    model = Calls(lambda x: kernel(x, **sizes((x.shape[0] // 4, 1, 1), (16, 1, 1), (x.shape[0] // 4,))))
    program = converted(
        model, (torch.rand(8),), [kernel], dynamic_shapes={"x": {0: 4 * torch.export.Dim("q", min=1, max=99)}}
    )
    x = torch.rand(84)
    torch.testing.assert_close(run(program, x)["out"], x.reshape(-1, 4).sum(1))


def by_four(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, 4).sum(1)


# --- scalars ---------------------------------------------------------------------------------------------------------


def shifted_int(x: torch.Tensor, by: int) -> torch.Tensor:
    return x + by


def scaled_float(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


def negated_if(x: torch.Tensor, by: bool) -> torch.Tensor:
    return -x if by else x.clone()


def all_scalars(x: torch.Tensor, a: int, b: float, c: bool) -> torch.Tensor:
    return x * b + (a if c else -a)


@pytest.mark.parametrize(
    "reference, src, value",
    [
        (shifted_int, "out[gid] = x[gid] + by;", 3),
        (shifted_int, "out[gid] = x[gid] + by;", -40000),
        (scaled_float, "out[gid] = x[gid] * by;", 0.1),
        (scaled_float, "out[gid] = x[gid] * by;", -1e-20),
        (negated_if, "out[gid] = by ? -x[gid] : x[gid];", True),
        (negated_if, "out[gid] = by ? -x[gid] : x[gid];", False),
    ],
)
def test_a_scalar(reference: Any, src: str, value: Any) -> None:
    kernel = kernel_of(src, reference, inputs=["x", "by"])
    model = Calls(lambda x: kernel(x, value, **sizes((8, 1, 1), (8, 1, 1), (8,))))
    x = torch.arange(8.0)
    check(model, (x,), [kernel], reference(x, value))


def test_scalars_of_three_kinds() -> None:
    kernel = kernel_of("out[gid] = x[gid] * b + (c ? a : -a);", all_scalars, inputs=["x", "a", "b", "c"])
    model = Calls(lambda x: kernel(x, 7, 0.25, False, **sizes((8, 1, 1), (8, 1, 1), (8,))))
    x = torch.arange(8.0)
    check(model, (x,), [kernel], x / 4 - 7)


def test_one_kernel_with_two_values_of_a_scalar() -> None:
    kernel = kernel_of("out[gid] = x[gid] * by;", scaled_float, inputs=["x", "by"])
    launch = sizes((8, 1, 1), (8, 1, 1), (8,))
    model = Calls(lambda x: kernel(kernel(x, 3.0, **launch), 0.5, **launch))
    x = torch.arange(8.0)
    check(model, (x,), [kernel], x * 1.5)


# --- several kernels -------------------------------------------------------------------------------------------------


def test_kernels_in_a_row_with_operators_between() -> None:
    first, second = (
        kernel_of("out[gid] = x[gid] + x[gid];"),
        kernel_of("out[gid] = x[gid] * x[gid];", squared),
    )
    launch = sizes((12, 1, 1), (5, 1, 1), (12,))
    model = Calls(
        lambda x: torch.relu(second(torch.sin(first(torch.exp(x), **launch)) - 0.5, **launch)) + 1.0
    )
    x = torch.rand(12)
    check(model, (x,), [first, second], (torch.sin(2 * torch.exp(x)) - 0.5) ** 2 + 1)


def test_a_kernel_feeds_a_kernel() -> None:
    first, second = (
        kernel_of("out[gid] = x[gid] + x[gid];"),
        kernel_of("out[gid] = x[gid] * x[gid];", squared),
    )
    launch = sizes((12, 1, 1), (5, 1, 1), (12,))
    x = torch.rand(12)
    check(Calls(lambda x: second(first(x, **launch), **launch)), (x,), [first, second], (2 * x) ** 2)


def test_one_kernel_at_three_places() -> None:
    kernel = kernel_of("out[gid] = x[gid] + x[gid];")
    launch = sizes((12, 1, 1), (12, 1, 1), (12,))
    x = torch.rand(12)
    check(Calls(lambda x: kernel(kernel(kernel(x, **launch), **launch), **launch)), (x,), [kernel], 8 * x)


def test_two_kernels_meet_in_a_third() -> None:
    double, square = (
        kernel_of("out[gid] = x[gid] + x[gid];"),
        kernel_of("out[gid] = x[gid] * x[gid];", squared),
    )
    add = kernel_of("out[gid] = x[gid] + y[gid];", added, inputs=["x", "y"])
    launch = sizes((12, 1, 1), (4, 1, 1), (12,))
    model = Calls(lambda x: add(double(x, **launch), square(x, **launch), **launch))
    x = torch.rand(12)
    check(model, (x,), [double, square, add], 2 * x + x * x)


def test_a_value_is_returned_and_goes_on() -> None:
    kernel = kernel_of("out[gid] = x[gid] + x[gid];")
    launch = sizes((6, 1, 1), (6, 1, 1), (6,))

    def forward(x: torch.Tensor) -> Any:
        once = kernel(x, **launch)
        return once, kernel(once, **launch)

    x = torch.rand(6)
    made = run(converted(Calls(forward), (x,), [kernel], outputs=["once", "twice"]), x)
    torch.testing.assert_close(made, {"once": 2 * x, "twice": 4 * x})


# --- names that meet -------------------------------------------------------------------------------------------------


def test_two_models_have_a_kernel_of_one_name() -> None:
    name = named("shared")
    launch = sizes((6, 1, 1), (6, 1, 1), (6,))
    x = torch.rand(6)
    first = kernel_of("out[gid] = x[gid] + x[gid];", name=name)
    one = converted(Calls(lambda x: first(x, **launch)), (x,), [first])
    second = kernel_of("out[gid] = x[gid] * x[gid];", squared, name=name)
    other = converted(Calls(lambda x: second(x, **launch)), (x,), [second])
    torch.testing.assert_close(run(one, x)["out"], 2 * x)
    torch.testing.assert_close(run(other, x)["out"], x * x)


def test_one_kernel_on_two_element_types() -> None:
    kernel = kernel_of("out[gid] = x[gid] + TYPE(x[gid]);", template_dtypes={"x": "TYPE"})
    launch = sizes((6, 1, 1), (6, 1, 1), (6,))
    model = Calls(lambda x: kernel(x, **launch) + kernel(x.half(), **launch).float())
    x = torch.arange(6.0)
    check(model, (x,), [kernel], 4 * x)


def test_kernels_share_the_name_of_a_helper() -> None:
    launch = sizes((6, 1, 1), (6, 1, 1), (6,))
    plus = kernel_of("out[gid] = f(x[gid]);", helper_src="inline float f(float v) { return v + v; }")
    times = kernel_of(
        "out[gid] = f(x[gid]);", squared, helper_src="inline float f(float v) { return v * v; }"
    )
    x = torch.rand(6)
    check(Calls(lambda x: plus(x, **launch) - times(x, **launch)), (x,), [plus, times], 2 * x - x * x)


# --- results, templates, helpers -------------------------------------------------------------------------------------


def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.sin(x), torch.cos(x)


def test_two_results() -> None:
    kernel = kernel_of("s[gid] = sin(x[gid]); c[gid] = cos(x[gid]);", both, results=["s", "c"])
    model = Calls(lambda x: kernel(x, **sizes((10, 1, 1), (4, 1, 1), (10,), (10,))))
    x = torch.rand(10)
    made = run(converted(model, (x,), [kernel], outputs=["s", "c"]), x)
    torch.testing.assert_close(made, {"s": torch.sin(x), "c": torch.cos(x)})


def three(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return x.sum(1), x.to(torch.int32), x.half() + 1


def test_three_results_of_other_shapes_and_types() -> None:
    kernel = kernel_of(
        """float total = 0;
for (int i = 0; i < 3; ++i) { total += x[i, gid]; whole[i, gid] = int(x[i, gid]); more[i, gid] = half(x[i, gid]) + 1; }
sums[gid] = total;""",
        three,
        results=["sums", "whole", "more"],
    )
    model = Calls(lambda x: kernel(x, **sizes((4, 1, 1), (4, 1, 1), (4,), (4, 3), (4, 3))))
    x = torch.rand(4, 3) * 10
    made = run(converted(model, (x,), [kernel], outputs=["sums", "whole", "more"]), x)
    torch.testing.assert_close(made, {"sums": x.sum(1), "whole": x.to(torch.int32), "more": x.half() + 1})


@pytest.mark.parametrize(
    "left, right", [(torch.float16, torch.int8), (torch.bfloat16, torch.float32)], ids=str
)
def test_two_templates(left: torch.dtype, right: torch.dtype) -> None:
    kernel = kernel_of(
        "out[gid] = float(LEFT(x[gid])) + float(RIGHT(y[gid]));",
        sum_as_float,
        inputs=["x", "y"],
        template_dtypes={"x": "LEFT", "y": "RIGHT"},
    )
    model = Calls2(lambda x, y: kernel(x, y, **sizes((16, 1, 1), (16, 1, 1), (16,))))
    x, y = torch.arange(16).to(left), torch.arange(16).flip(0).to(right)
    check(model, (x, y), [kernel], x.float() + y.float())


def sum_as_float(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.float() + y.float()


def test_a_helper_with_a_template_and_a_constant() -> None:
    helper = """constant float kOffset = 0.5f;
struct Pair { TYPE first; TYPE second; };
static TYPE merged(Pair p) { return p.first + p.second + TYPE(kOffset); }"""
    kernel = kernel_of(
        "Pair p = {x[gid], x[gid]}; out[gid] = merged(p);",
        doubled_plus,
        helper_src=helper,
        template_dtypes={"x": "TYPE"},
    )
    model = Calls(lambda x: kernel(x, **sizes((16, 1, 1), (16, 1, 1), (16,))))
    x = torch.arange(16, dtype=torch.float16)
    check(model, (x,), [kernel], 2 * x + 0.5)


def doubled_plus(x: torch.Tensor) -> torch.Tensor:
    return x + x + 0.5


# --- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [1, 7, 32, 256, 1024])
def test_one_dimension(group: int) -> None:
    kernel = kernel_of(
        "out[gid] = x[gid] + float(tid) + 100.0f * float(group);", places, params=[GID, TID, GROUP]
    )
    model = Calls(lambda x: kernel(x, **sizes((300, 1, 1), (group, 1, 1), (300,))))
    x, place = torch.rand(300), torch.arange(300)
    check(model, (x,), [kernel], x + place % group + 100.0 * (place // group))


def places(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@pytest.mark.parametrize("group", [(8, 8, 1), (5, 3, 1), (1, 32, 1)], ids=str)
def test_two_dimensions_with_partial_threadgroups(group: tuple[int, int, int]) -> None:
    kernel = kernel_of("out[gid.x, gid.y] = x[gid.x, gid.y] + 10.0f * gid.x + gid.y;", places, params=[GID2])
    model = Calls(lambda x: kernel(x, **sizes((11, 13, 1), group, (13, 11))))
    x = torch.rand(13, 11)
    check(model, (x,), [kernel], x + 10.0 * torch.arange(11) + torch.arange(13)[:, None])


def test_three_dimensions_with_partial_threadgroups() -> None:
    src = "out[gid.x, gid.y, gid.z] = x[gid.x, gid.y, gid.z] + gid.x + 10.0f * gid.y + 100.0f * gid.z;"
    kernel = kernel_of(src, places, params=[GID3])
    model = Calls(lambda x: kernel(x, **sizes((5, 6, 7), (2, 4, 3), (7, 6, 5))))
    x = torch.zeros(7, 6, 5)
    z, y, at = torch.meshgrid(torch.arange(7), torch.arange(6), torch.arange(5), indexing="ij")
    check(model, (x,), [kernel], (at + 10 * y + 100 * z).float())


def row_sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1)


def test_threadgroup_memory_and_barriers() -> None:
    src = """threadgroup float part[64];
part[tid] = x[tid, group];
for (uint step = 32; step > 0; step /= 2) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid < step) { part[tid] += part[tid + step]; }
}
if (tid == 0) { out[group] = part[0]; }"""
    kernel = kernel_of(src, row_sums, params=[TID, GROUP])
    model = Calls(lambda x: kernel(x, **sizes((64 * 5, 1, 1), (64, 1, 1), (5,))))
    x = torch.rand(5, 64)
    check(model, (x,), [kernel], x.sum(1))


def test_simdgroup_sums() -> None:
    kernel = kernel_of(
        "float total = simd_sum(x[gid]); if (lane == 0) { out[gid / 32] = total; }",
        simd_sums,
        params=[GID, MetalParameter("lane", "uint", "thread_index_in_simdgroup")],
    )
    model = Calls(lambda x: kernel(x, **sizes((128, 1, 1), (64, 1, 1), (4,))))
    x = torch.rand(128)
    check(model, (x,), [kernel], x.reshape(4, 32).sum(1))


def simd_sums(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(4, 32).sum(1)


def test_simdgroup_shuffles() -> None:
    kernel = kernel_of("out[gid] = simd_shuffle_xor(x[gid], ushort(1));", swapped)
    model = Calls(lambda x: kernel(x, **sizes((64, 1, 1), (64, 1, 1), (64,))))
    x = torch.rand(64)
    check(model, (x,), [kernel], swapped(x))


def swapped(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, 2).flip(1).reshape(-1)


# --- ranks -----------------------------------------------------------------------------------------------------------


def test_rank_zero() -> None:
    kernel = kernel_of("out[gid] = x[gid] + y;", added, inputs=["x", "y"])
    model = Calls2(lambda x, y: kernel(x, y, **sizes((6, 1, 1), (6, 1, 1), (6,))))
    x, y = torch.rand(6), torch.tensor(0.75)
    check(model, (x, y), [kernel], x + 0.75)


def test_rank_five() -> None:
    src = """uint rest = gid;
uint a = rest % 3; rest /= 3;
uint b = rest % 2; rest /= 2;
uint c = rest % 4; rest /= 4;
uint d = rest % 2; rest /= 2;
out[a, b, c, d, rest] = x[a, b, c, d, rest] + 2.0f * float(x.get_extent(0)) + float(x.get_extent(4));"""
    kernel = kernel_of(src, places)
    model = Calls(lambda x: kernel(x, **sizes((5 * 2 * 4 * 2 * 3, 1, 1), (64, 1, 1), (5, 2, 4, 2, 3))))
    x = torch.rand(5, 2, 4, 2, 3)
    check(model, (x,), [kernel], x + 2 * 3 + 5)


def test_matrix_product() -> None:
    src = """float total = 0;
for (int k = 0; k < x.get_extent(0); ++k) { total += float(x[k, gid.y]) * float(y[gid.x, k]); }
out[gid.x, gid.y] = TYPE(total);"""
    kernel = kernel_of(src, product, inputs=["x", "y"], params=[GID2], template_dtypes={"x": "TYPE"})
    model = Calls2(lambda x, y: kernel(x, y, **sizes((9, 5, 1), (4, 4, 1), (5, 9))))
    x, y = torch.rand(5, 7), torch.rand(7, 9)
    check(model, (x, y), [kernel], x @ y)


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x @ y


# --- the runtime's interface -----------------------------------------------------------------------------------------


def doubling() -> tuple[AIProgram, torch.Tensor]:
    kernel = kernel_of("out[gid] = x[gid] + x[gid];")
    model = Calls(lambda x: kernel(x, **sizes((6, 1, 1), (6, 1, 1), (6,))))
    x = torch.rand(6)
    return converted(model, (x,), [kernel]), x


def test_the_descriptor_and_arrays_from_it(tmp_path: Path) -> None:
    kernel = kernel_of("out[gid] = half(x[gid]) + y[gid];", half_sum, inputs=["x", "y"])
    model = Calls2(lambda x, y: kernel(x, y, **sizes((x.shape[0], 1, 1), (6, 1, 1), (x.shape[0],))))
    args = (torch.rand(6), torch.rand(6).half())
    asset = converted(model, args, [kernel], dynamic_shapes={"x": {0: N}, "y": {0: N}}).save_asset(
        tmp_path / "m.aimodel"
    )

    async def main() -> None:
        async with asset.executable() as model:
            assert model.function_names == ["main"]
            function = model.load_function("main")
            about = function.desc
            assert (about.name, about.input_names, about.output_names, about.state_names) == (
                "main", ["x", "y"], ["out"], [],
            )  # fmt: skip
            described = [
                about.input_descriptor("x"),
                about.input_descriptor("y"),
                about.output_descriptor("out"),
            ]
            assert [(d.shape, d.dtype, d.rank) for d in described] == [
                ([-1], "float32", 1), ([-1], "float16", 1), ([-1], "float16", 1),
            ]  # fmt: skip
            made = await function(inputs={"x": array(args[0]), "y": array(args[1])})
            torch.testing.assert_close(tensor(made["out"]), args[0].half() + args[1])

    asyncio.run(main())


def half_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.half() + y


@pytest.mark.parametrize("backing", [StorageKind.METAL, StorageKind.IO_SURFACE], ids=lambda kind: kind.value)
def test_ai_model_loads_the_artifact(tmp_path: Path, backing: StorageKind) -> None:
    program, x = doubling()
    program.save_asset(tmp_path / "m.aimodel")

    async def main() -> torch.Tensor:
        function = (await AIModel.load(tmp_path / "m.aimodel")).load_function("main")
        made = [await function({"x": array(x, backing)}) for _ in range(3)]
        return tensor(made[-1]["out"])

    torch.testing.assert_close(asyncio.run(main()), 2 * x)


class Counting(torch.nn.Module):
    """Adds up its inputs in a state, through a kernel."""

    def __init__(self, kernel: TorchMetalKernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.copy_(self.kernel(self.total, x, **sizes((4, 1, 1), (4, 1, 1), (4,))))
        return self.total * 2


def test_a_state_keeps_its_values(tmp_path: Path) -> None:
    kernel = kernel_of("out[gid] = x[gid] + y[gid];", added, inputs=["x", "y"])
    program = converted(Counting(kernel), (torch.rand(4),), [kernel], state_names=["total"])
    program.save_asset(tmp_path / "m.aimodel")

    async def main() -> tuple[list[float], list[float]]:
        function = (await AIModel.load(tmp_path / "m.aimodel")).load_function("main")
        assert function.desc.state_names == ["total"]
        total = NDArray.from_descriptor(function.desc.state_descriptor("total"))
        total = NDArray(np.ones(total.shape, np.float32), backing=StorageKind.METAL)
        for step in range(1, 4):
            made = await function({"x": array(torch.full((4,), float(step)))}, state={"total": total})
        return made["out"].numpy().tolist(), total.numpy().tolist()

    assert asyncio.run(main()) == ([14.0] * 4, [7.0] * 4)


# --- failures --------------------------------------------------------------------------------------------------------


def test_source_that_does_not_compile(tmp_path: Path) -> None:
    kernel = kernel_of("out[gid] = no_such_thing(x[gid]);")
    model = Calls(lambda x: kernel(x, **sizes((6, 1, 1), (6, 1, 1), (6,))))
    asset = converted(model, (torch.rand(6),), [kernel]).save_asset(tmp_path / "m.aimodel")

    async def main() -> None:
        async with asset.executable() as model:
            with pytest.raises(
                RuntimeError, match="Kernel coreai.metal4_kernel invoked with invalid parameters"
            ):
                model.load_function("main")

    asyncio.run(main())


@pytest.mark.parametrize("group", [(1025, 1, 1), (64, 64, 1), (0, 1, 1)], ids=str)
def test_threadgroups_that_no_gpu_takes(group: tuple[int, int, int]) -> None:
    kernel = kernel_of("out[gid] = x[gid] + x[gid];")
    model = Calls(lambda x: kernel(x, **sizes((6, 1, 1), group, (6,))))
    x = torch.rand(6)
    with pytest.raises(RuntimeError, match="threads_per_thread_?group"):
        run(converted(model, (x,), [kernel]), x)


@pytest.mark.parametrize(
    "inputs, says",
    [
        ({}, "'x' is missing"),
        ({"x": torch.rand(6), "w": torch.rand(6)}, "no input 'w'"),
        ({"x": torch.rand(7)}, r"'x': expected shape \[6\], got \[7\]"),
        ({"x": torch.rand(6, 1)}, r"'x': expected shape \[6\], got \[6, 1\]"),
        ({"x": torch.rand(6).half()}, "'x': expected dtype float32, got float16"),
    ],
    ids=["missing", "unknown", "extent", "rank", "dtype"],
)
def test_inputs_that_do_not_fit(inputs: dict[str, torch.Tensor], says: str) -> None:
    program, _ = doubling()
    with pytest.raises(RuntimeError, match=says):
        run(program, **{name: array(values) for name, values in inputs.items()})


def test_an_access_out_of_bounds() -> None:
    from metalwright import MemoryFault

    kernel = kernel_of("out[gid] = x[gid + 1];")
    model = Calls(lambda x: kernel(x, **sizes((6, 1, 1), (6, 1, 1), (6,))))
    x = torch.rand(6)
    with pytest.raises(MemoryFault, match=r"'x'"):
        run(converted(model, (x,), [kernel]), x)


def test_the_source_runs_and_not_the_reference() -> None:
    kernel = kernel_of("out[gid] = x[gid] + x[gid] + 1.0f;")
    model = Calls(lambda x: kernel(x, **sizes((6, 1, 1), (6, 1, 1), (6,))))
    x = torch.rand(6)
    check(model, (x,), [kernel], 2 * x + 1)
    # as on a Mac, the model itself is what the reference says
    torch.testing.assert_close(model(x), 2 * x)
