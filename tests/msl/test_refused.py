"""What no kernel may do: reach outside itself, or use what MSL does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from metalwright.errors import CompileError, RefusedSourceError, UnsupportedFeatureError
from tests.support import FILE, body, tensor, whole

PARAMETERS = (
    tensor("float", 1, "x", 0),
    tensor("float", 1, "out", 1),
    "uint gid [[thread_position_in_grid]]",
)
REST = "\nout[gid] = x[gid];"
SECRET = "a line that only this file holds"


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the host that no kernel may see."""
    path = tmp_path_factory.mktemp("host") / "secret.h"
    path.write_text(f"#error {SECRET}\n1, 2, 3\n")
    return path


def refused(src: str, helper: str = "", kind: type[CompileError] = RefusedSourceError) -> CompileError:
    with pytest.raises(kind) as caught:
        body(src + REST, *PARAMETERS, helper=helper)
    assert str(caught.value).startswith("kernel 'k' does not compile\n")
    assert SECRET not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "src",
    [
        'asm("nop");',
        '__asm__("nop");',
        '__asm ("nop");',
        'asm volatile ("nop" ::: "memory");',
        'asm goto ("nop" :::: done); done:;',
        'asm\n(R"(nop)");',
        '#define A asm\nA("nop");',
        '#define A a##sm\nA("nop");',
        '#define J(a, b) a##b\nJ(__as, m__)("nop");',
        'as\\\nm("nop");',
        'as/**/m; asm("nop");',
        'register float v asm("eax") = 1;',
        '[[maybe_unused]] float v = 1; { asm("nop"); }',
    ],
)
def test_inline_assembly_in_every_spelling(src: str) -> None:
    error = refused(src)
    assert "inline assembly is refused" in str(error)
    assert error.diagnostics[0].site is not None
    assert error.diagnostics[0].site.file == FILE


@pytest.mark.parametrize(
    "helper",
    [
        'asm("nop");',
        '__asm__(".globl x");',
        'float f() asm("system");',
        'extern "C" int system(constant char*);',
        'extern "C" { int system(constant char*); }',
        'extern "C++" int f();',
        '#define E extern\nE "C" int system(constant char*);',
        '#define E(x) extern x\nE("C") int system(constant char*);',
        'extern /* odd */ "C" int system(constant char*);',
    ],
)
def test_outside_functions_and_assembly_in_helpers(helper: str) -> None:
    assert "is refused" in str(refused("", helper))


@pytest.mark.parametrize(
    ("src", "helper", "name"),
    [
        ('system("ls");', "int system(constant char*);", "system"),
        ("puts(0);", "extern int puts(constant char*);", "puts"),
        ("N::f();", "namespace N { void f(); }", "f"),
        ("f<int>();", "template <typename T> void f();", "f"),
        ("int system(constant char*); system(0);", "", "system"),
        ("S s; s.go();", "struct S { void go(); };", "go"),
        ("float v = sinf(x[gid]); out[gid] = v;", "float sinf(float);", "sinf"),
    ],
)
def test_functions_that_are_declared_and_not_defined(src: str, helper: str, name: str) -> None:
    error = refused(src, helper)
    assert f"function '{name}' is declared but not defined" in str(error)
    assert error.diagnostics[0].site is not None


@pytest.mark.parametrize(
    "name",
    [
        "__builtin_trap",
        "__builtin_return_address",
        "__builtin_alloca",
        "__builtin_memcpy",
        "__builtin_ia32_pause",
        "__builtin_printf",
    ],
)
def test_builtin_functions_of_the_compiler(name: str) -> None:
    assert f"'{name}' is refused" in str(refused(f"{name}();"))
    assert f"'{name}' is refused" in str(refused("J(__built)();", f"#define J(a) a##{name[7:]}"))


@pytest.mark.parametrize(
    "line",
    [
        '#include "{path}"',
        "#include <{path}>",
        "#import <{path}>",
        "#include_next <{path}>",
        "  #  include   <{path}>  // tail",
        "#define P <{path}>\n#include P",
        '#define P "{path}"\n#include P',
        "#define J(a) <a>\n#include J({path})",
        "%:include <{path}>",
        "#inclu\\\nde <{path}>",
        "/* odd */ #include <{path}>",
        "const int v[] = {{\n#embed <{path}>\n}};",
        'const int v[] = {{\n#embed "{path}" limit(1)\n}};',
        "const int v[] = {{\n%:embed <{path}>\n}};",
        "#include <../../../../../../../../../../..{path}>",
        "#include <metalwright/../../../../../../../../..{path}>",
    ],
)
def test_files_of_the_host(line: str, outside: Path) -> None:
    for path in (outside, Path("/etc/passwd")):
        error = refused(line.format(path=path))
        assert "is outside the include roots" in str(error), str(error)
    # a file that is there and one that is not get the same answer
    there, missing = (
        str(refused(line.format(path=p))).replace(str(p), "PATH")
        for p in (outside, outside.with_name("absent.h"))
    )
    assert there == missing


@pytest.mark.parametrize(
    "header", ["stdio.h", "cstdlib", "vector", "stdint.h", "metalwright/entry.h", "metal_nothing"]
)
def test_headers_that_are_not_metals(header: str) -> None:
    assert f"'{header}' is outside the include roots" in str(refused(f"#include <{header}>"))


@pytest.mark.parametrize(
    "condition",
    [
        '__has_include("{path}")',
        "__has_include(<{path}>)",
        '__has_embed("{path}")',
        "__has_include_next(<{path}>)",
    ],
)
def test_a_kernel_cannot_ask_whether_a_file_is_there(condition: str, outside: Path) -> None:
    def answer(path: Path) -> str:
        try:
            body(
                f"#if {condition.format(path=path)}\n#error yes\n#else\n#error no\n#endif" + REST, *PARAMETERS
            )
        except CompileError as error:
            return str(error).replace(str(path), "PATH")
        raise AssertionError("one of the two must be an error")

    there = answer(outside)
    assert there == answer(outside.with_name("absent.h"))
    assert "yes" not in there


@pytest.mark.parametrize(
    "line",
    [
        '# 1 "<kernels>"',
        '#line 1 "/etc/passwd"',
        '#line 7 "k.helper_src"',
        '# 1 "/metalwright/include/metal_stdlib" 1 3',
        '# 1 "x.src" 3 4',
    ],
)
def test_lines_that_pretend_to_be_elsewhere_open_nothing(line: str) -> None:
    error = refused(f'{line}\n{{ asm("nop"); }}')
    assert "inline assembly is refused" in str(error)
    assert "root:" not in str(error)
    with pytest.raises(CompileError):
        body(f"{line}\nnonsense;" + REST, *PARAMETERS)


@pytest.mark.parametrize(
    "src",
    [
        "__mw_barrier(0, 0, 0);",
        "__mw::u32 n = 0;",
        "using namespace __mw;",
        "int __mw_x = 0;",
        "#define J(a, b) a##b\nJ(__m, w_context)();",
        "int __MW_x = 0;",
    ],
)
def test_names_of_metalwrights_own(src: str) -> None:
    assert "is refused: names that begin with __mw" in str(refused(src))


@pytest.mark.parametrize("src", ["__declspec(property(get=f)) int v;", "__declspec(dllimport) int v;"])
def test_declspec(src: str) -> None:
    assert "'__declspec' is refused" in str(refused(src))


@pytest.mark.parametrize(
    ("src", "word"),
    [
        ("double v = 1;", "double"),
        ("long double v = 1;", "double"),
        ("thread int* p = new int;", "new"),
        ("thread int* p = 0; delete p;", "delete"),
        ("goto end; end:;", "goto"),
        ("try { } catch (...) { }", "exceptions"),
        ("throw 1;", "exceptions"),
        ("struct A { virtual void f() { } };", "virtual"),
        ("thread_local int n = 0;", "thread_local"),
        ("auto n = typeid(int);", "typeid"),
        ("__float128 v = 1;", "__float128"),
        ("unsigned __int128 v = 1;", "__int128"),
        ("_Complex float v = 1;", "_Complex"),
        ("_BitInt(20) v = 1;", "_BitInt"),
        ("_Decimal32 v = 1;", "_Decimal32"),
        ("_Float16 v = 1;", "use half"),
        ("threadgroup __fp16 v[2];", "use half"),
        ("__bf16 v = 1;", "use bfloat"),
        ("int n = 0; auto p = dynamic_cast<thread int*>(&n);", "dynamic_cast"),
    ],
)
def test_what_cpp_has_and_metal_has_not(src: str, word: str) -> None:
    error = refused(src, kind=CompileError)
    assert word in error.diagnostics[0].message
    assert "not exist in Metal" in error.diagnostics[0].message
    assert error.diagnostics[0].site is not None


CONSTANT_SPACE = "must be in the constant address space"
NO_CONSTANT = "it must be a constant"


@pytest.mark.parametrize(
    ("src", "helper", "sentence"),
    [
        ("counter += 1;", "int counter;", CONSTANT_SPACE),
        ("counter += 1;", "static int counter = 5;", CONSTANT_SPACE),
        ("counter += 1;", "namespace { int counter; }", CONSTANT_SPACE),
        ("counter += S::n;", "struct S { static int n; };\nint S::n = 1; int counter;", CONSTANT_SPACE),
        (
            "out[gid] = v;",
            "float f(float);\nconstant float v = f(1);\nfloat f(float a) { return a * 2; }\n",
            NO_CONSTANT,
        ),
        ("", "struct S { S() { } ~S() { } };\nS s;", CONSTANT_SPACE),
    ],
)
def test_state_that_outlives_a_thread(src: str, helper: str, sentence: str) -> None:
    assert sentence in str(refused(src, helper, CompileError))


@pytest.mark.parametrize(
    "helper",
    [
        "__attribute__((constructor)) void boot() { }",
        "__attribute__((destructor)) void halt() { }",
        "[[gnu::constructor]] void boot() { }",
        '__attribute__((weak, alias("target"))) void other();',
        '__attribute__((section(".init_array"))) constant int n = 1;',
        '__attribute__((ifunc("resolve"))) void chosen();',
        '[[clang::annotate("x")]] void noted() { }',
        "__attribute__((used)) static void kept() { }",
        "__attribute__((naked)) void bare() { }",
    ],
)
def test_attributes_of_the_host_have_no_effect(helper: str) -> None:
    # they are dropped, or refused; in no case do they reach the program
    try:
        program = body("out[gid] = x[gid];", *PARAMETERS, helper=helper)
    except CompileError:
        return
    for word in ("global_ctors", "global_dtors", "init_array", "ifunc", " alias ", "llvm.used", "naked"):
        assert word not in program.module.text


@pytest.mark.parametrize(
    ("src", "helper"),
    [
        (
            "float (*p)(float) = gid > 3 ? twice : thrice;\nout[gid] = p(x[gid]);",
            "float twice(float v) { return 2 * v; }\nfloat thrice(float v) { return 3 * v; }",
        ),
        ("out[gid] = f(5);", "int f(int n) { return n ? n * f(n - 1) : 1; }"),
    ],
)
def test_pointers_to_functions_and_recursion(src: str, helper: str) -> None:
    error = refused(src, helper, UnsupportedFeatureError)
    assert "calls itself" in str(error) or "through a pointer" in str(error)


@pytest.mark.parametrize(
    ("src", "feature"),
    [
        ("depth2d<float> t;", "'depth2d' is not supported"),
        ("sampler s;", "'sampler' is not supported"),
        ("raytracing::ray r;", "'raytracing' is not supported"),
    ],
)
def test_features_that_do_not_run_are_named(src: str, feature: str) -> None:
    error = refused(src, kind=UnsupportedFeatureError)
    assert feature in error.diagnostics[0].message
    assert "does not run" in error.diagnostics[0].message
    assert error.diagnostics[0].site is not None
    assert error.diagnostics[0].site.line == 1


@pytest.mark.parametrize(
    ("text", "feature"),
    [
        ("vertex float4 v(uint i [[vertex_id]]) { return 0; }", "'vertex' is not supported"),
        ("fragment float4 f() { return 0; }", "'fragment' is not supported"),
        ("kernel void k(texturecube<float> t [[texture(0)]]) { }", "'texturecube' is not supported"),
        ("kernel void k(sampler s [[sampler(0)]]) { }", "[[sampler]] is not supported"),
        ("[[visible]] float f() { return 0; }", "'visible' is not supported"),
    ],
)
def test_stages_and_parameters_that_do_not_run_are_named(text: str, feature: str) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        whole(text)
    assert feature in str(caught.value)


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        (
            "uint gid [[thread_position_in_gird]]",
            "unknown attribute [[thread_position_in_gird]] on parameter 'gid'; known are: buffer(n)",
        ),
        ("uint gid [[lane]]", "unknown attribute [[lane]]"),
        ("uint gid", "parameter 'gid' of a kernel needs an attribute"),
        ("uint gid [[clang::thing]]", "unknown attribute [[clang::thing]]"),
    ],
)
def test_unknown_attributes_are_named(parameter: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        whole(f"kernel void k(device int* out,\n  {parameter}) {{ }}")
    assert message in str(caught.value)
    site = caught.value.diagnostics[0].site
    assert site is not None
    assert (site.file, site.line) == ("k.metal", 2)


@pytest.mark.parametrize(
    "pragma", ["GCC diagnostic push", "comment(lib)", "weak out", "clang loop unroll(full)"]
)
@pytest.mark.parametrize("written", ['_Pragma("{}")', '#define P(x) _Pragma(x)\nP("{}")', "#pragma {}\n"])
def test_pragmas_that_are_no_business_of_a_kernel_do_nothing(written: str, pragma: str) -> None:
    src = f"{written.format(pragma)}\nfor (int i = 0; i < 4; i++) out[gid] = x[gid];"
    try:
        text = body(src, *PARAMETERS).module.text
    except CompileError as error:
        assert "'_Pragma' is refused" in str(error)
        return
    assert "extern_weak" not in text
    assert "llvm.linker.options" not in text
