"""Products with quantised weights, a simdgroup a row, and the quantisation itself."""

from __future__ import annotations

import torch

from metalwright.check import random
from tests.bugs.bug import Bug, Case, Subject, launch, up


def _matvec_int8(w: torch.Tensor, scale: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (w.to(x.dtype) @ x) * scale


def _int8_case(dtype: torch.dtype, rows: int, n: int) -> Case:
    inputs = [random((rows, n), torch.int8), random((rows,), dtype), random((n,), dtype, low=-2, high=2)]
    return {"inputs": inputs, **launch((up(rows, 2) * 32,), (64,), [rows])}


INT8 = Subject(
    "matvec_int8",
    ("w", "scale", "x"),
    ("out",),
    "row lane simdgroup",
    """
    const uint n = w.get_extent(0), rows = w.get_extent(1);
    const uint r = row * 2 + simdgroup;  // two simdgroups, a row each
    if (r >= rows) return;
    float sum = 0.0f;
    for (uint i = lane; i < n; i += 32)
        sum += float(w[i, r]) * float(x[i]);
    sum = simd_sum(sum);
    if (lane == 0)
        out[r] = TYPE(sum * float(scale[r]));
    """,
    _matvec_int8,
    _int8_case,
    ((1, 1), (2, 3), (3, 31), (5, 32), (4, 33), (7, 67)),
    (torch.float32, torch.float16),
    {"x": "TYPE"},
)

_GROUP = 8


def _unpack(w: torch.Tensor) -> torch.Tensor:
    return torch.stack([w % 16, w // 16], -1).flatten(-2)


def _matvec_int4(w: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    groups = _unpack(w).to(x.dtype).reshape(*scale.shape, _GROUP)
    return ((groups * scale[..., None] + zero[..., None]).reshape(w.shape[0], -1) * x).sum(-1)


def _int4_case(dtype: torch.dtype, rows: int, groups: int) -> Case:
    n = groups * _GROUP
    inputs = [
        random((rows, n // 2), torch.uint8, low=0, high=256),
        random((rows, groups), dtype, low=0.5, high=2),
        random((rows, groups), dtype, low=-2, high=2),
        random((n,), dtype, low=-4, high=4),
    ]
    return {"inputs": inputs, **launch((up(rows, 2) * 32,), (64,), [rows])}


# sum (q * scale + zero) * x, of each group: scale * sum q x + zero * sum x
INT4 = Subject(
    "matvec_int4",
    ("w", "scale", "zero", "x"),
    ("out",),
    "row lane simdgroup",
    """
    const uint groups = scale.get_extent(0), rows = w.get_extent(1);
    const uint r = row * 2 + simdgroup;
    if (r < rows) {
        float sum = 0.0f;
        for (uint g = lane; g < groups; g += 32) {
            float products = 0.0f, values = 0.0f;
            for (uint i = 0; i < 4; ++i) {
                const uchar pair = w[g * 4 + i, r];
                const float first = x[g * 8 + 2 * i], second = x[g * 8 + 2 * i + 1];
                products += float(pair & 15) * first;
                products += float(pair >> 4) * second;
                values += first + second;
            }
            sum += scale[g, r] * products + zero[g, r] * values;
        }
        sum = simd_sum(sum);
        if (lane == 0)
            out[r] = sum;
    }
    """,
    _matvec_int4,
    _int4_case,
    ((1, 1), (2, 3), (3, 31), (5, 32), (4, 33)),
)


def _quantise(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.round(x / scale).clamp(-128, 127).to(torch.int8)


def _quantise_case(dtype: torch.dtype, n: int) -> Case:
    # multiples of a half: those in the middle between two integers are rounded to the even one
    x = (torch.arange(n, dtype=torch.float32) - n // 2) * 0.5
    return {"inputs": [x.to(dtype), 1.0], **launch((n,), (32,), [n])}


QUANTISE = Subject(
    "quantise",
    ("x", "scale"),
    ("out",),
    "gid",
    """
    const float value = rint(float(x[gid]) / scale);
    out[gid] = char(clamp(value, -128.0f, 127.0f));
    """,
    _quantise,
    _quantise_case,
    ((1,), (31,), (32,), (33,), (601,)),
    (torch.float32, torch.float16),
)

SUBJECTS = (INT8, INT4, QUANTISE)

BUGS = (
    Bug(INT8, "unsigned weights", "sign lost", "value", "float(w[i, r])", "float(uchar(w[i, r]))", (4, 33)),
    Bug(INT8, "scale of the lane", "read past the end", "fault", "if (lane == 0)\n        out[r] = TYPE(sum * float(scale[r]))", "const float mine = scale[lane];\n    if (lane == 0)\n        out[r] = TYPE(sum * mine)", (4, 33), "scale[lane]"),
    Bug(INT8, "one scale for all", "one row shared", "value", "scale[r]", "scale[0]", (4, 33)),
    Bug(INT8, "no such row", "read past the end", "fault", "if (r >= rows) return;", "", (3, 31), "w[i, r]"),
    Bug(INT8, "every second step", "wrong stride", "value", "i += 32", "i += 64", (7, 67)),
    Bug(INT8, "all lanes write their own", "two threads write one element", "race", "sum = simd_sum(sum);\n    if (lane == 0)\n        out[r] =", "out[r] =", (4, 33)),
    Bug(INT8, "lane 1 writes", "simdgroup operation with inactive lanes", "value", "for (uint i = lane; i < n; i += 32)\n        sum += float(w[i, r]) * float(x[i]);\n    sum = simd_sum(sum);", "for (uint i = lane; i < n; i += 32) {\n        sum += float(w[i, r]) * float(x[i]);\n        if (i + 32 >= n) sum = simd_sum(sum);\n    }", (4, 33)),
    Bug(INT8, "half sum", "accumulation in fp16", "value", "float sum = 0.0f", "half sum = 0.0h", (1, 6011), dtype=torch.float16),
    Bug(INT8, "rows of one simdgroup", "stride by the wrong unit", "unwritten", "row * 2 + simdgroup", "row + simdgroup", (7, 67)),
    Bug(INT8, "narrow product", "integer overflow", "value", "float(w[i, r]) * float(x[i])", "float(char(w[i, r] * 3)) / 3 * float(x[i])", (4, 33)),
    Bug(INT4, "nibbles swapped", "halves swapped", "value", "products += float(pair & 15) * first;\n                products += float(pair >> 4) * second;", "products += float(pair >> 4) * first;\n                products += float(pair & 15) * second;", (4, 33)),
    Bug(INT4, "mask of three bits", "wrong constant", "value", "pair & 15", "pair & 7", (4, 33)),
    Bug(INT4, "symmetric", "zero point not factored", "value", "float(pair & 15) * first", "(float(pair & 15) - 8.0f) * first", (4, 33)),
    Bug(INT4, "zeros left out", "term left out", "value", " + zero[g, r] * values", "", (4, 33)),
    Bug(INT4, "scale of the next group", "read past the end", "fault", "scale[g, r]", "scale[g + 1, r]", (1, 1), "scale[g + 1, r]"),
    Bug(INT4, "group of the pair", "transposed index", "fault", "w[g * 4 + i, r]", "w[r, g * 4 + i]", (2, 3)),
    Bug(INT4, "values of the next pair", "read past the end", "fault", "x[g * 8 + 2 * i + 1]", "x[g * 8 + 2 * i + 2]", (4, 33)),
    Bug(INT4, "sum not set", "private variable read before written", "uninitialised", "float products = 0.0f, values", "float products, values", (4, 33), "products += float(pair & 15)", missing="private variables are not observed: it is found as a NaN, not as an uninitialised read"),
    Bug(QUANTISE, "towards zero", "wrong rounding", "value", "rint(float(x[gid]) / scale)", "trunc(float(x[gid]) / scale)", (33,)),
    Bug(QUANTISE, "half away from zero", "wrong rounding", "value", "rint(float(x[gid]) / scale)", "round(float(x[gid]) / scale)", (33,)),
    Bug(QUANTISE, "wraps around", "integer overflow", "value", "char(clamp(value, -128.0f, 127.0f))", "char(int(value))", (601,)),
    Bug(QUANTISE, "one step less", "wrong constant", "value", "-128.0f", "-127.0f", (601,)),
)  # fmt: skip
