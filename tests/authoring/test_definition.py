"""What is refused when a kernel is defined: the class, and what the message says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from coreai_torch import TorchMetalKernel

from metalwright.authoring import MetalKernel, MetalParameter, attributes
from metalwright.errors import KernelDefinitionError, KernelSignatureError, MetalwrightError


def param(name: str = "gid", dtype: Any = "uint", attr: Any = "thread_position_in_grid") -> MetalParameter:
    return MetalParameter(name, dtype, attr)


def two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def bare(x, y: torch.Tensor, alpha: float) -> torch.Tensor:
    return x


def listed(x: list, y: torch.Tensor, alpha: float) -> torch.Tensor:
    return y


def variadic(*x: torch.Tensor) -> torch.Tensor:
    return x[0]


def defaulted(x: torch.Tensor, y: torch.Tensor, alpha: float = 2.0) -> torch.Tensor:
    return x


def keyword_only(x: torch.Tensor, y: torch.Tensor, *, alpha: float) -> torch.Tensor:
    return x


def operand(x: torch.Tensor, y: torch.Tensor, threads_per_grid: float) -> torch.Tensor:
    return x


def no_result(x: torch.Tensor, y: torch.Tensor, alpha: float):
    return x


def returns_int(x: torch.Tensor, y: torch.Tensor, alpha: float) -> int:
    return 1


def returns_pair(x: torch.Tensor, y: torch.Tensor, alpha: float) -> tuple[torch.Tensor, torch.Tensor]:
    return x, y


def misspelt(x: torch.Tensr, y: torch.Tensor, alpha: float) -> torch.Tensor:  # type: ignore[name-defined]
    return y


BAD: list[tuple[dict[str, Any], type[Exception], list[str]]] = [
    ({"name": ""}, ValueError, ["name", "non-empty string"]),
    ({"name": None}, ValueError, ["name", "None"]),
    ({"name": "two words"}, ValueError, ["name", "C++ identifier", "'two words'"]),
    ({"name": "lambda"}, ValueError, ["name", "Python keyword"]),
    ({"name": "__mw_x"}, ValueError, ["name", "two underscores"]),
    ({"input_names": "xya"}, ValueError, ["input_names", "list of strings", "'xya'"]),
    ({"input_names": None}, ValueError, ["input_names", "None"]),
    ({"input_names": ["x", "y", "2a"]}, ValueError, ["input_names", "C++ identifier", "'2a'"]),
    ({"input_names": ["x", "y", 3]}, ValueError, ["input_names", "expected a string", "3"]),
    ({"input_names": ["x", "half", "alpha"]}, ValueError, ["input_names", "'half'", "keyword"]),
    ({"input_names": ["x", "threadgroup", "alpha"]}, ValueError, ["input_names", "'threadgroup'", "keyword"]),
    ({"input_names": ["x", "float4", "alpha"]}, ValueError, ["input_names", "'float4'", "type in MSL"]),
    ({"input_names": ["x", "x", "alpha"]}, ValueError, ["input_names", "'x'", "twice"]),
    ({"input_names": ["x", "out", "alpha"]}, ValueError, ["result_names", "'out'", "also in input_names"]),
    ({"input_names": ["x", "gid", "alpha"]}, ValueError, ["metal_params[0]", "'gid'", "also in input_names"]),
    ({"result_names": []}, ValueError, ["result_names", "at least one"]),
    ({"result_names": ["class"]}, ValueError, ["result_names", "'class'", "keyword"]),
    ({"src": None}, ValueError, ["src", "None"]),
    ({"src": b"x"}, ValueError, ["src", "b'x'"]),
    ({"helper_src": 1}, ValueError, ["helper_src", "got 1"]),
    ({"template_dtypes": {"z": "T"}}, ValueError, ["template_dtypes", "'z'", "['x', 'y', 'alpha']"]),
    ({"template_dtypes": {"x": "T", "y": "T"}}, ValueError, ["T", "unique"]),
    ({"template_dtypes": {"x": ""}}, ValueError, ["template_dtypes['x']", "placeholder"]),
    ({"template_dtypes": ["T"]}, ValueError, ["template_dtypes", "dict"]),
    ({"metal_params": param()}, ValueError, ["metal_params", "list of MetalParameter"]),
    ({"metal_params": ["uint gid"]}, ValueError, ["metal_params[0]", "MetalParameter", "'uint gid'"]),
    (
        {"metal_params": [param(attr="thread_postion_in_grid")]},
        ValueError,
        ["metal_params[0]", "'gid'", "unknown attribute", "'thread_postion_in_grid'", *attributes.ATTRIBUTES],
    ),
    ({"metal_params": [param(attr="buffer(7)")]}, ValueError, ["unknown attribute", "'buffer(7)'"]),
    (
        {"metal_params": [param(dtype="float")]},
        ValueError,
        ["metal_params[0]", "'gid'", "uint, uint2, uint3", "'float'"],
    ),
    ({"metal_params": [param(dtype="uint4")]}, ValueError, ["'thread_position_in_grid'", "'uint4'"]),
    (
        {"metal_params": [param(dtype="uint2", attr="thread_index_in_simdgroup")]},
        ValueError,
        ["'thread_index_in_simdgroup'", "uint or ushort", "'uint2'"],
    ),
    (
        {"metal_params": [param(dtype="uint2"), param("lid", "uint3", "thread_position_in_threadgroup")]},
        ValueError,
        ["same number of components", "uint2 gid", "uint3 lid"],
    ),
    (
        {"metal_params": [param(f"p{i}") for i in range(28)]},
        ValueError,
        ["at most 31 parameters", "got 32", "3 inputs", "1 results", "28 metal_params"],
    ),
    ({"math_mode": "quick"}, ValueError, ["math_mode", "'safe' or 'fast'", "'quick'"]),
    ({"checked": 1}, ValueError, ["checked", "True or False"]),
    ({"torch_defn": two}, ValueError, ["2 parameters", "x, y", "input_names has 3"]),
    ({"torch_defn": defaulted}, ValueError, ["'alpha'", "default", "2.0"]),
    ({"torch_defn": keyword_only}, ValueError, ["'alpha'", "keyword-only"]),
    ({"torch_defn": operand}, ValueError, ["'threads_per_grid'", "Core AI adds"]),
    ({"torch_defn": returns_pair}, ValueError, ["tuple of 2 tensors", "1 entries"]),
    ({"torch_defn": None}, TypeError, ["torch_defn", "function", "None"]),
    ({"torch_defn": bare}, TypeError, ["'x'", "no annotation", "torch.Tensor, int, float or bool"]),
    ({"torch_defn": listed}, TypeError, ["'x'", "torch.Tensor, int, float or bool", "got list"]),
    ({"torch_defn": variadic}, TypeError, ["'x'", "variadic"]),
    ({"torch_defn": misspelt}, TypeError, ["annotation", "Tensr"]),
    ({"torch_defn": no_result}, TypeError, ["no return annotation"]),
    ({"torch_defn": returns_int}, TypeError, ["return types", "int"]),
]


@pytest.mark.parametrize(("changed", "also", "fragments"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_refused(
    changed: dict[str, Any], also: type[Exception], fragments: list[str], definition: dict[str, Any]
) -> None:
    arguments = {"name": "refused_kernel", **definition, **changed}
    with pytest.raises(MetalwrightError) as caught:
        MetalKernel(**arguments)
    assert isinstance(caught.value, also)
    assert isinstance(caught.value, KernelDefinitionError if also is ValueError else KernelSignatureError)
    for fragment in [f"kernel {arguments['name']!r}", *fragments]:
        assert fragment in str(caught.value)


def test_thirty_one_parameters_are_accepted(make: Callable[..., MetalKernel]) -> None:
    make(metal_params=[param(f"p{i}") for i in range(27)])


@pytest.mark.parametrize(
    "dtype", ["uint", "ushort", "uint3", "ushort2", "uint32_t", "const uint", "metal::uint3", "vec<uint, 2>"]
)
def test_accepted_types(dtype: str, make: Callable[..., MetalKernel]) -> None:
    make(metal_params=[param(dtype=dtype)])


@pytest.mark.parametrize("name", ["kernel", "float4", "k_1"])
def test_accepted_names(name: str, definition: dict[str, Any]) -> None:
    """Core AI appends a suffix to a kernel's name, so that a keyword of MSL does no harm."""
    assert MetalKernel(name, **definition).name == name


def test_what_the_parent_refuses_keeps_its_type(definition: dict[str, Any]) -> None:
    """Code that catches ValueError or TypeError around a TorchMetalKernel catches ours as well."""
    seen = 0
    for changed, also, _ in BAD:
        ours_alone = {"math_mode", "checked"} & set(changed)
        if ours_alone or None in changed.values():  # the parent runs into None by accident, not by a check
            continue
        try:
            TorchMetalKernel(**{"name": "refused_kernel", **definition, **changed})
        except (ValueError, TypeError) as error:
            assert isinstance(error, also), changed
            seen += 1
        except Exception:
            continue
    assert seen > 8
