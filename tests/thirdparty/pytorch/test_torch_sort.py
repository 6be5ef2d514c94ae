"""``SortMerge.h``, ``SortRadix.h`` and ``SortTopK.h``, driven as PyTorch's host code drives them, against torch.sort.

The headers instantiate more than a thousand kernels; those that are launched are compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from metalwright import compile_shader
from metalwright.authoring import ShaderLibrary

MERGE, RADIX, TOPK = "SortMerge.h", "SortRadix.h", "SortTopK.h"
FOLDER = "ATen/native/mps/kernels"
KINDS = {
    "float": torch.float32,
    "half": torch.float16,
    "bfloat": torch.bfloat16,
    "int": torch.int32,
    "long": torch.int64,
    "short": torch.int16,
    "char": torch.int8,
    "uchar": torch.uint8,
    "bool": torch.bool,
}
NAN = float("nan")
ROWS = 2
descending = pytest.mark.parametrize("desc", [False, True], ids=["up", "down"])


@functools.cache
def library() -> ShaderLibrary:
    return compile_shader(f"""
#include <metal_stdlib>
#include <metal_simdgroup>
using namespace metal;
#include <c10/metal/indexing.h>
#include <c10/metal/utils.h>
#include <{FOLDER}/SortTopK.h>
""")


class Bench:
    """Launches the kernels of one sort: a threadgroup for each block of each row."""

    def __init__(self, ran: Callable[..., None], group: int) -> None:
        self.ran = ran
        self.group = group

    def __call__(self, header: str, template: str, name: str, *arguments: Any, blocks: int = 1) -> None:
        self.ran(f"{FOLDER}/{header}", template, name)
        size = (self.group * blocks, ROWS)
        library()[name](*arguments, threads=size, group_size=(self.group, 1))


def values(kind: str, size: int) -> torch.Tensor:
    """Rows with many equal elements, and with NaN and infinities where there are such."""
    dtype = KINDS[kind]
    generator = torch.Generator().manual_seed(size)
    least = 0 if dtype in (torch.uint8, torch.bool) else -60
    x = torch.randint(least, 2 if kind == "bool" else 61, (ROWS, size), generator=generator).to(dtype)
    if dtype.is_floating_point:
        x = x + torch.tensor(0.5, dtype=dtype)
        x[0, 1], x[0, size // 2], x[1, -1], x[1, 0] = NAN, NAN, float("inf"), -float("inf")
    return x


def assert_sorted(
    out: torch.Tensor, where: torch.Tensor, x: torch.Tensor, desc: bool, part: slice = slice(None)
) -> None:
    """Compare with torch's stable sort: of equal elements, the headers leave the first before the second."""
    expected = torch.sort(x, dim=1, descending=desc, stable=True)
    torch.testing.assert_close(out, expected.values[:, part], rtol=0, atol=0, equal_nan=True)
    assert torch.equal(where, expected.indices[:, part])


def empty(x: torch.Tensor, count: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (ROWS, x.shape[1] if count is None else count)
    return torch.full(shape, 1, dtype=x.dtype), torch.full(shape, -5)


@descending
@pytest.mark.parametrize("kind", KINDS)
def test_one_block(kind: str, desc: bool, ran: Callable[..., None]) -> None:
    launch = Bench(ran, 32)
    for size in (2, 100, 128):
        x = values(kind, size)
        out, where = empty(x)
        launch(MERGE, "sort_block", f"sort_block_{kind}_tptg32_stable", x, out, where, size, [1, size], desc)
        assert_sorted(out, where, x, desc)


@descending
def test_one_block_of_several_simdgroups(desc: bool, ran: Callable[..., None]) -> None:
    launch = Bench(ran, 256)
    x = values("float", 777)
    out, where = empty(x)
    # columns: each element of a row is ROWS elements after the last
    columns = x.t().contiguous()
    launch(MERGE, "sort_block", "sort_block_float_tptg256", columns, out, where, 777, [ROWS, 1], desc)
    assert_sorted(out, where, x, desc)


def merged(
    launch: Bench, kind: str, keys: torch.Tensor, where: torch.Tensor, desc: bool, blocks: int, suffix: str
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Merge sorted blocks pair by pair, but for the last time; also return the tiles of that last merge."""
    size, tiles = keys.shape[1], 2
    while tiles < blocks:
        next_keys, next_where = torch.full_like(keys, 1), torch.full_like(where, 77)
        dims = torch.tensor([size, tiles, 0], dtype=torch.int32)
        name = f"mb_merge_{kind}_tptg{launch.group}{suffix}"
        launch(MERGE, "mb_merge", name, keys, where, next_keys, next_where, dims, desc, blocks=blocks)
        keys, where, tiles = next_keys, next_where, 2 * tiles
    return keys, where, tiles


@descending
@pytest.mark.parametrize(("kind", "suffix"), [("float", ""), ("short", "_u16"), ("long", "_u16")])
def test_several_blocks(kind: str, suffix: str, desc: bool, ran: Callable[..., None]) -> None:
    launch, size, blocks = Bench(ran, 32), 555, 5
    x = values(kind, size)
    keys = torch.full_like(x, 1)
    where = torch.full((ROWS, size), 77, dtype=torch.uint16 if suffix else torch.uint32)
    name = f"mb_sort_block_{kind}_tptg32{suffix}"
    launch(MERGE, "mb_sort_block", name, x, keys, where, size, [1, size], desc, blocks=blocks)
    keys, where, tiles = merged(launch, kind, keys, where, desc, blocks, suffix)
    dims = torch.tensor([size, tiles, 0], dtype=torch.int32)

    out, indices = empty(x)
    name = f"mb_merge_final_{kind}_tptg32{suffix}"
    launch(MERGE, "mb_merge", name, keys, where, out, indices, dims, desc, blocks=blocks)
    assert_sorted(out, indices, x, desc)

    offset, count = 3, 200
    out, indices = empty(x, count)
    name = f"mb_merge_final_topk_{kind}_tptg32{suffix}"
    selection = [dims, desc, torch.tensor([offset, count], dtype=torch.int32)]
    launch(TOPK, "mb_merge_final_topk", name, keys, where, out, indices, *selection, blocks=blocks)
    assert_sorted(out, indices, x, desc, slice(offset, offset + count))


@descending
@pytest.mark.parametrize("kind", ["float", "half"])
def test_several_blocks_by_integer_keys(kind: str, desc: bool, ran: Callable[..., None]) -> None:
    """Floats as integers of the same order, which are merged without a thought to NaN."""
    launch, size, blocks = Bench(ran, 256), 2500, 3
    key = "uint" if kind == "float" else "ushort"
    x = values(kind, size)
    keys = torch.full((ROWS, size), 1, dtype=torch.uint32 if kind == "float" else torch.uint16)
    where = torch.full((ROWS, size), 77, dtype=torch.uint32)
    name = f"mb_sort_block_fkey_{kind}_tptg256"
    launch(TOPK, "mb_sort_block_fkey", name, x, keys, where, size, [1, size], desc, blocks=blocks)
    keys, where, tiles = merged(launch, key, keys, where, False, blocks, "")
    dims = torch.tensor([size, tiles, 0], dtype=torch.int32)
    out, indices = empty(x)
    name = f"mb_merge_final_fkey_{kind}_tptg256"
    launch(TOPK, "mb_merge_final_fkey", name, keys, where, out, indices, dims, desc, blocks=blocks)
    assert_sorted(out, indices, x, desc)

    out, indices = empty(x, 40)
    name = f"mb_merge_final_topk_fkey_{kind}_tptg256"
    selection = torch.tensor([0, 40], dtype=torch.int32)
    launch(
        TOPK,
        "mb_merge_final_topk_fkey",
        name,
        keys,
        where,
        out,
        indices,
        dims,
        desc,
        selection,
        blocks=blocks,
    )
    assert_sorted(out, indices, x, desc, slice(40))


@descending
def test_the_largest_of_one_block(desc: bool, ran: Callable[..., None]) -> None:
    for kind, offset, count in (("float", 0, 10), ("int", 41, 1)):
        x = values(kind, 100)
        out, where = empty(x, count)
        selection = torch.tensor([offset, count], dtype=torch.int32)
        arguments = (x, out, where, 100, [1, 100], desc, selection)
        Bench(ran, 32)(TOPK, "sort_block_topk", f"sort_block_topk_{kind}_tptg32", *arguments)
        assert_sorted(out, where, x, desc, slice(offset, offset + count))


@descending
@pytest.mark.parametrize(
    ("kind", "bits", "group", "block", "how"),
    [
        ("char", 4, 512, 4096, "scan"),
        ("half", 8, 1024, 4096, "count_scan"),
        ("float", 8, 512, 2048, "fused"),
    ],
)
def test_radix(
    kind: str, bits: int, group: int, block: int, how: str, desc: bool, ran: Callable[..., None]
) -> None:
    """Digit by digit: count, sum the counts, scatter; the sums in a kernel of their own or as part of another."""
    launch, size, blocks = Bench(ran, group), block + 333, 2
    x = values(kind, size)
    name, fused = f"{kind}_{bits}bit", "fused_" if how == "fused" else ""
    keys, where = x, torch.full((ROWS, size), 77, dtype=torch.uint32)
    passes = 8 * x.element_size() // bits
    for number in range(passes):
        dims = torch.tensor([size, blocks, number * bits], dtype=torch.int32)
        counts = torch.full((ROWS, blocks << bits), 99, dtype=torch.uint32)
        if how == "count_scan":
            launch(RADIX, "radix_count_scan", f"radix_count_scan_{name}_mb4", keys, counts, dims, desc)
        else:
            launch(RADIX, "radix_count", f"radix_count_{name}", keys, counts, dims, desc, blocks=blocks)
        if how == "scan":
            Bench(ran, 1024)(RADIX, "radix_scan", "radix_scan", counts, blocks << bits)
        flags = torch.tensor([desc, number == 0])
        arguments = (counts, dims, flags)
        if number < passes - 1:
            into = torch.full_like(keys, 1), torch.full_like(where, 77)
            launch(
                RADIX,
                "radix_scatter",
                f"radix_scatter_{fused}{name}",
                keys,
                where,
                *into,
                *arguments,
                blocks=blocks,
            )
            keys, where = into
            continue
        out, indices = empty(x)
        final = f"radix_scatter_{fused}final_"
        launch(RADIX, "radix_scatter", final + name, keys, where, out, indices, *arguments, blocks=blocks)
        assert_sorted(out, indices, x, desc)
        out, indices = empty(x, 30)
        selection = torch.tensor([5, 30], dtype=torch.int32)
        launch(
            TOPK, "radix_scatter_topk", f"{final}topk_{name}", keys, where, out, indices, *arguments, selection,
            blocks=blocks,
        )  # fmt: skip
        assert_sorted(out, indices, x, desc, slice(5, 35))
