"""emulate("coreai"): what is replaced, for whom and for how long; what Core AI's own way keeps; what is refused.

What works inside it is in ``written_for_a_mac``.
"""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from coreai.authoring import AIModelAsset
from coreai.runtime import (
    AIModel,
    CompileIdentifiers,
    InferenceFunctionDescriptor,
    IntermediateLogger,
    NDArray,
    StorageKind,
)
from coreai_torch import TorchMetalKernel

import metalwright
from metalwright import ArgumentError, ArtifactError, CompileError, DispatchError, RefusedSourceError

pytestmark = pytest.mark.skipif(
    sys.platform == "darwin", reason="compares with a runtime that runs no kernels"
)
PATCHED = (
    (AIModelAsset, "executable"),
    (AIModel, "load"),
    (NDArray, "__init__"),
    (NDArray, "from_descriptor"),
)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = [owner.__dict__[name] for owner, name in PATCHED]
    yield
    assert [owner.__dict__[name] for owner, name in PATCHED] == before


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


@pytest.fixture
def plain(tmp_path: Path) -> AIModelAsset:
    """An artifact without kernels."""
    return AIModelAsset.load(
        metalwright.export(
            Plain(), (torch.zeros(4),), tmp_path / "plain.aimodel", input_names=["x"], output_names=["y"]
        )
    )


@pytest.fixture
def scaling(
    make: Callable[..., Any], calls: Callable[..., Any], tmp_path: Path
) -> Callable[..., AIModelAsset]:
    """Return a maker of artifacts with a kernel that multiplies by 3."""

    def maker(dynamic: bool = False, **changed: Any) -> AIModelAsset:
        shapes = {"x": {0: torch.export.Dim("n")}} if dynamic else None
        path = metalwright.export(
            calls((make(**changed), 3.0)), (torch.ones(4),), tmp_path / "scaling.aimodel",
            input_names=["x"], output_names=["y"], dynamic_shapes=shapes,
        )  # fmt: skip
        return AIModelAsset.load(path)

    return maker


async def loaded(asset: AIModelAsset, use: Callable[[Any, Any], Any]) -> Any:
    async with asset.executable() as model:
        made = use(model, model.load_function("main"))
        return await made if asyncio.iscoroutine(made) else made


async def call(function: Any, *, state: Any = None, **inputs: np.ndarray) -> Any:
    given = {name: NDArray(values) for name, values in inputs.items()}
    made = await function(given) if state is None else await function(given, state)
    return made["y"].numpy().tolist()


def run(asset: AIModelAsset, **inputs: np.ndarray) -> Any:
    return asyncio.run(loaded(asset, lambda model, function: call(function, **inputs)))


ONES = np.ones(4, np.float32)


def test_inside_and_outside(scaling: Callable[..., AIModelAsset]) -> None:
    asset = scaling()
    for _ in range(2):
        with metalwright.emulate("coreai"):
            assert run(asset, x=ONES) == [3] * 4
            NDArray(ONES, StorageKind.METAL)
        with pytest.raises(RuntimeError, match="Unresolved symbol"):
            run(asset, x=ONES)
        with pytest.raises(RuntimeError, match="'metal' is not supported"):
            NDArray(ONES, StorageKind.METAL)


@pytest.mark.parametrize("names", [(), ("coreai",), ("coreai", "torch")])
def test_names(names: tuple[str, ...]) -> None:
    with metalwright.emulate(*names):
        assert NDArray(data=[1.0, 2.0], backing=StorageKind.IO_SURFACE).numpy().tolist() == [1, 2]


def test_it_nests_and_ends_with_an_error() -> None:
    with metalwright.emulate("coreai"):
        with pytest.raises(KeyError), metalwright.emulate("coreai", checked=False):
            raise KeyError
        NDArray([1.0], StorageKind.METAL)


def test_other_threads_are_not_disturbed() -> None:
    problems: list[str] = []

    def make() -> None:
        try:
            NDArray([1.0], StorageKind.METAL)
        except RuntimeError as error:
            problems.append(str(error))

    with metalwright.emulate("coreai"):
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
    assert problems == ["Backing of kind 'metal' is not supported"]


def test_a_patch_on_top_of_ours_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    with metalwright.emulate("coreai"):
        ours = NDArray.__init__

        def theirs(self: NDArray, *args: Any, **kwargs: Any) -> None:
            seen.append(args)
            ours(self, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(NDArray, "__init__", theirs)
            NDArray([1.0], StorageKind.METAL)
    assert seen == [([1.0], StorageKind.METAL)]


def test_a_backing_of_a_wrong_type_is_core_ais_error() -> None:
    with (
        metalwright.emulate("coreai"),
        pytest.raises(TypeError, match="backing must be a StorageKind, got str"),
    ):
        NDArray([1.0], backing="metal")  # type: ignore[arg-type]


def test_a_model_outlives_the_block(scaling: Callable[..., AIModelAsset]) -> None:
    async def main(path: Path) -> Any:
        with metalwright.emulate("coreai"):
            function = (await AIModel.load(path)).load_function("main")
        return await call(function, x=ONES)

    assert asyncio.run(main(scaling().path)) == [3] * 4


def test_an_artifact_without_kernels_goes_core_ais_way(plain: AIModelAsset) -> None:
    with metalwright.emulate("coreai"):
        described = asyncio.run(loaded(plain, lambda model, function: function.desc))
        assert isinstance(described, InferenceFunctionDescriptor)
        assert run(plain, x=ONES) == [2] * 4
        with pytest.raises(RuntimeError, match="x has an invalid shape"):
            run(plain, x=np.ones(5, np.float32))


def test_ai_model_loads_an_artifact_without_kernels_too(plain: AIModelAsset) -> None:
    async def main() -> Any:
        return await call((await AIModel.load(str(plain.path))).load_function("main"), x=ONES)

    with metalwright.emulate("coreai"):
        assert asyncio.run(main()) == [2] * 4
    with pytest.raises(RuntimeError, match="No such file"):
        asyncio.run(main())


def test_the_descriptor_reads_as_core_ais(plain: AIModelAsset, scaling: Callable[..., AIModelAsset]) -> None:
    def described(model: Any, function: Any) -> Any:
        about = function.desc
        unknown = []
        for ask in (about.input_descriptor, about.output_descriptor, about.state_descriptor):
            with pytest.raises(KeyError) as caught:
                ask("nothing")
            unknown.append(caught.value.args)
        tensors = [about.input_descriptor("x"), about.output_descriptor("y")]
        facts = [(t.shape, t.dtype, t.rank, t.storage_kind, str(t)) for t in tensors]
        return (
            str(model),
            str(function),
            str(about),
            about.input_names,
            about.output_names,
            about.state_names,
            facts,
            unknown,
        )

    with metalwright.emulate("coreai"):
        theirs = asyncio.run(loaded(plain, described))
        assert asyncio.run(loaded(scaling(), described)) == theirs


def test_arrays_from_a_descriptor(scaling: Callable[..., AIModelAsset], plain: AIModelAsset) -> None:
    def make(model: Any, function: Any) -> NDArray:
        return NDArray.from_descriptor(function.desc.input_descriptor("x"))

    with metalwright.emulate("coreai"):
        for asset in (scaling(), plain):
            array = asyncio.run(loaded(asset, make))
            assert (array.shape, array.dtype) == ((4,), "float32")
        with pytest.raises(RuntimeError, match=r"the shape \[-1\] is dynamic") as caught:
            asyncio.run(loaded(scaling(dynamic=True), make))
    assert isinstance(caught.value, ArgumentError)


def test_an_unknown_function_is_core_ais_error(scaling: Callable[..., AIModelAsset]) -> None:
    with metalwright.emulate("coreai"), pytest.raises(KeyError, match="No function named 'other'"):
        asyncio.run(loaded(scaling(), lambda model, function: model.load_function("other")))


def test_a_logger_is_refused(scaling: Callable[..., AIModelAsset]) -> None:
    logger = IntermediateLogger([CompileIdentifiers(1)], lambda *given: None)
    with (
        metalwright.emulate("coreai"),
        pytest.raises(RuntimeError, match="intermediate_logger is not emulated"),
    ):
        asyncio.run(loaded(scaling(), lambda model, function: model.load_function("main", logger)))


def test_an_input_that_is_no_array_is_core_ais_error(scaling: Callable[..., AIModelAsset]) -> None:
    with metalwright.emulate("coreai"), pytest.raises(TypeError, match='"x" in input is not'):
        asyncio.run(loaded(scaling(), lambda model, function: function({"x": ONES})))


def test_a_state_that_is_not_there(scaling: Callable[..., AIModelAsset]) -> None:
    state = {"s": NDArray(ONES)}
    with metalwright.emulate("coreai"), pytest.raises(RuntimeError, match="has no state 's'"):
        asyncio.run(loaded(scaling(), lambda model, function: call(function, state=state, x=ONES)))


@pytest.mark.parametrize(
    "inputs, says",
    [
        ({}, "input 'x' is missing"),
        ({"x": np.ones(5, np.float32)}, r"expected shape \[4\], got \[5\]"),
        ({"x": np.ones(4, np.float16)}, "expected dtype float32, got float16"),
    ],
    ids=["missing", "shape", "dtype"],
)
def test_inputs_that_do_not_fit(
    scaling: Callable[..., AIModelAsset], inputs: dict[str, np.ndarray], says: str
) -> None:
    with metalwright.emulate("coreai"), pytest.raises(RuntimeError, match=says) as caught:
        run(scaling(), **inputs)
    assert isinstance(caught.value, ArgumentError)


@pytest.mark.parametrize(
    "src, kind",
    [("out[gid] = missing;", CompileError), ('asm("nop"); out[gid] = x[gid];', RefusedSourceError)],
    ids=["error", "refused"],
)
def test_source_that_does_not_compile(scaling: Callable[..., AIModelAsset], src: str, kind: type) -> None:
    asset = scaling(src=src, template_dtypes=None)

    async def main() -> None:
        async with asset.executable() as model:
            assert model.function_names == ["main"]
            model.load_function("main")

    with (
        metalwright.emulate("coreai"),
        pytest.raises(RuntimeError, match="invoked with invalid parameters") as caught,
    ):
        asyncio.run(main())
    assert isinstance(caught.value, kind)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))


def test_a_damaged_artifact(scaling: Callable[..., AIModelAsset]) -> None:
    asset = scaling()
    (asset.path / "main.hash").write_bytes(b"x" * 32)
    with metalwright.emulate("coreai"), pytest.raises(RuntimeError, match="is damaged") as caught:
        run(asset, x=ONES)
    assert isinstance(caught.value, ArtifactError)


def test_a_path_that_is_not_there_is_core_ais_error(tmp_path: Path) -> None:
    with metalwright.emulate("coreai"), pytest.raises(RuntimeError, match="No such file"):
        asyncio.run(AIModel.load(tmp_path / "none.aimodel"))


def test_sizes_that_no_gpu_accepts(tmp_path: Path, make: Callable[..., Any]) -> None:
    kernel = make(TorchMetalKernel)  # it leaves the sizes to the runtime

    class Big(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return kernel(
                x, 1.0, threads_per_grid=(4, 1, 1), threads_per_thread_group=(2048, 1, 1), result_shapes=[[4]]
            )

    path = metalwright.export(
        Big(), (torch.ones(4),), tmp_path / "big.aimodel", input_names=["x"], output_names=["y"]
    )
    with metalwright.emulate("coreai"), pytest.raises(RuntimeError) as caught:
        run(AIModelAsset.load(path), x=ONES)
    assert isinstance(caught.value, DispatchError)


def test_checked_or_not(scaling: Callable[..., AIModelAsset]) -> None:
    asset = scaling(src="out[gid] = x[gid + 1] * 0 + TYPE(a);")
    with metalwright.emulate("coreai"), pytest.raises(metalwright.MemoryFault, match="'x'"):
        run(asset, x=ONES)
    with metalwright.emulate("coreai", checked=False):
        assert run(asset, x=np.zeros(4, np.float32))[:3] == [3] * 3


def test_importing_the_package_loads_no_runtime() -> None:
    code = "import sys, metalwright; print([name for name in sys.modules if name.startswith(('coreai', 'torch'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
