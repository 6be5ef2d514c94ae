"""MetalKernel.source: the text that Core AI embeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from metalwright.authoring import MetalKernel, source
from metalwright.authoring.dtypes import BY_NAME
from metalwright.authoring.source import Parameter
from metalwright.errors import ArgumentError

Make = Callable[..., MetalKernel]


def test_the_text(make: Make) -> None:
    kernel = make(helper_src="// TYPE\n")
    text = kernel.source(torch.ones(2, 3).half(), torch.ones(2, 3).half(), -0.5)
    assert "#include <metal_stdlib>" in text
    assert "\n// half\n" in text
    assert "tensor<device half, metal::dextents<int, 2>, tensor_handle> x [[buffer(0)]]" in text
    assert "constant float& alpha [[buffer(2)]]" in text
    assert "tensor<device half, metal::dextents<int, 2>, tensor_handle> out [[buffer(3)]]" in text
    assert "uint gid [[thread_position_in_grid]]" in text
    assert "float alpha = -0.5f;\nout[gid] = x[gid] + half(alpha) * y[gid];" in text


def test_arguments_come_from_keywords_then_inputs_then_cases(make: Make) -> None:
    kernel = make()
    kernel.cases = lambda: iter([{"inputs": [torch.ones(3), torch.ones(3), 1.25]}])
    assert "tensor<device float, metal::dextents<int, 1>" in kernel.source()
    assert "alpha = 1.25f" in kernel.source()
    assert "alpha = 4.0f" in kernel.source(scalars={"alpha": 4})
    assert "tensor<device bfloat, metal::dextents<int, 3>" in kernel.source(dtypes="bfloat", ranks=3)
    assert "alpha = 2.0f" in kernel.source(torch.ones(3), torch.ones(3), 2.0)
    mixed = kernel.source(dtypes={"x": torch.float16, "out": "float"})
    assert "half, metal::dextents<int, 1>, tensor_handle> x" in mixed
    assert "float, metal::dextents<int, 1>, tensor_handle> out" in mixed


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        ({}, ["dtype of input 'x'", "dtypes={'x': ...}", "kernel.cases"]),
        ({"dtypes": "half"}, ["rank of input 'x'", "ranks={'x': ...}"]),
        ({"dtypes": "half", "ranks": 1}, ["value of input 'alpha'", "scalars={'alpha': ...}"]),
        ({"dtypes": "double", "ranks": 1}, ["'x'", "double", "float32"]),
        ({"dtypes": {"q": "half"}}, ["dtypes", "'q'", "['x', 'y', 'alpha', 'out']"]),
        ({"dtypes": "half", "ranks": 1, "scalars": {"x": 1}}, ["scalars", "'x'", "['alpha']"]),
        ({"dtypes": "half", "ranks": 1, "scalars": {"alpha": float("nan")}}, ["'alpha'", "finite"]),
    ],
)
def test_what_is_missing(arguments: dict[str, Any], fragments: list[str], make: Make) -> None:
    kernel = make()
    with pytest.raises(ArgumentError) as caught:
        kernel.source(**arguments)
    for fragment in [kernel.name, *fragments]:
        assert fragment in str(caught.value)


@pytest.mark.parametrize(
    "helper_src", [None, "TYPE f(TYPE a) { return a; }", "\n\n// [[kernel]] void x() {\n"]
)
@pytest.mark.parametrize("src", ["out[gid] = x[gid];", "\nTYPE a;\n\n\tout[gid] = a;\n"])
def test_the_sections_are_the_text(src: str, helper_src: str | None, make: Make) -> None:
    """The pieces, joined, are Core AI's text; the user's pieces have the user's number of lines."""

    def plain(x: torch.Tensor) -> torch.Tensor:
        return x

    kernel = make("plain", input_names=["x"], torch_defn=plain, src=src, helper_src=helper_src)
    parameter = Parameter(BY_NAME["half"], 1)
    pieces = source.sections(kernel, [parameter], [parameter])
    assert "".join(piece.text for piece in pieces) == source.complete(kernel, [parameter], [parameter], {})
    named = {piece.file: piece for piece in pieces if piece.file}
    assert set(named) == {f"{kernel.name}.src", *([f"{kernel.name}.helper_src"] if helper_src else [])}
    assert named[f"{kernel.name}.src"].text == src.replace("TYPE", "half")
    assert named[f"{kernel.name}.src"].original == src
    for piece in named.values():
        assert piece.original is not None and piece.text.count("\n") == piece.original.count("\n")
