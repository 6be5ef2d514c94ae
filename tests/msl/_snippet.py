"""What the tests of the headers' types share: snippets of C++ that are compiled, checked or run; values."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from _jit import CompileError, Library, compile_ir, load

HEADERS = """
#include <metal_types>
#include <metal_type_traits>
#include <metal_limits>
#include <metal_array>
#include <metal_integer>
#include <metal_common>
#include <metal_relational>
#include <metal_geometric>
using namespace metal;
"""
# The code generator rounds float to bfloat by a call, which the engine provides; here the test does.
BFLOAT_ROUNDING = """
extern "C" bfloat __truncsfbf2(float x) {
  uint u = __builtin_bit_cast(uint, x);
  u = (u & 0x7fffffff) > 0x7f800000 ? u | 0x400000 : u + 0x7fff + ((u >> 16) & 1);
  return __builtin_bit_cast(bfloat, (ushort)(u >> 16));
}
"""
INTEGERS = {
    "char": np.int8,
    "uchar": np.uint8,
    "short": np.int16,
    "ushort": np.uint16,
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
}
FLOATS = {"float": np.float32, "half": np.float16}
SCALARS = ["bool", *INTEGERS, *FLOATS, "bfloat"]
SIZES = {
    "bool": 1,
    "char": 1,
    "uchar": 1,
    "short": 2,
    "ushort": 2,
    "int": 4,
    "uint": 4,
    "long": 8,
    "ulong": 8,
}
SIZES |= {"half": 2, "bfloat": 2, "float": 4}
PARSE = ["-fsyntax-only", "-Wno-unused-command-line-argument"]


def check_static(*assertions: str, before: str = "") -> None:
    """Compiles the assertions, each of which must hold in a constant expression."""
    compile_ir(HEADERS + before + "\n".join(f"static_assert({a});" for a in assertions), PARSE)


def error_of(statements: str) -> str:
    """What clang says of a function body that must not compile."""
    with pytest.raises(CompileError) as caught:
        compile_ir(HEADERS + f"void body() {{ {statements} }}", [*PARSE, "-Wno-unused"])
    return str(caught.value)


def run(source: str, names: list[str], flags: tuple[str, ...] = ("-O1",)) -> Library:
    return load(HEADERS + BFLOAT_ROUNDING + source, names, flags)


def reference_dtype(type_: str) -> torch.dtype:
    special = {"bool": torch.bool, "char": torch.int8, "uchar": torch.uint8, "bfloat": torch.bfloat16}
    floats = {"half": torch.float16, "float": torch.float32}
    return (special | floats).get(type_) or torch.from_numpy(np.zeros(1, INTEGERS[type_])).dtype


class Raw:
    """A torch tensor in the form in which the harness takes pointers."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.ctypes = self
        self.data = tensor.data_ptr()


def aligned(values: np.ndarray) -> np.ndarray:
    """A copy where vectors of 32 bytes may be."""
    memory = np.empty(values.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def integer_values(dtype: type, rng: np.random.Generator, count: int) -> np.ndarray:
    """Random and edge values, shuffled."""
    info = np.iinfo(dtype)
    edges = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, info.max // 2, info.max // 3]
    edges += [-1, -2] if info.min else [info.max // 2 + 1]
    spread = rng.integers(info.min, info.max, count - len(edges), dtype=dtype, endpoint=True)
    spread[::3] >>= rng.integers(0, info.bits, len(spread[::3])).astype(dtype)
    return rng.permutation(np.concatenate([np.array(edges, dtype), spread]))


def float_values(dtype: type, rng: np.random.Generator, count: int) -> np.ndarray:
    """Random bit patterns (so every binade, infinities and NaN), special values and ordinary numbers."""
    info = np.finfo(dtype)
    special = [
        0.0,
        -0.0,
        1,
        -1,
        2,
        0.5,
        np.inf,
        -np.inf,
        np.nan,
        info.max,
        info.min,
        info.tiny,
        info.smallest_subnormal,
    ]
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    patterns = rng.integers(
        0, np.iinfo(bits).max, (count - len(special)) // 2, dtype=bits, endpoint=True
    ).view(dtype)
    ordinary = (rng.standard_normal(count - len(special) - len(patterns)) * 10).astype(dtype)
    return rng.permutation(np.concatenate([np.array(special, dtype), patterns, ordinary]))
