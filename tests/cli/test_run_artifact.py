"""``metalwright run X.aimodel``: inputs, outputs, and what is seen on the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from metalwright import MetalKernel, MetalParameter, export
from metalwright.cli import dump

GID = MetalParameter("gid", "uint", "thread_position_in_grid")


def _double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def kernel(name: str, src: str) -> MetalKernel:
    return MetalKernel(
        name, input_names=["x"], result_names=["out"], src=src, torch_defn=_double, metal_params=[GID]
    )


double = kernel("cli_double", "out[gid] = x[gid] * 2;")
racy = kernel("cli_racy", "out[0] = x[gid]; if (gid > 0) out[gid] = x[gid];")
partial = kernel("cli_partial", "if (gid != 2) out[gid] = x[gid];")
outside = kernel("cli_outside", "out[gid + 1] = x[gid];")
logs = kernel("cli_logs", 'out[gid] = x[gid]; if (gid == 1) os_log_default.log_error("at %u", gid);')


class Uses(torch.nn.Module):
    """Adds what a kernel makes of ``x`` to ``y``."""

    def __init__(self, used: MetalKernel) -> None:
        super().__init__()
        self.used = used

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        count = x.shape[0]
        made = self.used(
            x, threads_per_grid=(count, 1, 1), threads_per_thread_group=(4, 1, 1), result_shapes=[[count]]
        )
        return made + y


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(
            double(x, threads_per_grid=(3, 1, 1), threads_per_thread_group=(3, 1, 1), result_shapes=[[3]])
        )
        return self.total * 10


@pytest.fixture
def artifact(tmp_path: Path):
    def write(used: MetalKernel = double, dynamic: bool = False) -> Path:
        size = {0: torch.export.Dim("n", min=2, max=64)}
        return export(
            Uses(used), (torch.ones(4), torch.ones(4)), tmp_path / "uses.aimodel",
            dynamic_shapes={"x": size, "y": size} if dynamic else None, output_names=["z"],
        )  # fmt: skip

    return write


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    return export(
        Counter(), torch.ones(3), tmp_path / "counter.aimodel", output_names=["y"], state_names=["total"]
    )


def test_files_of_every_kind(command, artifact, tmp_path):
    path = artifact(dynamic=True)
    np.save(tmp_path / "x.npy", np.array([1, 2, 3], np.float32))
    torch.save(torch.full((3,), 0.5), tmp_path / "y.pt")
    save_file({"y": torch.ones(3), "x": torch.tensor([5.0, 6, 7])}, tmp_path / "both.safetensors")
    done = command(
        "run",
        path,
        "--input",
        f"x={tmp_path}/x.npy",
        "--input",
        f"y={tmp_path}/y.pt",
        "--output",
        f"z={tmp_path}/z.npy",
    )
    assert done.code == 0, done.err
    assert "z  float32[3]  2.5, 4.5, 6.5" in done.out and "random" not in done.out
    assert np.load(tmp_path / "z.npy").tolist() == [2.5, 4.5, 6.5]
    both = tmp_path / "both.safetensors"
    for name in ("z.pt", "z.safetensors"):
        done = command(
            "run",
            f"{path}:main",
            "--input",
            f"x={both}",
            "--input",
            f"y={both}",
            "--output",
            f"z={tmp_path / name}",
        )
        assert done.code == 0, done.err
    assert torch.load(tmp_path / "z.pt").tolist() == [11, 13, 15]
    assert load_file(tmp_path / "z.safetensors")["z"].tolist() == [11, 13, 15]


def test_inputs_that_are_not_given_are_random(command, artifact, tmp_path):
    path = artifact()
    first, again, other = (
        command("run", path, *more).out for more in ([], ["--input", "x=random"], ["--input", "x=random:3"])
    )
    assert "input x: random, seed 0" in first and "input y: random, seed 0" in first
    assert "input x: random, seed 3" in other
    values = [
        next(line for line in out.splitlines() if "z  float32[4]" in line) for out in (first, again, other)
    ]
    assert values[0] == values[1] != values[2]


def test_the_size_of_random_inputs(command, artifact):
    path = artifact(dynamic=True)
    done = command("run", path)
    assert done.code == 2 and "input 'x' of function 'main' has shape [?]" in done.err
    assert "--shape x=" in done.err and "--input x=FILE" in done.err
    assert "z  float32[7]" in command("run", path, "--shape", "7").out
    done = command("run", path, "--shape", "x=3", "--shape", "y=3")
    assert done.code == 0 and "z  float32[3]" in done.out
    assert command("run", artifact(), "--shape", "4").code == 0, "what is so anyway"


def test_states_begin_as_zeros_and_can_be_given_and_written(command, counter, tmp_path):
    np.save(tmp_path / "x.npy", np.array([1, 2, 3], np.float32))
    np.save(tmp_path / "total.npy", np.array([100, 0, 0], np.float32))
    x = ("--input", f"x={tmp_path}/x.npy")
    assert "y  float32[3]  20, 40, 60" in command("run", counter, *x).out
    done = command(
        "run",
        counter,
        *x,
        "--input",
        f"total={tmp_path}/total.npy",
        "--output",
        f"total={tmp_path}/after.npy",
    )
    assert done.code == 0, done.err
    assert "y  float32[3]  1020, 40, 60" in done.out
    assert np.load(tmp_path / "after.npy").tolist() == [102, 4, 6]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input", "w=random:0"], "--input w: function 'main' has no such input; it has x, y"),
        (["--input", "x=ones"], "--input x=ones: expected a .npy, .pt or .safetensors file, or random[:SEED]"),
        (["--input", "x"], "--input x: expected NAME=VALUE"),
        (["--input", "x=random:0", "--input", "x=random:1"], "x is given twice"),
        (["--input", "x=none.npy"], "--input x=none.npy: there is no file none.npy"),
        (["--input", "x=long.npy"], "input 'x': expected shape [4], got [5]"),
        (["--input", "x=wide.npy"], "input 'x': expected dtype float32, got float64"),
        (["--shape", "x=5"], "--shape: input 'x' has shape [4], got [5]"),
        (["--shape", "w=5"], "--shape w: function 'main' has no such input; it has x, y"),
        (["--shape", "5"], "--shape: no random input has a size to choose: x has shape [4]; y has shape [4]"),
        (["--shape", "x=4", "--input", "x=long.npy"], "--shape x: it is not drawn: --input says what it is"),
        (["--output", "w=w.npy"], "--output w: function 'main' has no such output; it has z"),
        (["--output", "z=z.txt"], "expected a file that ends in .npy, .pt, .safetensors"),
        (["--output", "z=none/z.npy"], "there is no folder none"),
        (["--checked", "--unchecked"], "exclude each other"),
        (["--dtype", "half"], "an artifact takes no"),
        (["--dump", "full"], "--dump full: the folder is not empty"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense(command, artifact, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    np.save("long.npy", np.ones(5, np.float32))
    np.save("wide.npy", np.ones(4))
    Path("full").mkdir()
    Path("full", "file").touch()
    done = command("run", artifact(), *options)
    assert done.code == 2 and message in done.err and "Traceback" not in done.err


def test_what_is_not_there(command, artifact, kernels, tmp_path):
    done = command("run", f"{artifact()}:decode")
    assert done.code == 2 and "has no function 'decode'; it has main" in done.err
    done = command("run", tmp_path / "none.aimodel")
    assert done.code == 2 and "none.aimodel: does not exist" in done.err
    done = command("run", kernels(), "--trace")
    assert done.code == 2 and "for .aimodel artifacts" in done.err


def test_checked_finds_nothing_in_a_right_kernel(command, artifact):
    done = command("run", artifact(), "--checked")
    assert done.code == 0 and "checked: 1 launch, no race" in done.out


def test_checked_finds_a_race(command, artifact):
    done = command("run", artifact(racy), "--checked")
    assert done.code == 1
    assert "launch 1, kernel cli_racy: result out: 1 of 4 elements came out differently" in done.out
    assert "the first at [0]" in done.out
    assert command("run", artifact(racy)).code == 0, "only when it is asked for"


def test_checked_finds_what_is_not_written(command, artifact):
    done = command("run", artifact(partial), "--checked")
    assert done.code == 1
    assert "kernel cli_partial: result out: no thread wrote 1 of 4 elements, the first at [2]" in done.out


def test_a_fault(command, artifact):
    path = artifact(outside)
    for options, code in (((), 2), (("--checked",), 1)):
        done = command("run", path, *options)
        assert done.code == code and "kernel 'cli_outside" in done.err and "out[gid + 1]" in done.err
        assert "no race" not in done.out


def test_a_kernel_that_is_run_twice_logs_once(command, artifact):
    done = command("run", artifact(logs), "--checked")
    assert done.code == 0
    assert sum("at 1" in line for line in done.out.splitlines()) == 1


def test_trace(command, artifact):
    done = command("run", artifact(dynamic=True), "--shape", "6", "--trace")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    row = next(line for line in lines if "kernel cli_double" in line)
    assert "float32[6]" in row and "6x1x1" in row and "4x1x1" in row and "KiB" in row
    assert "add" in lines[-1] and lines.index(row) < len(lines) - 1


def test_dump(command, artifact, tmp_path):
    folder = tmp_path / "dumped"
    done = command("run", artifact(), "--dump", folder)
    assert done.code == 0 and "1 launch" in done.out
    names = sorted(file.name for file in folder.iterdir())
    assert names == ["0001-cli_double-in0-x.npy", "0001-cli_double-out0-out.npy"]
    x, out = (np.load(folder / name) for name in names)
    assert (x * 2 == out).all()


@pytest.mark.parametrize("name", ["../../up", "/etc/passwd", "..", "", "a\0b", "x" * 500, "ä/b\\c"])
def test_a_name_cannot_leave_the_folder(name):
    made = dump.safe(name)
    assert made and made.replace("_", "a").isalnum() and made.isascii() and len(made) < 60
