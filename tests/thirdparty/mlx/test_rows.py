"""softmax and logsumexp of rows of every length, and scans along them."""

from __future__ import annotations

import pytest
import torch
from units import UTILS, Unit

TYPES = {"float": torch.float32, "half": torch.float16}


def group(name: str, length: int) -> int:
    """Return the threads of a row, as MLX has them: four elements each, in whole simdgroups.

    The looped kernels are for rows that are longer than a threadgroup can hold at once.
    """
    return 1024 if name.endswith("looped") else 32 * -(-length // 128)


def rows(kind: str, count: int, length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    return (torch.rand(count, length, generator=generator) * 8 - 4).to(TYPES[kind])


@pytest.mark.parametrize("kind", ["float", "half"])
def test_softmax(bench, kind: str) -> None:
    kernels = ("softmax_single_row", "softmax_looped")
    unit = Unit("softmax.h", UTILS, tuple((name, name, f"{kind}, float") for name in kernels))
    for length in (1, 5, 127, 130, 4101):
        x = rows(kind, 3, length)
        for name in kernels:
            if name.endswith("looped") != (length > 4096):
                continue
            out = torch.full_like(x, 9)
            bench.run(unit, name, x, out, length, threads=group(name, length) * 3, group=group(name, length))
            expected = x.float().softmax(-1).to(x.dtype)
            torch.testing.assert_close(out, expected, rtol=2e-3 if kind == "half" else 1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["float", "half"])
def test_logsumexp(bench, kind: str) -> None:
    kernels = ("logsumexp", "logsumexp_looped")
    unit = Unit("logsumexp.h", UTILS, tuple((name, name, f"{kind}, float") for name in kernels))
    for length in (1, 5, 127, 130, 4101):
        x = rows(kind, 3, length)
        for name in kernels:
            if name.endswith("looped") != (length > 4096):
                continue
            out = torch.full((3,), 9, dtype=x.dtype)
            bench.run(unit, name, x, out, length, threads=group(name, length) * 3, group=group(name, length))
            expected = x.float().logsumexp(-1).to(x.dtype)
            torch.testing.assert_close(out, expected, rtol=2e-3 if kind == "half" else 1e-5, atol=1e-5)


@pytest.mark.parametrize(("inclusive", "reverse"), [(True, False), (False, True)])
def test_contiguous_scan(bench, inclusive: bool, reverse: bool) -> None:
    arguments = f"float, float, CumSum<float>, 4, {str(inclusive).lower()}, {str(reverse).lower()}"
    unit = Unit("scan.h", UTILS, (("contiguous_scan", "contiguous_scan", arguments),))
    for length in (1, 31, 128, 300):
        x = rows("float", 2, length).round()
        out = torch.full_like(x, 99)
        bench.run(unit, "contiguous_scan", x, out, length, threads=(32, 2, 1), group=(32, 1, 1))
        ordered = x.flip(-1) if reverse else x
        expected = ordered.cumsum(-1) - (0 if inclusive else ordered)
        assert torch.equal(out, expected.flip(-1) if reverse else expected), length
