"""Indices that are wrong and known before the kernel runs: LLVM may drop such an access, the checks may not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from metalwright.engine import codegen
from metalwright.engine.passes import indices
from metalwright.errors import MemoryFault
from tests.support import body, launch, tensor

PARAMETERS = (
    tensor("float", 2, "x", 0),
    tensor("float", 1, "out", 1),
    "uint gid [[thread_position_in_grid]]",
)


def run(src: str) -> np.ndarray:
    out = np.zeros(4, np.float32)
    launch(body(src, *PARAMETERS), {"x": np.ones((3, 5), np.float32)}, {"out": out}, 4, 4)
    return out


@pytest.mark.parametrize(
    ("src", "what"),
    [
        # found by damaging a number: the loop's bound was poison, and the process died
        ("for (int i = 0; i < x.get_extent(¦100000000); ++i) out[gid] += 1;", "reads 4 bytes"),
        ("out[gid] = x.get_extent(2 + ¦5);", "reads 4 bytes"),
        ("out[gid] = x.get_stride(¦9);", "reads 4 bytes"),
        ("float a[4] = {1, 2, 3, 4}; out[gid] = a[¦4];", "just past the end"),
        ("float a[4] = {1, 2, 3, 4}; a[¦7] = 1; out[gid] = a[2];", "writes 4 bytes"),
        ("float a[4] = {}; thread float* p = a; if (p[¦5] > 0) out[gid] = 1;", "4 bytes past the end"),
        ("float a[4] = {}; thread float* p = a + 70; while (*p > 0) { out[gid] = 1; }¦", "264 bytes past the end"),
        ("float4 v = 1; out[gid] = v[¦9];", "20 bytes past the end"),
    ],
)  # fmt: skip
def test_a_constant_index_past_the_end(src: str, what: str) -> None:
    with pytest.raises(MemoryFault, match=re.escape("of a private variable")) as caught:
        run(src.replace("¦", ""))
    assert what in str(caught.value)
    assert caught.value.site is not None
    assert (caught.value.site.file, caught.value.site.line) == ("k.src", 1)


def test_right_indices_cost_nothing() -> None:
    src = "float a[4] = {1, 2, 3, 4}; float4 v = 2; v[1] = a[2]; out[gid] = v.y + a[3] + x.get_extent(1) + v[0];"
    assert (run(src) == 3 + 4 + 3 + 2).all()
    module = body(src, *PARAMETERS).module
    moved = codegen._promoted(module.text, module.label).splitlines()
    assert indices.uses_of_nothing(moved) <= indices.uses_of_nothing(module.text.splitlines())
