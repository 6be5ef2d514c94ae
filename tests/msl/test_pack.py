"""Pack and unpack functions against the conversion rules of the specification, in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf

from tests.support import launch, whole

DTYPES = {"float": np.dtype(np.float32), "half": np.dtype(np.float16)}
# name of the format: bits of each component, from the lowest on
UNSIGNED = {
    "unorm4x8": (8, 8, 8, 8),
    "unorm2x16": (16, 16),
    "unorm10a2": (10, 10, 10, 2),
    "unorm565": (5, 6, 5),
}
SIGNED = {"snorm4x8": (8, 8, 8, 8), "snorm2x16": (16, 16), "snorm10a2": (10, 10, 10, 2)}
FORMATS = UNSIGNED | SIGNED
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 0.25, 0.75]


def nearest_even(value: Fraction) -> int:
    return round(value)  # Python rounds a Fraction's ties to even


def to_unorm(value: float, bits: int) -> int:
    if np.isnan(value):
        return 0
    most = 2**bits - 1
    if np.isinf(value):
        return most if value > 0 else 0
    return nearest_even(min(max(Fraction(value) * most, Fraction(0)), Fraction(most)))


def to_snorm(value: float, bits: int) -> int:
    if np.isnan(value):
        return 0
    most = 2 ** (bits - 1) - 1
    if np.isinf(value):
        return (most if value > 0 else -most) % 2**bits
    return nearest_even(min(max(Fraction(value) * most, Fraction(-most)), Fraction(most))) % 2**bits


def packed(values: np.ndarray, bits: tuple[int, ...], convert: Callable[[float, int], int]) -> int:
    word, at = 0, 0
    for value, width in zip(values.tolist(), bits, strict=True):
        word |= convert(value, width) << at
        at += width
    return word


def fields(word: int, bits: tuple[int, ...]) -> list[int]:
    found = []
    for width in bits:
        found.append(word & (2**width - 1))
        word >>= width
    return found


def rounded(value: Fraction, dtype: np.dtype) -> float:
    """The nearest number of a type, found among its neighbours."""
    guess = dtype.type(float(value))
    candidates = [guess, np.nextafter(guess, dtype.type(9)), np.nextafter(guess, dtype.type(-9))]
    return float(min(candidates, key=lambda c: abs(Fraction(float(c)) - value)))


def from_norm(field: int, bits: int, signed: bool, dtype: np.dtype) -> float:
    if not signed:
        return rounded(Fraction(field, 2**bits - 1), dtype)
    value = field - 2**bits if field >= 2 ** (bits - 1) else field
    return rounded(max(Fraction(-1), Fraction(value, 2 ** (bits - 1) - 1)), dtype)


def inputs(dtype: np.dtype, lanes: int, most: int) -> np.ndarray:
    """Special values, values beside the ties between two integers, and values of all sizes."""
    rng = np.random.default_rng(lanes)
    steps = rng.integers(-most - 2, most + 2, 400) + 0.5
    ties = (steps / most).astype(dtype)
    up, down = np.nextafter(ties, dtype.type(9)), np.nextafter(ties, dtype.type(-9))
    spread = rng.normal(size=400).astype(dtype)
    values = np.concatenate([np.array(SPECIAL).astype(dtype), ties, up, down, spread])
    values = np.concatenate([values, values[: -len(values) % lanes]])
    return rng.permutation(values).reshape(-1, lanes)


def pack_kernel(element: str, name: str, lanes: int, word: str) -> str:
    return f"""
kernel void k(device const {element}* x [[buffer(0)]], device {word}* o [[buffer(1)]],
              uint i [[thread_position_in_grid]]) {{
  {element}{lanes} v;
  for (int j = 0; j < {lanes}; j++) v[j] = x[i * {lanes} + j];
  o[i] = {name}(v);
}}"""


def unpack_kernel(element: str, name: str, lanes: int, word: str) -> str:
    return f"""
kernel void k(device const {word}* x [[buffer(0)]], device {element}* o [[buffer(1)]],
              uint i [[thread_position_in_grid]]) {{
  const {element}{lanes} v = {name}(x[i]);
  for (int j = 0; j < {lanes}; j++) o[i * {lanes} + j] = v[j];
}}"""


def word_type(bits: tuple[int, ...]) -> tuple[str, type]:
    return ("ushort", np.uint16) if sum(bits) == 16 else ("uint", np.uint32)


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("name", FORMATS)
def test_packing_rounds_the_exact_product_to_even(name: str, element: str) -> None:
    bits, dtype = FORMATS[name], DTYPES[element]
    convert = to_snorm if name in SIGNED else to_unorm
    word, word_dtype = word_type(bits)
    x = inputs(dtype, len(bits), 2 ** (bits[0] - (name in SIGNED)) - 1)
    expected = np.array([packed(row, bits, convert) for row in x], word_dtype)
    for checked in (True, False):
        out = np.zeros(len(x), word_dtype)
        text = pack_kernel(element, f"pack_{element}_to_{name}", len(bits), word)
        launch(whole(text, checked=checked), {"x": x}, {"o": out}, len(x), 32)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("name", FORMATS)
def test_unpacking_rounds_once(name: str, element: str) -> None:
    bits, dtype = FORMATS[name], DTYPES[element]
    word, word_dtype = word_type(bits)
    # every value of each component; of 16 bits, the ends, the middle and some more
    rng = np.random.default_rng(1)
    count = min(2 ** max(bits), 4096)
    columns = [rng.permutation(np.resize(np.arange(2**width), 2 ** max(bits)))[:count] for width in bits]
    columns[0][:8] = [2 ** bits[0] - 1, 0, 1, *(2 ** (bits[0] - 1) + i for i in range(-2, 3))]
    words = np.zeros(count, np.uint64)
    for at, column in enumerate(columns):
        words |= column.astype(np.uint64) << np.uint64(sum(bits[:at]))
    words = words.astype(word_dtype)
    expected = np.array(
        [
            [from_norm(f, b, name in SIGNED, dtype) for f, b in zip(fields(int(w), bits), bits, strict=True)]
            for w in words
        ],
        dtype,
    )
    for checked in (True, False):
        out = np.zeros((len(words), len(bits)), dtype)
        text = unpack_kernel(element, f"unpack_{name}_to_{element}", len(bits), word)
        launch(whole(text, checked=checked), {"x": words}, {"o": out}, len(words), 64)
        np.testing.assert_array_equal(out, expected)


def linear(byte: int) -> Any:
    c = mpf(byte) / 255
    return c / mpf("12.92") if c <= mpf("0.04045") else ((c + mpf("0.055")) / mpf("1.055")) ** mpf("2.4")


def srgb(value: float) -> Any:
    """The sRGB value on the scale of bytes, before it is made an integer."""
    c = mpf(0) if np.isnan(value) else min(max(mpf(value), mpf(0)), mpf(1))
    c = c * mpf("12.92") if c < mpf("0.0031308") else mpf("1.055") * c ** (1 / mpf("2.4")) - mpf("0.055")
    return c * 255


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("checked", [True, False])
def test_srgb(element: str, checked: bool) -> None:
    dtype = DTYPES[element]
    words = (np.arange(256, dtype=np.uint32)[:, None] * np.array([1, 256, 65536, 2**24], np.uint32)).sum(1)
    words = words.astype(np.uint32)
    out = np.zeros((256, 4), dtype)
    text = unpack_kernel(element, f"unpack_unorm4x8_srgb_to_{element}", 4, "uint")
    launch(whole(text, checked=checked), {"x": words}, {"o": out}, 256, 32)
    with mp.workdps(40):
        for byte in range(256):
            ulp = float(np.spacing(dtype.type(float(linear(byte)))))
            for lane in range(3):
                assert abs(mpf(float(out[byte, lane])) - linear(byte)) <= 0.51 * ulp
            assert out[byte, 3] == from_norm(byte, 8, False, dtype)
    x = inputs(dtype, 4, 255)
    got = np.zeros(len(x), np.uint32)
    text = pack_kernel(element, f"pack_{element}_to_srgb_unorm4x8", 4, "uint")
    launch(whole(text, checked=checked), {"x": x}, {"o": got}, len(x), 32)
    with mp.workdps(40):
        for row, word in zip(x, got, strict=True):
            *colour, alpha = fields(int(word), (8, 8, 8, 8))
            for value, byte in zip(row[:3].tolist(), colour, strict=True):
                assert abs(srgb(value) - byte) <= mpf("0.5") + mpf(2) ** -40
            assert alpha == to_unorm(float(row[3]), 8)
    # what was unpacked packs to itself
    text = f"""
kernel void k(device const uint* x [[buffer(0)]], device uint* o [[buffer(1)]], uint i [[thread_position_in_grid]]) {{
  o[i] = pack_{element}_to_srgb_unorm4x8(unpack_unorm4x8_srgb_to_{element}(x[i]));
}}"""
    back = np.zeros(256, np.uint32)
    launch(whole(text, checked=checked), {"x": words}, {"o": back}, 256, 32)
    np.testing.assert_array_equal(back, words)


def test_vectors_of_other_kinds_are_taken() -> None:
    text = """
kernel void k(device uint* o [[buffer(0)]]) {
  float4 v = float4(1, 0, 1, 0);
  packed_float4 p = packed_float4(v);
  o[0] = metal::pack_float_to_unorm4x8(v.yxwz);
  o[1] = pack_float_to_unorm4x8(p);
  o[2] = pack_float_to_snorm2x16(v.xy);
}"""
    out = np.zeros(3, np.uint32)
    launch(whole(text), {}, {"o": out}, 1, 1)
    assert out.tolist() == [0xFF00FF00, 0x00FF00FF, 0x00007FFF]
