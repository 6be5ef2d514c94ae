"""What clang refuses and Metal has: casts between half and bfloat, operators between swizzles in templates."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from metalwright.errors import CompileError
from metalwright.msl.operands import end_of_operand
from tests.support import launch, whole

DTYPES = {"half": np.dtype(np.float16), "bfloat": np.dtype(ml_dtypes.bfloat16)}
CASTS = [
    "({to})x[i]",
    "{to}(x[i])",
    "static_cast<{to}>(x[i])",
    "({to})(x[i])",
    "({to})-(-x[i])",
    "({to})({to})x[i]",
    "({to})(float)({to})x[i]",
    "-({to})-x[i]",
    "template_static<{to}>(x[i])",
    "template_c<{to}>(x[i])",
    "template_functional<{to}>(x[i])",
    "holder<{to}>::of(x[i])",
    "vec<{to}, 2>(x[i], x[i]).y",
    "vec<{to}, 4>(x[i]).z",
    "{to}2({from}2(x[i])).x",
    "Pair<{from}>{{x[i], 2}}.first<{to}>()",
]
HELPERS = """
template <typename U, typename T> U template_static(T x) { return static_cast<U>(x); }
template <typename U, typename T> U template_c(T x) { return (U)x; }
template <typename U, typename T> U template_functional(T x) { return U(x); }
template <typename U> struct holder { using type = U; template <typename T> static U of(T x) { return type(x); } };
template <typename T> struct Pair { T a, b; template <typename U> U first() { return static_cast<U>(a); } };
"""


def every_bit_pattern(kind: str) -> np.ndarray:
    return np.arange(2**16, dtype=np.uint16).view(DTYPES[kind])


def converted(x: np.ndarray, to: str) -> np.ndarray:
    """By torch, through float, which holds both types."""
    wide = torch.from_numpy(x.astype(np.float32))
    narrow = wide.to(torch.float16 if to == "half" else torch.bfloat16)
    return narrow.view(torch.int16).numpy().view(DTYPES[to])


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize(("from_", "to"), [("half", "bfloat"), ("bfloat", "half")])
def test_casts_between_half_and_bfloat_round_once(from_: str, to: str, checked: bool) -> None:
    lines = "\n".join(
        f"  out[{len(CASTS)} * i + {n}] = {cast.format(to=to, **{'from': from_})};"
        for n, cast in enumerate(CASTS)
    )
    text = f"""{HELPERS}
kernel void k(device const {from_}* x [[buffer(0)]], device {to}* out [[buffer(1)]],
              uint i [[thread_position_in_grid]]) {{
{lines}
}}"""
    x = every_bit_pattern(from_)
    out = np.zeros((x.size, len(CASTS)), DTYPES[to])
    launch(whole(text, checked=checked), {"x": x}, {"out": out}, x.size, 256)
    expected = converted(x, to).astype(np.float32)
    for column, cast in enumerate(CASTS):
        np.testing.assert_array_equal(out[:, column].astype(np.float32), expected, err_msg=cast)


def test_a_template_still_casts_what_it_always_did() -> None:
    # the template is rewritten for half and bfloat: its other uses must stay what they were
    text = """
struct Wide { int v; explicit operator int() const { return v; } };
template <typename U, typename T> U to(T x) { return (U)x; }
template <typename U, typename T> U moved(T x) { return static_cast<U>(x); }
kernel void k(device half* h [[buffer(0)]], device float* o [[buffer(1)]]) {
  h[1] = (half)to<bfloat>(h[0]);
  h[2] = (half)moved<bfloat>(h[0]);
  o[0] = to<int>(2.75); o[1] = to<bool>(0.5f); o[2] = to<int>(Wide{7}); o[3] = moved<float3>(1.5f).z;
  o[4] = moved<int>(Wide{9}); o[5] = to<float2>(half2(3, 4)).y; o[6] = *to<device float*>(o);
}"""
    h, out = np.array([1.5, 0, 0], np.float16), np.zeros(7, np.float32)
    launch(whole(text), {}, {"h": h, "o": out}, 1, 1)
    assert h.tolist() == [1.5, 1.5, 1.5]
    assert out.tolist() == [2, 1, 7, 1.5, 9, 4, 2]


SWIZZLES = """
struct Complex { float re, im; };
inline Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
inline Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
inline Complex operator*(Complex a, Complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
inline bool operator<(Complex a, Complex b) { return a.re < b.re; }
inline bool operator==(Complex a, Complex b) { return a.re == b.re && a.im == b.im; }
template <typename T> void all_of_them(T a, T b, device T* o) {
  o[0] = T(a.xy + b.zw, a.zw - b.xy);
  o[1] = a.wzyx * b.xxyy + a.yxwz;
  o[2] = T(a.xyz * b.zyx + a.yyy * -b.xyz, any(!a.xx) ? 0 : 1);
  o[3].xy = a.xy + b.xy;
  o[3].zw = a.zw * (b.xy + b.zw);
  o[4] = T(a.xy == b.yx ? 1 : 0, 0, 0) ;
}
template <typename T> T plain(T a, T b) { return a.x + b.y; }
"""


@pytest.mark.parametrize("checked", [True, False])
def test_operators_between_swizzles_in_templates(checked: bool) -> None:
    source = SWIZZLES.replace("T(a.xy == b.yx ? 1 : 0, 0, 0)", "T(a.xy < b.yx ? 1 : 0, 0, 0, 0)")
    source = source.replace("a.xy < b.yx ? 1 : 0", "all(a.xy < b.yx) ? 1 : 0, any(a.xy == b.xy) ? 1 : 0")
    source = source.replace("1 : 0, 0, 0, 0)", "1 : 0, 0, 0)")
    text = f"""{source}
kernel void k(device const float4* x [[buffer(0)]], device float4* o [[buffer(1)]]) {{
  all_of_them(x[0], x[1], o);
  Complex c = Complex{{1, 2}} * Complex{{3, 4}} + Complex{{1, 1}};
  o[5] = float4(c.re, c.im, 0, 0);
}}"""
    a, b = np.array([1, 2, 3, 4], np.float32), np.array([5, 2, 7, 8], np.float32)
    out = np.zeros((6, 4), np.float32)
    launch(whole(text, checked=checked), {"x": np.stack([a, b])}, {"o": out}, 1, 1)
    assert out[0].tolist() == [*(a[:2] + b[2:]), *(a[2:] - b[:2])]
    assert out[1].tolist() == (a[::-1] * b[[0, 0, 1, 1]] + a[[1, 0, 3, 2]]).tolist()
    assert out[2].tolist() == [*(a[:3] * b[[2, 1, 0]] - a[1] * b[:3]), 1]
    assert out[3].tolist() == [*(a[:2] + b[:2]), *(a[2:] * (b[:2] + b[2:]))]
    assert out[4].tolist() == [float((a[:2] < b[[1, 0]]).all()), float((a[:2] == b[:2]).any()), 0, 0]
    assert out[5].tolist() == [1 * 3 - 2 * 4 + 1, 1 * 4 + 2 * 3 + 1, 0, 0]


@pytest.mark.parametrize(
    ("source", "place"),
    [
        # what stays wrong is reported where the user wrote it, however often the compiler ran
        ("half h = 1; bfloat b = bfloat(h); device int* p = b;", (1, 65)),
        ("half h = 1; bfloat b = h;", (1, 38)),
        ("float2x2 m; m = m == m;", (1, 37)),
    ],
)
def test_other_mistakes_are_reported_in_the_users_text(source: str, place: tuple[int, int]) -> None:
    with pytest.raises(CompileError) as caught:
        whole(f"kernel void k() {{ {source} }}")
    site = caught.value.diagnostics[0].site
    assert site is not None
    assert (site.line, site.column) == place


def test_a_mistake_in_a_template_with_swizzles_is_still_one() -> None:
    text = """
struct C { float a; };
inline C operator+(C a, C b) { return a; }
template <typename T> T add(T a, T b) { return T(a.xy + b.xyz, 1, 1); }
kernel void k(device float4* o [[buffer(0)]]) { o[0] = add(o[0], o[1]); }"""
    with pytest.raises(CompileError) as caught:
        whole(text)
    site = caught.value.diagnostics[0].site
    assert site is not None
    assert (site.file, site.line) == ("k.metal", 4)


@pytest.mark.parametrize(
    ("operand", "rest"),
    [
        ("x", ";"),
        ("x[i]", " + 1"),
        ("x.y->z", " * w"),
        ("-x", " - y"),
        ("*p++", " / 2"),
        ("(a + b)", " - c"),
        ("(a)(b)", ";"),
        ("(float)x", " + y"),
        ("(float)-x", " + y"),
        ("(float)(x)", " + y"),
        ("(a)", " - b"),
        ("f<int>(x)", " < y"),
        ("a", " < b"),
        ("metal::vec<T, 2>(x).y", ";"),
        ("ns::f(x, (y))[1].xyzw", ", z"),
        ("v.template get<3>()", ");"),
        ("static_cast<device T*>(p)[2]", " ? 1 : 2"),
        ("1.5f", " * x"),
        ("float4{1, 2, {3, 4}}.x", "}"),
        ("!(bool)x", " && y"),
    ],
)
def test_where_an_operand_ends(operand: str, rest: str) -> None:
    assert end_of_operand(f"(T) {operand}{rest}", 4) == 4 + len(operand)
