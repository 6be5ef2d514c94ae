"""What the tests here share: from a model with kernels to what its artifact computes.

The files of this folder hold tests as Core AI's own are: export, convert, save, ``executable()``, arrays with Metal
backing, compare. They know nothing of Metalwright, but for the faults that only it sees. ``test_written_for_a_mac.py``
runs them, with the plugin and without it; the names of the files keep them out of the ordinary collection.
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
import torch
from coreai.authoring import AIModelAsset, AIProgram
from coreai.runtime import NDArray, StorageKind
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
