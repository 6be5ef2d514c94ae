"""Every example: its MSL executed and compared with torch, as a script, and exported with its source embedded."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import metalwright
from metalwright.check import Random

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
EXPECTED = {
    "vector_add",
    "scale_add",
    "matmul_naive",
    "matmul_tiled",
    "softmax",
    "two_results",
    "rmsnorm",
    "expert_gather",
    "grid3d",
    "transpose2d",
    "histogram",
}


@pytest.fixture(params=NAMES)
def example(request: pytest.FixtureRequest) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"example_{request.param}", EXAMPLES / f"{request.param}.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_there_and_short() -> None:
    assert set(NAMES) == EXPECTED
    for name in NAMES:
        lines = [line for line in (EXAMPLES / f"{name}.py").read_text().splitlines() if line.strip()]
        assert len(lines) < 60, f"{name} has {len(lines)} lines, blank ones not counted"


def test_check_passes(example: ModuleType) -> None:
    report = metalwright.check(example.kernel)
    assert report.ok, str(report)
    assert len(report.cases) >= 3


# The same results written another way than in the example, in float64 or exact integers.
def _softmax(x: torch.Tensor, axis: int) -> torch.Tensor:
    powers = (x.double() - x.double().amax(axis, keepdim=True)).exp()
    return powers / powers.sum(axis, keepdim=True)


def _laplacian(x: torch.Tensor) -> torch.Tensor:
    total = -6 * x.double()
    for axis, extent in enumerate(x.shape):
        here = torch.arange(extent)
        for step in (-1, 1):
            total += x.double().index_select(axis, (here + step).clamp(0, extent - 1))
    return total


def _matmul(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    if A.is_floating_point():
        return torch.einsum("mk,kn->mn", A.double(), B.double())
    return torch.einsum("mk,kn->mn", A.long(), B.long()).to(torch.int32)  # the cast wraps modulo 2^32


INDEPENDENT: dict[str, Callable[..., Any]] = {
    "vector_add": lambda x, y: x.double() + y.double() if x.is_floating_point() else x + y,
    "scale_add": lambda x, y, alpha: torch.add(x.double(), y.double(), alpha=alpha),
    "matmul_naive": _matmul,
    "matmul_tiled": _matmul,
    "softmax": _softmax,
    "two_results": lambda angle: (torch.sin(angle.double()), torch.cos(angle.double())),
    "rmsnorm": lambda x, weight, eps: (
        x.double() / (x.double().square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()
    ),
    "expert_gather": lambda W, x, IDX: torch.stack([W[int(e)].double() @ x.double() for e in IDX]),
    "grid3d": _laplacian,
    "transpose2d": lambda x: x.movedim(0, 1),
    "histogram": lambda x: torch.bincount(x, minlength=256).to(torch.int32),
}


def _listed(results: Any) -> list[torch.Tensor]:
    return [results] if isinstance(results, torch.Tensor) else list(results)


def _tensor_cases(example: ModuleType) -> list[dict[str, Any]]:
    """The example's cases with ordinary values drawn for their inputs."""

    def draw(value: Any, seed: int) -> Any:
        return value.draw(seed) if isinstance(value, Random) else value

    return [
        {**case, "inputs": [draw(value, seed) for seed, value in enumerate(case["inputs"])]}
        for case in example.kernel.cases()
    ]


def test_executed_msl_equals_an_independent_expression(example: ModuleType) -> None:
    name = example.__name__.removeprefix("example_")
    for case in _tensor_cases(example):
        inputs = case.pop("inputs")
        results = _listed(example.kernel(*inputs, **case))
        for result, wanted in zip(results, _listed(INDEPENDENT[name](*inputs)), strict=True):
            if result.dtype.is_floating_point:
                # sums of a few hundred terms of size one: a few rounding steps of the dtype
                bound = 8 * torch.finfo(result.dtype).eps * max(1.0, wanted.abs().max().item())
                torch.testing.assert_close(result.double(), wanted.double(), rtol=0, atol=bound)
            else:
                assert torch.equal(result, wanted), f"{name}: {result} is not {wanted}"


def test_runs_as_a_script(example: ModuleType) -> None:
    assert example.__file__
    done = subprocess.run([sys.executable, example.__file__], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("OK")


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_exports_with_its_source(example: ModuleType, dynamic: bool, tmp_path: Path) -> None:
    model, path = example.module, tmp_path / "model.aimodel"
    shapes = {"dynamic_shapes": model.dynamic_shapes} if dynamic else {}
    metalwright.export(model, model.example_args, path, kernels=[example.kernel], **shapes)

    artifact = metalwright.inspect(path)
    (kernel,) = artifact.kernels
    assert kernel.name.startswith(example.kernel.name)
    for line in example.kernel.src.strip().splitlines()[1:]:
        if "TYPE" not in line:
            assert line.strip() in kernel.source
    (function,) = artifact.functions
    extents = [extent for value in function.inputs for extent in value.shape]
    assert dynamic == any(not isinstance(extent, int) for extent in extents)


def test_exported_model_executes_the_msl(example: ModuleType) -> None:
    """The module itself, called eagerly, gives what torch gives for its example arguments."""
    results = _listed(example.module(*example.module.example_args))
    wanted = _listed(example.kernel.reference(*_kernel_arguments(example)))
    for result, reference in zip(results, wanted, strict=True):
        torch.testing.assert_close(result, reference, rtol=1e-4, atol=1e-4)


def _kernel_arguments(example: ModuleType) -> list[Any]:
    constants = {"scale_add": [2.5], "softmax": [-1], "rmsnorm": [1e-5]}
    return [*example.module.example_args, *constants.get(example.__name__.removeprefix("example_"), [])]
