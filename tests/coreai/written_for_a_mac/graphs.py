"""Dynamic shapes, several kernels, names that meet, results, templates and helpers."""

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
    named,
    run,
    sizes,
)

N = torch.export.Dim("n", min=1, max=4096)
M = torch.export.Dim("m", min=1, max=4096)


def test_a_dynamic_extent() -> None:
    kernel = kernel_of("out[gid] = x[gid] * x[gid];", squared)
    model = Calls(lambda x: kernel(x, **sizes((x.shape[0], 1, 1), (32, 1, 1), (x.shape[0],))))
    program = converted(model, (torch.rand(10),), [kernel], dynamic_shapes={"x": {0: N}})
    for count in (1, 7, 1000):
        x = torch.rand(count)
        torch.testing.assert_close(run(program, x)["out"], x * x)


def squared(x: torch.Tensor) -> torch.Tensor:
    return x * x


def test_two_dynamic_extents() -> None:
    kernel = kernel_of("out[gid.y, gid.x] = x[gid.x, gid.y];", transposed, params=[GID2])
    model = Calls(
        lambda x: kernel(x, **sizes((x.shape[1], x.shape[0], 1), (8, 8, 1), (x.shape[1], x.shape[0])))
    )
    program = converted(model, (torch.rand(4, 6),), [kernel], dynamic_shapes={"x": {0: N, 1: M}})
    for shape in ((1, 1), (5, 3), (17, 40)):
        x = torch.rand(*shape)
        torch.testing.assert_close(run(program, x)["out"], x.T.contiguous())


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1).contiguous()


def test_sizes_computed_from_a_dynamic_extent() -> None:
    kernel = kernel_of(
        "float total = 0; for (int i = 0; i < 4; ++i) { total += x[gid * 4 + i]; } out[gid] = total;", by_four
    )
    model = Calls(lambda x: kernel(x, **sizes((x.shape[0] // 4, 1, 1), (16, 1, 1), (x.shape[0] // 4,))))
    program = converted(
        model, (torch.rand(8),), [kernel], dynamic_shapes={"x": {0: 4 * torch.export.Dim("q", min=1, max=99)}}
    )
    x = torch.rand(84)
    torch.testing.assert_close(run(program, x)["out"], x.reshape(-1, 4).sum(1))


def by_four(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, 4).sum(1)


def test_kernels_in_a_row_with_operators_between() -> None:
    first, second = (
        kernel_of("out[gid] = x[gid] + x[gid];"),
        kernel_of("out[gid] = x[gid] * x[gid];", squared),
    )
    launch = sizes((12, 1, 1), (5, 1, 1), (12,))
    model = Calls(
        lambda x: torch.relu(second(torch.sin(first(torch.exp(x), **launch)) - 0.5, **launch)) + 1.0
    )
    x = torch.rand(12)
    check(model, (x,), [first, second], (torch.sin(2 * torch.exp(x)) - 0.5) ** 2 + 1)


def test_a_kernel_feeds_a_kernel() -> None:
    first, second = (
        kernel_of("out[gid] = x[gid] + x[gid];"),
        kernel_of("out[gid] = x[gid] * x[gid];", squared),
    )
    launch = sizes((12, 1, 1), (5, 1, 1), (12,))
    x = torch.rand(12)
    check(Calls(lambda x: second(first(x, **launch), **launch)), (x,), [first, second], (2 * x) ** 2)


def test_one_kernel_at_three_places() -> None:
    kernel = kernel_of("out[gid] = x[gid] + x[gid];")
    launch = sizes((12, 1, 1), (12, 1, 1), (12,))
    x = torch.rand(12)
    check(Calls(lambda x: kernel(kernel(kernel(x, **launch), **launch), **launch)), (x,), [kernel], 8 * x)


def test_two_kernels_meet_in_a_third() -> None:
    double, square = (
        kernel_of("out[gid] = x[gid] + x[gid];"),
        kernel_of("out[gid] = x[gid] * x[gid];", squared),
    )
    add = kernel_of("out[gid] = x[gid] + y[gid];", added, inputs=["x", "y"])
    launch = sizes((12, 1, 1), (4, 1, 1), (12,))
    model = Calls(lambda x: add(double(x, **launch), square(x, **launch), **launch))
    x = torch.rand(12)
    check(model, (x,), [double, square, add], 2 * x + x * x)


def test_a_value_is_returned_and_goes_on() -> None:
    kernel = kernel_of("out[gid] = x[gid] + x[gid];")
    launch = sizes((6, 1, 1), (6, 1, 1), (6,))

    def forward(x: torch.Tensor) -> Any:
        once = kernel(x, **launch)
        return once, kernel(once, **launch)

    x = torch.rand(6)
    made = run(converted(Calls(forward), (x,), [kernel], outputs=["once", "twice"]), x)
    torch.testing.assert_close(made, {"once": 2 * x, "twice": 4 * x})


def test_two_models_have_a_kernel_of_one_name() -> None:
    name = named("shared")
    launch = sizes((6, 1, 1), (6, 1, 1), (6,))
    x = torch.rand(6)
    first = kernel_of("out[gid] = x[gid] + x[gid];", name=name)
    one = converted(Calls(lambda x: first(x, **launch)), (x,), [first])
    second = kernel_of("out[gid] = x[gid] * x[gid];", squared, name=name)
    other = converted(Calls(lambda x: second(x, **launch)), (x,), [second])
    torch.testing.assert_close(run(one, x)["out"], 2 * x)
    torch.testing.assert_close(run(other, x)["out"], x * x)


def test_one_kernel_on_two_element_types() -> None:
    kernel = kernel_of("out[gid] = x[gid] + TYPE(x[gid]);", template_dtypes={"x": "TYPE"})
    launch = sizes((6, 1, 1), (6, 1, 1), (6,))
    model = Calls(lambda x: kernel(x, **launch) + kernel(x.half(), **launch).float())
    x = torch.arange(6.0)
    check(model, (x,), [kernel], 4 * x)


def test_kernels_share_the_name_of_a_helper() -> None:
    launch = sizes((6, 1, 1), (6, 1, 1), (6,))
    plus = kernel_of("out[gid] = f(x[gid]);", helper_src="inline float f(float v) { return v + v; }")
    times = kernel_of(
        "out[gid] = f(x[gid]);", squared, helper_src="inline float f(float v) { return v * v; }"
    )
    x = torch.rand(6)
    check(Calls(lambda x: plus(x, **launch) - times(x, **launch)), (x,), [plus, times], 2 * x - x * x)


def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.sin(x), torch.cos(x)


def test_two_results() -> None:
    kernel = kernel_of("s[gid] = sin(x[gid]); c[gid] = cos(x[gid]);", both, results=["s", "c"])
    model = Calls(lambda x: kernel(x, **sizes((10, 1, 1), (4, 1, 1), (10,), (10,))))
    x = torch.rand(10)
    made = run(converted(model, (x,), [kernel], outputs=["s", "c"]), x)
    torch.testing.assert_close(made, {"s": torch.sin(x), "c": torch.cos(x)})


def three(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return x.sum(1), x.to(torch.int32), x.half() + 1


def test_three_results_of_other_shapes_and_types() -> None:
    kernel = kernel_of(
        """float total = 0;
for (int i = 0; i < 3; ++i) { total += x[i, gid]; whole[i, gid] = int(x[i, gid]); more[i, gid] = half(x[i, gid]) + 1; }
sums[gid] = total;""",
        three,
        results=["sums", "whole", "more"],
    )
    model = Calls(lambda x: kernel(x, **sizes((4, 1, 1), (4, 1, 1), (4,), (4, 3), (4, 3))))
    x = torch.rand(4, 3) * 10
    made = run(converted(model, (x,), [kernel], outputs=["sums", "whole", "more"]), x)
    torch.testing.assert_close(made, {"sums": x.sum(1), "whole": x.to(torch.int32), "more": x.half() + 1})


@pytest.mark.parametrize(
    "left, right", [(torch.float16, torch.int8), (torch.bfloat16, torch.float32)], ids=str
)
def test_two_templates(left: torch.dtype, right: torch.dtype) -> None:
    kernel = kernel_of(
        "out[gid] = float(LEFT(x[gid])) + float(RIGHT(y[gid]));",
        sum_as_float,
        inputs=["x", "y"],
        template_dtypes={"x": "LEFT", "y": "RIGHT"},
    )
    model = Calls2(lambda x, y: kernel(x, y, **sizes((16, 1, 1), (16, 1, 1), (16,))))
    x, y = torch.arange(16).to(left), torch.arange(16).flip(0).to(right)
    check(model, (x, y), [kernel], x.float() + y.float())


def sum_as_float(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.float() + y.float()


def test_a_helper_with_a_template_and_a_constant() -> None:
    helper = """constant float kOffset = 0.5f;
struct Pair { TYPE first; TYPE second; };
static TYPE merged(Pair p) { return p.first + p.second + TYPE(kOffset); }"""
    kernel = kernel_of(
        "Pair p = {x[gid], x[gid]}; out[gid] = merged(p);",
        doubled_plus,
        helper_src=helper,
        template_dtypes={"x": "TYPE"},
    )
    model = Calls(lambda x: kernel(x, **sizes((16, 1, 1), (16, 1, 1), (16,))))
    x = torch.arange(16, dtype=torch.float16)
    check(model, (x,), [kernel], 2 * x + 0.5)


def doubled_plus(x: torch.Tensor) -> torch.Tensor:
    return x + x + 0.5
