"""Functions that call themselves: refused, or run as deep as the caller allows."""

from __future__ import annotations

import math
import pickle

import pytest
import torch

import metalwright
from metalwright import CompileError, KernelFault, UnsupportedFeatureError, compile_shader

FACTORIAL = """
int factorial(int n) {
  return n <= 1 ? 1 : n * factorial(n - 1);
}
kernel void k(device int* x, uint i [[thread_position_in_grid]]) { x[i] = factorial(x[i]); }
"""
PARITY = """
bool odd(uint n);
bool even(uint n) { return n == 0 ? true : odd(n - 1); }
bool odd(uint n) { return n == 0 ? false : even(n - 1); }
kernel void k(device int* x, uint i [[thread_position_in_grid]]) { x[i] = even(x[i]) + 2 * odd(x[i]); }
"""
both = pytest.mark.parametrize("checked", [True, False])


def numbers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@both
def test_a_function_that_calls_itself(checked: bool) -> None:
    x = numbers(0, 1, 2, 3, 4, 5, 6)
    compile_shader(FACTORIAL, recursion=6, checked=checked).k(x)
    assert x.tolist() == [math.factorial(n) for n in range(7)]


@both
def test_functions_that_call_each_other(checked: bool) -> None:
    x = numbers(*range(5))
    # the number 4 is five calls deep, whichever of the two comes first
    compile_shader(PARITY, recursion=5, checked=checked).k(x)
    assert x.tolist() == [1, 2, 1, 2, 1]


@both
def test_calls_that_branch(checked: bool) -> None:
    """Ackermann's function passes a result of its own to itself, through references and a template."""
    text = """
    template <typename T> T ackermann(thread const T& m, T n) {
      if (m == 0) return n + 1;
      if (n == 0) return ackermann<T>(m - 1, 1);
      return ackermann<T>(m - 1, ackermann<T>(m, n - 1));
    }
    kernel void k(device int2* x, uint i [[thread_position_in_grid]]) { x[i].x = ackermann(x[i].x, x[i].y); }
    """
    x = torch.tensor([(0, 5), (1, 0), (1, 2), (1, 3), (2, 0)], dtype=torch.int32)
    compile_shader(text, recursion=5, checked=checked).k(x, threads=5)
    # A(0, n) = n + 1, A(1, n) = n + 2, A(2, n) = 2 n + 3
    assert x[:, 0].tolist() == [6, 2, 4, 5, 3]


@both
def test_structs_and_vectors_travel(checked: bool) -> None:
    text = """
    struct pair { float4 sum; int left; bool done[3]; };
    pair gather(pair p) {
      if (p.left == 0) { p.done[2] = true; return p; }
      p.sum += float4(p.left, 2, 3, 4);
      p.left -= 1;
      return gather(p);
    }
    struct counter {
      int steps = 0;
      float4 down(float4 v) { steps++; return v.x < 1 ? v : down(v - 1); }
    };
    kernel void k(device float4* out, uint i [[thread_position_in_grid]]) {
      pair p = gather(pair{float4(0), int(i), {false, false, false}});
      counter c;
      float4 v = c.down(float4(i, i + 1, i + 2, i + 3));
      out[2 * i] = p.done[2] ? p.sum : float4(-1);
      out[2 * i + 1] = float4(v.xyz, c.steps);
    }
    """
    out = torch.zeros(8, 4)
    compile_shader(text, recursion=4, checked=checked).k(out, threads=4)
    sums = [[n * (n + 1) / 2, 2 * n, 3 * n, 4 * n] for n in range(4)]
    downs = [[0, 1, 2, n + 1] for n in range(4)]
    assert out[::2].tolist() == sums
    assert out[1::2].tolist() == downs


@both
def test_threads_meet_inside(checked: bool) -> None:
    """A tree sum over a threadgroup whose rounds are nested calls with a barrier in each."""
    text = """
    using namespace metal;
    void fold(threadgroup float* tile, uint i, uint half_of) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (half_of == 0) return;
      if (i < half_of) tile[i] += tile[i + half_of];
      fold(tile, i, half_of / 2);
    }
    kernel void k(device float* x, uint i [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
      threadgroup float tile[64];
      tile[i] = x[g * 64 + i];
      fold(tile, i, 32);
      x[g * 64 + i] = tile[0] + simd_sum(i < 32 ? 1.0f : 0.0f);
    }
    """
    x = torch.arange(192, dtype=torch.float32)
    sums = x.view(3, 64).sum(1, keepdim=True) + torch.tensor([32.0] * 32 + [0.0] * 32)
    compile_shader(text, recursion=7, checked=checked).k(x, group_size=64)
    assert torch.equal(x.view(3, 64), sums)


def test_too_deep_names_kernel_function_and_line() -> None:
    library = compile_shader(FACTORIAL, recursion=4, name="f.metal")
    x = numbers(1, 4, 5)
    with pytest.raises(KernelFault) as caught:
        library.k(x)
    fault = caught.value
    assert fault.kernel == "k"
    assert fault.thread == (2, 0, 0)
    assert fault.site is not None
    assert (fault.site.file, fault.site.line) == ("f.metal", 3)
    assert fault.site.column == FACTORIAL.split("\n")[2].index("factorial") + 1
    assert "function 'factorial' calls itself more than 4 deep" in str(fault)
    assert "n * factorial(n - 1)" in str(fault)
    assert str(pickle.loads(pickle.dumps(fault))) == str(fault)
    # the process goes on, and so does the library
    x = numbers(4)
    library.k(x)
    assert x.item() == 24


def test_too_deep_stops_unchecked_kernels_too() -> None:
    """The fault is the same, but for the line, which nothing unchecked knows."""
    with pytest.raises(KernelFault, match="kernel 'k': function 'factorial' calls itself more than 4 deep"):
        compile_shader(FACTORIAL, recursion=4, checked=False).k(numbers(5))


def test_too_deep_in_others_names_the_one_that_is_called() -> None:
    library = compile_shader(PARITY, recursion=2)
    with pytest.raises(KernelFault, match="function 'even' calls itself more than 2 deep"):
        library.k(numbers(2))


def test_what_is_not_called_does_not_count() -> None:
    text = FACTORIAL.replace("x[i] = factorial(x[i])", "x[i] = 7")
    for checked in (True, False):
        x = numbers(1)
        compile_shader(text, checked=checked).k(x)
        assert x.item() == 7


@both
def test_it_is_refused_at_the_call(checked: bool) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        compile_shader(FACTORIAL, checked=checked, name="f.metal")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.site is not None
    assert (diagnostic.site.file, diagnostic.site.line) == ("f.metal", 3)
    assert diagnostic.site.column == FACTORIAL.split("\n")[2].index("factorial") + 1
    assert diagnostic.message.startswith("function 'factorial' calls itself: allow N nested calls")
    assert "recursion=N" in diagnostic.message


def test_it_is_refused_at_the_column_that_was_written() -> None:
    """The address space before the call's argument is not in what is compiled."""
    call = "  if (*p > 3) *p -= 1; else { *p = 0; return; } step((thread int*)p);"
    text = f"void step(thread int* p) {{\n{call}\n}}\n"
    text += "kernel void k(device int* x) { int y = x[0]; step(&y); x[0] = y; }"
    with pytest.raises(UnsupportedFeatureError) as caught:
        compile_shader(text)
    site = caught.value.diagnostics[0].site
    assert site is not None
    assert (site.line, site.column) == (2, call.index("step(") + 1)


@both
def test_it_is_refused_through_others(checked: bool) -> None:
    with pytest.raises(UnsupportedFeatureError, match="function 'even' calls itself through 'odd': allow N"):
        compile_shader(PARITY, checked=checked)


@both
def test_too_many_copies_are_an_error(checked: bool) -> None:
    text = """
    int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
    kernel void k(device int* x) { x[0] = fibonacci(x[0]); }
    """
    with pytest.raises(CompileError, match="40 nested calls of it add .* allow fewer") as caught:
        compile_shader(text, recursion=40, checked=checked)
    site = caught.value.diagnostics[0].site
    assert site is not None
    assert site.line == 2
    x = numbers(6)
    compile_shader(text, recursion=6, checked=checked).k(x, threads=1)
    assert x.item() == 8


def test_a_core_ai_kernel() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return x

    def kernel(recursion: int) -> metalwright.MetalKernel:
        return metalwright.MetalKernel(
            "halvings",
            input_names=["x"],
            result_names=["out"],
            helper_src="int halvings(float x) { return x < 2.0f ? 0 : 1 + halvings(x / 2); }",
            src="out[i] = halvings(x[i]);",
            torch_defn=reference,
            metal_params=[metalwright.MetalParameter("i", "uint", "thread_position_in_grid")],
            recursion=recursion,
        )

    x = torch.tensor([1.0, 2.0, 7.0, 8.5])
    sizes = {"threads_per_grid": (4, 1, 1), "threads_per_thread_group": (4, 1, 1), "result_shapes": [[4]]}
    assert kernel(4)(x, **sizes).tolist() == [0, 1, 2, 3]
    with pytest.raises(KernelFault, match="function 'halvings' calls itself more than 3 deep"):
        kernel(3)(x, **sizes)
    with pytest.raises(UnsupportedFeatureError, match="function 'halvings' calls itself"):
        kernel(0)(x, **sizes)


def test_emulated_code_runs_unchanged() -> None:
    with metalwright.emulate("torch"):
        library = torch.mps.compile_shader(FACTORIAL)
    x = numbers(3)
    library.k(x)
    assert x.item() == 6
    with metalwright.emulate("torch", recursion=0), pytest.raises(UnsupportedFeatureError):
        torch.mps.compile_shader(FACTORIAL)


@pytest.mark.parametrize("recursion", [-1, 1.5, True, "4"])
def test_depths_that_are_none(recursion: object) -> None:
    with pytest.raises(metalwright.ArgumentError, match="recursion: expected how many calls may be nested"):
        compile_shader(FACTORIAL, recursion=recursion)  # type: ignore[arg-type]
