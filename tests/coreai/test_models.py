"""Real models with kernels: eager, exported, and run from their artifacts, against PyTorch."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import metalwright
from metalwright import MetalKernel
from metalwright.coreai import inspect
from tests.models import convnet, gated_delta, kernels, llama, moe
from tests.models.case import BOUNDS, Case, distance
from tests.models.edit import edit_kernel

Inputs = dict[str, torch.Tensor]
Outputs = dict[str, torch.Tensor]
Artifact = Callable[..., Path]

MODELS: dict[str, Any] = {"llama": llama, "moe": moe, "convnet": convnet, "gated_delta": gated_delta}
KERNELS = {
    "llama": {kernels.add_norm: 5, kernels.swiglu: 2, llama.int8_matvec: 15, llama.rope: 4},
    "moe": {kernels.add_norm: 1, moe.gate_up: 1, moe.down: 1},
    "convnet": {convnet.bias_gelu_scale: 3},
    "gated_delta": {kernels.add_norm: 2, kernels.swiglu: 1, gated_delta.scan: 1},
}
SIZES = {  # of the calls of a model with dynamic extents: tokens, images, steps
    "llama": (11, 1, 5, 1),
    "moe": (1, 6, 17),
    "convnet": (1, 2, 5),
    "gated_delta": (7, 1, 40, 1),
}
STATEFUL = ("llama", "gated_delta")
DECODED = 64

any_model = pytest.mark.parametrize("name", MODELS)
any_stateful = pytest.mark.parametrize("name", STATEFUL)
static_and_dynamic = pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
any_dtype = pytest.mark.parametrize("dtype", BOUNDS, ids=str)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Return what exports a model, once: ``artifact(name, dynamic=True, dtype=torch.float16)``."""
    made: dict[Any, Path] = {}
    directory = tmp_path_factory.mktemp("models")

    def exported(name: str, *, dynamic: bool, dtype: torch.dtype = torch.float32) -> Path:
        key = (name, dynamic, dtype)
        if key not in made:
            case = MODELS[name].case(dynamic=dynamic, dtype=dtype)
            made[key] = case.export(directory / f"{name}-{len(made)}.aimodel")
        return made[key]

    return exported


def calls(name: str, *, dynamic: bool, dtype: torch.dtype = torch.float32) -> Iterator[Inputs]:
    """Yield the inputs of a few calls, one after the other, all different."""
    sizes = SIZES[name] if dynamic else (_fixed_size(name),) * 3
    first = itertools.accumulate(sizes, initial=0)
    for index, (size, position) in enumerate(zip(sizes, first, strict=False)):
        if name == "llama":
            yield llama.inputs(
                [(7 * n + 3) % llama.VOCABULARY for n in range(position, position + size)], position
            )
        else:
            yield MODELS[name].inputs(size, dtype, seed=20 + index)


def _fixed_size(name: str) -> int:
    return {"llama": 1, "moe": moe.TOKENS, "convnet": convnet.BATCH, "gated_delta": gated_delta.STEP}[name]


def assert_close(got: Outputs, expected: Outputs, bound: float) -> None:
    assert set(got) == set(expected)
    for output, value in expected.items():
        if value.is_floating_point():
            assert distance(got[output], value) <= bound, output
        else:
            assert torch.equal(got[output], value), output


def largest_distance(got: Outputs, expected: Outputs) -> float:
    return max(distance(got[name], value) for name, value in expected.items() if value.is_floating_point())


def buffers(case: Case) -> Inputs:
    """Return the values of the case's states by name."""
    mutable = [
        value
        for name, value in case.module.named_buffers()
        if name.endswith(("cache", "recurrent", "convolution"))
    ]
    return dict(zip(case.states, mutable, strict=True))


# The models, before any artifact ---------------------------------------------------------------------------------


@any_model
@any_dtype
def test_the_msl_computes_what_the_references_do(name: str, dtype: torch.dtype) -> None:
    executed, expected = (MODELS[name].case(dynamic=True, dtype=dtype) for _ in range(2))
    for inputs in calls(name, dynamic=True, dtype=dtype):
        assert_close(executed.eager(**inputs), expected.torch(**inputs), BOUNDS[dtype])
    assert_close(buffers(executed), buffers(expected), BOUNDS[dtype])


def test_the_parallel_reference_of_the_scan_is_the_recurrence() -> None:
    generator = torch.Generator().manual_seed(8)
    query, key, value = (torch.randn(9, 2, width, generator=generator) for width in (4, 4, 6))
    key = key / key.norm(dim=-1, keepdim=True)
    decay, beta = -torch.rand(9, 2, generator=generator), torch.rand(9, 2, generator=generator)
    start = state = torch.randn(2, 4, 6, generator=generator)
    reads = []
    for q, k, v, g, b in zip(query, key, value, decay, beta, strict=True):
        state = g.exp()[:, None, None] * state
        state = state + k[:, :, None] * (b[:, None] * (v - (k[:, :, None] * state).sum(1)))[:, None, :]
        reads.append((q[:, :, None] * state).sum(1))
    out, after = gated_delta.scan.reference(query, key, value, decay, beta, start)
    torch.testing.assert_close(out, torch.stack(reads), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(after, state, rtol=1e-4, atol=1e-5)


@any_model
@static_and_dynamic
def test_an_artifact_has_every_kernel(name: str, dynamic: bool, artifact: Artifact) -> None:
    launched = inspect(artifact(name, dynamic=dynamic)).kernels
    names = [kernel.name.rpartition("_")[0] for kernel in launched]
    assert {kernel.name: names.count(kernel.name) for kernel in KERNELS[name]} == {
        kernel.name: count for kernel, count in KERNELS[name].items()
    }
    assert len(names) == sum(KERNELS[name].values())
    assert all(kernel.function == "main" for kernel in launched)
    assert any(kernel.threads_per_grid == "computed" for kernel in launched) == dynamic


# Run from the artifact -------------------------------------------------------------------------------------------


@any_model
@static_and_dynamic
def test_the_interface(name: str, dynamic: bool, artifact: Artifact) -> None:
    case = MODELS[name].case(dynamic=dynamic)
    model = metalwright.coreai.load(artifact(name, dynamic=dynamic))
    assert list(model.functions) == ["main"]
    main = model.functions["main"]
    assert tuple(spec.name for spec in main.inputs) == tuple(case.example)
    assert tuple(spec.name for spec in main.outputs) == case.outputs
    assert tuple(spec.name for spec in main.states) == case.states
    for spec in main.inputs:
        first, *rest = case.example[spec.name].shape
        assert tuple(spec.shape[1:]) == tuple(rest)
        assert (spec.shape[0] == first) != dynamic
    assert {spec.name: tuple(spec.shape) for spec in main.states} == {
        state: tuple(value.shape) for state, value in buffers(case).items()
    }


@any_model
@any_dtype
@static_and_dynamic
def test_outputs(name: str, dtype: torch.dtype, dynamic: bool, artifact: Artifact) -> None:
    case = MODELS[name].case(dynamic=dynamic, dtype=dtype)
    model = metalwright.coreai.load(artifact(name, dynamic=dynamic, dtype=dtype))
    for inputs in calls(name, dynamic=dynamic, dtype=dtype):
        assert_close(model.run("main", inputs), case.torch(**inputs), BOUNDS[dtype])


@any_model
def test_outputs_as_numpy_arrays(name: str, artifact: Artifact) -> None:
    model = metalwright.coreai.load(artifact(name, dynamic=False))
    inputs = next(calls(name, dynamic=False))
    arrays = model(**{key: value.numpy() for key, value in inputs.items()})
    model.reset()
    tensors = model(**inputs)
    assert list(arrays) == list(tensors)
    for output, tensor in tensors.items():
        assert (arrays[output] == tensor.numpy()).all(), output


@any_dtype
@static_and_dynamic
def test_llama_decodes(dtype: torch.dtype, dynamic: bool, artifact: Artifact) -> None:
    """Prompt, then 64 tokens, each the most likely one after those before it; every step is compared."""
    case = llama.case(dynamic=dynamic, dtype=dtype)
    model = metalwright.coreai.load(artifact("llama", dynamic=dynamic, dtype=dtype))
    prompt = [5, 99, 310, 42, 7, 7, 256, 1, 18, 500, 63]
    steps = [prompt] if dynamic else [[token] for token in prompt]
    position, expected = 0, {}
    for step in range(len(steps) + DECODED):
        tokens = steps[step] if step < len(steps) else [int(expected["logits"][-1].argmax())]
        inputs = llama.inputs(tokens, position)
        expected = case.torch(**inputs)
        assert_close(model(**inputs), expected, BOUNDS[dtype])
        position += len(tokens)
    assert position == len(prompt) + DECODED


@any_stateful
@static_and_dynamic
def test_states_go_from_call_to_call_and_back(name: str, dynamic: bool, artifact: Artifact) -> None:
    model = metalwright.coreai.load(artifact(name, dynamic=dynamic))
    first, second, *_ = calls(name, dynamic=dynamic)
    before = model(**first), model(**second)
    model.reset()
    after = model(**first), model(**second)
    for a, b in zip(before, after, strict=True):
        assert_close(b, a, 0)
    model.reset()
    assert largest_distance(model(**second), before[1]) > 10 * BOUNDS[torch.float32], "the first call matters"


@any_stateful
def test_states_may_be_given(name: str, artifact: Artifact) -> None:
    """A model takes over in the middle from PyTorch."""
    case = MODELS[name].case(dynamic=True)
    first, second, *_ = calls(name, dynamic=True)
    case.torch(**first)
    model = metalwright.coreai.load(artifact(name, dynamic=True))
    model.reset({state: value.clone() for state, value in buffers(case).items()})
    assert_close(model(**second), case.torch(**second), BOUNDS[torch.float32])


# It is the MSL that runs ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Edit:
    """One character of a kernel's source, in a place that decides what it computes."""

    model: str
    kernel: MetalKernel
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.model}-{self.kernel.name}"


EDITS = [
    Edit("llama", kernels.add_norm, "square / float(width)", "square * float(width)"),
    Edit("llama", kernels.swiglu, "(1.0f + metal::exp", "(2.0f + metal::exp"),
    Edit("llama", llama.rope, "first * c - second * s", "first * c + second * s"),
    Edit("llama", llama.int8_matvec, "/ 4; i += 32", "/ 8; i += 32"),
    Edit("moe", moe.gate_up, "g / (1.0f", "g * (1.0f"),
    Edit("moe", moe.down, "sum += float(", "sum -= float("),
    Edit("convnet", convnet.bias_gelu_scale, "1.0f + metal::precise", "1.0f - metal::precise"),
    Edit("gated_delta", gated_delta.scan, "column[i] += k[i]", "column[i] -= k[i]"),
]


@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_an_edit_is_in_the_artifact_and_nothing_else_is(
    edit: Edit, artifact: Artifact, tmp_path: Path
) -> None:
    original = artifact(edit.model, dynamic=True)
    edited = tmp_path / "edited.aimodel"
    assert (
        edit_kernel(original, edited, edit.kernel.name, edit.old, edit.new)
        == KERNELS[edit.model][edit.kernel]
    )
    before, after = inspect(original), inspect(edited)
    assert after.functions == before.functions
    for a, b in zip(before.kernels, after.kernels, strict=True):
        changed = a.name.rpartition("_")[0] == edit.kernel.name
        assert b == dataclasses.replace(
            a, source=a.source.replace(edit.old, edit.new) if changed else a.source
        )


@pytest.mark.parametrize("edit", EDITS, ids=str)
@static_and_dynamic
def test_one_character_of_the_embedded_source_decides(
    edit: Edit, dynamic: bool, artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The edited artifact computes what the same edit of the kernel in Python does, which is something else."""
    original = artifact(edit.model, dynamic=dynamic)
    edited = tmp_path / "edited.aimodel"
    edit_kernel(original, edited, edit.kernel.name, edit.old, edit.new)
    steps = list(calls(edit.model, dynamic=dynamic))
    unchanged, changed = (_last_outputs(metalwright.coreai.load(path), steps) for path in (original, edited))

    monkeypatch.setattr(edit.kernel, "src", edit.kernel.src.replace(edit.old, edit.new))
    case = MODELS[edit.model].case(dynamic=dynamic)
    for inputs in steps:
        expected = case.eager(**inputs)
    bound = BOUNDS[torch.float32]
    assert largest_distance(changed, expected) <= bound
    assert largest_distance(unchanged, expected) > 10 * bound


def _last_outputs(model: Any, steps: list[Inputs]) -> Outputs:
    for inputs in steps:
        outputs = model(**inputs)
    return outputs
