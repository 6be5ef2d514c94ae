"""export: real conversions to .aimodel, and what stops one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from coreai_torch import TorchMetalKernel

from metalwright.coreai import export, inspect
from metalwright.errors import ArgumentError, ArtifactError, DispatchError

Make = Callable[..., Any]
X = torch.ones(64)


def test_static(make: Make, calls: Any, tmp_path: Path) -> None:
    kernel = make()
    path = export(calls((kernel, 2.0)), (X,), tmp_path / "m.aimodel", kernels=[kernel])
    artifact = inspect(path)
    assert [(i.name, i.dtype, i.shape) for i in artifact.functions[0].inputs] == [("x", "f32", (64,))]
    assert [(o.dtype, o.shape) for o in artifact.functions[0].outputs] == [("f32", (64,))]
    (launched,) = artifact.kernels
    assert launched.name.startswith(f"{kernel.name}_")
    assert (launched.threads_per_grid, launched.threads_per_threadgroup) == ((64, 1, 1), (32, 1, 1))
    assert {p.name for p in tmp_path.iterdir()} == {"m.aimodel"}, "nothing is left beside it"


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64], ids=str
)
def test_the_embedded_source_is_what_source_shows(
    dtype: torch.dtype, make: Make, calls: Any, tmp_path: Path
) -> None:
    def times(x: torch.Tensor, a: int) -> torch.Tensor:
        return x * a

    kernel = make(torch_defn=times, helper_src="// TYPE\n")
    x = torch.ones(4, 16).to(dtype)
    (launched,) = inspect(export(calls((kernel, 3)), (x,), tmp_path / "m.aimodel")).kernels
    shown = kernel.source(x, 3)
    assert launched.source.replace(launched.name, "NAME") == shown.replace(f"{kernel.name}_metalwri", "NAME")


def test_dynamic(make: Make, calls: Any, tmp_path: Path) -> None:
    kernel = make()
    path = export(calls((kernel, 2.0)), (X,), tmp_path / "m.aimodel",
                  dynamic_shapes={"x": {0: torch.export.Dim("n", min=2, max=4096)}})  # fmt: skip
    artifact = inspect(path)
    assert artifact.functions[0].inputs[0].shape == ("?",)
    assert artifact.functions[0].outputs[0].shape == ("?",)
    (launched,) = artifact.kernels
    assert launched.results[0].shape == ("?",)
    assert launched.threads_per_grid == "computed"
    assert launched.threads_per_threadgroup == (32, 1, 1)


@pytest.mark.parametrize(
    ("kind", "value", "literal"),
    [(int, -7, "int a = -7;"), (bool, True, "bool a = true;"), (float, 0.25, "float a = 0.25f;")],
)
def test_scalars(kind: type, value: Any, literal: str, make: Make, calls: Any, tmp_path: Path) -> None:
    def times(x, a):
        return x * a

    times.__annotations__ = {"x": torch.Tensor, "a": kind, "return": torch.Tensor}
    kernel = make(torch_defn=times)
    (launched,) = inspect(export(calls((kernel, value)), (X,), tmp_path / "m.aimodel")).kernels
    assert literal in launched.source


def test_several_kernels_and_one_used_twice(make: Make, calls: Any, tmp_path: Path) -> None:
    first, second, plain = make(), make(), make(TorchMetalKernel)
    model = calls((first, 2.0), (second, 3.0), (first, 2.0), (first, 4.0), (plain, 5.0))
    kernels = inspect(export(model, (X,), tmp_path / "m.aimodel")).kernels
    assert [k.name.rsplit("_", 1)[0] for k in kernels] == [
        k.name for k in (first, second, first, first, plain)
    ]
    assert kernels[0].name == kernels[2].name, "equal launches share one function"
    assert kernels[0].name != kernels[3].name, "another scalar is another text"


def test_a_model_without_kernels(tmp_path: Path) -> None:
    path = export(torch.nn.Linear(4, 3), torch.ones(2, 4), tmp_path / "m.aimodel")
    assert inspect(path).kernels == ()


def test_names_and_keyword_inputs(tmp_path: Path) -> None:
    class Adds(torch.nn.Module):
        def forward(self, x: torch.Tensor, *, y: torch.Tensor) -> torch.Tensor:
            return x + y

    path = export(Adds(), (X,), tmp_path / "m.aimodel", kwargs={"y": X}, input_names=["first", "second"],
                  output_names=["sum"])  # fmt: skip
    (function,) = inspect(path).functions
    assert [i.name for i in function.inputs] == ["first", "second"]
    assert [o.name for o in function.outputs] == ["sum"]


class Counts(torch.nn.Module):
    """Has two states, of which the later one is changed first."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("constant", torch.ones(4))
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        self.total.add_(x)
        return self.total + self.constant


def test_names_of_states(tmp_path: Path) -> None:
    path = export(Counts(), torch.ones(4), tmp_path / "m.aimodel", state_names=["sum", "count"])
    (function,) = inspect(path).functions
    assert [(s.name, s.dtype, s.shape) for s in function.states] == [
        ("sum", "f32", (4,)),
        ("count", "si32", (1,)),
    ]
    assert [i.name for i in function.inputs] == ["x"]
    with pytest.raises(ArtifactError, match="Core AI cannot convert Counts"):
        export(Counts(), torch.ones(4), path, state_names=["sum"])


class Returns(torch.nn.Module):
    """Adds to a state, and returns what a function makes of itself and the input."""

    def __init__(self, result: Callable[..., Any]) -> None:
        super().__init__()
        self.result = result
        self.register_buffer("total", torch.zeros(64))

    def forward(self, x: torch.Tensor) -> Any:
        return self.result(self.total.add_(x), x * 2)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda total, x: total, "output 0 is the same tensor as the new value of 'total'"),
        (lambda total, x: (x, total), "output 1 is the same tensor as the new value of 'total'"),
        (lambda total, x: (x, total + 1, x), "output 2 is the same tensor as output 0"),
    ],
    ids=["a state", "also a state", "twice"],
)
def test_outputs_that_core_ai_would_drop(result: Callable[..., Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=f"Returns: {message}.*clone"):
        export(Returns(result), (X,), tmp_path / "m.aimodel")


def test_copies_of_outputs_are_kept(tmp_path: Path) -> None:
    path = export(Returns(lambda total, x: (x, total.clone(), x.clone())), (X,), tmp_path / "m.aimodel")
    assert len(inspect(path).functions[0].outputs) == 3


def test_evaluation_mode_and_back(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(4))
    model[2].eval()
    path = export(model, torch.ones(2, 4), tmp_path / "m.aimodel")
    assert [part.training for part in (model, *model)] == [True, True, True, False]
    assert len(inspect(path).functions[0].outputs) == 1, "no running statistics are written"


def test_an_artifact_is_replaced(make: Make, calls: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.aimodel"
    kernel = make()
    export(calls((kernel, 2.0)), (X,), path)
    export(calls((kernel, 3.0)), (X,), path)
    assert "a = 3.0f" in inspect(path).kernels[0].source
    assert {p.name for p in tmp_path.iterdir()} == {"m.aimodel"}


def test_a_failed_export_leaves_the_old_artifact(
    make: Make, calls: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coreai.authoring import AIProgram

    path = tmp_path / "m.aimodel"
    export(calls((make(), 2.0)), (X,), path)

    def fail(self: AIProgram, target: Path, *_: Any) -> None:
        target.mkdir()
        raise OSError("disk full")

    monkeypatch.setattr(AIProgram, "save_asset", fail)
    with pytest.raises(ArtifactError, match="disk full"):
        export(calls((make(), 3.0)), (X,), path)
    assert "a = 2.0f" in inspect(path).kernels[0].source
    assert {p.name for p in tmp_path.iterdir()} == {"m.aimodel"}


def test_optimize_is_called_where_there_is_one(
    make: Make, calls: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coreai.authoring import AIProgram

    called: list[AIProgram] = []
    monkeypatch.setattr(AIProgram, "optimize", lambda self: called.append(self), raising=False)
    export(calls((make(), 2.0)), (X,), tmp_path / "m.aimodel")
    assert len(called) == 1


@pytest.mark.parametrize("name", ["m.mlmodel", "m", "m.aimodel.bak"])
def test_suffix(name: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"ends in \.aimodel"):
        export(torch.nn.Linear(4, 3), torch.ones(2, 4), tmp_path / name)


def test_what_is_no_artifact_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.aimodel"
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")
    with pytest.raises(ArtifactError, match="not an artifact"):
        export(torch.nn.Linear(4, 3), torch.ones(2, 4), path)
    assert (path / "thesis.tex").read_text() == "years of work"
    file = tmp_path / "f.aimodel"
    file.write_text("x")
    with pytest.raises(ArtifactError, match="not an artifact"):
        export(torch.nn.Linear(4, 3), torch.ones(2, 4), file)


def test_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="nowhere does not exist"):
        export(torch.nn.Linear(4, 3), torch.ones(2, 4), tmp_path / "nowhere" / "m.aimodel")


def test_an_unregistered_kernel_is_named(make: Make, calls: Any, tmp_path: Path) -> None:
    used, other = make(), make()
    with pytest.raises(ArtifactError) as caught:
        export(calls((used, 2.0)), (X,), tmp_path / "m.aimodel", kernels=[other])
    assert f"kernel {used.name!r}" in str(caught.value) and repr(other.name) in str(caught.value)
    assert "kernels=[...]" in str(caught.value)


def test_a_scalar_that_the_graph_computes(make: Make, tmp_path: Path) -> None:
    """The converter would pass it as a tensor, to MSL that uses it as a number."""

    def plus(x: torch.Tensor, a: int) -> torch.Tensor:
        return x + a

    kernel = make(torch_defn=plus)

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n = x.shape[0]
            return kernel(
                x, n, threads_per_grid=(n, 1, 1), threads_per_thread_group=(8, 1, 1), result_shapes=[[n]]
            )

    path = tmp_path / "m.aimodel"
    with pytest.raises(ArtifactError) as caught:
        export(Model(), (X,), path, dynamic_shapes={"x": {0: torch.export.Dim("n", min=2, max=99)}})
    for fragment in [f"kernel {kernel.name!r}", "input 'a'", "dynamic shape", "get_extent"]:
        assert fragment in str(caught.value)
    assert "int a = 64;" in inspect(export(Model(), (X,), path)).kernels[0].source


def test_two_kernels_of_one_name(make: Make, calls: Any, tmp_path: Path) -> None:
    first = make()
    second = make(name=first.name, src="out[gid] = 0;")
    with pytest.raises(ArtifactError, match=f"two different kernels are named '{first.name}'"):
        export(calls((first, 2.0), (second, 2.0)), (X,), tmp_path / "m.aimodel")


def test_what_is_not_a_kernel_or_a_module(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="expected MetalKernel objects, got int"):
        export(torch.nn.Linear(4, 3), torch.ones(2, 4), tmp_path / "m.aimodel", kernels=[1])  # type: ignore[list-item]
    with pytest.raises(ArtifactError, match=r"expected a torch\.nn\.Module, got function"):
        export(test_missing_directory, torch.ones(2, 4), tmp_path / "m.aimodel")  # type: ignore[arg-type]


def test_what_torch_cannot_trace(tmp_path: Path) -> None:
    class Branches(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(ArtifactError, match="PyTorch cannot export Branches"):
        export(Branches(), (X,), tmp_path / "m.aimodel")


def test_what_core_ai_cannot_convert(make: Make, calls: Any, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"Core AI cannot convert Calls: .*uint64"):
        export(calls((make(), 2.0)), (torch.ones(4).to(torch.uint64),), tmp_path / "m.aimodel")


def test_a_wrong_call_inside_the_model_is_reported_as_such(make: Make, tmp_path: Path) -> None:
    kernel = make()

    class Wrong(torch.nn.Module):
        def __init__(self, **sizes: Any) -> None:
            super().__init__()
            self.sizes = {"threads_per_grid": (64, 1, 1), "threads_per_thread_group": (32, 1, 1),
                          "result_shapes": [[64]], **sizes}  # fmt: skip

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return kernel(x, 2.0, **self.sizes)

    with pytest.raises(DispatchError, match=f"kernel '{kernel.name}'.*at most 1024"):
        export(Wrong(threads_per_thread_group=(2048, 1, 1)), (X,), tmp_path / "m.aimodel")
    with pytest.raises(ArgumentError, match=f"kernel '{kernel.name}'.*reference returns"):
        export(Wrong(result_shapes=[[32]]), (X,), tmp_path / "m.aimodel")
    assert list(tmp_path.iterdir()) == []
