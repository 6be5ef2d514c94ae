"""Every command, on real kernels: what it prints and its exit code."""

import json
import os
import subprocess
import sys

import pytest

from metalwright import __version__

WRONG = """
wrong = make("wrong", "out[gid] = x[gid] * 3;")
wrong.cases = cases
"""
WITHOUT_CASES = """
bare = make("bare", "out[gid] = x[gid] * 2;")
"""


def test_help_and_version_import_nothing_heavy():
    code = (
        "import sys; from metalwright.cli import main; code = main([sys.argv[1]]); "
        "heavy = {'torch', 'coreai', 'coreai_torch', 'llvmlite', 'numpy'} & set(sys.modules); "
        "assert not heavy, heavy; sys.exit(code)"
    )
    for option in ("--help", "--version"):
        done = subprocess.run(
            [sys.executable, "-c", code, option], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert ("doctor" if option == "--help" else __version__) in done.stdout


def test_an_unknown_command_is_a_usage_error(command):
    assert command("frobnicate").code == 2


# check ----------------------------------------------------------------------------------------------------------------


def test_check_a_right_kernel(command, kernels):
    done = command("check", kernels())
    assert done.code == 0
    assert "good: ok, 6 cases" in done.out and "size 20 (non-finite)" in done.out
    assert "\x1b" not in done.out, "no colour when not on a terminal"


def test_check_a_wrong_kernel_among_right_ones(command, kernels):
    done = command("check", kernels(WRONG))
    assert done.code == 1
    assert "good: ok" in done.out and "wrong: wrong in 6 of 6 cases" in done.out
    assert "differ from the reference" in done.out


def test_check_at_edges(command, kernels):
    path = kernels(WRONG)
    done = command("check", f"{path}:good", "--edges")
    assert done.code == 0 and "axis0=37" in done.out, done.out
    done = command("check", f"{path}:wrong", "--edges")
    assert done.code == 1 and "smallest  axis0=" in done.out and "runpy.run_path(" in done.out, done.out


def test_check_one_kernel_of_a_file(command, kernels):
    path = kernels(WRONG)
    assert command("check", f"{path}:good").code == 0
    done = command("check", f"{path}:wrong")
    assert done.code == 1 and "good" not in done.out.replace(str(path), "")


def test_check_as_json(command, kernels):
    done = command("check", kernels(WRONG), "--json", "--seed", "7")
    assert done.code == 1
    plain = json.loads(done.out)
    assert plain["ok"] is False and plain["errors"] == []
    assert [(report["kernel"], report["ok"], report["seed"]) for report in plain["kernels"]] == [
        ("good", True, 7),
        ("wrong", False, 7),
    ]


def test_check_writes_a_page(command, kernels, tmp_path):
    page = tmp_path / "report.html"
    done = command("check", kernels(WRONG + WITHOUT_CASES), "--html", page)
    assert done.code == 1 and "wrong: wrong in 6 of 6 cases" in done.out
    text = page.read_text(encoding="utf-8")
    assert "Wrong: 1 of 2 kernels" in text and "not checked" in text and "has no cases" in text
    assert "runpy.run_path" in text and "kernels.py" in text


def test_check_says_where_it_cannot_write_a_page(command, kernels, tmp_path):
    done = command("check", kernels(), "--html", tmp_path / "nowhere" / "report.html")
    assert done.code == 2 and "cannot write" in done.err and "Traceback" not in done.err


def test_check_annotates_for_github(command, kernels, monkeypatch, tmp_path):
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    path = kernels(WRONG + WITHOUT_CASES)
    lines = path.read_text().splitlines()
    done = command("check", path, "--github")
    commands = [line for line in done.out.splitlines() if line.startswith("::")]
    definition = lines.index('wrong = make("wrong", "out[gid] = x[gid] * 3;")') + 1
    assert commands[0].startswith(f"::error file=kernels.py,line={definition},title=wrong%3A value::out: ")
    assert "title=bare%3A not checked::kernel 'bare' has no cases" in commands[1] and len(commands) == 2
    assert "::error" not in command("check", path).out

    done = command("check", path, "--github", "--json")
    assert json.loads(done.out)["ok"] is False and done.err.count("::error ") == 2


def test_check_with_shapes_and_dtypes(command, kernels):
    path = kernels(WITHOUT_CASES)
    done = command(
        "check", f"{path}:bare", "--shape", "5", "--shape", "300", "--dtype", "float", "--dtype", "half"
    )
    assert done.code == 0, done.err + done.out
    for name in ("float32[5]", "float32[300]", "float16[5]", "float16[300]"):
        assert f"{name} (normal)" in done.out


def test_check_a_kernel_without_cases_goes_on_with_the_others(command, kernels):
    done = command("check", kernels(WITHOUT_CASES))
    assert done.code == 2
    assert "error: kernel 'bare' has no cases" in done.err and "--shape" in done.err
    assert "good: ok" in done.out
    assert json.loads(command("check", kernels(WITHOUT_CASES), "--json").out)["errors"][0]["kernel"] == "bare"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--shape", "3,x"),
            "--shape: expected positive extents separated by commas, such as 64,48, got '3,x'",
        ),
        (("--shape", "0"), "got '0'"),
        (("--shape", "3", "--dtype", "quad"), "--dtype: unknown type 'quad'; known: float"),
        (("--dtype", "half"), "--dtype needs --shape"),
        (("--math", "loose"), "expected 'safe' or 'fast', got 'loose'"),
    ],
)
def test_check_with_options_that_make_no_sense(command, kernels, options, message):
    done = command("check", kernels(), *options)
    assert done.code == 2 and message in done.err and "Traceback" not in done.err


def test_a_user_whose_cases_raise_sees_only_that_traceback(command, kernels):
    more = """
def broken():
    raise KeyError("no such size")
good.cases = broken
"""
    done = command("check", kernels(more))
    assert done.code == 2
    assert "kernels.py raised KeyError" in done.err and "in broken" in done.err and "no such size" in done.err
    assert "checking.py" not in done.err


# run, source ----------------------------------------------------------------------------------------------------------


def test_run_shows_results_of_one_case(command, kernels):
    done = command("run", kernels(), "--case", "size 3")
    assert done.code == 0
    assert "good, size 3: grid (3, 1, 1), threadgroup (8, 1, 1)" in done.out
    assert "out  float32[3]" in done.out and "size 20" not in done.out
    assert command("run", kernels(), "--case", "2").out.startswith("good, size 20")


def test_run_a_module_executes_its_kernels(command, kernels):
    done = command("run", f"{kernels()}:module")
    assert done.code == 0 and "result 0  float32[3]  3, 5, 7" in done.out


def test_run_executes_kernels_written_for_a_mac(command, kernels):
    more = """
from coreai_torch import TorchMetalKernel
plain = TorchMetalKernel("plain", input_names=["x"], result_names=["out"], src="out[gid] = x[gid] * 5;",
                         torch_defn=double, metal_params=good.metal_parameters)
class Mac(torch.nn.Module):
    example_args = (torch.ones(2),)
    def forward(self, x):
        return plain(x, **sizes(x))
"""
    done = command("run", f"{kernels(more)}:Mac")
    assert done.code == 0 and "5, 5" in done.out, "the MSL ran, not the reference"


def test_run_shows_what_a_kernel_logs(command, kernels):
    more = """
logs = make("logs", 'out[gid] = x[gid] * 2; if (gid == 2) os_log_default.log_error("at %u", gid);')
logs.cases = cases
class Logs(torch.nn.Module):
    example_args = (torch.ones(4),)
    def forward(self, x):
        return logs(x, **sizes(x))
"""
    path = kernels(more)
    for target in (f"{path}:logs", f"{path}:Logs"):
        done = command("run", target, *(("--case", "1") if target.endswith("logs") else ()))
        assert done.code == 0, done.err
        assert done.out.splitlines().count("  error: logs, thread (2, 0, 0): at 2") == 1
        assert done.err == "", "not by the user's handlers, too"


def test_run_with_all_values_and_an_unknown_case(command, kernels):
    done = command("run", kernels(), "--case", "2", "--all-values", "--unchecked")
    assert done.code == 0 and done.out.count(",") > 20
    done = command("run", kernels(), "--case", "9")
    assert done.code == 2 and "has no case '9'; it has size 3, size 20" in done.err


def test_source_is_the_whole_msl(command, kernels):
    done = command("source", f"{kernels()}:good")
    assert done.code == 0
    assert done.out.startswith("#include <metal_stdlib>") and "[[kernel]] void good_" in done.out
    assert "tensor<device float, metal::dextents<int, 1>" in done.out
    half = command("source", f"{kernels()}:good", "--dtype", "half", "--shape", "2,2").out
    assert "tensor<device half, metal::dextents<int, 2>" in half


# export, inspect ------------------------------------------------------------------------------------------------------


def test_export_and_inspect(command, kernels, tmp_path):
    artifact = tmp_path / "model.aimodel"
    done = command("export", f"{kernels()}:module", artifact)
    assert done.code == 0, done.err
    assert f"wrote {artifact}" in done.out and "dynamic shapes" in done.out
    shown = command("inspect", artifact)
    assert shown.code == 0
    assert "function main(x: f32[?])" in shown.out and "kernel good_" in shown.out
    assert "thread_position_in_grid" in shown.out and "computed" in shown.out
    assert "out[gid] = x[gid] * 2;" in command("inspect", artifact, "--source").out
    plain = json.loads(command("inspect", artifact, "--json").out)
    assert "out[gid] = x[gid] * 2;" in plain["kernels"][0]["source"]


def test_export_static_and_from_a_shape(command, kernels, tmp_path):
    artifact = tmp_path / "model.aimodel"
    assert "static shapes" in command("export", f"{kernels()}:Model", artifact, "--static").out
    assert "f32[3]" in command("inspect", artifact).out
    assert command("export", f"{kernels()}:module", artifact, "--static", "--shape", "17").code == 0
    shown = command("inspect", artifact).out
    assert "f32[17]" in shown and "threads per grid         17 x 1 x 1" in shown


def test_export_to_a_wrong_name_is_refused(command, kernels, tmp_path):
    done = command("export", f"{kernels()}:module", tmp_path / "model.bin")
    assert done.code == 2 and ".aimodel" in done.err


def test_inspect_what_is_not_there(command, tmp_path):
    done = command("inspect", tmp_path / "none.aimodel")
    assert done.code == 2 and "none.aimodel" in done.err and "Traceback" not in done.err


# doctor, cache, demo --------------------------------------------------------------------------------------------------


def test_doctor_finds_everything_that_these_tests_need(command):
    done = command("doctor")
    assert done.code == 0, done.out
    for part in ("Python", "processor", "compiler", "LLVM", "torch", "Core AI", "cache", "a kernel"):
        assert part in done.out
    plain = json.loads(command("doctor", "--json").out)
    assert plain["ok"] and all(part["ok"] for part in plain["parts"])


def test_doctor_says_what_is_missing(command, monkeypatch):
    from metalwright import toolchain
    from metalwright.toolchain import Toolchain

    found = toolchain.find()
    monkeypatch.setattr(toolchain, "find", lambda: Toolchain(found.clang, "19.1.0", "22.1.0"))
    done = command("doctor")
    assert done.code == 1
    line = next(line for line in done.out.splitlines() if line.startswith("LLVM"))
    assert "not ok" in line and "LLVM 22.1.0 beside clang 19.1.0" in line and "pip install" in line


def test_the_cache_is_shown_and_cleared(command, kernels, tmp_path, monkeypatch):
    monkeypatch.setenv("METALWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    command("export", f"{kernels()}:module", tmp_path / "model.aimodel", "--static")
    assert command("run", tmp_path / "model.aimodel").code == 0
    assert command("run", kernels(), "--case", "1").code == 0
    shown = command("cache")
    assert shown.code == 0 and str(tmp_path / "cache") in shown.out
    plain = json.loads(command("cache", "--json").out)
    entries = plain["entries"]
    assert entries > 0 and plain["artifacts"]["entries"] == 1 and plain["artifacts"]["bytes"] > 0
    assert plain["artifacts"]["path"] in shown.out
    done = command("cache", "clear")
    assert done.code == 0 and f"removed {entries} entr" in done.out
    assert "removed 1 entry (artifacts)" in done.out
    plain = json.loads(command("cache", "--json").out)
    assert plain["entries"] == plain["artifacts"]["entries"] == 0


def test_the_demo_ends_with_its_table(command, tmp_path):
    done = command("demo", "--output", tmp_path / "kept.aimodel")
    assert done.code == 0, done.out + done.err
    last = done.out.splitlines()[-5:]
    assert [line.split()[:2] for line in last] == [
        ["demo_scale_add", "ok"],
        ["demo_transpose", "ok"],
        ["demo_matmul", "ok"],
        ["demo_rmsnorm", "ok"],
        ["kept.aimodel", "ok"],
    ]
    assert (tmp_path / "kept.aimodel").is_dir()


def test_long_lines_are_not_wrapped_off_a_terminal(kernels):
    environment = {**os.environ, "COLUMNS": "40"}
    done = subprocess.run(
        [sys.executable, "-m", "metalwright", "check", str(kernels())],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert any("size 20 (normal)" in line and "out float32[20]" in line for line in done.stdout.splitlines())
    assert "\x1b" not in done.stdout and done.stderr == ""
