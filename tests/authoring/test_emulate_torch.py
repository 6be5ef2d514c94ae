"""emulate("torch"): code that calls ``torch.mps.compile_shader`` runs unchanged on CPU tensors."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator

import pytest
import torch
import torch.mps
from torch.mps import compile_shader as taken_before

from metalwright.authoring import emulate
from metalwright.errors import (
    ArgumentError,
    CompileError,
    DispatchError,
    MemoryFault,
    MetalwrightError,
    RefusedSourceError,
    UnsupportedFeatureError,
)

SHADER = """
#include <metal_stdlib>
using namespace metal;
kernel void full(device float* out, constant float& value, uint i [[thread_position_in_grid]]) { out[i] = value; }
kernel void shifted(device const float* x, device float* out, uint i [[thread_position_in_grid]]) { out[i] = x[i + 1]; }
kernel void halves(device half* out, constant half& value, uint2 i [[thread_position_in_grid]],
                   uint2 n [[threads_per_grid]]) { out[i.y * n.x + i.x] = value; }
"""
BAD = "kernel void k(device float* out) {\n  out[0] = missing;\n}\n"

pytestmark = pytest.mark.skipif(torch.mps.is_available(), reason="compares with a PyTorch that has no MPS")


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = (torch.mps.compile_shader, torch.mps.synchronize)
    yield
    assert (torch.mps.compile_shader, torch.mps.synchronize) == before
    assert not hasattr(torch._C, "_mps_compileShader")


def filled(value: float = 3.5) -> torch.Tensor:
    """What a user's code does, knowing nothing of Metalwright."""
    library = torch.mps.compile_shader(SHADER)
    out = torch.zeros(16)
    library.full(out, value, threads=16, group_size=8)
    torch.mps.synchronize()
    return out


def test_inside_and_outside() -> None:
    with pytest.raises(RuntimeError, match="MPS is not available"):
        filled()
    with emulate("torch"):
        assert torch.equal(filled(), torch.full((16,), 3.5))
    with pytest.raises(RuntimeError, match="MPS is not available"):
        filled()


@pytest.mark.parametrize("names", [(), ("torch",), ("torch", "coreai_torch")])
def test_names(names: tuple[str, ...]) -> None:
    with emulate(*names):
        assert torch.equal(filled(2.0), torch.full((16,), 2.0))


def test_a_name_imported_before_works_too() -> None:
    out = torch.zeros(4)
    with emulate("torch"):
        taken_before(SHADER).full(out, 1.25)
    assert out.tolist() == [1.25] * 4
    with pytest.raises(RuntimeError, match="MPS is not available"):
        taken_before(SHADER)


def test_casts_sizes_and_properties() -> None:
    out = torch.zeros(3, 4, dtype=torch.float16)
    with emulate("torch"):
        library = torch.mps.compile_shader(SHADER)
        assert set(dir(library)) == {"full", "shifted", "halves"}
        library.halves(out, 0.1, threads=(4, 3), group_size=(2, 2), arg_casts={1: "fp16"})
        kernel = library.full
    assert torch.equal(out, torch.full((3, 4), 0.1, dtype=torch.float16))
    assert kernel.max_threads_per_threadgroup == 1024
    assert kernel.thread_execution_width == 32
    assert kernel.static_thread_group_memory_length == 0


def test_a_library_outlives_the_block() -> None:
    with emulate("torch"):
        library = torch.mps.compile_shader(SHADER)
    out = torch.zeros(4)
    library.full(out, 1.5)
    assert out.tolist() == [1.5] * 4


def test_headers_of_pytorch_can_be_included() -> None:
    x, out = torch.arange(-8, 8, dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
    source = """#include <c10/metal/utils.h>
kernel void k(device int* out, device const int* x, uint i [[thread_position_in_grid]]) {
  out[i] = c10::metal::floor_divide(x[i], 3);
}"""
    with emulate("torch"):
        for compiled in (torch.mps.compile_shader(source), taken_before(source)):
            out.zero_()
            compiled.k(out, x)
            assert torch.equal(out, torch.floor_divide(x, 3))


def test_bad_source_is_a_syntax_error_that_names_the_line_here() -> None:
    with emulate("torch"), pytest.raises(SyntaxError) as caught:
        torch.mps.compile_shader(BAD)
    error = caught.value
    assert isinstance(error, CompileError)
    line = caught.traceback[0].lineno + 1
    place = f"<shader at test_emulate_torch.py:{line}>"
    assert f"{place}:2:12: error: use of undeclared identifier 'missing'" in str(error)
    assert error.msg == str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.msg, type(copy)) == (str(error), error.msg, type(error))


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("#include </etc/passwd>\n", RefusedSourceError),
        ('kernel void k(device float* x) { asm("nop"); }', RefusedSourceError),
        ("vertex float4 f() { return 0; }", UnsupportedFeatureError),
        ("printf(x);", CompileError),
    ],
)
def test_whatever_does_not_compile_is_a_syntax_error(source: str, kind: type[Exception]) -> None:
    with emulate("torch"), pytest.raises(SyntaxError) as caught:
        torch.mps.compile_shader(source)
    assert isinstance(caught.value, kind)


def test_other_mistakes_are_runtime_errors_as_in_pytorch() -> None:
    with emulate("torch"):
        library = torch.mps.compile_shader(SHADER)
        with pytest.raises(RuntimeError, match="Failed to create function state object for: empty") as caught:
            _ = library.empty
        assert isinstance(caught.value, AttributeError)
        with pytest.raises(RuntimeError, match="'value' is constant float&") as caught:
            library.full(torch.zeros(4), 3)
        assert isinstance(caught.value, ArgumentError)
        with pytest.raises(RuntimeError, match="as many dimensions") as caught:
            library.full(torch.zeros(4), 3.0, threads=(2, 2), group_size=2)
        assert isinstance(caught.value, DispatchError)
        with pytest.raises(TypeError, match="expected MSL as str, got bytes"):
            torch.mps.compile_shader(b"")  # type: ignore[arg-type]


def test_the_options_hold() -> None:
    x, out = torch.zeros(5), torch.zeros(5)
    with emulate("torch", checked=False):
        torch.mps.compile_shader(SHADER).shifted(x[:4], out[:4])
        with emulate("torch"), pytest.raises(MemoryFault, match=r"<shader at test_emulate_torch.py:\d+>:5"):
            torch.mps.compile_shader(SHADER).shifted(x[1:], out[1:])
    # fast math may take x * 0 for 0, safe math may not; so the mode is seen in the module, not in a result
    with emulate("torch", math_mode="fast"):
        fast = torch.mps.compile_shader(SHADER)
    with emulate("torch"):
        safe = torch.mps.compile_shader(SHADER)
    assert fast._library.module("full").text != safe._library.module("full").text


def test_it_nests_and_restores_on_error() -> None:
    with pytest.raises(ZeroDivisionError), emulate("torch"):
        with emulate("torch"):
            filled()
        filled()
        raise ZeroDivisionError
    with pytest.raises(RuntimeError, match="MPS is not available"):
        filled()


def test_another_thread_is_not_disturbed() -> None:
    seen: list[str] = []

    def beside() -> None:
        for compile_ in (torch.mps.compile_shader, taken_before):
            try:
                compile_(SHADER)
            except MetalwrightError:
                seen.append("emulated")
            except RuntimeError as error:
                seen.append(str(error))

    with emulate("torch"):
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        filled()
    assert seen == ["MPS is not available"] * 2


def test_a_patch_on_top_of_ours_stays() -> None:
    original = torch.mps.compile_shader
    calls: list[str] = []
    with emulate("torch"):
        ours = torch.mps.compile_shader
        torch.mps.compile_shader = lambda source: calls.append(source) or ours(source)  # type: ignore[assignment]
        filled()
    try:
        with pytest.raises(RuntimeError, match="MPS is not available"):
            filled()
        with emulate("torch"):
            filled()
        assert calls == [SHADER] * 2
    finally:
        torch.mps.compile_shader = original
