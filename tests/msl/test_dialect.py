"""The Metal dialect: address spaces, literals, attributes, the preprocessor; whole files as people write them."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest

from metalwright.errors import CompileError, MetalwrightError
from metalwright.msl import CompileOptions, Section, compile_msl
from tests.support import body, launch, tensor, whole

PARAMETERS = (
    tensor("float", 1, "x", 0),
    tensor("float", 1, "out", 1),
    "uint gid [[thread_position_in_grid]]",
)
X = np.arange(8, dtype=np.float32)


def run(src: str, helper: str = "", checked: bool = True) -> np.ndarray:
    """Run a body over 8 threads of one threadgroup; x is 0 … 7."""
    out = np.full(8, np.nan, np.float32)
    launch(body(src, *PARAMETERS, helper=helper, checked=checked), {"x": X}, {"out": out}, 8, 8)
    return out


# each computes 2 x + 1, with address spaces where programs have them
TWICE_AND_ONE = {
    "device pointer": ("device float* p = &x[gid];\nout[gid] = 2 * *p + 1;", ""),
    "pointer to const": ("const device float* p = &x[0];\nout[gid] = 2 * p[gid] + 1;", ""),
    "const behind": ("device float const* const p = &x[0];\nout[gid] = 2 * p[gid] + 1;", ""),
    "several declarators": ("device float *p = &x[0], *q = p + gid;\nout[gid] = *q + p[gid] + 1;", ""),
    "cast": ("out[gid] = 2 * *(device float*)(&x[gid]) + 1;", ""),
    "reinterpret_cast": (
        "auto p = reinterpret_cast<device const uint*>(&x[0]);\nout[gid] = 2 * as_type<float>(p[gid]) + 1;",
        "",
    ),
    "template argument": (
        "out[gid] = read<device float*>(&x[gid]) * 2 + 1;",
        "template <typename P> float read(P p) { return *p; }",
    ),
    "deduced": ("out[gid] = read(&x[gid]) * 2 + 1;", "template <typename T> T read(device T* p) { return *p; }"),
    "function parameters": (
        "float v = 0;\nstore(v, &x[gid], TWO);\nout[gid] = v;",
        "constant float TWO = 2;\nvoid store(thread float& v, const device float* p, constant float& s) { v = s * *p + 1; }",
    ),
    "overloads by address space are one": (
        "float mine = x[gid];\nout[gid] = twice((thread const float*)&mine) + 1;",
        "inline float twice(thread const float* p) { return 2 * p[0]; }",
    ),
    "struct members": (
        "View v{&x[0], 2};\nout[gid] = v.at(gid) + 1;",
        "struct View { device float* p; float scale; float at(uint i) const thread { return scale * p[i]; } };",
    ),
    "constant table": ("out[gid] = T[1] * x[gid] + T[0];", "constant float T[] = {1, 2};"),
    "constant table of vectors": ("out[gid] = T[1].y * x[gid] + T[0].x;", "constant float2 T[2] = {{1, 0}, {0, 2}};"),
    "constant struct": ("out[gid] = S.a * x[gid] + S.b[1];", "struct P { float a; int b[2]; };\nconstant P S = {2, {0, 1}};"),
    "constexpr constant": ("out[gid] = A * x[gid] + B;", "constexpr constant float A = 2;\nstatic constant constexpr int B = 1;"),
    "constant in a namespace": ("out[gid] = N::A * x[gid] + 1;", "namespace N { constant float A = 2.0; }"),
    "local constexpr": ("constexpr float a = 2.0;\nout[gid] = a * x[gid] + 1;", ""),
    "thread reference": ("float v = x[gid];\nthread float& r = v;\nr *= 2;\nthread float* p = &v;\n*p += 1;\nout[gid] = v;", ""),
    "thread array": ("thread float a[2] = {x[gid], 1};\nout[gid] = 2 * a[0] + a[1];", ""),
    "threadgroup pointer": (
        "threadgroup float t[8];\nt[gid] = x[gid];\nthreadgroup float* p = t;\nthreadgroup_barrier(mem_flags::mem_threadgroup);\n"
        "out[gid] = 2 * p[gid] + 1;",
        "",
    ),
    "threadgroup argument": (
        "threadgroup float t[8];\nput(t, gid, x[gid]);\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nout[gid] = t[gid];",
        "void put(threadgroup float* t, uint i, float v) { t[i] = 2 * v + 1; }",
    ),
    "threadgroup declarators": (
        "threadgroup float a[8], b[8], c;\na[gid] = x[gid]; b[gid] = a[gid]; if (gid == 0) c = 1;\n"
        "threadgroup_barrier(mem_flags::mem_threadgroup);\nout[gid] = a[gid] + b[gid] + c;",
        "",
    ),
    "threadgroup rows": (
        "threadgroup float t[ROWS][W + 1][2];\nt[gid / W][gid % W][1] = x[gid];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\n"
        "out[gid] = 2 * t[gid / W][gid % W][1] + 1;",
        "#define ROWS 2\nconstant constexpr int W = 4;",
    ),
    "threadgroup structs": (
        "threadgroup Pair t[8];\nt[gid].a = x[gid]; t[gid].b = 1;\nthreadgroup_barrier(mem_flags::mem_threadgroup);\n"
        "out[gid] = 2 * t[gid].a + t[7 - gid].b;",
        "struct Pair { float a; int b; };",
    ),
    "threadgroup metal::array": (
        "threadgroup metal::array<float, 8> t;\nt[gid] = x[gid];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nout[gid] = 2 * t[gid] + 1;",
        "",
    ),
    "threadgroup in a block": (
        "for (int i = 0; i < 2; i++) {\n  threadgroup float t[8];\n  t[7 - gid] = x[7 - gid];\n  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
        "  out[gid] = 2 * t[gid] + 1;\n  threadgroup_barrier(mem_flags::mem_threadgroup);\n}",
        "",
    ),
    "threadgroup vectors": (
        "threadgroup float4 t[2];\nt[gid / 4][gid % 4] = x[gid];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nout[gid] = 2 * t[gid / 4][gid % 4] + 1;",
        "",
    ),
    "threadgroup atomics": (
        "threadgroup atomic_uint n;\nif (gid == 0) atomic_store_explicit(&n, 0u, memory_order_relaxed);\n"
        "threadgroup_barrier(mem_flags::mem_threadgroup);\natomic_fetch_add_explicit(&n, 1u, memory_order_relaxed);\n"
        "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
        "out[gid] = 2 * x[gid] + atomic_load_explicit(&n, memory_order_relaxed) - 7;",
        "",
    ),
    "using and typedef": (
        "P p = &x[0];\nC c = p;\nout[gid] = 2 * c[gid] + 1;",
        "using P = device float*;\ntypedef const device float* C;",
    ),
    "lambda": ("auto f = [&](float v) { return 2 * v + 1; };\nout[gid] = f(x[gid]);", ""),
    "enum and switch": (
        "float r = 0;\nswitch (Kind(gid % 2)) {\n  case Kind::even: r = 2 * x[gid] + 1; break;\n  default: r = x[gid] * 2 + 1;\n}\nout[gid] = r;",
        "enum class Kind : uint { even, odd };",
    ),
    "operators": (
        "Line l{2, 1};\nout[gid] = l(x[gid]);",
        "struct Line { float a, b; float operator()(float v) const { return a * v + b; } };",
    ),
    "constructors": ("Line l(2);\nout[gid] = l.a * x[gid] + l.b;", "struct Line { float a, b = 1; Line(float v) : a(v) { } };"),
    "class template": (
        "Line<float, 2> l;\nout[gid] = l.at(x[gid]);",
        "template <typename T, int A> struct Line { static constexpr constant int B = 1; T at(T v) { return A * v + B; } };",
    ),
    "variadic template": (
        "out[gid] = sum(x[gid], x[gid], 1.0);",
        "template <typename... T> float sum(T... v) { return (v + ...); }",
    ),
    "if constexpr": (
        "out[gid] = f<float>(x[gid]);",
        "template <typename T> T f(T v) { if constexpr (is_same_v<T, float>) return 2 * v + 1; else return 0; }",
    ),
    "comments in odd places": (
        "device /* a */ float // b\n* /* c */ p = /* device */ &x[gid]; out[/**/gid/**/] = 2 * *p /* é 漢字 */ + 1; // ünï",
        "constant/* */float/* threadgroup */UNUSED = 1;",
    ),
    "macros": (
        "DECLARE(p, x);\nout[gid] = LINE(p[gid]);",
        "#define DECLARE(name, of) device float* name = \\\n  &of[0]\n#define LINE(v) \\\n  (2 * (v) \\\n  + 1)",
    ),
    "macros in the body": ("#define A 2\n#if A > 1 && !defined(NOTHING)\nout[gid] = A * x[gid] + 1;\n#else\n#error no\n#endif", ""),
    "metal version": ("#if defined(__METAL__) && __METAL_VERSION__ >= 300\nout[gid] = 2 * x[gid] + 1;\n#endif", ""),
    "unroll": ("float s = 1;\n#pragma unroll\nfor (int i = 0; i < 2; i++) s += x[gid];\nout[gid] = s;", ""),
    "unroll macro": ("float s = 1;\n#pragma unroll(2)\nfor (int i = 0; i < 2; i++) s += x[gid];\nout[gid] = s;", ""),
    "attributes on statements": (
        "[[maybe_unused]] float u = 0;\nif (gid < 99) [[likely]] out[gid] = 2 * x[gid] + 1;\nelse [[unlikely]] out[gid] = 0;",
        "[[nodiscard]] float f() { return 1; }\n__attribute__((noinline)) float g() { return 1; }",
    ),
    "line ends of Windows": ("#define A 2\r\nfloat v = A * x[gid];\r\nout[gid] = v + 1;\r\n", "constant float B = 1;\r\n"),
    "early return": ("out[gid] = 2 * x[gid] + 1;\nif (gid < 99) return;\nout[gid] = 0;", ""),
    "nested templates": ("metal::array<metal::array<float, 2>, 2> a = {};\na[1][0] = 2;\nout[gid] = a[1][0] * x[gid] + 1;", ""),
    "words that only begin like keywords": ("int kernels = 1, device_count = 2, threadgroups = 0, constants = 0;\nout[gid] = device_count * x[gid] + kernels + threadgroups + constants;", ""),
    "half times a literal is float": ("half h = half(x[gid]);\nstatic_assert(is_same_v<decltype(h * 2.0), float>);\nout[gid] = h * 2.0 + 1;", ""),
    "do, while, comma": ("int i = 0; float s = 1;\ndo { s += x[gid]; } while (++i, i < 2);\nout[gid] = s;", ""),
    "ternary of literals": ("out[gid] = gid < 99 ? 2.*x[gid] + 1.: .0;", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", TWICE_AND_ONE)
def test_programs_as_people_write_them(name: str) -> None:
    np.testing.assert_array_equal(run(*TWICE_AND_ONE[name]), 2 * X + 1)


@pytest.mark.parametrize(
    "name",
    [name for name in TWICE_AND_ONE if name.startswith(("threadgroup", "thread ", "struct", "constant"))],
)
def test_programs_unchecked(name: str) -> None:
    np.testing.assert_array_equal(run(*TWICE_AND_ONE[name], checked=False), 2 * X + 1)


LITERALS = {
    "1.0": ("float", 1.0),
    ".5": ("float", 0.5),
    "5.": ("float", 5.0),
    "1e3": ("float", 1000.0),
    "1E-3f": ("float", 1e-3),
    "1'000.5": ("float", 1000.5),
    "0x1p4": ("float", 16.0),
    "0x1.8p-1f": ("float", 0.75),
    "0x.8p0": ("float", 0.5),
    "1.0f": ("float", 1.0),
    "1.0F": ("float", 1.0),
    "1.5h": ("half", 1.5),
    "1e2H": ("half", 100.0),
    "0x1p-3h": ("half", 0.125),
    "2.5bf": ("bfloat", 2.5),
    "2.5BF": ("bfloat", 2.5),
    "1": ("int", 1),
    "0xffU": ("uint", 255),
    "0xff": ("int", 255),
    "0b1010": ("int", 10),
    "017": ("int", 15),
    "1'000'000": ("int", 1000000),
    "3u": ("uint", 3),
    "3ul": ("ulong", 3),
    "3l": ("long", 3),
    "0xF": ("int", 15),
    "0x1e3": ("int", 0x1E3),
    "0xbf": ("int", 0xBF),
    "0xABF": ("int", 0xABF),
    "'a'": ("char", 97),
    "'\\n'": ("char", 10),
    "true": ("bool", 1),
}


def test_literals_have_the_types_and_values_of_metal() -> None:
    lines = [f"static_assert(is_same_v<decltype({text}), {kind}>);" for text, (kind, _) in LITERALS.items()]
    lines += [f"out[{i}] = float({text});" for i, text in enumerate(LITERALS)]
    out = np.zeros(len(LITERALS), np.float32)
    program = body("\n".join(lines), tensor("float", 1, "out", 0))
    launch(program, {}, {"out": out}, 1, 1)
    assert out.tolist() == [np.float32(value) for _, value in LITERALS.values()]


@pytest.mark.parametrize(
    ("text", "dtype"),
    [("0.1h", np.float16), ("0.1bf", ml_dtypes.bfloat16), ("0.1", np.float32), ("3.4028235e38", np.float32)],
)
def test_literals_are_rounded_once(text: str, dtype: type) -> None:
    out = np.zeros(1, np.float32)
    launch(body(f"out[0] = float({text});", tensor("float", 1, "out", 0)), {}, {"out": out}, 1, 1)
    value = float(text.rstrip("hbf"))
    assert out[0] == np.float32(dtype(value)), struct.pack("<f", out[0]).hex()


def test_division_of_literals_is_in_float() -> None:
    # 1.0/3.0 in double and then rounded differs from float in other cases: 0.1 + 0.2 does
    np.testing.assert_array_equal(run("out[gid] = 0.1 + 0.2;"), np.full(8, np.float32(0.1) + np.float32(0.2)))
    np.testing.assert_array_equal(run("out[gid] = (16777216.0 + 1.0) - 16777216.0;"), np.zeros(8))


def test_char_is_signed() -> None:
    np.testing.assert_array_equal(run("char c = char(200);\nout[gid] = c;"), np.full(8, -56.0))


def test_integers_wrap_around() -> None:
    src = "int i = 2147483647;\ni += int(gid) + 1;\nuint u = 0u - gid;\nout[gid] = (i < 0) + (gid == 0 || u > 2147483648u);"
    np.testing.assert_array_equal(run(src), np.full(8, 2.0))


def test_strings_and_raw_strings_are_left_alone() -> None:
    src = 'constexpr char a[] = "device 1.0 [[x]] // no";\nconstexpr char b[] = R"(kernel "asm" 1.0)";\nout[gid] = sizeof(a) + sizeof(b);'
    expected = len("device 1.0 [[x]] // no") + 1 + len('kernel "asm" 1.0') + 1
    np.testing.assert_array_equal(run(src), np.full(8, expected))


def test_an_empty_body_runs() -> None:
    for src in ("", ";", "// nothing", "\n\n", "/* a\nb */"):
        assert np.isnan(run(src)).all()


@pytest.mark.parametrize(
    "src", ["out[gid] = 1; // tail", "out[gid] = 1;\n#define A 1", "#if 0\n#endif\nout[gid] = 1;"]
)
def test_the_end_of_a_body_does_not_swallow_what_follows(src: str) -> None:
    np.testing.assert_array_equal(run(src), np.ones(8))


# -- whole files -----------------------------------------------------------------------------------------------------

FILE = """
#include <metal_stdlib>
#include <metal_math>
using namespace metal;

#define SCALE 2.0

struct Arguments {
  float scale;
  uint count;
};

namespace detail {
template <typename T>
T line(T v, constant Arguments& a) { return v * T(a.scale) + T(1); }

kernel void inside(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = 3; }
}

kernel void first(device const float* x [[buffer(0)]],
                  device float* out [[buffer(1)]],
                  constant float& scale [[buffer(2)]],
                  uint i [[thread_position_in_grid]]) {
  out[i] = x[i] * scale;
}

[[kernel]] void second(const device float* x [[ buffer(0) ]], device float* out [[ buffer(1) ]],
                       uint i [[ thread_position_in_grid ]]) {
  out[i] = x[i] * SCALE;
}

[[host_name("third.kernel")]] kernel void third(device float* out, uint i [[thread_position_in_grid]]) { out[i] = 5; }

[[kernel, max_total_threads_per_threadgroup(16)]] void fourth(device float* out, uint i [[thread_position_in_grid]]) { out[i] = 6; }

template <typename T, int N>
[[kernel]] void made(device const T* x [[buffer(0)]], device T* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  out[i] = x[i] * N;
}
template [[host_name("made_float")]] [[kernel]] void made<float, 2>(device const float*, device float*, uint);
template [[host_name("made_int")]] kernel void made<int, 3>(device const int* x [[buffer(0)]], device int* out [[buffer(1)]], uint i [[thread_position_in_grid]]);

template <typename T>
kernel void other(device T* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = T(7); }
typedef decltype(other<float>) other_type;
template [[host_name("other_float")]] kernel other_type other<float>;
#define MAKE(name, type) template [[host_name(#name)]] [[kernel]] decltype(other<type>) other<type>;
MAKE(other_int, int)

static float helper(float v);
kernel void last(device const float* x, device float* out, uint i [[thread_position_in_grid]]) { out[i] = helper(x[i]); }
static float helper(float v) { return v + 0.5; }
"""


def test_a_file_of_kernels() -> None:
    module = compile_msl((Section(FILE, "k.metal"),), CompileOptions(), "k")
    assert [kernel.name for kernel in module.kernels] == [
        "inside", "first", "second", "third.kernel", "fourth", "made_float", "made_int", "other_float", "other_int", "last",
    ]  # fmt: skip
    assert module.kernel("fourth").max_threads == 16
    assert module.kernel("first").max_threads == 1024
    first = module.kernel("first").parameters
    assert [(p.name, p.kind, p.index, p.element, p.address_space) for p in first] == [
        ("x", "pointer", 0, "f32", "device"),
        ("out", "pointer", 1, "f32", "device"),
        ("scale", "reference", 2, "f32", "constant"),
        ("i", "attribute", -1, "ui32", ""),
    ]
    assert first[3].attribute == "thread_position_in_grid"
    assert module.kernel("made_int").parameters[0].element == "si32"


@pytest.mark.parametrize(
    ("kernel", "inputs", "expected"),
    [
        ("inside", {}, X * 0 + 3),
        ("first", {"x": X}, X * 4),
        ("second", {"x": X}, X * 2),
        ("third.kernel", {}, X * 0 + 5),
        ("fourth", {}, X * 0 + 6),
        ("made_float", {"x": X}, X * 2),
        ("made_int", {"x": X.astype(np.int32)}, (X * 3).astype(np.int32)),
        ("other_float", {}, X * 0 + 7),
        ("other_int", {}, (X * 0 + 7).astype(np.int32)),
        ("last", {"x": X}, X + 0.5),
    ],
)
def test_each_kernel_of_a_file(kernel: str, inputs: dict[str, np.ndarray], expected: np.ndarray) -> None:
    program = whole(FILE, kernel)
    out = np.zeros_like(expected)
    if kernel == "first":
        x = inputs["x"]
        from metalwright.engine import Scalar
        from tests.support import buffer

        arguments = [
            buffer("x", x, writable=False),
            buffer("out", out, writable=True),
            Scalar("s", np.float32(4).tobytes(), "f32"),
        ]
        program.launch(arguments, (8, 1, 1), (4, 1, 1))
    else:
        launch(program, inputs, {"out": out}, 8, 4)
    np.testing.assert_array_equal(out, expected)


def test_structs_arrive_as_the_host_lays_them_out() -> None:
    text = """
struct A { uint count; float scale; packed_float3 v; uchar flag; float4 w; };
kernel void k(constant A& a [[buffer(0)]], device const A* all [[buffer(1)]], device float* out [[buffer(2)]]) {
  out[0] = a.count; out[1] = a.scale; out[2] = a.v.z; out[3] = a.flag; out[4] = a.w.y; out[5] = all[1].w.w; out[6] = sizeof(A);
}"""
    one = struct.pack("<If3fB3x4f", 7, 0.5, 1, 2, 3, 9, 10, 11, 12, 13)
    assert len(one) == 40
    padded = struct.pack("<If3fB11x4f", 7, 0.5, 1, 2, 3, 9, 10, 11, 12, 13)  # float4 is aligned to 16
    assert len(padded) == 48
    two = np.frombuffer(padded * 2, np.uint8).copy()
    out = np.zeros(7, np.float32)
    launch(whole(text), {"a": two[:48].copy(), "all": two}, {"out": out}, 1, 1)
    assert out.tolist() == [7, 0.5, 3, 9, 11, 13, 48]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel int k(device int* out) { return 1; }", "kernel 'k' must return void"),
        ("threadgroup float t[4];\nkernel void k(device int* out) { }", "can only stand in a kernel's body"),
        (
            "kernel void k(device int* out) { threadgroup int t = 0; }",
            "threadgroup variable 't' cannot have an initial value",
        ),
        (
            "kernel void k(device int* out) { threadgroup int t[2] = {0, 1}; }",
            "threadgroup variable 't' cannot have an initial value",
        ),
        ("kernel void k(int n) { }", "parameter 'n' of a kernel needs an attribute"),
    ],
)
def test_what_the_dialect_does_not_allow(text: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        whole(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["kernel", "kernel void", "kernel void k(", "[[", "[[kernel", "template", "template [[host_name(", "threadgroup", "device",
     "kernel void k(device int* out [[buffer(", "/*", '"', "'", 'R"(', "}", "{", ")", "]]", "#", "#if", "\\", "1.0.0.0", "0x", "kernel void k(device int* out) {",
     "namespace N {", "namespace", "struct", "constant constant", "asm", "[[[[[[", "((((", "<<<<", "template <", "\0", "\ufeff", "a" * 100_000],
    ids=lambda text: repr(text[:30]),
)  # fmt: skip
def test_pieces_of_programs_are_errors_and_nothing_worse(text: str) -> None:
    with pytest.raises((MetalwrightError, KeyError)):
        whole(text)


def test_kernels_declared_first_named_from_outside_and_by_pieces_of_text() -> None:
    """A declaration leaves the attributes to the definition; a name may begin at ``::``; literals are joined."""
    text = """
namespace a { namespace b {
template <typename T> kernel void scale(device T* out, constant T* x, uint i);
template <typename T>
kernel void scale(device T* out [[buffer(1)]], constant T* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = 2 * x[i] + 1;
}
} }
#define MAKE(name, T) template [[host_name(#name "_" #T)]] kernel void ::a::b::scale<T>(device T*, constant T*, uint);
namespace a { MAKE(scale, float) }
"""
    out = np.zeros(8, np.float32)
    launch(whole(text, "scale_float"), {"x": X}, {"out": out}, 8, 8)
    np.testing.assert_array_equal(out, 2 * X + 1)


def test_a_definition_still_needs_its_attributes() -> None:
    text = (
        "kernel void k(device float* out, uint i);\nkernel void k(device float* out, uint i) { out[i] = 1; }"
    )
    with pytest.raises(
        CompileError, match=r"k.metal:2:39: error: parameter 'i' of a kernel needs an attribute"
    ):
        whole(text)
