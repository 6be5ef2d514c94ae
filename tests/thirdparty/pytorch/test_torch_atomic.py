"""``atomic.h`` and ``error.h`` of PyTorch's headers: what many threads add up to, and the errors that they report."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable

import pytest
import torch

from metalwright import compile_shader
from metalwright.authoring import ShaderLibrary

HEADER = "atomic.h"
# what atomics are made of where the type has none of its own: words that hold it and its neighbours
KINDS = {
    "float": torch.float32,
    "int": torch.int32,
    "half": torch.float16,
    "bfloat": torch.bfloat16,
    "short": torch.int16,
    "char": torch.int8,
    "uchar": torch.uint8,
    "bool": torch.bool,
    "long": torch.int64,
    "float2": torch.complex64,
}
APPLIED = ("float", "int", "half", "bfloat", "short", "char", "uchar", "bool")
WHOLE_WORDS = ("float", "int")
SLOTS = 8  # a multiple of every word's elements
THREADS = 300


@functools.cache
def library(kind: str, checked: bool) -> ShaderLibrary:
    applies = (
        f"""
inline {kind} larger({kind} a, {kind} b) {{ return {kind}(a > b ? a : b); }}
kernel void apply(device {kind}* out, constant {kind}* v, constant long* at, constant long& shift,
                  uint i [[thread_position_in_grid]]) {{
  AtomicType<{kind}>::atomic_binary_op((device AtomicType_t<{kind}>*)(out + shift), at[i] - shift, v[i], larger);
}}"""
        if kind in APPLIED
        else ""
    )
    return compile_shader(
        f"""
#include <c10/metal/atomic.h>
#include <c10/metal/utils.h>
using namespace c10::metal;
kernel void add(device AtomicType_t<{kind}>* out, constant {kind}* v, constant long* at,
                uint i [[thread_position_in_grid]]) {{ AtomicType<{kind}>::atomic_add(out, at[i], v[i]); }}{applies}
""",
        checked=checked,
    )


def given(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values whose sums are exact in each type, and where each goes."""
    generator = torch.Generator().manual_seed(5)
    at = torch.randint(0, SLOTS - 1, (THREADS,), generator=generator)
    if kind == "float2":
        return torch.complex(*torch.randint(-4, 5, (2, THREADS), generator=generator).float()), at
    least = 0 if kind in ("uchar", "bool") else -2
    most = 2**40 if kind == "long" else 2
    values = torch.randint(least, most + 1, (THREADS,), generator=generator)
    if kind == "bool":
        values = (values == 2) & (at % 3 == 0)
    return values.to(KINDS[kind]), at


def words(x: torch.Tensor) -> torch.Tensor:
    """The same memory as the type that its atomics are of."""
    return (
        x
        if x.dtype in (torch.float32, torch.int32)
        else torch.view_as_real(x)
        if x.is_complex()
        else x.view(torch.int32)
    )


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_adding(kind: str, checked: bool, ran: Callable[..., None]) -> None:
    ran(HEADER, "atomic_add", kind)
    values, at = given(kind)
    start = torch.arange(SLOTS).remainder(2).to(KINDS[kind])
    out = start.clone()
    library(kind, checked).add(words(out), values, at, threads=THREADS, group_size=64)
    if kind == "bool":
        expected = start.clone()
        expected[at[values]] = True
    else:
        expected = start.index_add(0, at, values)
    assert torch.equal(out, expected)


@pytest.mark.parametrize(
    ("kind", "shift"),
    [(kind, 0) for kind in APPLIED] + [(kind, 1) for kind in APPLIED if kind not in WHOLE_WORDS],
)
def test_applying_a_function(kind: str, shift: int, ran: Callable[..., None]) -> None:
    """The header takes a pointer into a word back to its start: one element further on is such a pointer."""
    ran(HEADER, "atomic_binary_op", f"{kind} {shift}")
    values, at = given(kind)
    at = at + shift
    start = torch.zeros(SLOTS, dtype=KINDS[kind])
    out = start.clone()
    library(kind, True).apply(out, values, at, shift, threads=THREADS, group_size=64)
    expected = start.int().scatter_reduce(0, at, values.int(), "amax").to(out.dtype)
    assert torch.equal(out, expected)


def test_errors(ran: Callable[..., None]) -> None:
    """Each report is a struct of texts; past the thirtieth they are only counted."""
    for name in ("report_error", "strncpy", "print_arg", "print_args", "base10_length"):
        ran("error.h", name)
    made = compile_shader(
        """#include <c10/metal/error.h>
using namespace c10::metal;
kernel void look_up(device ErrorMessages* errors, constant int* x, constant long& n,
                    uint i [[thread_position_in_grid]]) {
  if (x[i] < 0 || x[i] >= n) TORCH_REPORT_ERROR(errors, "index ", long(x[i]), " is out of range of ", n);
}""",
        name="look_up.metal",
    )
    message = struct.Struct("<128s128s250s2xI")
    for wrong in ((), (-7,), (12345, -1, 10), tuple(range(-40, 0))):
        x = torch.tensor([*range(10), *wrong], dtype=torch.int32)
        errors = torch.zeros(4 + 30 * message.size, dtype=torch.uint8)
        made.look_up(errors, x, 10, threads=len(x))
        data = errors.numpy().tobytes()
        assert struct.unpack_from("<I", data)[0] == len(wrong)
        said = []
        for number in range(min(len(wrong), 30)):
            file, function, words, line = message.unpack_from(data, 4 + number * message.size)
            assert file.split(b"\0")[0].endswith(b"look_up.metal")
            assert function.split(b"\0")[0] == b"look_up"
            assert line == 5
            said.append(words.split(b"\0")[0].decode())
        possible = [f"index {index} is out of range of 10" for index in wrong]
        assert len(set(said)) == len(said)
        assert set(said) <= set(possible)
        if len(wrong) <= 30:
            assert sorted(said) == sorted(possible)
