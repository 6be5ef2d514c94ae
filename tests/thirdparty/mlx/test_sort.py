"""Sorting in one threadgroup and in several, of values and of indices; searching in what is sorted.

MLX's sorts are stable and put NaNs last, so the indices are known too.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from arrays import TYPES, groups, integers, ints, longs, up
from compare import assert_same, unlike
from units import UTILS, Unit

PER_THREAD = 4


def values(kind: str, *shape: int) -> torch.Tensor:
    """Return numbers of which many are equal, with NaNs and with the largest number of the type."""
    seed = sum(shape)
    if kind == "bool":
        return integers(seed, *shape) > 0
    if kind == "uint8_t":
        return (integers(seed, *shape, limit=60) + 60).to(torch.uint8)
    if kind == "complex64_t":
        x = torch.complex(integers(seed, *shape), integers(seed + 1, *shape))
    else:
        x = integers(seed, *shape, kind=kind, limit=90)
    flat = x.flatten()
    special = integers(seed + 2, len(flat), limit=9)
    if flat.is_floating_point() or flat.is_complex():
        flat[special == 9] = math.inf
        flat[special == -9] = math.nan
    else:
        flat[special == 9] = torch.iinfo(x.dtype).max
    return flat.reshape(shape)


def order_of(x: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the indices that sort an axis: equal elements as they were, NaNs last."""
    array = x.numpy()
    nan = np.isnan(array) if array.dtype.kind in "fc" else np.zeros(array.shape, bool)
    keys = [array.imag, array.real] if array.dtype.kind == "c" else [array]
    # NaNs are equal among each other
    keys = [np.where(nan, np.zeros_like(key), key) for key in keys]
    return torch.from_numpy(np.lexsort([*keys, nan], axis=axis))


def expected_of(x: torch.Tensor, axis: int, argsort: bool) -> torch.Tensor:
    order = order_of(x, axis)
    return order.to(torch.uint32) if argsort else x.gather(axis, order)


def memory_for(expected: torch.Tensor) -> torch.Tensor:
    if expected.dtype == torch.uint32:
        return torch.full(expected.shape, 0x7FFFFFFF, dtype=torch.int32).view(torch.uint32)
    return unlike(expected)


def compare(out: torch.Tensor, expected: torch.Tensor, of: object) -> None:
    if out.dtype == torch.uint32:
        out, expected = out.long(), expected.long()
    assert_same(out, expected, of)


BLOCKS = [
    ("float", False, 32),
    ("float", True, 32),
    ("half", False, 64),
    ("int", True, 64),
    ("complex64_t", True, 32),
    ("uint8_t", False, 32),
    ("bool", True, 32),
    ("int64_t", False, 64),
]


def block_unit(kernel: str) -> Unit:
    """Return the unit of a kernel: each threadgroup sorts a row of up to four elements a thread."""
    kernels = []
    for kind, argsort, threads in BLOCKS:
        result = "uint" if argsort else kind
        arguments = f"{kind}, {result}, {str(argsort).lower()}, {threads}, {PER_THREAD}"
        kernels.append((f"{kind} {argsort}", kernel, arguments))
    return Unit("sort.h", UTILS, tuple(kernels))


@pytest.mark.parametrize(("kind", "argsort", "threads"), BLOCKS)
def test_contiguous(bench, kind: str, argsort: bool, threads: int) -> None:
    unit = block_unit("block_sort")
    largest = threads * PER_THREAD
    for length in (1, 5, 33, largest - 3, largest):
        x = values(kind, 3, length)
        expected = expected_of(x, 1, argsort)
        out = memory_for(expected)
        launch = groups(1, 3, 1, group=(threads, 1, 1))
        bench.run(unit, f"{kind} {argsort}", x, out, length, 1, 1, length, length, **launch)
        compare(out, expected, length)
    # down the columns
    x = values(kind, 50, 3)
    expected = expected_of(x, 0, argsort)
    out = memory_for(expected)
    bench.run(unit, f"{kind} {argsort}", x, out, 50, 3, 3, 1, 1, **groups(1, 3, 1, group=(threads, 1, 1)))
    compare(out, expected, "columns")


@pytest.mark.parametrize(
    ("kind", "argsort", "threads"), [row for row in BLOCKS if row[0] in ("float", "half", "int")]
)
def test_not_contiguous(bench, kind: str, argsort: bool, threads: int) -> None:
    rows = [
        row for row in block_unit("block_sort_nc").kernels if row[0].split()[0] in ("float", "half", "int")
    ]
    unit = Unit("sort.h", UTILS, tuple(rows))
    base = values(kind, 3, 4, 70)
    for x, axis in (
        (base.permute(1, 0, 2), 2),
        (base.permute(0, 2, 1), 1),
        (base[::2, :, ::3], 2),
        (base[0, 0], 0),
    ):
        expected = expected_of(x, axis, argsort)
        out = memory_for(expected)
        kept = [other for other in range(x.dim()) if other != axis]
        length = x.shape[axis]
        outer = (
            ints(x.shape[a] for a in kept),
            longs(x.stride(a) for a in kept),
            longs(out.stride(a) for a in kept),
        )
        launch = groups(1, x.numel() // length, 1, group=(threads, 1, 1))
        arguments = (length, x.stride(axis), out.stride(axis), len(kept), *outer)
        bench.run(unit, f"{kind} {argsort}", x, out, *arguments, **launch)
        compare(out, expected, (x.shape, axis))


def merge_sort(
    bench, unit: Unit, x: torch.Tensor, axis: int, threads: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort blocks and merge them two by two, as MLX does with an axis that is too long for one threadgroup."""
    length = x.shape[axis]
    kept = [other for other in range(x.dim()) if other != axis]
    rows = x.numel() // length
    per_block = threads * PER_THREAD
    blocks = up(length, per_block)
    keys = [x.new_zeros(rows, length) for _ in range(2)]
    indices = [torch.full((rows, length), 7, dtype=torch.int32).view(torch.uint32) for _ in range(2)]
    partitions = torch.full((rows, blocks + 1), 7, dtype=torch.int32).view(torch.uint32)
    outer = len(kept), ints(x.shape[a] for a in kept), longs(x.stride(a) for a in kept)
    launch = groups(blocks, rows, 1, group=(threads, 1, 1))
    bench.run(unit, "mb_block_sort", x, keys[0], indices[0], length, x.stride(axis), *outer, **launch)
    tiles = 2
    while tiles // 2 < blocks:
        of_partition = groups(1, rows, 1, group=(min(blocks + 1, 1024), 1, 1))
        bench.run(
            unit, "mb_block_partition", partitions, keys[0], indices[0], length, tiles, blocks, **of_partition
        )
        arguments = (partitions, keys[0], indices[0], keys[1], indices[1], length, tiles, blocks)
        bench.run(unit, "mb_block_merge", *arguments, **launch)
        keys.reverse()
        indices.reverse()
        tiles *= 2
    shape = [x.shape[a] for a in kept] + [length]
    return keys[0].reshape(shape).movedim(-1, axis), indices[0].reshape(shape).movedim(-1, axis)


MERGES = [
    # small blocks, to merge many; then blocks as MLX has them
    ("float", 32, [((1, 129), 1), ((3, 700), 1), ((520, 2), 0)]),
    ("int64_t", 32, [((2, 300), 1)]),
    ("half", 512, [((2, 2500), 1)]),
]


@pytest.mark.parametrize(("kind", "threads", "cases"), MERGES)
def test_many_blocks(bench, kind: str, threads: int, cases: list) -> None:
    names = ("mb_block_sort", "mb_block_partition", "mb_block_merge")
    arguments = f"{kind}, uint, true, {threads}, {PER_THREAD}"
    unit = Unit("sort.h", UTILS, tuple((name, name, arguments) for name in names))
    for shape, axis in cases:
        x = values(kind, *shape)
        keys, indices = merge_sort(bench, unit, x, axis, threads)
        compare(keys, expected_of(x, axis, False), shape)
        compare(indices, expected_of(x, axis, True), shape)


SEARCHES = [("float", True), ("half", False), ("int", False), ("uint8_t", True)]


@pytest.mark.parametrize(("kind", "right"), SEARCHES)
def test_search(bench, kind: str, right: bool) -> None:
    kernels = tuple((f"{k} {r}", "searchsorted", f"{k}, {str(r).lower()}") for k, r in SEARCHES)
    unit = Unit("searchsorted.h", ("utils.h", "sort.h"), kernels)
    side = "right" if right else "left"
    for length, stride in ((1, 1), (37, 1), (64, 3)):
        spaced = torch.zeros(length * stride, dtype=TYPES[kind])
        spaced[::stride] = torch.from_numpy(np.sort(values(kind, length).numpy()))
        v = values(kind, 3, 5, 7)
        found = np.searchsorted(spaced[::stride].numpy(), v.numpy(), side=side)
        expected = torch.from_numpy(found).to(torch.uint32)
        out = memory_for(expected)
        bench.run(unit, f"{kind} {right}", spaced, v, out, length, stride, threads=(7, 5, 3), group=(7, 1, 1))
        compare(out, expected, (length, stride))
