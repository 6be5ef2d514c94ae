"""Scans along rows and across them: inclusive and exclusive, forwards and backwards."""

from __future__ import annotations

import math

import pytest
import torch
from arrays import TYPES, integers, normal, up
from compare import assert_same, unlike
from units import UTILS, Unit

# elements, results, operator, elements a thread reads, inclusive, reverse
SCANS = [
    "half, half, CumSum<half>, 4, false, true",
    "bool, int, CumSum<int>, 4, true, false",
    "complex64_t, complex64_t, CumSum<complex64_t>, 2, true, true",
    "int, int, CumProd<int>, 4, false, false",
    "bool, bool, CumProd<bool>, 4, true, true",
    "float, float, CumMax<float>, 4, true, false",
    "int64_t, int64_t, CumMin<int64_t>, 2, false, true",
    "float, float, CumLogaddexp<float>, 4, true, false",
]


def unit_of(kernel: str) -> Unit:
    return Unit("scan.h", UTILS, tuple((text, kernel, text) for text in SCANS))


def values(scan: str, *shape: int) -> torch.Tensor:
    given, _, op = scan.split(", ")[:3]
    seed = sum(shape)
    if op.startswith("CumLogaddexp"):
        return normal(seed, *shape) * 5
    if op == "CumProd<bool>":
        return integers(seed, *shape, limit=10) != 10
    if op.startswith("CumProd"):
        return torch.where(integers(seed, *shape, limit=30) == 30, 2, -1).to(TYPES[given])
    if given == "complex64_t":
        return torch.complex(integers(seed, *shape), integers(seed + 1, *shape))
    x = integers(seed, *shape, kind=given, limit=3 if "Sum" in op else 1000)
    if given == "float":
        x.flatten()[len(x.flatten()) // 2] = math.nan
    return x


def reference(scan: str, x: torch.Tensor, axis: int) -> torch.Tensor:
    _, result, op, _, inclusive, reverse = scan.split(", ")
    dtype = TYPES[result]
    ordered = x.flip(axis) if reverse == "true" else x
    name = op.split("<")[0]
    if name == "CumSum":
        wide = ordered if x.is_complex() else ordered.double()
        scanned, neutral = wide.cumsum(axis), 0
    elif name == "CumProd":
        scanned, neutral = ordered.double().cumprod(axis), 1
    elif name == "CumMax":
        scanned, neutral = ordered.cummax(axis).values, -math.inf
    elif name == "CumMin":
        scanned, neutral = ordered.cummin(axis).values, torch.iinfo(dtype).max
    else:
        scanned, neutral = ordered.double().logcumsumexp(axis), -math.inf
    scanned = scanned.to(dtype)
    if inclusive == "false":
        first = torch.full_like(scanned.narrow(axis, 0, 1), neutral)
        scanned = torch.cat([first, scanned.narrow(axis, 0, x.shape[axis] - 1)], axis)
    return (scanned.flip(axis) if reverse == "true" else scanned).contiguous()


def compare(scan: str, out: torch.Tensor, expected: torch.Tensor, of: object) -> None:
    if "Logaddexp" in scan:
        # one rounding of each of the few steps that lead to an element
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5, msg=lambda text: f"{of}: {text}")
    else:
        assert_same(out, expected, of)


@pytest.mark.parametrize("scan", SCANS)
def test_rows(bench, scan: str) -> None:
    unit = unit_of("contiguous_scan")
    per = int(scan.split(", ")[3])
    for length in (1, 32, 129, 300, 1030):
        x = values(scan, 2, length)
        expected = reference(scan, x, 1)
        out = unlike(expected)
        width = 32 * up(length, per * 32)
        bench.run(unit, scan, x, out, length, threads=(width, 2, 1), group=(width, 1, 1))
        compare(scan, out, expected, length)


def test_rows_longer_than_a_threadgroup(bench) -> None:
    """Several rounds, which hand on what they have got so far."""
    unit = unit_of("contiguous_scan")
    for scan in (SCANS[1], SCANS[6]):
        x = values(scan, 3, 700)
        expected = reference(scan, x, 1)
        out = unlike(expected)
        bench.run(unit, scan, x, out, 700, threads=(64, 3, 1), group=(64, 1, 1))
        compare(scan, out, expected, scan)


@pytest.mark.parametrize("scan", SCANS)
def test_across_rows(bench, scan: str) -> None:
    unit = unit_of("strided_scan")
    per = int(scan.split(", ")[3])
    for outer, length, stride in ((1, 1, 3), (2, 32, 32), (2, 33, 5), (1, 70, 37), (2, 5, 66)):
        x = values(scan, outer, length, stride)
        expected = reference(scan, x, 1)
        out = unlike(expected)
        width, blocks = 32 * (32 // per), up(stride, 32)
        threads, group = (width, outer * blocks, 1), (width, 1, 1)
        bench.run(unit, scan, x, out, length, stride, blocks, threads=threads, group=group)
        compare(scan, out, expected, (outer, length, stride))
