"""The kernels that PyTorch's registration macros make, with operators of our own, against torch on the CPU."""

from __future__ import annotations

import functools

import pytest
import torch

from metalwright import compile_shader
from metalwright.authoring import ShaderLibrary
from tests.thirdparty.pytorch.operators import (
    COMPLEX_BINARY,
    FLOAT_BINARY,
    FLOAT_UNARY,
    HEAD,
    INTEGER_BINARY,
    Operator,
)

COUNT = 61
TYPES = {
    "float": torch.float32,
    "half": torch.float16,
    "bfloat": torch.bfloat16,
    "int": torch.int32,
    "long": torch.int64,
    "short": torch.int16,
    "char": torch.int8,
    "uchar": torch.uint8,
    "bool": torch.bool,
    "float2": torch.complex64,
}
# c10/metal/common.h numbers the types as torch does
CODES = {
    "uchar": 0,
    "char": 1,
    "short": 2,
    "int": 3,
    "long": 4,
    "half": 5,
    "float": 6,
    "float2": 9,
    "bool": 11,
    "bfloat": 15,
}


def values(operator: Operator, dtype: torch.dtype, seed: int, count: int = COUNT) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_complex:
        pair = torch.rand(2, count, generator=generator) * (operator.high - operator.low) + operator.low
        return torch.complex(pair[0], pair[1])
    low, high = operator.low, operator.high
    if operator.whole or not dtype.is_floating_point:
        least = max(int(low), 0) if dtype is torch.uint8 else int(low)
        return torch.randint(least, int(high) + 1, (count,), generator=generator).to(dtype)
    return (torch.rand(count, generator=generator) * (high - low) + low).to(dtype)


@functools.cache
def library(operators: tuple[Operator, ...], kinds: tuple[str, ...]) -> ShaderLibrary:
    lines = []
    for operator in operators:
        lines.append(operator.source)
        for kind in kinds:
            result = "bool" if operator.kind == "ASK" else kind
            if operator.arity == 1:
                lines.append(f"REGISTER_UNARY_OP({operator.name}, {kind}, {result});\n")
            else:
                lines.append(f"REGISTER_BINARY_OP({operator.name}, {kind}, {result});\n")
    return compile_shader(HEAD + "".join(lines), checked=False)


def close(actual: torch.Tensor, operator: Operator, *inputs: torch.Tensor) -> None:
    expected = operator.reference(*inputs).to(actual.dtype)
    torch.testing.assert_close(
        actual, expected, rtol=operator.rtol, atol=operator.atol if operator.rtol else 0
    )


@pytest.mark.parametrize("operator", FLOAT_UNARY, ids=lambda o: o.name)
def test_unary_dense(operator: Operator) -> None:
    x = values(operator, torch.float32, 1)
    out = torch.empty_like(x)
    made = library(FLOAT_UNARY, ("float",))
    made[f"{operator.name}_dense_scalar_float_float"](out, x, threads=COUNT)
    close(out, operator, x)


@pytest.mark.parametrize("operator", FLOAT_BINARY, ids=lambda o: o.name)
def test_binary_dense(operator: Operator) -> None:
    x, y = values(operator, torch.float32, 1), values(operator, torch.float32, 2)
    asks = operator.kind == "ASK"
    out = torch.empty(COUNT, dtype=torch.bool if asks else torch.float32)
    made = library(FLOAT_BINARY, ("float",))
    made[f"{operator.name}_dense_{'bool' if asks else 'float'}_float"](out, x, y, threads=COUNT)
    close(out, operator, x, y)


@pytest.mark.parametrize("kind", ["int", "long", "short", "uchar"])
@pytest.mark.parametrize("operator", INTEGER_BINARY, ids=lambda o: o.name)
def test_integer_binary(operator: Operator, kind: str) -> None:
    dtype = TYPES[kind]
    x, y = values(operator, dtype, 1), values(operator, dtype, 2)
    out = torch.empty_like(x)
    library(INTEGER_BINARY, ("int", "long", "short", "uchar"))[f"{operator.name}_dense_{kind}_{kind}"](
        out, x, y, threads=COUNT
    )
    assert torch.equal(out, operator.reference(x, y))


@pytest.mark.parametrize("operator", COMPLEX_BINARY, ids=lambda o: o.name)
def test_complex_binary(operator: Operator) -> None:
    x, y = values(operator, torch.complex64, 1), values(operator, torch.complex64, 2)
    out = torch.empty_like(x)
    library(COMPLEX_BINARY, ("float2",))[f"{operator.name}_dense_float2_float2"](out, x, y, threads=COUNT)
    close(out, operator, x, y)


ADD = (next(o for o in FLOAT_BINARY if o.name == "add"),)
NEGATE = (next(o for o in FLOAT_UNARY if o.name == "neg"),)


@pytest.mark.parametrize(
    "kind", ["float", "half", "bfloat", "int", "long", "short", "char", "uchar", "float2"]
)
def test_every_dtype(kind: str) -> None:
    dtype = TYPES[kind]
    x, y = values(ADD[0], dtype, 1), values(ADD[0], dtype, 2)
    out = torch.empty_like(x)
    library(ADD, (kind,))[f"add_dense_{kind}_{kind}"](out, x, y, threads=COUNT)
    assert torch.equal(out, x + y)


def bytes_of(strides: tuple[int, ...], size: int) -> list[int]:
    """Strides as the kernels take them: in bytes, the fastest dimension first."""
    return [stride * size for stride in reversed(strides)]


@pytest.mark.parametrize("kind", ["float", "half", "bfloat", "int", "float2"])
def test_binary_strided(kind: str) -> None:
    dtype, size = TYPES[kind], TYPES[kind].itemsize
    x = values(ADD[0], dtype, 1, 60).view(5, 12)[:, ::2]  # (5, 6), every second
    y = values(ADD[0], dtype, 2, 30).view(6, 5).t()  # (5, 6), transposed
    out = torch.zeros(6, 5, dtype=dtype).t()
    ndim = torch.tensor([2, 0, 0, 0], dtype=torch.int32)
    library(ADD, (kind,))[f"add_strided_{kind}_{kind}"](
        out, x, y, [6, 5], bytes_of(out.stride(), size), bytes_of(x.stride(), size), bytes_of(y.stride(), size),
        ndim, threads=30,
    )  # fmt: skip
    assert torch.equal(out, x + y)


@pytest.mark.parametrize("side", ["", "_rhs"])
def test_binary_broadcast(side: str) -> None:
    x, row = values(ADD[0], torch.float32, 1, 60).view(5, 12), values(ADD[0], torch.float32, 2, 12)
    out = torch.empty_like(x)
    arguments = (row, x) if side else (x, row)
    library(ADD, ("float",))[f"add_dense_broadcast{side}_float_float"](out, *arguments, 12, threads=60)
    assert torch.equal(out, x + row)


@pytest.mark.parametrize("side", ["", "_lhs"])
def test_binary_scalar(side: str) -> None:
    x, one = values(ADD[0], torch.float32, 1), torch.tensor([2.5])
    out = torch.empty_like(x)
    arguments = (one, x) if side else (x, one)
    library(ADD, ("float",))[f"add_dense_scalar{side}_float_float"](out, *arguments, threads=COUNT)
    assert torch.equal(out, x + one)


def test_binary_of_four_elements_a_thread() -> None:
    x, y = values(ADD[0], torch.float32, 1), values(ADD[0], torch.float32, 2)
    out = torch.empty_like(x)
    library(ADD, ("float",))["add_dense_ilp4_float_float"](out, x, y, COUNT, threads=(COUNT + 3) // 4)
    assert torch.equal(out, x + y)


@pytest.mark.parametrize("other", ["int", "uchar", "long", "half", "bfloat", "bool"])
def test_binary_cast(other: str) -> None:
    """Operands of two types, told to the kernel at run time."""
    x, y = values(ADD[0], torch.float32, 1), values(ADD[0], TYPES[other], 2)
    out = torch.empty_like(x)
    facts = torch.tensor([4, y.element_size(), CODES["float"], CODES[other]], dtype=torch.int32)
    library(ADD, ("float",))["add_dense_cast_float_float"](out, x, y.view(torch.uint8), facts, threads=COUNT)
    assert torch.equal(out, x + y)


@pytest.mark.parametrize("result", ["int", "uchar", "half", "bfloat", "bool", "float2"])
def test_unary_castout(result: str) -> None:
    x = values(NEGATE[0], torch.float32, 1)
    x = x.abs().neg().mul(10).round() if result == "uchar" else x
    out = torch.empty(COUNT, dtype=TYPES[result])
    facts = torch.tensor([out.element_size(), CODES[result]], dtype=torch.int32)
    library(NEGATE, ("float",))["neg_dense_castout_float"](
        out if out.dtype.is_complex else out.view(torch.uint8), x, facts, threads=COUNT
    )
    assert torch.equal(out, (-x).to(TYPES[result]))


def test_unary_strided_and_four_a_thread() -> None:
    x = values(NEGATE[0], torch.float32, 1, 60).view(5, 12)[:, ::2]
    out = torch.zeros(6, 5).t()
    made = library(NEGATE, ("float",))
    made["neg_strided_float_float"](
        out, x, [6, 5], bytes_of(x.stride(), 4), bytes_of(out.stride(), 4), 2, threads=(6, 5)
    )
    assert torch.equal(out, -x)
    dense = x.contiguous()
    out = torch.zeros(5, 6)
    made["neg_dense_float_float"](out, dense, 30, threads=8)
    assert torch.equal(out, -x)
