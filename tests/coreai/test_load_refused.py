"""What cannot be run is refused with what and where it is, and touches nothing."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from coreai._compiler.dialects import coreai
from coreai.authoring import CustomMetalKernel

from metalwright.coreai import compiled, export, inspect, load
from metalwright.errors import (
    ArgumentError,
    ArtifactError,
    CompileError,
    DispatchError,
    MemoryFault,
    RefusedSourceError,
)
from tests.coreai.graphs import GID, constant, doubled, launch, one, save, tensor

X = np.arange(4, dtype=np.float32)


def one_kernel(path: Path, src: str, shape: tuple[int, ...] = (4,), grid: int = 4) -> Path:
    kernel = CustomMetalKernel("odd", ["x"], ["y"], src, [GID])
    kind = tensor(shape)
    return save(
        path / "m.aimodel",
        lambda: one(
            "main", {"x": tensor((4,))}, {"y": kind}, lambda x: launch(kernel, [x], grid, [shape], [kind()])
        ),
    )


@pytest.fixture
def good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("METALWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    kind = {"x": tensor((4,))}
    return save(
        tmp_path / "m.aimodel", lambda: one("main", kind, {"y": tensor((4,))}, lambda x: [doubled(x)])
    )


def rewrite(artifact: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the program, and the hash with it."""
    program = change((artifact / "main.mlirb").read_bytes())
    (artifact / "main.mlirb").write_bytes(program)
    (artifact / "main.hash").write_bytes(hashlib.sha256(program).digest())


def metadata(artifact: Path, **changed: str) -> None:
    file = artifact / "metadata.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))


def refuse(artifact: Path, message: str) -> None:
    for read in (load, inspect):
        with pytest.raises(ArtifactError, match=message) as caught:
            read(artifact)
        assert str(artifact) in str(caught.value)
    assert compiled.stats().entries == 0


def test_no_artifact(tmp_path: Path, good: Path) -> None:
    refuse(tmp_path / "none.aimodel", "does not exist")
    (tmp_path / "empty.aimodel").mkdir()
    refuse(tmp_path / "empty.aimodel", "main.mlirb is missing")


def test_a_program_that_was_cut_off(good: Path) -> None:
    program = (good / "main.mlirb").read_bytes()
    (good / "main.mlirb").write_bytes(program[: len(program) // 2])
    refuse(good, "main.mlirb is damaged: it does not match main.hash")


def test_a_program_that_was_changed(good: Path) -> None:
    program = bytearray((good / "main.mlirb").read_bytes())
    program[len(program) // 2] ^= 1
    (good / "main.mlirb").write_bytes(bytes(program))
    refuse(good, "main.mlirb is damaged: it does not match main.hash")


def test_a_program_that_is_no_bytecode(good: Path) -> None:
    rewrite(good, lambda _: b"module {}")
    refuse(good, "does not begin as MLIR bytecode does")


@pytest.mark.parametrize("part", [0.02, 0.3, 0.6, 0.95])
def test_hostile_bytecode_with_a_matching_hash(good: Path, part: float) -> None:
    """Core AI's reader may end its process over such: that is not the user's."""
    rewrite(good, lambda program: program[: int(len(program) * part)])
    refuse(good, "Core AI")


def test_bytecode_of_a_later_version(good: Path) -> None:
    """The number after the magic is the bytecode's version: 6 as a variable-length integer, here 7."""

    def later(program: bytes) -> bytes:
        assert program[4] == 0x0D
        return program[:4] + b"\x0f" + program[5:]

    rewrite(good, later)
    metadata(good, producer="coreai-core 9.0.0")
    refuse(
        good,
        r"it was written by coreai-core 9.0.0, and coreai-core \S+ is installed: another version is needed",
    )


@pytest.mark.parametrize(
    ("operation", "producer"), [("v9", "9.0.0"), ("v0", "0.0.1")], ids=["newer", "older"]
)
def test_an_operation_of_another_dialect(good: Path, operation: str, producer: str) -> None:
    """Operations carry the dialect's version in their names."""

    def other(program: bytes) -> bytes:
        assert program.count(b"metal4_kernel_v1") == 1
        return program.replace(b"metal4_kernel_v1", f"metal4_kernel_{operation}".encode())

    rewrite(good, other)
    metadata(good, producer=f"coreai-core {producer}")
    refuse(
        good,
        rf"operation 'aicode.metal.metal4_kernel_{operation}' found in dialect .*; it was written by coreai-core "
        rf"{producer}, and coreai-core \S+ is installed: another version is needed",
    )


@pytest.mark.parametrize("version", ["3.0", "1.0"], ids=["newer", "older"])
def test_an_asset_of_another_version(good: Path, version: str) -> None:
    metadata(good, assetVersion=version, producer="coreai-core 9.0.0")
    refuse(
        good,
        f"has asset version '{version}' and was written by coreai-core 9.0.0; this version of Metalwright reads 2.x",
    )


def test_metadata_that_is_no_json(good: Path) -> None:
    (good / "metadata.json").write_text("{")
    refuse(good, "metadata.json is damaged")


def test_a_link_to_a_file_outside(good: Path, tmp_path: Path) -> None:
    outside = tmp_path / "secret"
    (good / "main.mlirb").rename(outside)
    (good / "main.mlirb").symlink_to(outside)
    refuse(good, "main.mlirb is a link to a file outside the artifact")
    assert outside.exists()


def test_a_result_that_no_memory_holds(tmp_path: Path) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # far more, and fewer elements than there are bytes
    for shape in ((1 << 20, 1 << 20), (1 << 10, (memory >> 12) + 1)):
        path = one_kernel(tmp_path, "y[0, 0] = x[0];", shape)
        with pytest.raises(
            ArtifactError, match=rf"function 'main': 'coreai.metal4_kernel' makes a tensor of \[{shape[0]}"
        ):
            load(path)


def test_a_result_that_no_memory_holds_when_it_is_run(tmp_path: Path) -> None:
    kernel = CustomMetalKernel("grows", ["x"], ["y"], "y[0, 0] = x[0];", [GID])
    made = tensor((-1, -1))

    def body(x: Any, size: Any) -> list[Any]:
        one_thread = constant([1, 1, 1], np.uint32)
        return list(kernel._construct_kernel_op([x, one_thread, one_thread, size], [made()]))

    inputs = {"x": tensor((4,)), "size": tensor((2,), np.uint32)}
    model = load(save(tmp_path / "m.aimodel", lambda: one("main", inputs, {"y": made}, body)))
    assert model(x=X, size=np.array([3, 1], np.uint32))["y"].shape == (3, 1)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # fewer elements than there are bytes, and more
    for rows in (1 << 20, 1 << 30):
        size = np.array([rows, (memory >> 21) + 1], np.uint32)
        with pytest.raises(
            ArgumentError, match=r"result 'y': shape \[.*\] is more than this machine's memory"
        ):
            model(x=X, size=size)


@pytest.mark.parametrize("kernel", [False, True], ids=["plain", "with-a-kernel"])
def test_what_the_interpreter_refuses_while_it_runs(tmp_path: Path, kernel: bool) -> None:
    def write() -> None:
        def body(x: object, at: object) -> list[object]:
            taken = coreai.gather_nd(x, at)
            return [doubled(taken) if kernel else taken]

        one("main", {"x": tensor((4,)), "at": tensor((2, 1), np.int32)}, {"y": tensor((2,))}, body)

    model = load(save(tmp_path / "m.aimodel", write))
    assert model(x=X, at=np.array([[1], [3]], np.int32))["y"].tolist() == ([2, 6] if kernel else [1, 3])
    with pytest.raises(
        ArtifactError, match="function 'main': Core AI's interpreter cannot run .*Index 100 is out"
    ):
        model(x=X, at=np.array([[1], [100]], np.int32))


class _Put(torch.nn.Module):
    def forward(self, x: torch.Tensor, positions: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[positions] = y
        return x


def test_values_that_do_not_lie_as_their_indices_say(tmp_path: Path) -> None:
    """What coreai-torch writes for one position ends the interpreter's process; for two it is right."""

    def exported(count: int) -> Path:
        example = torch.zeros(8, 4), torch.zeros(count, dtype=torch.int64), torch.ones(count, 4)
        return export(_Put(), example, tmp_path / f"{count}.aimodel", input_names=["x", "p", "y"])

    with pytest.raises(
        ArtifactError,
        match=r"'coreai.scatter_nd' puts values of \[4\] at indices of \['\?', 1\] into \[8, 4\]",
    ):
        load(exported(1))
    (out,) = load(exported(2))(x=torch.zeros(8, 4), p=torch.tensor([1, 3]), y=torch.ones(2, 4)).values()
    assert out.sum(1).tolist() == [0, 4, 0, 4, 0, 0, 0, 0]


def test_msl_that_does_not_compile(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"kernel 'odd_\w+' does not compile") as caught:
        load(one_kernel(tmp_path, "y[i] = nothing;"))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.site is not None
    assert diagnostic.site.file.startswith("odd_")


def test_msl_that_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedSourceError):
        load(one_kernel(tmp_path, 'asm("nop"); y[i] = x[i];'))


def test_msl_without_the_kernel(tmp_path: Path) -> None:
    path = one_kernel(tmp_path, "y[i] = x[i]; } void other() {")
    from coreai._compiler.ir import StringAttr
    from coreai.authoring import AIModelAsset

    from metalwright.coreai.inspect import KERNEL, operations

    program = AIModelAsset.load(path).program
    module = program._module._mlir_module
    (kernel,) = operations(module.operation, KERNEL)
    kernel.attributes["kernel_name"] = StringAttr.get("gone", context=module.context)
    program.save_asset(tmp_path / "edited.aimodel")
    with pytest.raises(ArtifactError, match="kernel 'gone': no kernel 'gone'"):
        load(tmp_path / "edited.aimodel")


def test_msl_with_other_parameters(tmp_path: Path) -> None:
    path = one_kernel(tmp_path, "y[i] = x[i];")
    from coreai._compiler.ir import StringAttr
    from coreai.authoring import AIModelAsset

    from metalwright.coreai.inspect import KERNEL, operations

    program = AIModelAsset.load(path).program
    module = program._module._mlir_module
    (kernel,) = operations(module.operation, KERNEL)
    source = kernel.opview.kernel_source.value.replace("device float", "device half", 1)
    kernel.attributes["kernel_source"] = StringAttr.get(source, context=module.context)
    program.save_asset(tmp_path / "edited.aimodel")
    with pytest.raises(
        ArtifactError, match="parameter 'x' of its MSL is a tensor of f16, rank 1, but the graph hands it f32"
    ):
        load(tmp_path / "edited.aimodel")


def test_a_kernel_that_writes_outside(tmp_path: Path) -> None:
    model = load(one_kernel(tmp_path, "y[i + 1] = x[i];"))
    with pytest.raises(MemoryFault, match=r"kernel 'odd_\w+'") as caught:
        model(x=X)
    assert caught.value.site is not None
    assert caught.value.__context__ is None  # no error of ours that says nothing


def test_sizes_that_no_gpu_accepts(tmp_path: Path) -> None:
    kernel = CustomMetalKernel("odd", ["x"], ["y"], "y[i] = x[i];", [GID])

    def body(x: object) -> list[object]:
        operands = [
            x,
            constant([0, 1, 1], np.uint32),
            constant([1, 1, 1], np.uint32),
            constant([4], np.uint32),
        ]
        return list(kernel._construct_kernel_op(operands, [x.type]))  # type: ignore[attr-defined]

    path = save(tmp_path / "m.aimodel", lambda: one("main", {"x": tensor((4,))}, {"y": tensor((4,))}, body))
    with pytest.raises(DispatchError, match=r"threads_per_grid.x: expected 1 to"):
        load(path)(x=X)


def test_a_shape_that_is_not_the_results(tmp_path: Path) -> None:
    kernel = CustomMetalKernel("odd", ["x"], ["y"], "y[i] = x[i];", [GID])
    path = save(
        tmp_path / "m.aimodel",
        lambda: one(
            "main",
            {"x": tensor((4,))},
            {"y": tensor((4,))},
            lambda x: launch(kernel, [x], 4, [[5]], [x.type]),
        ),
    )
    with pytest.raises(ArgumentError, match=r"the graph asks for shape \[5\], but its type is \[4\]"):
        load(path)(x=X)


def test_options(good: Path) -> None:
    with pytest.raises(ArgumentError, match="load: "):
        load(good, math_mode="slow")
