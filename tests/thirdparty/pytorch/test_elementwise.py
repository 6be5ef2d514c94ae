"""Operators of our own on the kernels that PyTorch's registration macros make, against torch on the CPU.

One form of each operator, unchecked; test_forms.py has the forms.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import pytest
import torch

from metalwright import compile_shader
from metalwright.authoring import ShaderLibrary
from tests.thirdparty.pytorch.headers import where
from tests.thirdparty.pytorch.operators import (
    COMPLEX_BINARY,
    COMPLEX_UNARY,
    FLOAT_BINARY,
    FLOAT_UNARY,
    HEAD,
    INTEGER_BINARY,
    TYPES,
    Operator,
)

COUNT = 61
_CALLED = re.compile(r"c10::metal::(\w+)\(")


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


def note(ran: Callable[..., None], operator: Operator, template: str) -> None:
    """Note the kernel, and the functions of the headers that the operator calls."""
    ran("indexing.h", template, f"{operator.name}")
    for name in _CALLED.findall(operator.body):
        if (header := where(name)) is not None:
            ran(header, name, f"operator {operator.name}")


def unary(operators: tuple[Operator, ...], operator: Operator, kind: str, ran: Callable[..., None]) -> None:
    note(ran, operator, "unary_dense_scalar")
    x = values(operator, TYPES[kind], 1)
    out = torch.empty_like(x)
    library(operators, (kind,))[f"{operator.name}_dense_scalar_{kind}_{kind}"](out, x, threads=COUNT)
    close(out, operator, x)


@pytest.mark.parametrize("operator", FLOAT_UNARY, ids=lambda o: o.name)
def test_unary(operator: Operator, ran: Callable[..., None]) -> None:
    unary(FLOAT_UNARY, operator, "float", ran)


@pytest.mark.parametrize("operator", COMPLEX_UNARY, ids=lambda o: o.name)
def test_complex_unary(operator: Operator, ran: Callable[..., None]) -> None:
    unary(COMPLEX_UNARY, operator, "float2", ran)


def binary(operators: tuple[Operator, ...], operator: Operator, kind: str, ran: Callable[..., None]) -> None:
    note(ran, operator, "binary_dense")
    x, y = values(operator, TYPES[kind], 1), values(operator, TYPES[kind], 2)
    result = "bool" if operator.kind == "ASK" else kind
    out = torch.empty(COUNT, dtype=TYPES[result])
    library(operators, (kind,))[f"{operator.name}_dense_{result}_{kind}"](out, x, y, threads=COUNT)
    close(out, operator, x, y)


@pytest.mark.parametrize("operator", FLOAT_BINARY, ids=lambda o: o.name)
def test_binary(operator: Operator, ran: Callable[..., None]) -> None:
    binary(FLOAT_BINARY, operator, "float", ran)


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        (operator, kind)
        for place, operator in enumerate(INTEGER_BINARY)
        for kind in (("int", "uchar"), ("long", "short"))[place % 2]
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_integer_binary(operator: Operator, kind: str, ran: Callable[..., None]) -> None:
    binary(INTEGER_BINARY, operator, kind, ran)


@pytest.mark.parametrize("operator", COMPLEX_BINARY, ids=lambda o: o.name)
def test_complex_binary(operator: Operator, ran: Callable[..., None]) -> None:
    binary(COMPLEX_BINARY, operator, "float2", ran)
