"""``metalwright verify``: it points at the kernel that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from metalwright.cli import loading
from metalwright.coreai import export
from tests.models.edit import edit_kernel

MODELS = """
import torch
from metalwright import MetalKernel, MetalParameter


def sizes(x):
    return {"threads_per_grid": (x.shape[0], 1, 1), "threads_per_thread_group": (8, 1, 1),
            "result_shapes": [[x.shape[0]]]}


def kernel(name, src, reference, inputs=("x",)):
    return MetalKernel(name, input_names=list(inputs), result_names=["out"], src=src, torch_defn=reference,
                       metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")])


def _scale(x: torch.Tensor, a: float) -> torch.Tensor:
    return x * a


def _square(x: torch.Tensor) -> torch.Tensor:
    return x * x + 1


def _pick(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return x.gather(0, at)


scale = kernel("verify_scale", "out[gid] = x[gid] * a + 0.0f;", _scale, ("x", "a"))
square = kernel("verify_square", "out[gid] = x[gid] * x[gid] + 1.0f;", _square)
pick = kernel("verify_pick", "out[gid] = x[at[gid] + 0];", _pick, ("x", "at"))


class Three(torch.nn.Module):
    example_args = (torch.ones(5), torch.tensor([0, 1, 2, 0, 3]))

    def forward(self, x, at):
        x = scale(x, 3.0, **sizes(x)) + 1
        x = square(x, **sizes(x))
        x = scale(x, 0.5, **sizes(x))
        return pick(x, at, **sizes(x)) * 2


class Other(Three):
    def forward(self, x, at):
        return super().forward(x, at) * 1.5


class Two(Three):
    example_args = (torch.ones(5),)

    def forward(self, x):
        return square(x, **sizes(x))


class Remembers(torch.nn.Module):
    example_args = (torch.ones(4),)

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.arange(4.0))

    def forward(self, x):
        self.total.add_(square(x, **sizes(x)))
        return self.total * 2


class Foreign(torch.nn.Module):
    example_args = Three.example_args

    def forward(self, x, at):
        return (_square(_scale(x, 3.0) + 1) * 0.5).gather(0, at) * 2
"""
EDITS = {
    "verify_scale": ("* a + 0.0f", "* a + 9.0f", 1),
    "verify_square": ("+ 1.0f", "+ 2.0f", 2),
    "verify_pick": ("] + 0]", "] + 1]", 4),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "verified.py"
    path.write_text(MODELS)
    return path


@pytest.fixture(scope="module")
def artifact(models):
    made: dict[str, Path] = {}

    def write(name: str = "Three") -> Path:
        if name not in made:
            module = loading.module(loading.Target(models, name))
            made[name] = export(module, module.example_args, models.parent / f"{name}.aimodel")
        return made[name]

    return write


def test_an_artifact_that_is_right(command, artifact, models):
    done = command("verify", artifact(), "--against", f"{models}:Three", "--runs", "3", "--seed", "5")
    assert done.code == 0, done.out + done.err
    assert [line for line in done.out.splitlines() if line.startswith("seed")] == [
        "seed 5",
        "seed 6",
        "seed 7",
    ]
    assert done.out.count("launch 4, kernel verify_pick, out") == 3
    assert "wrong" not in done.out and "not compared" not in done.out


@pytest.mark.parametrize("kernel", EDITS)
def test_the_broken_kernel_of_three_is_pointed_out(command, artifact, models, tmp_path, kernel):
    old, new, launch = EDITS[kernel]
    edited = tmp_path / "edited.aimodel"
    assert edit_kernel(artifact(), edited, kernel, old, new)
    done = command("verify", edited, "--against", f"{models}:Three")
    assert done.code == 1, done.out + done.err
    assert f"the first kernel that disagrees with its reference: {kernel}, launch {launch}\n" in done.out
    rows = [line for line in done.out.splitlines() if line.startswith("launch ")]
    assert {row.split()[3].rstrip(",") for row in rows if row.endswith("wrong")} == {kernel}


def test_a_kernel_that_faults_is_pointed_out(command, artifact, models, tmp_path):
    edited = tmp_path / "edited.aimodel"
    assert edit_kernel(artifact(), edited, "verify_pick", "] + 0]", "] + 9]")
    done = command("verify", edited, "--against", f"{models}:Three")
    assert done.code == 1, done.out + done.err
    assert "the first kernel that disagrees with its reference: verify_pick, launch 4\n" in done.out
    assert "x[at[gid] + 9]" in done.out, "the fault with its line"


def test_states(command, artifact, models):
    done = command("verify", artifact("Remembers"), "--against", f"{models}:Remembers", "--runs", "2")
    assert done.code == 0, done.out + done.err
    assert done.out.count("state b_total") == done.out.count("output mul") == 2


def test_an_artifact_whose_other_operations_differ(command, artifact, models):
    done = command("verify", artifact(), "--against", f"{models}:Other")
    assert done.code == 1
    assert "no kernel that was compared disagrees with its reference" in done.out
    assert command("verify", artifact(), "--against", f"{models}:Other", "--rtol", "1").code == 0


def test_kernels_that_the_module_does_not_call(command, artifact, models):
    done = command("verify", artifact(), "--against", f"{models}:Foreign")
    assert done.code == 0, done.out + done.err
    assert "kernel verify_pick was not compared: the module calls no kernel of this name" in done.out


def test_what_does_not_fit(command, artifact, models):
    done = command("verify", artifact(), "--against", f"{models}:Two")
    assert done.code == 2
    assert "'main' of the artifact has 2 inputs (x, at), but the module has 1" in done.err
    done = command("verify", f"{artifact()}:decode", "--against", f"{models}:Three")
    assert done.code == 2 and "has no function 'decode'; it has main" in done.err
    done = command("verify", models, "--against", f"{models}:Three")
    assert done.code == 2 and "expected X.aimodel[:FUNCTION]" in done.err
