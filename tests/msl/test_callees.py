"""Pointers to functions: they run where it is known which function they are to."""

from __future__ import annotations

import pytest
import torch

from metalwright import MemoryFault, UnsupportedFeatureError, compile_shader

FUNCTIONS = """
int twice(int v) { return 2 * v; }
int square(int v) { return v * v; }
int less(int a, int b) { return a - b; }
template <typename T> T third(T v) { return v / 3; }
"""
KERNEL = "kernel void k(device int* x, uint i [[thread_position_in_grid]]) { BODY }"
both = pytest.mark.parametrize("checked", [True, False])


def run(helper: str, body: str, checked: bool, count: int = 6) -> list[int]:
    x = torch.arange(count, dtype=torch.int32)
    compile_shader(FUNCTIONS + helper + KERNEL.replace("BODY", body), checked=checked).k(x)
    return x.tolist()


@both
def test_an_argument(checked: bool) -> None:
    helper = "int apply(int (*f)(int), int v) { return f(v) + 1; }\n"
    body = "x[i] = apply(twice, x[i]) + apply(square, x[i]) + apply(third<int>, x[i]);"
    assert run(helper, body, checked) == [2 * v + v * v + v // 3 + 3 for v in range(6)]


@both
def test_passed_on_and_called_in_a_loop(checked: bool) -> None:
    helper = """
    int inner(int v, int (*f)(int, int), int times) { for (int n = 0; n < times; n++) v = f(v, n); return v; }
    template <typename T> T outer(T v, T (*f)(T, T)) { return inner(v, f, 4) + f(v, 1); }
    """
    assert run(helper, "x[i] = outer(x[i], less);", checked) == [2 * v - 7 for v in range(6)]


@both
def test_a_variable(checked: bool) -> None:
    body = "int (*f)(int) = &square; int (*g)(int) = f; x[i] = (*g)(x[i]) + f(1);"
    assert run("", body, checked) == [v * v + 1 for v in range(6)]


@both
def test_a_choice_is_refused(checked: bool) -> None:
    body = "int (*f)(int) = x[i] > 3 ? twice : square; x[i] = f(x[i]);"
    with pytest.raises(UnsupportedFeatureError, match="function '(twice|square)' is used through a pointer"):
        run("", body, checked)


def test_a_pointer_that_is_set_twice_is_refused() -> None:
    body = "int (*f)(int) = twice; if (x[i] > 3) f = square; x[i] = f(x[i]);"
    with pytest.raises(UnsupportedFeatureError, match="function '(twice|square)' is used through a pointer"):
        run("", body, True)


def test_a_pointer_that_is_looked_at_is_refused() -> None:
    helper = "bool same(int (*f)(int), int (*g)(int)) { return f == g; }\n"
    with pytest.raises(UnsupportedFeatureError, match="is used through a pointer"):
        run(helper, "x[i] = same(x[i] > 2 ? twice : square, square);", True)


def test_a_pointer_of_a_function_that_does_not_know_its_own_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="through a pointer"):
        run("", "int (*f)(int) = (int (*)(int))(ulong(x[i])); x[i] = f(x[i]);", True)


def test_what_is_called_is_checked() -> None:
    helper = "void put(device int* p, int at) { p[at] = 1; }\n"
    helper += "void apply(void (*f)(device int*, int), device int* p, int at) { f(p, at); }\n"
    with pytest.raises(MemoryFault, match="writes element 6 of 'x'") as caught:
        run(helper, "apply(put, x, i + 2);", True)
    assert caught.value.site is not None
    assert "p[at] = 1" in str(caught.value)


TABLE = "struct Pair { int (*first)(int); int (*second)(int); };\n"


@both
def test_members_of_a_struct(checked: bool) -> None:
    helper = TABLE + "int apply(Pair p, int v) { return p.second(p.first(v)); }\n"
    body = "Pair p = {twice, square}; x[i] = apply(p, x[i]) - p.first(1);"
    assert run(helper, body, checked) == [4 * v * v - 2 for v in range(6)]


@both
@pytest.mark.parametrize(
    "body",
    [
        "int (*f[2])(int) = {twice, square}; x[i] = f[x[i] & 1](x[i]);",
        "Pair p[2] = {{twice, square}, {square, twice}}; x[i] = p[x[i] & 1].first(x[i]);",
        "Pair p = {twice, square}; if (x[i] > 3) p.first = square; x[i] = p.first(x[i]);",
    ],
)
def test_members_that_are_chosen_are_refused(body: str, checked: bool) -> None:
    with pytest.raises(UnsupportedFeatureError, match="through a pointer") as caught:
        run(TABLE, body, checked)
    assert caught.value.diagnostics[0].site is not None
