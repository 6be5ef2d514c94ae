"""inspect: what is read back, and what is not an artifact."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from coreai.authoring import MetalParameter

from metalwright.coreai import export, inspect, signature
from metalwright.coreai.artifact import Parameter
from metalwright.coreai.inspect import operations
from metalwright.errors import ArtifactError

Make = Callable[..., Any]


def two(x: torch.Tensor, y: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return x * n, y


def test_a_kernel_in_full(make: Make, tmp_path: Path) -> None:
    kernel = make(
        input_names=["x", "y", "n"], result_names=["big", "small"], torch_defn=two, template_dtypes={"x": "T"},
        src="big[gid.x, gid.y] = x[gid.x, gid.y] * T(n); small[gid.x] = y[gid.x];",
        metal_params=[MetalParameter("gid", "uint2", "thread_position_in_grid"),
                      MetalParameter("lane", "ushort", "thread_index_in_simdgroup")],
    )  # fmt: skip

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return kernel(x, y, 3, threads_per_grid=(5, 4, 1), threads_per_thread_group=(8, 2, 1),
                          result_shapes=[[4, 5], [5]])  # fmt: skip

    path = export(Model(), (torch.ones(4, 5).half(), torch.ones(5, dtype=torch.int8)), tmp_path / "m.aimodel")
    (launched,) = inspect(path).kernels
    assert launched.function == "main"
    assert [dataclasses.astuple(o) for o in launched.operands] == [
        ("x", "f16", (4, 5)), ("y", "si8", (5,)), ("n", "si32", ())
    ]  # fmt: skip
    assert [dataclasses.astuple(r) for r in launched.results] == [
        ("big", "f16", (4, 5)),
        ("small", "si8", (5,)),
    ]
    assert launched.threads_per_grid == (5, 4, 1) and launched.threads_per_threadgroup == (8, 2, 1)
    tensor = "tensor<device {}, metal::dextents<int, {}>, tensor_handle>".format
    assert launched.parameters == (
        Parameter("x", tensor("half", 2), "buffer(0)"),
        Parameter("y", tensor("int8_t", 1), "buffer(1)"),
        Parameter("n", "constant int&", "buffer(2)"),
        Parameter("big", tensor("half", 2), "buffer(3)"),
        Parameter("small", tensor("int8_t", 1), "buffer(4)"),
        Parameter("gid", "uint2", "thread_position_in_grid"),
        Parameter("lane", "ushort", "thread_index_in_simdgroup"),
    )
    assert "int n = 3;\nbig[gid.x, gid.y] = x[gid.x, gid.y] * half(n);" in launched.source
    with pytest.raises(dataclasses.FrozenInstanceError):
        launched.name = "x"  # type: ignore[misc]


def test_states_are_neither_inputs_nor_outputs(tmp_path: Path) -> None:
    class Sums(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4, 2, dtype=torch.float16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.total.add_(x).clone()

    (function,) = inspect(export(Sums(), torch.ones(4, 2).half(), tmp_path / "m.aimodel")).functions
    assert [dataclasses.astuple(s) for s in function.states] == [("b_total", "f16", (4, 2))]
    assert [dataclasses.astuple(i) for i in function.inputs] == [("x", "f16", (4, 2))]
    assert [(o.dtype, o.shape) for o in function.outputs] == [("f16", (4, 2))]


def test_graphs_that_only_the_model_calls_are_no_functions(tmp_path: Path) -> None:
    class Attends(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    from coreai.authoring import AIModelAsset

    path = export(Attends(), torch.ones(1, 2, 4, 8), tmp_path / "m.aimodel")
    module = AIModelAsset.load(path).program._module._mlir_module
    assert len(list(operations(module.operation, "coreai.graph"))) == 2, "Core AI keeps attention as a graph"
    assert [function.name for function in inspect(path).functions] == ["main"]


def test_nested_regions_are_walked(tmp_path: Path) -> None:
    """Core AI takes no kernel in a branch today; whatever operation is in one is found."""

    class Branch(torch.nn.Module):
        def forward(self, x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
            return torch.cond(flag, lambda v: v * v, lambda v: v.clone(), (x,))

    from coreai.authoring import AIModelAsset

    path = export(Branch(), (torch.ones(8), torch.tensor(True)), tmp_path / "m.aimodel")
    module = AIModelAsset.load(path).program._module._mlir_module
    inner = "coreai.decomposable.broadcasting_mul"
    assert [op.name for op in operations(module.operation, inner)] == [inner]


@pytest.fixture
def artifact(make: Make, calls: Any, tmp_path: Path) -> Path:
    return export(calls((make(), 2.0)), (torch.ones(8),), tmp_path / "m.aimodel")


def test_strings_are_paths(artifact: Path) -> None:
    assert inspect(str(artifact)) == inspect(artifact)


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"gone\.aimodel: does not exist"):
        inspect(tmp_path / "gone.aimodel")


def test_not_an_artifact(tmp_path: Path) -> None:
    (tmp_path / "a.aimodel").write_text("x")
    (tmp_path / "b").mkdir()
    (tmp_path / "c.aimodel").mkdir()
    for name, said in [("a.aimodel", "directory"), ("b", "suffix"), ("c.aimodel", "main.mlirb is missing")]:
        with pytest.raises(ArtifactError, match=said):
            inspect(tmp_path / name)


@pytest.mark.parametrize("name", ["main.mlirb", "main.hash", "metadata.json"])
def test_a_file_is_missing(name: str, artifact: Path) -> None:
    (artifact / name).unlink()
    with pytest.raises(ArtifactError, match=f"{name} is missing"):
        inspect(artifact)


@pytest.mark.parametrize("damage", [b"", b"garbage" * 40, None])
def test_a_damaged_program(damage: bytes | None, artifact: Path) -> None:
    """Core AI's own reader ends the whole process on these."""
    program = artifact / "main.mlirb"
    program.write_bytes(program.read_bytes()[:100] if damage is None else damage)
    with pytest.raises(ArtifactError, match=r"main\.mlirb is damaged"):
        inspect(artifact)


def test_damaged_metadata(artifact: Path) -> None:
    (artifact / "metadata.json").write_text("{")
    with pytest.raises(ArtifactError, match=r"m\.aimodel: "):
        inspect(artifact)


def test_a_moved_artifact(artifact: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere.aimodel"
    shutil.move(artifact, moved)
    assert len(inspect(moved).kernels) == 1


def test_signature_of_hand_written_text() -> None:
    text = """
    [[kernel]] void other(uint a [[thread_index_in_simdgroup]]) {}
    [[kernel]] void k(device const float *p [[buffer(0)]], constant uint3& n[[ buffer(1) ]],
                      metal::array<float, 2> q [[buffer(2)]]) { f(1, 2); }
    """
    assert signature.parameters(text, "k") == (
        Parameter("p", "device const float *", "buffer(0)"),
        Parameter("n", "constant uint3&", "buffer(1)"),
        Parameter("q", "metal::array<float, 2>", "buffer(2)"),
    )
    assert signature.parameters(text, "absent") == ()
