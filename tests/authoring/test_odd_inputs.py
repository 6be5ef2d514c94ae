"""Inputs that no signature describes: each is an ArgumentError that names the kernel and the input."""

import re

import pytest
import torch

from metalwright import MetalKernel, MetalParameter
from metalwright.errors import ArgumentError, CompileError, KernelDefinitionError, MetalwrightError

SIZES = {"threads_per_grid": (8, 1, 1), "threads_per_thread_group": (8, 1, 1), "result_shapes": [[8]]}


def scale(x: torch.Tensor, a: float) -> torch.Tensor:
    return x * a


def make(src: str = "out[i] = x[i] * a;", names: tuple[str, str] = ("x", "a")) -> MetalKernel:
    parameters = [MetalParameter("i", "uint", "thread_position_in_grid")]
    return MetalKernel("odd", list(names), ["out"], src, scale, parameters)


def shrunk() -> torch.Tensor:
    x = torch.arange(8.0)
    x.untyped_storage().resize_(4)
    return x


@pytest.mark.parametrize(
    ("x", "says"),
    [
        ([1.0] * 8, "expected a tensor"),
        ("text", "expected a tensor"),
        (None, "expected a tensor"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested tensor"),
        (shrunk(), "its storage has 4 bytes, its shape [8] needs 32"),
    ],
    ids=["list", "text", "none", "nested", "shrunk"],
)
def test_an_input_that_is_no_dense_tensor(x: object, says: str) -> None:
    kernel = make()
    kernel(torch.arange(8.0), 2.0, **SIZES)  # with its plan known, too
    with pytest.raises(MetalwrightError, match=re.escape(says)) as caught:
        kernel(x, 2.0, **SIZES)
    assert "'odd'" in str(caught.value)
    assert "'x'" in str(caught.value)


@pytest.mark.parametrize("number", [10**400, -(10**400)], ids=["large", "small"])
def test_a_number_past_every_float(number: int) -> None:
    with pytest.raises(ArgumentError, match="input 'a'.*fits in 32 bits"):
        make()(torch.arange(8.0), number, **SIZES)


def test_a_name_that_metal_has_a_macro_for() -> None:
    with pytest.raises(KernelDefinitionError, match="'M_PI_F' is a macro of the Metal standard library"):
        make(names=("x", "M_PI_F"))


def test_a_source_that_is_no_text() -> None:
    with pytest.raises(CompileError, match="a character that is no text"):
        make("out[i] = x[i] * a; // \ud800\n")(torch.arange(8.0), 2.0, **SIZES)


def test_forward_mode_gives_no_silent_zero() -> None:
    x = torch.arange(8.0)
    with pytest.raises(ArgumentError, match="inside a torch.func transform"):
        torch.func.jvp(lambda v: make()(v, 2.0, **SIZES), (x,), (torch.ones(8),))
