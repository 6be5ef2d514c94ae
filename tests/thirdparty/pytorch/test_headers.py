"""The headers of PyTorch's that a shader can include compile, and what is in them is counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from metalwright import compile_shader
from tests.thirdparty.pytorch.headers import HEADERS, defined, short

# as PyTorch's own .metal files begin: these headers rely on it
HEAD = """
#include <metal_stdlib>
#include <metal_simdgroup>
#include <metal_simdgroup_matrix>
using namespace metal;
#include <c10/metal/indexing.h>
#include <c10/metal/utils.h>
"""
# SortTopK.h includes the two others, with more than a thousand kernels: test_torch_sort.py compiles them once
SORTING = {"SortMerge.h", "SortRadix.h", "SortTopK.h"}


@pytest.mark.parametrize("header", [h for h in HEADERS if Path(h).name not in SORTING])
def test_it_compiles(header: str) -> None:
    library = compile_shader(f"{HEAD}#include <{header}>\nkernel void k(device float* out) {{ out[0] = 1; }}")
    assert "k" in dir(library)
    out = torch.zeros(1)
    library.k(out, threads=1)
    assert out.item() == 1


def test_what_there_is(score: Callable[..., None]) -> None:
    found = {header: defined(header) for header in HEADERS}
    for header, names in found.items():
        for name in names:
            score("PyTorch", short(header), name, "found", "")
    assert len(found["c10/metal/indexing.h"]) == 38
    assert {"sort_block", "mb_sort_block", "mb_merge"} <= set(found["ATen/native/mps/kernels/SortMerge.h"])
    assert {"gamma", "bessel_j1_forward", "zeta"} <= set(found["c10/metal/special_math.h"])
    # most of the others hold the structs that kernels in PyTorch's own files take
    assert not found["ATen/native/mps/kernels/Activation.h"]
