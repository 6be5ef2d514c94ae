"""What is wrong with a kernel is said about the user's own line, in Metal's words."""

from __future__ import annotations

import re

import pytest

from metalwright.errors import CompileError, Diagnostic, Site, UnsupportedFeatureError
from metalwright.msl import CompileOptions, Section, compile_msl
from tests.support import FILE, PRELUDE, body, tensor, whole

PARAMETERS = (
    tensor("float", 1, "x", 0),
    tensor("float", 1, "out", 1),
    "uint gid [[thread_position_in_grid]]",
)
# what nobody who writes MSL has to know
INTERNAL = re.compile(
    r"__mw|__MW|_Float16|__bf16|enable_if|requires|/metalwright/|\.yaml|/tmp/|/usr|ext_vector|<stdin>|site-packages"
)


def failure(src: str, helper: str = "", kind: type[CompileError] = CompileError) -> CompileError:
    with pytest.raises(kind) as caught:
        body(src, *PARAMETERS, helper=helper)
    return caught.value


def assert_points_at(error: CompileError, text: str, line: int, near: str, file: str = FILE) -> Diagnostic:
    first = error.diagnostics[0]
    assert first.site is not None, str(error)
    assert (first.site.file, first.site.line) == (file, line), str(error)
    written = text.split("\n")[line - 1].rstrip("\r")
    assert first.excerpt is not None
    assert first.excerpt.rstrip("\r") == written
    start = written.index(near)
    assert start < first.site.column <= start + len(near), str(error)
    lines = first.render().split("\n")
    assert lines[0].startswith(f"{file}:{line}:{first.site.column}: error: ")
    assert lines[1].rstrip("\r") == "    " + written
    assert lines[2].rstrip() == "    " + re.sub(r"[^\t]", " ", written[: first.site.column - 1]) + "^"
    assert not INTERNAL.search(str(error)), str(error)
    return first


@pytest.mark.parametrize(
    ("src", "line", "near", "message"),
    [
        ("out[gid] = x[gid] +;", 1, ";", "expected expression"),
        ("out[gid] = x[gid]  \nfloat y = 1;", 1, "]  ", "expected ';'"),
        ("float a = 1;\n\tout[gid] = missing;", 2, "missing", "undeclared identifier 'missing'"),
        ("float a = 1;\nout[gid] = foo(a, x[gid]);", 2, "foo", "undeclared identifier 'foo'"),
        ("out[gid] = x[gid] * float4(1.0);", 1, "x[gid] * float4(1.0)", "float4"),
        ("half4 h = half4(1.0h);\nout[gid] = h;", 2, "h", "half4"),
        ("ushort3 h = 1;\nbfloat b = h;", 2, "b = h", "ushort3"),
        ("float4 v = float4(1.0, 2.0);", 1, "float4(1.0, 2.0)", "float4"),
        ("float4 v = 1;\nout[gid] = v.q;", 2, "q", "no member named 'q'"),
        ("float4 v = 1;\nout[gid] = v.xyzwx;", 2, "xyzwx", "no member named 'xyzwx'"),
        ("out[gid, 0] = 1;", 1, "out[gid, 0]", ""),
        ("out[gid] = 1;\nout.get_extent() = 2;", 2, "get_extent()", "too few arguments"),
        ("constant float& c = x[0];\nc = 2;", 2, "c = 2", "const"),
        ("int n = 3;\nint n = 4;", 2, "n = 4", "redefinition of 'n'"),
        ("if (gid < 3 {\n}", 1, "{", "expected ')'"),
        ("uint3 p = gid;\nuint q = p;", 2, "q = p", "uint3"),
        ("threadgroup float t[4];\nt = 1;", 2, "t = 1", ""),
        ("simd_sum(1.0, 2.0);", 1, "simd_sum", "simd_sum"),
        ("atomic_fetch_add_explicit(&out[gid], 1.0, memory_order_relaxed);", 1, "atomic_fetch_add_explicit", "atomic_fetch_add_explicit"),
        ("#error stop here\nout[gid] = 1;", 1, "error", "stop here"),
        ("#if 1\nout[gid] = 1;", 1, "if", "unterminated"),
        ("int a = 1; /* é 漢 */ int b = missing;", 1, "missing", "undeclared identifier 'missing'"),
        ("static_assert(sizeof(float) == 5);", 1, "sizeof(float) == 5", "static assertion failed"),
        ("out[gid] = fma(x[gid], 2.0);", 1, "fma", "fma"),
    ],
)  # fmt: skip
def test_errors_point_into_the_users_line(src: str, line: int, near: str, message: str) -> None:
    error = failure(src)
    first = assert_points_at(error, src, line, near)
    assert message in first.message, first.message
    assert str(error).startswith("kernel 'k' does not compile\n")


@pytest.mark.parametrize(
    "before",
    [
        "",
        "#define A 1\n",
        "#include <metal_math>\n",
        "#define LONG \\\n  1\n#if LONG\n#endif\n#pragma mark x\n",
    ],
)
@pytest.mark.parametrize("spaces", ["", "    ", "\t\t"])
def test_the_preprocessor_moves_no_caret(before: str, spaces: str) -> None:
    src = f"{before}{spaces}device float*  p =    &x[0]; p[0]   = missing  + 1;"
    line = src.count("\n") + 1
    first = assert_points_at(failure(src), src, line, "missing")
    assert first.site is not None
    assert src.split("\n")[line - 1][first.site.column - 1 :].startswith("missing")


def test_an_error_behind_a_macro_is_shown_where_the_macro_is_used() -> None:
    src = "#define TWICE(v) (2 * (v))\nfloat a = 1;\nout[gid] = TWICE(missing);"
    assert_points_at(failure(src), src, 3, "TWICE(missing)")


def test_helpers_have_a_name_of_their_own() -> None:
    helper = "float f(float v) {\n  return v * missing;\n}"
    error = failure("out[gid] = f(x[gid]);", helper)
    assert_points_at(error, helper, 2, "missing", "k.helper_src")


@pytest.mark.parametrize("column_of", ["missing", "other_missing"])
def test_placeholders_are_shown_as_they_were_written(column_of: str) -> None:
    original = "const T a = T(1);\nout[gid] = T(x[gid]) * T(2) + NAME;".replace("NAME", column_of)
    for metal in ("float", "bfloat", "ushort", "i"):
        text = re.sub(r"\bT\b", metal, original)
        head = f"[[kernel]] void k({', '.join(PARAMETERS)}) {{"
        sections = (Section(PRELUDE), Section(head), Section(text, FILE, original), Section("}"))
        with pytest.raises(CompileError) as caught:
            compile_msl(sections, CompileOptions(), "k")
        if metal == "i":  # not a type: the first error is at the placeholder itself
            assert_points_at(caught.value, original, 1, "T a")
        else:
            first = assert_points_at(caught.value, original, 2, column_of)
            assert first.site is not None
            assert first.site.column == original.split("\n")[1].index(column_of) + 1


@pytest.mark.parametrize(
    "src",
    [
        "out[gid] = metal::max(x[gid], float4(1.0), 2);",
        "out[gid] = clamp(x[gid], 1, 2u, 3);",
        "out[gid] = dot(1, 2);",
        "out[gid] = as_type<half4>(x[gid]);",
        "out[gid] = simd_shuffle(x, 1);",
        "metal::array<float, 2> a = {1, 2, 3};",
        "out[gid] = x[float4(1.0)];",
        "out[gid] = x.slice(1, 2)[0];",
        "tensor<device float, dextents<int, 2>, tensor_inline> t(1);",
        "threadgroup_barrier(1);",
        'os_log_default.log("%d", x);',
        "half h = 1; out[gid] = h.x;",
        "half2 a = 1; bfloat2 b = a; out[gid] = a + b;",
        "vec<float, 5> v; out[gid] = v[0];",
        "atomic_uint n; n += 1; atomic_store_explicit(&n, 1.5);",
        "uint2 u = 1; float2 f = 2; out[gid] = (u + f).x; int2 i = u << f;",
    ],
)
def test_errors_from_inside_the_headers_stay_with_the_user(src: str) -> None:
    error = failure(src)
    assert not INTERNAL.search(str(error)), str(error)
    assert error.diagnostics[0].site is not None, str(error)
    assert error.diagnostics[0].site.file == FILE
    assert error.diagnostics[0].site.line == 1
    assert all(len(diagnostic.message) < 300 for diagnostic in error.diagnostics), str(error)


def test_generated_text_is_never_shown() -> None:
    # the brace closes the kernel early, and the generated one that follows is an error of nobody's line
    error = failure("out[gid] = 1; }")
    assert not INTERNAL.search(str(error)), str(error)
    assert "<generated>" not in str(error)


@pytest.mark.parametrize("src", ["if (gid) {", "out[gid] = (1;", "float a[3 = 1;", '"', "/*", "'", 'R"('])
def test_what_is_left_open_is_an_error(src: str) -> None:
    error = failure("float v = 1;\n" + src)
    assert not INTERNAL.search(str(error)), str(error)
    assert "<generated>" not in str(error)


def test_floods_of_errors_are_cut() -> None:
    error = failure("\n".join(f"out[gid] = missing{i};" for i in range(500)))
    assert 1 < len(error.diagnostics) <= 20
    assert len(str(error)) < 5000
    assert [d.site.line for d in error.diagnostics if d.site] == list(range(1, len(error.diagnostics) + 1))


def test_deep_templates_end() -> None:
    error = failure(
        "out[gid] = F<1>::v;", "template <int N> struct F { static constexpr int v = F<N + 1>::v; };"
    )
    assert not INTERNAL.search(str(error)), str(error)
    assert len(str(error)) < 5000


def test_endless_constant_expressions_end() -> None:
    error = failure(
        "constexpr int n = f();\nout[gid] = n;",
        "constexpr int f() { int n = 0; while (true) n ^= 1; return n; }",
    )
    assert "constexpr" in str(error) or "constant expression" in str(error)


def test_kernels_own_parameters_are_checked() -> None:
    for text, message in (
        (
            "kernel void k(device float* out [[buffer(0)]], float4 at [[thread_position_in_grid]]) { }",
            "three components",
        ),
        ("kernel void k(float v [[buffer(0)]]) { }", "a parameter with [[buffer(n)]] must be"),
    ):
        with pytest.raises(CompileError) as caught:
            whole(text)
        assert message in str(caught.value)
        assert not INTERNAL.search(str(caught.value)), str(caught.value)


def test_a_mark_before_the_first_character_is_none_of_the_source() -> None:
    src = "out[gid] = missing;"
    error = failure("\ufeff" + src)
    assert error.diagnostics[0].message == "use of undeclared identifier 'missing'"
    assert_points_at(error, "\ufeff" + src, 1, "missing")
    whole("\ufeffkernel void k(device int* x) { x[0] = 1; }")


def test_a_list_in_braces_is_no_range() -> None:
    src = "float sum = 0;\nfor (float v : {1.0, 2.0}) sum += v;"
    message = assert_points_at(failure(src), src, 2, ": {1.0").message
    assert message == "a list in braces has no type of its own here: make it an array"


def test_a_type_is_named_once() -> None:
    assert "aka" not in str(failure("ushort3 h = 1;\nuint q = h;\nbfloat b = h;"))


def test_features_keep_their_place_when_they_stand_in_a_helper() -> None:
    helper = "float f() {\n  depth2d<float> t;\n  return 1;\n}"
    error = failure("out[gid] = f();", helper, UnsupportedFeatureError)
    assert_points_at(error, helper, 2, "depth2d", "k.helper_src")


def test_the_caret_follows_tabs() -> None:
    text = Diagnostic("error", "bad", Site("a", 1, 4), "\tx\ty").render()
    assert text.split("\n") == ["a:1:4: error: bad", "    \tx\ty", "    \t \t^"]
    assert Diagnostic("error", "bad").render() == "error: bad"
