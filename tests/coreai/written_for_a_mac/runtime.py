"""The runtime's interface, and what goes wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from coreai.authoring import AIProgram
from coreai.runtime import AIModel, NDArray, StorageKind
from coreai_torch import TorchMetalKernel

from tests.coreai.written_for_a_mac.common import (
    Calls,
    Calls2,
    added,
    array,
    check,
    converted,
    kernel_of,
    run,
    sizes,
    tensor,
)

N = torch.export.Dim("n", min=1, max=4096)


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


def test_source_that_does_not_compile(tmp_path: Path) -> None:
    kernel = kernel_of("out[gid] = no_such_thing(x[gid]);")
    model = Calls(lambda x: kernel(x, **sizes((6, 1, 1), (6, 1, 1), (6,))))
    asset = converted(model, (torch.rand(6),), [kernel]).save_asset(tmp_path / "m.aimodel")

    async def main() -> None:
        async with asset.executable() as model:
            with pytest.raises(
                RuntimeError, match="(?s)coreai.metal4_kernel invoked with invalid parameters.*no_such_thing"
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
