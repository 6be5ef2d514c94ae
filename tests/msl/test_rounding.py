"""When results are rounded: after every operation for half and bfloat, and in the source's order under safe math."""

import ml_dtypes
import numpy as np
import pytest
import torch

from metalwright import MetalKernel, MetalParameter
from tests.support import body, launch, tensor

TYPES = {"half": np.dtype(np.float16), "bfloat": np.dtype(ml_dtypes.bfloat16)}
INTEGERS = {"char": "i1", "ushort": "u2", "int": "i4", "uint": "u4", "long": "i8", "ulong": "u8"}
N = 4096


def numbers(dtype: np.dtype, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-4, 4, N).astype(dtype)


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    "src",
    [
        "out[gid] = a[gid] * b[gid] + c[gid];",
        "out[gid] = (a[gid] + b[gid]) * (a[gid] - c[gid]);",
        "TYPE4 v = (TYPE4(a[gid]) * TYPE4(b[gid])) + TYPE4(c[gid]); out[gid] = v.y;",
    ],
    ids=["product and sum", "product of sums", "vectors"],
)
def test_half_and_bfloat_round_after_every_operation(src: str, kind: str, checked: bool) -> None:
    """NumPy rounds after each operation; one rounding at the end would differ in many of the elements."""
    dtype = TYPES[kind]
    a, b, c = (numbers(dtype, seed) for seed in range(3))
    parameters = [tensor(kind, 1, name, i) for i, name in enumerate(("a", "b", "c", "out"))]
    program = body(
        src.replace("TYPE", kind), *parameters, "uint gid [[thread_position_in_grid]]", checked=checked
    )
    out = np.zeros(N, dtype)
    launch(program, {"a": a, "b": b, "c": c}, {"out": out}, N, 256)
    of_sums = "(a[gid] + b[gid])" in src
    each = (a + b) * (a - c) if of_sums else a * b + c
    once = [value.astype(np.float64) for value in (a, b, c)]
    at_the_end = (once[0] + once[1]) * (once[0] - once[2]) if of_sums else once[0] * once[1] + once[2]
    assert np.count_nonzero(each != at_the_end.astype(dtype)) > N // 20, "the inputs tell the two apart"
    np.testing.assert_array_equal(out.view(np.uint16), each.view(np.uint16))


def absorb(x: torch.Tensor) -> torch.Tensor:
    return (x + 1e8) - 1e8


def absorbed(math_mode: str, checked: bool) -> torch.Tensor:
    kernel = MetalKernel(
        "absorb",
        ["x"],
        ["out"],
        "out[gid] = (x[gid] + 1e8) - 1e8;",
        absorb,
        [MetalParameter("gid", "uint", "thread_position_in_grid")],
        math_mode=math_mode,
        checked=checked,
    )
    sizes = {"threads_per_grid": (8, 1, 1), "threads_per_thread_group": (8, 1, 1), "result_shapes": [[8]]}
    return kernel(torch.arange(8.0) / 8, **sizes)


@pytest.mark.parametrize("checked", [False, True])
def test_safe_math_keeps_the_order_and_fast_math_may_not(checked: bool) -> None:
    """1e8 absorbs what is below half of its last place, 4; reordered, the sum is ``x`` itself."""
    assert torch.equal(absorbed("safe", checked), torch.zeros(8))
    assert torch.equal(absorbed("fast", checked), torch.arange(8.0) / 8)


@pytest.mark.parametrize("checked", [False, True])
def test_safe_math_does_not_contract(checked: bool) -> None:
    """A fused multiply-add would keep the product's rounding error."""
    parameters = (
        tensor("float", 1, "x", 0),
        tensor("float", 1, "out", 1),
        "uint gid [[thread_position_in_grid]]",
    )
    x = np.random.default_rng(0).uniform(1, 2, N).astype(np.float32)
    out = np.full(N, np.nan, np.float32)
    program = body("float p = x[gid] * x[gid]; out[gid] = x[gid] * x[gid] - p;", *parameters, checked=checked)
    launch(program, {"x": x}, {"out": out}, N, 256)
    assert (out == 0).all()


@pytest.mark.parametrize("mode", ["safe", "fast"])
def test_an_infinity_that_is_written_down_keeps_its_meaning(mode: str) -> None:
    src = (
        "float m = -INFINITY; for (uint i = 0; i < 8; i++) m = max(m, x[i]); "
        "out[gid] = m + (isinf(x[0] * INFINITY) ? 1 : 0);"
    )
    parameters = (
        tensor("float", 1, "x", 0),
        tensor("float", 1, "out", 1),
        "uint gid [[thread_position_in_grid]]",
    )
    out = np.zeros(8, np.float32)
    launch(
        body(src, *parameters, math_mode=mode), {"x": np.arange(1, 9, dtype=np.float32)}, {"out": out}, 8, 8
    )
    assert (out == 9).all()


def nearest_bfloat(number: int) -> float:
    """Return the integer rounded to eight digits, ties to even, by integer arithmetic."""
    drop = max(0, abs(number).bit_length() - 8)
    kept, rest = divmod(abs(number), 1 << drop)
    tie = 1 << drop >> 1
    kept += drop > 0 and (rest > tie or (rest == tie and kept & 1 == 1))
    return float((kept << drop) * (-1 if number < 0 else 1))


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("lanes", ["", "4"])
@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_round_once_to_bfloat(kind: str, lanes: str, checked: bool) -> None:
    """Values at ties and one beside them: rounding to float first would make ties of the second."""
    dtype = np.dtype(INTEGERS[kind])
    limits = np.iinfo(dtype)
    numbers = [0, 1, limits.max, limits.min]
    for top in range(1, limits.bits):
        for digits in (0b10000000_1, 0b10000001_1, 0b11111111_1):
            numbers += [(digits << top >> 9) + step for step in (-1, 0, 1)]
    numbers += [-number for number in numbers]
    numbers = [number for number in numbers if limits.min <= number <= limits.max]
    x = np.array(numbers, dtype)
    out = np.zeros(x.size, TYPES["bfloat"])
    program = body(
        f"out[gid] = bfloat{lanes}({kind}{lanes}(x[gid])){'.z' if lanes else ''};",
        tensor(kind, 1, "x", 0),
        tensor("bfloat", 1, "out", 1),
        "uint gid [[thread_position_in_grid]]",
        checked=checked,
    )
    launch(program, {"x": x}, {"out": out}, x.size, 64)
    assert out.astype(np.float64).tolist() == [nearest_bfloat(number) for number in numbers]


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("lanes", ["", "4"])
def test_floats_round_to_bfloat_with_ties_and_nans(lanes: str, checked: bool) -> None:
    bits = np.arange(0, 1 << 32, 65_537 // 5, dtype=np.uint32)
    special = np.array(
        [0x7F800001, 0xFF80FFFF, 0x7FFFFFFF, 0x7F7FFFFF, 0x7F7F8000, 0x3F808000, 0x3F818000], np.uint32
    )
    x = np.concatenate([bits, special, [1, 0x8000, 0x8001, 0x80000001]]).astype(np.uint32).view(np.float32)
    out = np.zeros(x.size, TYPES["bfloat"])
    program = body(
        f"out[gid] = bfloat{lanes}(float{lanes}(x[gid])){'.z' if lanes else ''};",
        tensor("float", 1, "x", 0),
        tensor("bfloat", 1, "out", 1),
        "uint gid [[thread_position_in_grid]]",
        checked=checked,
    )
    launch(program, {"x": x}, {"out": out}, x.size, 256)
    numbers = ~np.isnan(x)
    assert np.isnan(out[~numbers]).all()
    np.testing.assert_array_equal(
        out[numbers].view(np.uint16), x[numbers].astype(TYPES["bfloat"]).view(np.uint16)
    )


@pytest.mark.parametrize("checked", [False, True])
def test_the_sign_of_what_was_rounded_to_bfloat(checked: bool) -> None:
    """LLVM 22's code generator fails an assertion on this where it rounds by itself."""
    out = np.zeros(64, np.float32)
    x = np.linspace(-2, 2, 64, dtype=np.float32)
    program = body(
        "out[gid] = copysign(bfloat(x[gid] * x[gid]), bfloat(x[gid]));",
        tensor("float", 1, "x", 0),
        tensor("float", 1, "out", 1),
        "uint gid [[thread_position_in_grid]]",
        checked=checked,
    )
    launch(program, {"x": x}, {"out": out}, 64, 64)
    np.testing.assert_array_equal(out, np.copysign(x * x, x).astype(TYPES["bfloat"]).astype(np.float32))
