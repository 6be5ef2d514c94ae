"""The mistakes that Metal refuses are said at their place wherever they stand: file, line, column and sentence.

A ``¦`` in a mistake stands before the place that the message must point at.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from metalwright import MetalKernel, compile_shader
from metalwright.errors import CompileError, Diagnostic

# statements, with what the first message about them begins with
STATEMENTS = {
    "¦double d = 1;": "'double' does not exist in Metal: use float",
    "float f = 1 + ¦2.0L;": "'long double' does not exist in Metal",
    "¦throw 1;": "exceptions do not exist in Metal",
    "¦goto end; end: ;": "'goto' does not exist in Metal",
    "¦static int n = 0;": "a variable in a function cannot be static in Metal",
    "device float ¦v = 0;": "a variable in a function cannot be in device memory",
    "struct V { ¦virtual int f() { return 1; } };": "virtual functions do not exist in Metal",
    "struct A { int a; }; struct B ¦: A { };": "derived classes do not exist in Metal",
    "float¦* p = nullptr;": "a pointer needs an address space in Metal: write 'thread float* p'",
    "float v = 1; float¦& r = v;": "a reference needs an address space in Metal: write 'thread float& r'",
    "auto p = (float¦*)0;": "a pointer needs an address space in Metal",
    "int a = 1; device int* p = ¦&a;": "'p' is a device pointer and cannot be set to a thread pointer",
    "int a[2] = {}; auto q = a; device int* ¦p = q;": "a device pointer cannot be set to a thread pointer",
    "threadgroup int* q = nullptr; struct S { device int* p; } s; s.p = ¦q;": "a device pointer cannot be set to a thread",
    "auto f = [](device int* p) { }; thread int* q = nullptr; f(¦q);": "argument 1 must be a device pointer",
    "int n = 3¦ missing;": "expected ';'",
    "float4 v = 1; v.¦q = 2;": "no member named 'q'",
}  # fmt: skip
# declarations outside functions
DECLARATIONS = {
    "int ¦n = 0;": "program-scope variable 'n' must be in the constant address space",
    "¦threadgroup int t[4];": "a threadgroup variable can only stand in a kernel's body",
    "void g() { threadgroup int ¦t[4]; }": "threadgroup variable 't' can only be declared in a kernel's body",
    "template <typename T> void g() { threadgroup T ¦t; }": "threadgroup variable 't' can only be declared",
    "void g(float¦* p) { }": "a pointer needs an address space in Metal",
    "float¦* g();": "a pointer needs an address space in Metal",
    "using P = float¦*;": "a pointer needs an address space in Metal",
    "struct S { float¦& r; };": "a reference needs an address space in Metal",
    "¦double g();": "'double' does not exist in Metal",
    "kernel void other(device int* p [[¦buffer(40)]]) { }": "[[buffer(40)]] is out of range",
    "constant int c = 40;  kernel void other(device int* p [[buffer(¦c)]]) { }": "[[buffer(40)]] is out of range",
    "int g(int n);  constant int ¦c = g(1);  int g(int n) { return n; }": "the value of program-scope variable 'c'",
}  # fmt: skip
HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
KERNEL = "kernel void k(device int* out [[buffer(0)]]) { out[0] = 1; }\n"


def first(error: CompileError) -> Diagnostic:
    found = error.diagnostics[0]
    assert found.site is not None, str(error)
    assert "\n" not in found.message
    lines = found.render().split("\n")
    assert lines[1].strip() == (found.excerpt or "").strip()
    assert lines[2].strip() == "^"
    return found


def check(found: Diagnostic, file: str, text: str, message: str, marked: str) -> None:
    """The message is about the place of the mark in ``marked``, which stands once in the file's text."""
    assert found.site is not None
    offset = text.index(marked.replace("¦", "")) + marked.index("¦")
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    assert (found.site.file, found.site.line, found.site.column) == (file, line, column), found.render()
    assert found.message.startswith(message), found.message


def each(mistakes: dict[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("mistake", "message"), mistakes.items(), ids=list(mistakes))


def nothing() -> torch.Tensor:
    return torch.zeros(1)


@each(STATEMENTS)
def test_in_the_body_of_a_kernel(mistake: str, message: str) -> None:
    src = f"out[0] = 1;\n  {mistake.replace('¦', '')}"
    kernel = MetalKernel("k", input_names=[], result_names=["out"], src=src, torch_defn=nothing)
    with pytest.raises(CompileError) as caught:
        kernel(
            threads_per_grid=(1, 1, 1),
            threads_per_thread_group=(1, 1, 1),
            result_shapes=[(1,)],
        )
    check(first(caught.value), "k.src", src, message, mistake)


@each(STATEMENTS)
def test_in_a_template(mistake: str, message: str) -> None:
    body = f"template <typename T> T f(T t) {{\n\t{mistake.replace('¦', '')}\n  return t;\n}}\n"
    text = HEAD + body + "kernel void k(device int* out [[buffer(0)]]) { out[0] = f(1); }\n"
    with pytest.raises(CompileError) as caught:
        compile_shader(text)
    check(first(caught.value), "<source>", text, message, mistake)


@each(STATEMENTS)
def test_in_a_macro(mistake: str, message: str) -> None:
    """A mistake in a macro is shown where the macro is used."""
    text = f"{HEAD}#define MISTAKE {mistake.replace('¦', '')}\nvoid f() {{\n  MISTAKE\n}}\n{KERNEL}"
    with pytest.raises(CompileError) as caught:
        compile_shader(text)
    found = first(caught.value)
    assert found.site is not None
    assert (found.site.file, found.site.line) == ("<source>", 5), found.render()
    assert 3 <= found.site.column <= len("  MISTAKE"), found.render()
    assert found.message.startswith(message)


@each({**STATEMENTS, **DECLARATIONS})
def test_in_a_file_that_is_included(mistake: str, message: str, tmp_path: Path) -> None:
    written = mistake.replace("¦", "")
    text = (
        f"#pragma once\n  {written}\n"
        if mistake in DECLARATIONS
        else f"inline void f() {{\n  {written}\n}}\n"
    )
    (tmp_path / "lib.h").write_text(text)
    with pytest.raises(CompileError) as caught:
        compile_shader(f'{HEAD}#include "lib.h"\n{KERNEL}', include_dirs=[tmp_path])
    check(first(caught.value), str(tmp_path / "lib.h"), text, message, mistake)


@each(DECLARATIONS)
def test_in_a_file(mistake: str, message: str) -> None:
    text = f"{HEAD}namespace n {{\n{mistake.replace('¦', '')}\n}}\n{KERNEL}"
    with pytest.raises(CompileError) as caught:
        compile_shader(text)
    check(first(caught.value), "<source>", text, message, mistake)


def test_recursion_is_said_at_the_call(tmp_path: Path) -> None:
    text = "template <typename T> T f(T n) {\n  return n > 0 ? f(n - 1) : 0;\n}\n"
    use = "kernel void k(device int* out [[buffer(0)]]) { out[0] = f(out[0]); }\n"
    (tmp_path / "lib.h").write_text(text)
    for source, file, whole in (
        (f'{HEAD}#include "lib.h"\n{use}', str(tmp_path / "lib.h"), text),
        (HEAD + text + use, "<source>", HEAD + text + use),
    ):
        with pytest.raises(CompileError) as caught:
            compile_shader(source, include_dirs=[tmp_path]).k(torch.zeros(1, dtype=torch.int32))
        check(first(caught.value), file, whole, "function 'f' calls itself", "¦f(n - 1)")


def test_what_an_attribute_names_is_looked_for_in_the_kernels_namespace() -> None:
    text = (
        f"{HEAD}namespace n {{\nconstant int c = 1;\n"
        "kernel void k(device int* out [[buffer(c)]], device int* in [[buffer(0)]]) { out[0] = in[0]; }\n"
        "template <typename T> kernel void f(device T* out [[buffer(c)]], device T* in [[buffer(0)]]) "
        "{ out[0] = in[0] + 1; }\n}\n"
        'template [[host_name("t")]] kernel void n::f<int>(device int* out [[buffer(n::c)]], device int* in);\n'
    )
    lib = compile_shader(text)
    given, result = torch.tensor([5], dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    lib.k(given, result)
    assert result.item() == 5
    lib.t(given, result)
    assert result.item() == 6
