"""``metalwright compile`` and ``metalwright run`` on files of MSL."""

import numpy as np
import pytest
import torch

SHADER = """
#include <metal_stdlib>
#include "scale.h"
using namespace metal;
constant int bias [[function_constant(0)]];

kernel void scaled(device float* out [[buffer(0)]], const device float* x [[buffer(1)]],
                   constant long& count [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  if (long(i) < count) out[i] = SCALE * x[i] + float(bias);
}

kernel void reversed(device int* out, threadgroup int* shared [[threadgroup(0)]],
                     uint g [[thread_position_in_grid]], uint i [[thread_position_in_threadgroup]],
                     uint n [[threads_per_threadgroup]]) {
  shared[i] = out[g];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[g] = shared[n - 1 - i];
}
"""


@pytest.fixture
def shader(tmp_path):
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "scale.h").write_text("#ifndef SCALE\n#define SCALE 2.0f\n#endif\n")
    path = tmp_path / "two.metal"
    path.write_text(SHADER)
    return path


@pytest.fixture
def options(shader):
    return ["-I", str(shader.parent / "include"), "--constant", "bias=10"]


def test_compile_lists_kernels_and_what_they_take(command, shader):
    done = command("compile", str(shader), "-I", str(shader.parent / "include"))
    assert done.code == 0, done.err
    assert (
        "scaled(out [[buffer(0)]], x [[buffer(1)]], count [[buffer(2)]], i [[thread_position_in_grid]])"
        in done.out
    )
    assert "shared [[threadgroup(0)]]" in done.out
    assert "function constants without a value: bias" in done.out


def test_compile_says_what_is_wrong_and_where(command, shader):
    done = command("compile", str(shader))
    assert done.code == 1 and "scale.h" in done.err and f"{shader}:3:" in done.err
    shader.write_text("kernel void k(device float* o) {\n  o[0] = missing;\n}\n")
    done = command("compile", str(shader))
    assert done.code == 1 and f"{shader}:2:10: error" in done.err and "missing" in done.err
    assert "Traceback" not in done.err
    assert command("compile", str(shader.parent / "none.metal")).code == 2


def test_run_a_kernel_on_files_and_numbers(command, shader, options, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float32))
    done = command(
        "run", f"{shader}:scaled", "--arg", "float[6]=-1", "--arg", str(tmp_path / "x.npy"), "--arg", "5",
        "--all-values", *options,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "[10.0, 12.0, 14.0, 16.0, 18.0, -1.0]" in done.out and "out  float32[6]" in done.out
    assert "x  float32" not in done.out, "it has not changed"
    tripled = command(
        "run", f"{shader}:scaled", "--arg", "float[2]", "--arg", "float[2]=arange", "--arg", "2", "-D", "SCALE=3.0f",
        *options,
    )  # fmt: skip
    assert "out  float32[2]  10, 13" in tripled.out


def test_run_with_threadgroup_memory_and_sizes(command, shader, options):
    call = ("run", f"{shader}:reversed", "--arg", "int[8]=arange", "--threads", "8", *options)
    done = command(*call, "--group", "4", "--threadgroup-memory", "16")
    assert done.code == 0, done.err
    assert "3, 2, 1, 0, 7, 6, 5, 4" in done.out
    done = command(*call, "--group", "four", "--threadgroup-memory", "16")
    assert done.code == 2 and "--group: expected one to three whole numbers" in done.err
    done = command(*call, "--group", "8", "--threadgroup-memory", "16")
    assert done.code == 2 and "'shared' [[threadgroup(0)]], which has 16 bytes" in done.err
    assert f"kernel 'reversed': {shader}:15:13: writes 4 bytes, just past the end" in done.err


def test_run_names_what_there_is(command, shader, options):
    assert "name the kernel to run" in command("run", str(shader), *options).err
    assert "its kernels: scaled, reversed" in command("run", f"{shader}:other", *options).err
    done = command("run", f"{shader}:scaled", "--arg", "float[2]")
    assert done.code == 2 and "scale.h" in done.err
    done = command("run", f"{shader}:scaled", "--shape", "3", *options)
    assert done.code == 2 and "--arg" in done.err
    done = command("run", f"{shader}:scaled", "--arg", "float[2]", *options)
    assert done.code == 2 and "takes 3 arguments" in done.err


def test_options_of_metal_files_are_refused_for_python_files(command, kernels):
    done = command("run", kernels(), "--threads", "4")
    assert done.code == 2 and "are for .metal files" in done.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", 3),
        ("0x10", 16),
        ("2.5", 2.5),
        ("1,2,3", [1, 2, 3]),
        ("half[2]=1.5", torch.full((2,), 1.5, dtype=torch.float16)),
        ("int[2,3]=arange", torch.arange(6, dtype=torch.int32).reshape(2, 3)),
        ("float[]=4", torch.tensor(4.0)),
    ],
)
def test_what_an_argument_stands_for(text, expected):
    from metalwright.cli.shader_args import parse

    value = parse(text)
    assert type(value) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert value.dtype == expected.dtype and torch.equal(value, expected)
    else:
        assert value == expected


def test_random_arguments_are_the_same_for_a_seed():
    from metalwright.cli.shader_args import parse

    first, again, other = (parse(f"float[64]=random:{seed}") for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word", "expected A number"),
        ("foo[2]=1", "unknown type 'foo'"),
        ("int[2]=1.5", "not a whole number"),
        ("float[99999999999]", "99999999999 elements is too large"),
        ("int[99999999999]=arange", "99999999999 elements is too large"),
        ("half[99999999999]=random", "99999999999 elements is too large"),
        ("float[99999999999999999999]", "99999999999999999999 elements is too large"),
        ("int8[2]=300", "300 is not a int8"),
        ("missing.npy", "there is no file missing.npy"),
    ],
)
def test_what_is_no_argument(text, message):
    from metalwright.cli.shader_args import parse
    from metalwright.errors import ArgumentError

    with pytest.raises(ArgumentError, match=message):
        parse(text)


def test_functions_that_call_themselves_need_leave(command, tmp_path):
    path = tmp_path / "sum.metal"
    path.write_text(
        "int sum(int n) {\n  return n < 1 ? 0 : n + sum(n - 1);\n}\nkernel void k(device int* x) { x[0] = sum(x[0]); }\n"
    )
    done = command("compile", str(path))
    assert done.code == 1 and f"{path}:2:26: error" in done.err and "--recursion N" in done.err
    assert command("compile", str(path), "--recursion", "5").code == 0
    values = tmp_path / "values.npy"
    np.save(values, np.array([4], np.int32))
    done = command("run", str(path), "--recursion", "5", "--arg", str(values))
    assert done.code == 0 and "10" in done.out, done.err
    done = command("run", str(path), "--recursion", "4", "--arg", str(values), "--threads", "1")
    assert done.code != 0 and "function 'sum' calls itself more than 4 deep" in done.err
