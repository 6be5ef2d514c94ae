"""Element types, scalars and ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.coreai.written_for_a_mac.common import (
    GID2,
    Calls,
    Calls2,
    added,
    check,
    converted,
    kernel_of,
    run,
    sizes,
)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32,
        torch.uint32,
    ],
    ids=str,
)  # fmt: skip
def test_element_types(dtype: torch.dtype) -> None:
    kernel = kernel_of(
        "TYPE value = x[gid]; out[gid] = TYPE(value + TYPE(3));",
        three_more(dtype),
        template_dtypes={"x": "TYPE"},
    )
    x = torch.arange(20).to(dtype)
    model = Calls(lambda x: kernel(x, **sizes((20, 1, 1), (8, 1, 1), (20,))))
    check(model, (x,), [kernel], (torch.arange(20) + 3).to(dtype))


def three_more(dtype: torch.dtype) -> Any:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return (x.to(torch.float32) + 3).to(dtype)

    return reference


def test_int64_is_narrowed() -> None:
    kernel = kernel_of("out[gid] = x[gid] * 2;")
    model = Calls(lambda x: kernel(x, **sizes((6, 1, 1), (6, 1, 1), (6,))))
    x = torch.tensor([-3, -2, 0, 5, 7, 2**30 - 1])
    check(model, (x,), [kernel], (2 * x).to(torch.int32))


def widened(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float32) * 0.5


def test_a_result_of_another_type() -> None:
    kernel = kernel_of("out[gid] = float(x[gid]) * 0.5f;", widened)
    model = Calls(lambda x: kernel(x, **sizes((9, 1, 1), (4, 1, 1), (9,))))
    x = torch.arange(9, dtype=torch.int8) - 4
    check(model, (x,), [kernel], x.float() / 2)


def test_extreme_values_survive() -> None:
    kernel = kernel_of("out[gid] = x[gid];", same)
    model = Calls(lambda x: kernel(x, **sizes((5, 1, 1), (5, 1, 1), (5,))))
    x = torch.tensor([float("inf"), float("-inf"), -0.0, 1e-42, 3.4e38])
    out = run(converted(model, (x,), [kernel]), x)["out"]
    assert torch.equal(out.view(torch.int32), x.view(torch.int32))


def same(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def shifted_int(x: torch.Tensor, by: int) -> torch.Tensor:
    return x + by


def scaled_float(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


def negated_if(x: torch.Tensor, by: bool) -> torch.Tensor:
    return -x if by else x.clone()


def all_scalars(x: torch.Tensor, a: int, b: float, c: bool) -> torch.Tensor:
    return x * b + (a if c else -a)


@pytest.mark.parametrize(
    "reference, src, value",
    [
        (shifted_int, "out[gid] = x[gid] + by;", 3),
        (shifted_int, "out[gid] = x[gid] + by;", -40000),
        (scaled_float, "out[gid] = x[gid] * by;", 0.1),
        (scaled_float, "out[gid] = x[gid] * by;", -1e-20),
        (negated_if, "out[gid] = by ? -x[gid] : x[gid];", True),
        (negated_if, "out[gid] = by ? -x[gid] : x[gid];", False),
    ],
)
def test_a_scalar(reference: Any, src: str, value: Any) -> None:
    kernel = kernel_of(src, reference, inputs=["x", "by"])
    model = Calls(lambda x: kernel(x, value, **sizes((8, 1, 1), (8, 1, 1), (8,))))
    x = torch.arange(8.0)
    check(model, (x,), [kernel], reference(x, value))


def test_scalars_of_three_kinds() -> None:
    kernel = kernel_of("out[gid] = x[gid] * b + (c ? a : -a);", all_scalars, inputs=["x", "a", "b", "c"])
    model = Calls(lambda x: kernel(x, 7, 0.25, False, **sizes((8, 1, 1), (8, 1, 1), (8,))))
    x = torch.arange(8.0)
    check(model, (x,), [kernel], x / 4 - 7)


def test_one_kernel_with_two_values_of_a_scalar() -> None:
    kernel = kernel_of("out[gid] = x[gid] * by;", scaled_float, inputs=["x", "by"])
    launch = sizes((8, 1, 1), (8, 1, 1), (8,))
    model = Calls(lambda x: kernel(kernel(x, 3.0, **launch), 0.5, **launch))
    x = torch.arange(8.0)
    check(model, (x,), [kernel], x * 1.5)


def test_rank_zero() -> None:
    kernel = kernel_of("out[gid] = x[gid] + y;", added, inputs=["x", "y"])
    model = Calls2(lambda x, y: kernel(x, y, **sizes((6, 1, 1), (6, 1, 1), (6,))))
    x, y = torch.rand(6), torch.tensor(0.75)
    check(model, (x, y), [kernel], x + 0.75)


def test_rank_five() -> None:
    src = """uint rest = gid;
uint a = rest % 3; rest /= 3;
uint b = rest % 2; rest /= 2;
uint c = rest % 4; rest /= 4;
uint d = rest % 2; rest /= 2;
out[a, b, c, d, rest] = x[a, b, c, d, rest] + 2.0f * float(x.get_extent(0)) + float(x.get_extent(4));"""
    kernel = kernel_of(src, same)
    model = Calls(lambda x: kernel(x, **sizes((5 * 2 * 4 * 2 * 3, 1, 1), (64, 1, 1), (5, 2, 4, 2, 3))))
    x = torch.rand(5, 2, 4, 2, 3)
    check(model, (x,), [kernel], x + 2 * 3 + 5)


def test_matrix_product() -> None:
    src = """float total = 0;
for (int k = 0; k < x.get_extent(0); ++k) { total += float(x[k, gid.y]) * float(y[gid.x, k]); }
out[gid.x, gid.y] = TYPE(total);"""
    kernel = kernel_of(src, product, inputs=["x", "y"], params=[GID2], template_dtypes={"x": "TYPE"})
    model = Calls2(lambda x, y: kernel(x, y, **sizes((9, 5, 1), (4, 4, 1), (5, 9))))
    x, y = torch.rand(5, 7), torch.rand(7, 9)
    check(model, (x, y), [kernel], x @ y)


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x @ y
