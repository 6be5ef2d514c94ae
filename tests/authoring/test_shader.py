"""``compile_shader``: whole files, called as ``torch.mps.compile_shader`` has them called."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import metalwright
from metalwright import (
    ArgumentError,
    CompileError,
    DispatchError,
    MemoryFault,
    RefusedSourceError,
    compile_shader,
)

FULL = """
kernel void full(device float* out, constant float& value, uint i [[thread_position_in_grid]]) { out[i] = value; }
"""


def test_a_scalar_and_a_tensor() -> None:
    """The example in PyTorch's own documentation."""
    x = torch.zeros(16)
    compile_shader(FULL).full(x, 3.14)
    assert torch.equal(x, torch.full((16,), 3.14))


def test_a_file_of_templates_structs_and_tables(tmp_path: Path) -> None:
    (tmp_path / "scale.h").write_text(
        "#pragma once\n#ifndef SCALE_H\n#define SCALE_H\n"
        "template <typename T> inline T scaled(T x) { return x * T(SCALE); }\n#endif\n"
    )
    file = tmp_path / "kernels.metal"
    file.write_text(
        """#include <metal_stdlib>
#include "scale.h"
using namespace metal;
struct Params { int n; float bias; };
constant float table[4] = {0.5, 1.5, 2.5, 3.5};
template <typename T>
[[host_name("unused")]] kernel void add(device const T* x [[buffer(0)]], device T* out [[buffer(1)]],
                constant Params& p [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  if (int(i) < p.n) out[i] = scaled(x[i]) + T(p.bias) + T(table[i & 3]);
}
#define MAKE(name, type) template [[host_name(#name)]] kernel void add<type>( \\
    device const type*, device type*, constant Params&, uint);
MAKE(add_float, float)
MAKE(add_half, half)
"""
    )
    library = compile_shader(file, defines={"SCALE": 3})
    assert {"add_float", "add_half"} <= set(dir(library))
    params = torch.tensor(
        np.frombuffer(np.array([5], np.int32).tobytes() + np.array([0.25], np.float32).tobytes(), np.uint8)
    )
    for dtype, kernel in ((torch.float32, library.add_float), (torch.float16, library["add_half"])):
        x, out = torch.arange(8, dtype=dtype), torch.full((8,), -1, dtype=dtype)
        kernel(x, out, params)
        table = torch.tensor([0.5, 1.5, 2.5, 3.5] * 2, dtype=dtype)
        expected = torch.where(torch.arange(8) < 5, 3 * x + 0.25 + table, torch.tensor(-1, dtype=dtype))
        assert torch.equal(out, expected)


CONSTANTS = """
using namespace metal;
constant int count [[function_constant(0)]];
constant bool negate [[function_constant(1)]];
constant float2 pair [[function_constant(2)]];
constant bool negates = is_function_constant_defined(negate) ? negate : false;
kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  float sum = 0;
  for (int j = 0; j < count; ++j) sum += pair.x + pair.y;
  out[i] = negates ? -sum : sum;
}
"""


@pytest.mark.parametrize(
    ("constants", "expected"),
    [
        ({"count": 3, "negate": True, "pair": [1, 0.5]}, -4.5),
        ({0: 2, 1: False, 2: (0.25, 0.25)}, 1.0),
        ({"count": -1, 2: [1, 1]}, 0.0),
    ],
)
def test_function_constants(constants: dict, expected: float) -> None:
    out = torch.zeros(2)
    compile_shader(CONSTANTS, constants=constants).k(out)
    assert out.tolist() == [expected, expected]


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        (
            {"count": 1.5, "pair": [1, 1]},
            "function constant 'count': expected a whole number for int, got 1.5",
        ),
        ({"count": 1 << 31, "pair": [1, 1]}, "from -2147483648 to 2147483647 for int, got 2147483648"),
        ({"count": 1, "pair": [1]}, r"function constant 'pair': expected 2 values for float2, got \[1\]"),
        ({"count": 1, "negate": 2, "pair": [1, 1]}, "expected True or False for bool, got 2"),
    ],
)
def test_a_constant_of_the_wrong_type(constants: dict, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile_shader(CONSTANTS, constants=constants)


CONDITIONAL = """
using namespace metal;
namespace options {
constant bool scaled [[function_constant(0)]];
}
constant bool biased [[function_constant(1)]];
kernel void k(device float* out [[buffer(0)]],
              constant float& scale [[buffer(1), function_constant(options::scaled)]],
              device const int* table [[function_constant(biased), buffer(1)]],
              device const float* bias [[buffer(2), function_constant(biased)]],
              constant float& factor [[buffer(3), function_constant(biased)]],
              uint i [[thread_position_in_grid]]) {
  float by = factor;
  if (options::scaled) out[i] *= scale;
  if (biased) out[i] += by * bias[table[i]];
  if (out[i] > 100) out[i] = bias[i];
}
"""


def test_a_buffer_with_a_function_constant_is_there_where_that_is_true() -> None:
    out = torch.arange(4.0)
    plain = compile_shader(CONDITIONAL, constants={0: False, 1: False}).k
    plain(out)
    assert out.tolist() == [0, 1, 2, 3]
    assert repr(plain) == "<ShaderKernel k(out [[buffer(0)]], i [[thread_position_in_grid]])>"
    compile_shader(CONDITIONAL, constants={0: True, 1: False}).k(out, 2.0)
    assert out.tolist() == [0, 2, 4, 6]
    table = torch.tensor([3, 2, 1, 0], dtype=torch.int32)
    compile_shader(CONDITIONAL, constants={0: False, 1: True}).k(out, table, torch.arange(4.0), -1.0)
    assert out.tolist() == [-3, 0, 3, 6]


ABSENT_STRUCT = """
using namespace metal;
constant bool scaled [[function_constant(0)]];
struct scaling { float by; int2 from; };
struct scaler {
  const float by;
  const int from;
  scaler(constant scaling* s) : by(s->by), from(s->from.y) {}
};
kernel void k(device float* out [[buffer(0)]],
              constant scaling* params [[buffer(1), function_constant(scaled)]],
              device const scaling* table [[buffer(2), function_constant(scaled)]],
              uint i [[thread_position_in_grid]]) {
  const scaler s(params);
  if (scaled) out[i] = out[i + s.from] * s.by;
  if (out[i] == 50) out[i] = params[0].by + params[0].from.x;
  if (out[i] == 100) out[i] = params[1].by;
  if (out[i] == 200) out[i] = table[0].by;
}
"""


def test_a_struct_of_constants_that_is_not_there_may_be_copied() -> None:
    """As MLX's products of matrices copy two numbers of one before they ask whether there is one."""
    kernel = compile_shader(ABSENT_STRUCT, constants={0: False}).k
    out = torch.tensor([1.0, 50.0])
    kernel(out)
    assert out.tolist() == [1, 0]
    with pytest.raises(MemoryFault, match="reads"):
        kernel(torch.tensor([100.0]))
    with pytest.raises(MemoryFault, match="reads .* of 'table', which has 0"):
        kernel(torch.tensor([200.0]))
    out = torch.tensor([1.0, 2.0, 3.0])
    # four times, from the next
    params = torch.tensor([4.0, 0, 0, 0]).view(torch.int32)
    params[3] = 1
    compile_shader(ABSENT_STRUCT, constants={0: True}).k(out, params, params, threads=2)
    assert out.tolist() == [8, 12, 3]


def test_arguments_of_buffers_that_are_not_there() -> None:
    library = compile_shader(CONDITIONAL, constants={0: False, 1: False})
    # like an index that no parameter has, they take anything
    library.k(torch.zeros(4), None, None)
    with pytest.raises(ArgumentError, match=r"'k' takes 1 arguments \(out \[\[buffer\(0\)\]\]\), got 5"):
        library.k(torch.zeros(4), None, None, None, None)
    with pytest.raises(MemoryFault, match="reads element 0 of 'bias', which has 0"):
        library.k(torch.full((4,), 200.0), threads=1)
    with pytest.raises(ArgumentError, match="takes 2 arguments"):
        compile_shader(CONDITIONAL, constants={0: True, 1: False}).k(torch.zeros(4))


def test_two_buffers_of_one_index_must_not_both_be_there() -> None:
    with pytest.raises(CompileError, match=r"buffer\(1\).* is both 'scale' and 'table' with these constants"):
        _ = compile_shader(CONDITIONAL, constants={0: True, 1: True}).signatures


def test_a_constant_without_a_value_is_named_when_a_kernel_is_asked_for() -> None:
    library = compile_shader(CONSTANTS, constants={"count": 1})
    assert library.unset_constants == ("pair",)
    with pytest.raises(ArgumentError, match="function constants without a value: pair"):
        _ = library.k


def test_threadgroup_arguments_get_their_size_at_the_call() -> None:
    library = compile_shader("""
using namespace metal;
kernel void reversed(device const int* x, device int* out, threadgroup int* shared [[threadgroup(0)]],
                     uint i [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  shared[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = shared[n - 1 - i];
}""")
    x = torch.arange(64, dtype=torch.int32)
    out = torch.zeros_like(x)
    library.reversed(x, out, threads=64, group_size=64, threadgroup_memory=[256])
    assert torch.equal(out, x.flip(0))
    with pytest.raises(ArgumentError, match=r"'shared' \[\[threadgroup\(0\)\]\] has no size"):
        library.reversed(x, out, threads=64, group_size=64)


def test_a_view_is_bound_at_its_offset_and_strides_mean_nothing() -> None:
    base = torch.arange(20, dtype=torch.float32)
    out = torch.zeros(4)
    copy = compile_shader(
        "kernel void copy(device const float* x, device float* out, uint i [[thread_position_in_grid]]) "
        "{ out[i] = x[i]; }"
    )
    copy.copy(base[6:], out, threads=4)
    assert out.tolist() == [6, 7, 8, 9]
    copy.copy(base.view(4, 5).t()[1:], out, threads=4)
    assert out.tolist() == [1, 2, 3, 4]
    with pytest.raises(MemoryFault, match="'x'"):
        copy.copy(base[18:], out, threads=4)


def test_indices_with_gaps_and_out_of_order() -> None:
    library = compile_shader(
        "kernel void k(device float* out [[buffer(3)]], constant float& s [[buffer(1)]], "
        "uint i [[thread_position_in_grid]]) { out[i] = s; }"
    )
    out = torch.zeros(4)
    library.k(None, 2.5, None, out)
    assert out.tolist() == [2.5] * 4
    with pytest.raises(
        ArgumentError, match=r"takes 4 arguments \(s \[\[buffer\(1\)\]\], out \[\[buffer\(3\)\]\]\), got 2"
    ):
        library.k(2.5, out)


def test_numbers_are_bound_as_pytorch_binds_them() -> None:
    library = compile_shader("""
kernel void k(device float* out, constant float& f, constant long& l, constant uint& u, constant bool& b,
              constant long* list, constant float3& v, constant short& s, constant half& h) {
  out[0] = f; out[1] = l; out[2] = u; out[3] = b; out[4] = list[0] + list[1]; out[5] = v.x + v.y + v.z; out[6] = s;
  out[7] = h;
}""")
    out = torch.zeros(8)
    library.k(
        out, 1.5, -(1 << 40), 7, True, [3, 4], [0.5, 0.25, 2.0, 0.0], -5, 0.125,
        threads=1, arg_casts={7: "int16", 8: "fp16"},
    )  # fmt: skip
    assert out.tolist() == [1.5, -float(1 << 40), 7, 1, 7, 2.75, -5, 0.125]


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        (
            "constant half& v",
            1.5,
            r"'v' is constant half&, and 1.5 is bound as float: use arg_casts=\{1: 'fp16'\}",
        ),
        ("constant float& v", 3, "'v' is constant float&, and 3 is bound as int64_t"),
        (
            "constant int* v",
            [1, 2],
            r"'v' is constant int\*, and \[1, 2\] is bound as int64_t: use arg_casts=\{1: 'int32'\}",
        ),
        ("device const float* v", torch.zeros(4, dtype=torch.float16), "elements are torch.float16"),
        ("device const int* v", torch.zeros(4, dtype=torch.int64), "elements are torch.int64"),
        ("device const float* v", torch.zeros(4, dtype=torch.float64), "Metal has no type for torch.float64"),
        ("device const float* v", 2.0, "expected a tensor, got 2.0"),
        ("constant float& v", [], "an empty list is no argument"),
        ("constant float& v", "2", "expected a tensor, a number or a list of numbers, got str"),
        ("constant float4& v", [1.0, 2.0], r"is constant float4& of 16 bytes, and \[1.0, 2.0\] has 8"),
        ("constant char& v", 1 << 70, "does not fit in 64 bits"),
    ],
)
def test_what_a_gpu_would_misread_is_an_error(parameter: str, value: object, message: str) -> None:
    library = compile_shader(f"kernel void k(device float* out, {parameter}) {{ out[0] = 1; }}")
    with pytest.raises(ArgumentError, match=message):
        library.k(torch.zeros(1), value)


def test_a_cast_that_does_not_fit_or_exist() -> None:
    library = compile_shader("kernel void k(device float* out, constant char& v) { out[0] = v; }")
    with pytest.raises(ArgumentError, match="300 does not fit in int8"):
        library.k(torch.zeros(1), 300, arg_casts="int8")
    with pytest.raises(
        ArgumentError, match="expected one of fp16, bf16, int32, int16, int8, uint8, got 'fp64'"
    ):
        library.k(torch.zeros(1), 3, arg_casts="fp64")


def test_complex_and_packed_views() -> None:
    library = compile_shader("""
kernel void conj(device const float2* x, device float2* out, device const uint* words, device uint* sums,
                 uint i [[thread_position_in_grid]]) { out[i] = float2(x[i].x, -x[i].y); sums[i] = words[i] + 1; }""")
    x = torch.complex(torch.arange(4.0), torch.ones(4))
    out = torch.zeros_like(x)
    words = torch.arange(16, dtype=torch.uint8)
    sums = torch.zeros(4, dtype=torch.int32)
    library.conj(x, out, words, sums)
    assert torch.equal(out, x.conj().resolve_conj())
    assert torch.equal(sums, words.view(torch.int32) + 1)


def test_launch_sizes() -> None:
    library = compile_shader("""
kernel void k(device int* out, uint3 g [[threadgroup_position_in_grid]], uint3 n [[dispatch_threads_per_threadgroup]],
              uint3 i [[thread_position_in_grid]], uint3 all [[threads_per_grid]]) {
  out[(i.z * all.y + i.y) * all.x + i.x] = g.x + 100 * g.y + 1000 * n.x;
}
[[max_total_threads_per_threadgroup(64)]]
kernel void small(device int* out, uint n [[dispatch_threads_per_threadgroup]], uint i [[thread_position_in_grid]]) { out[i] = n; }
""")
    out = torch.zeros(3, 5, dtype=torch.int32)
    library.k(out, threads=(5, 3), group_size=[2, 2])
    x, y = torch.arange(5), torch.arange(3)[:, None]
    assert torch.equal(out, (x // 2 + 100 * (y // 2) + 2000).int())
    library.k(out, threads=(5, 3))
    assert torch.equal(out, (100 * y + 1000 * 1024 + 0 * x).int())
    wide = torch.zeros(100, dtype=torch.int32)
    assert library.small.max_threads_per_threadgroup == 64
    library.small(wide)
    assert wide.tolist() == [64] * 100
    with pytest.raises(DispatchError, match="as many dimensions"):
        library.k(out, threads=(5, 3), group_size=4)
    with pytest.raises(DispatchError, match="one to three numbers"):
        library.k(out, threads=(1, 1, 1, 1))
    with pytest.raises(DispatchError, match="threads is needed"):
        compile_shader("kernel void k(constant float& x) { }").k(1.0)


def test_what_is_missing() -> None:
    library = compile_shader(FULL)
    with pytest.raises(AttributeError, match="no kernel 'empty' in '<source>'; there are: full"):
        _ = library.empty
    with pytest.raises(KeyError):
        library["empty"]
    assert list(library) == ["full"]
    assert repr(library) == "<ShaderLibrary <source>: full>"
    assert repr(library.full) == (
        "<ShaderKernel full(out [[buffer(0)]], value [[buffer(1)]], i [[thread_position_in_grid]])>"
    )


def test_errors_show_the_line_of_the_file_that_it_is_in(tmp_path: Path) -> None:
    (tmp_path / "inner.h").write_text("inline float f(float x) {\n  return y;\n}\n")
    (tmp_path / "outer.metal").write_text(
        '#include "inner.h"\nkernel void k(device float* o) { o[0] = f(1); }\n'
    )
    with pytest.raises(CompileError, match=re.escape(f"{tmp_path}/inner.h:2:10: error:")) as caught:
        compile_shader(tmp_path / "outer.metal")
    assert "    return y;" in str(caught.value)
    (tmp_path / "inner.h").write_text("inline float f(float x) { return x + 1; }\n")
    out = torch.zeros(1)
    compile_shader(str(tmp_path / "outer.metal")).k(out)
    assert out.item() == 2
    # a changed header is a changed program, whatever the cache holds
    (tmp_path / "inner.h").write_text("inline float f(float x) { return x + 2; }\n")
    compile_shader(tmp_path / "outer.metal").k(out)
    assert out.item() == 3


@pytest.mark.parametrize("started_in", [".", "/"])
def test_a_fault_in_an_included_file_is_shown_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started_in: str
) -> None:
    monkeypatch.chdir(tmp_path / started_in)
    folder = tmp_path / "include"
    folder.mkdir()
    (folder / "store.h").write_text("inline void store(device float* o, int i) {\n  o[i] = 1;\n}\n")
    library = compile_shader(
        '#include "store.h"\nkernel void k(device float* o) { store(o, 4); }', include_dirs=[folder]
    )
    with pytest.raises(MemoryFault, match=re.escape(f"{folder}/store.h:2:")):
        library.k(torch.zeros(4), threads=1)


@pytest.mark.parametrize("include", ['"../secret.h"', '"{tmp}/secret.h"', "<secret.h>", "</etc/passwd>"])
def test_files_outside_the_folders_are_refused(tmp_path: Path, include: str) -> None:
    (tmp_path / "secret.h").write_text("#define SECRET 1\n")
    folder = tmp_path / "include"
    folder.mkdir()
    source = f"#include {include.format(tmp=tmp_path)}\nkernel void k(device float* o) {{ }}"
    with pytest.raises(RefusedSourceError, match="outside the include roots"):
        compile_shader(source, include_dirs=[folder])


def test_options_that_are_wrong(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="is not a folder"):
        compile_shader(FULL, include_dirs=[tmp_path / "none"])
    with pytest.raises(ArgumentError, match="cannot be read"):
        compile_shader("none.metal")
    with pytest.raises(ArgumentError, match="'a b' is not a name"):
        compile_shader(FULL, defines={"a b": 1})
    with pytest.raises(ArgumentError, match="more than one line"):
        compile_shader(FULL, defines={"a": "1\n#include <x>"})
    with pytest.raises(ArgumentError, match="math_mode"):
        compile_shader(FULL, math_mode="quick")
    with pytest.raises(ArgumentError, match="error_buf_idx"):
        compile_shader(FULL).full(torch.zeros(1), 1.0, error_buf_idx=0)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("include_dirs", "folder", "include_dirs: expected a list of folders, got 'folder'"),
        ("include_dirs", [3], "include_dirs: expected folders, got 3"),
        ("defines", ["A"], "defines: expected a dict"),
        ("constants", [1], r"constants: expected a dict of names and values, got \[1\]"),
        ("constants", {1.5: 1}, "constants: expected names or numbers of function constants, got 1.5"),
        ("constants", {"q": None}, "constants: 'q': expected a bool, a number or a list of such, got None"),
        ("constants", {"q": [1, "2"]}, "constants: 'q': expected a bool"),
        ("name", 3, "name: expected a string, got 3"),
    ],
)
def test_options_of_the_wrong_type(option: str, value: object, message: str) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(ArgumentError, match=rf"compile_shader\(\): {message}"):
        compile_shader(FULL, **options)


def test_a_source_of_the_wrong_type() -> None:
    nothing: Any = None
    with pytest.raises(ArgumentError, match="source: expected MSL or a path, got None"):
        compile_shader(nothing)


@pytest.mark.parametrize(
    ("option", "value", "kind", "message"),
    [
        ("workers", -1, ArgumentError, "workers: expected a positive whole number or None, got -1"),
        ("workers", 0, ArgumentError, "workers: expected a positive whole number or None, got 0"),
        ("workers", "a", ArgumentError, "workers: expected a positive whole number or None, got 'a'"),
        ("workers", 1.5, ArgumentError, "workers: expected a positive whole number or None, got 1.5"),
        ("workers", True, ArgumentError, "workers: expected a positive whole number or None, got True"),
        ("threads", math.nan, DispatchError, "threads: expected one to three whole numbers, got nan"),
        ("threads", "ab", DispatchError, "threads: expected one to three whole numbers, got 'ab'"),
        ("group_size", [1.5], DispatchError, r"group_size: expected one to three whole numbers, got \[1.5\]"),
        ("threadgroup_memory", ["a"], ArgumentError, "threadgroup_memory: expected a list of sizes in bytes"),
        ("threadgroup_memory", 16, ArgumentError, "threadgroup_memory: expected a list of sizes in bytes"),
        ("textures", 3, ArgumentError, "textures: expected a list, got 3"),
        ("arg_casts", ["fp16"], ArgumentError, "arg_casts: expected one of"),
    ],
)
def test_arguments_of_a_call_that_are_of_the_wrong_type(
    option: str, value: object, kind: type[Exception], message: str
) -> None:
    out = torch.zeros(4)
    options: dict[str, Any] = {option: value}
    with pytest.raises(kind, match=f"kernel 'full'.*{message}"):
        compile_shader(FULL).full(out, 1.0, **options)
    assert out.tolist() == [0.0] * 4


@pytest.mark.parametrize("workers", [1, 3, np.int64(2), None])
def test_workers_that_run_the_kernel(workers: Any) -> None:
    out = torch.zeros(100_000)
    compile_shader(FULL).full(out, 2.5, workers=workers)
    assert (out == 2.5).all()


def test_pytorchs_own_headers_can_be_included() -> None:
    library = compile_shader("""
#include <c10/metal/utils.h>
using namespace metal;
kernel void k(device float* out, device const int* x, uint i [[thread_position_in_grid]]) {
  out[i] = c10::metal::floor_divide(x[i], 3);
}""")
    x = torch.arange(-8, 8, dtype=torch.int32)
    out = torch.zeros(16)
    library.k(out, x)
    assert torch.equal(out, torch.floor_divide(x, 3).float())


def test_it_is_public() -> None:
    assert metalwright.compile_shader is compile_shader


@pytest.mark.parametrize("checked", [True, False])
def test_members_with_values_of_their_own(checked: bool) -> None:
    library = compile_shader(
        """
struct Point { int x = 3; float y = 2.5f; };
struct Box { Point corner; int size = 1; Point both[2]; };
kernel void k(device float* out, device const float* x, uint i [[thread_position_in_grid]]) {
  Point p; Box b;
  out[i] = x[i] + p.x + p.y + b.corner.x + b.both[1].y + b.size;
}""",
        checked=checked,
    )
    out, x = torch.zeros(4), torch.arange(4.0)
    library.k(out, x)
    assert torch.equal(out, x + 3 + 2.5 + 3 + 2.5 + 1)
    if checked:
        with pytest.raises(MemoryFault, match="<source>:6:12: reads element 2 of 'x'"):
            library.k(out, torch.zeros(2))


@pytest.mark.parametrize(
    ("macro", "kind", "value"),
    [
        ("INFINITY", "float", math.inf),
        ("HUGE_VALF", "float", math.inf),
        ("NAN", "float", math.nan),
        ("HUGE_VALH", "half", math.inf),
        ("HUGE_VALBF", "bfloat", math.inf),
    ],
)
def test_the_macros_of_special_values_are_words_of_metal_where_the_preprocessor_expands_them(
    macro: str, kind: str, value: float
) -> None:
    library = compile_shader(
        f"#define FILL {macro}\nconstant {kind} c = FILL;\n"
        "kernel void k(device float* out) { *out = float(c) + float(FILL); }"
    )
    out = torch.zeros(1)
    library.k(out, threads=1)
    assert str(out.item()) == str(value)


def test_a_mistake_in_an_instantiated_template_is_shown_where_it_is() -> None:
    source = """using namespace metal;
template <typename T> [[kernel]] void k(device bfloat* out) {
  T x = T(1);
  out[0] = exp(x);
}
template [[host_name("k")]] [[kernel]] decltype(k<half>) k<half>;
"""
    with pytest.raises(CompileError) as caught:
        compile_shader(source)
    [found] = caught.value.diagnostics
    assert found.site is not None and (found.site.line, found.site.column) == (4, 12)
    assert "'bfloat'" in found.message and "'half'" in found.message and "__mw" not in found.message


@pytest.mark.parametrize(("math_mode", "value"), [("safe", 1), ("fast", 2)])
def test_a_source_can_ask_for_the_math_mode(math_mode: str, value: int) -> None:
    source = """
#if defined(__FAST_MATH__) && __FAST_MATH__
constant int mode = 2;
#else
constant int mode = 1;
#endif
kernel void k(device int* out) { out[0] = mode; }
"""
    out = torch.zeros(1, dtype=torch.int32)
    compile_shader(source, math_mode=math_mode).k(out, threads=1)
    assert out.item() == value
