"""The headers of PyTorch's that a shader can include compile."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from metalwright import compile_shader

INCLUDE = Path(torch.__file__).parent / "include"
HEADERS = sorted(
    path.relative_to(INCLUDE).as_posix()
    for folder in ("c10/metal", "ATen/native/mps/kernels")
    for path in (INCLUDE / folder).glob("*.h")
)
# as PyTorch's own .metal files begin: these headers rely on it
HEAD = """
#include <metal_stdlib>
#include <metal_simdgroup>
#include <metal_simdgroup_matrix>
using namespace metal;
#include <c10/metal/indexing.h>
#include <c10/metal/utils.h>
"""
# hundreds of instances of large templates each, which take minutes to check: not tested
MANY = {"SortMerge.h", "SortRadix.h", "SortTopK.h"}


@pytest.mark.parametrize("header", [h for h in HEADERS if Path(h).name not in MANY])
def test_it_compiles(header: str) -> None:
    library = compile_shader(f"{HEAD}#include <{header}>\nkernel void k(device float* out) {{ out[0] = 1; }}")
    assert "k" in dir(library)
    out = torch.zeros(1)
    library.k(out, threads=1)
    assert out.item() == 1
