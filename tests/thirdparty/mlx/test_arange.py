"""arange: the smallest of MLX's kernels."""

from __future__ import annotations

import pytest
import torch
from units import UTILS, Unit


@pytest.mark.parametrize(("kind", "dtype"), [("float", torch.float32), ("int", torch.int32)])
def test_arange(bench, kind: str, dtype: torch.dtype) -> None:
    unit = Unit("arange.h", UTILS, (("arange", "arange", kind),))
    out = torch.zeros(37, dtype=dtype)
    start, step = torch.tensor([3], dtype=dtype), torch.tensor([2], dtype=dtype)
    bench.run(unit, "arange", start, step, out, threads=37, group=32)
    assert torch.equal(out, torch.arange(3, 3 + 2 * 37, 2, dtype=dtype))
