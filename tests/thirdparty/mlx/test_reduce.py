"""Reductions of everything, of rows and of columns, launched as MLX's ``reduce.cpp`` plans them.

The values are whole numbers whose sums and products are exact in any order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from arrays import TYPES, groups, integers, ints, longs, up
from compare import assert_same, unlike
from units import Unit

import metalwright

BEFORE = ("utils.h", "reduce_utils.h")
N_READS = N_WRITES = 4
SIMD = 32


def unit_of(file: str, kernels: Sequence[str]) -> Unit:
    """Return a unit of kernels that are given as ``template:arguments``, which are their host names too.

    The position in an array goes on over the end of an axis by a call of the same function for what is left.
    """
    named = ((text, *text.split(":")) for text in kernels)
    return Unit(f"reduction/{file}", BEFORE, tuple(named), recursion=2)


def types(kernel: str) -> tuple[str, str, str]:
    """Return the type of the elements, of the result, and the operator."""
    given, result, op = kernel.split(":")[1].split(",")[:3]
    return given, result, op.split("<")[0]


def values(kernel: str, *shape: int) -> torch.Tensor:
    given, _, op = types(kernel)
    seed = sum(shape)
    if given == "bool" or op in ("And", "Or"):
        # mostly what does not decide
        rare = integers(seed, *shape, limit=20) == 20
        return (rare if op == "Or" else ~rare).to(TYPES[given])
    if op == "Prod":
        x = 1 - 2 * (integers(seed, *shape, limit=1) > 0).float()
        return torch.where(integers(seed + 1, *shape, limit=30) == 30, 2 * x, x).to(TYPES[given])
    if given == "complex64_t":
        return torch.complex(integers(seed, *shape), integers(seed + 1, *shape))
    x = integers(seed, *shape, kind=given, limit=3 if op == "Sum" else 90)
    if op in ("Min", "Max") and given in ("half", "float", "bfloat16_t"):
        x[torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < 0.004] = math.nan
    return x


def reference(kernel: str, x: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    _, result, op = types(kernel)
    dtype = TYPES[result]
    if op == "Sum":
        wide = x if x.is_complex() else x.double() if x.is_floating_point() else x.long()
        return wide.sum(axes).to(dtype)
    if op == "Prod":
        wide = x.double()
        for axis in sorted(axes, reverse=True):
            wide = wide.prod(axis)
        return wide.to(dtype)
    if op in ("And", "Or"):
        true = x != 0
        for axis in sorted(axes, reverse=True):
            true = true.all(axis) if op == "And" else true.any(axis)
        return true
    return (x.amin(axes) if op == "Min" else x.amax(axes)).to(dtype)


INIT = {
    "float,Sum<float>": 0,
    "int,Prod<int>": 1,
    "half,Min<half>": math.inf,
    "bfloat16_t,Max<bfloat16_t>": -math.inf,
    "int64_t,Max<int64_t>": -(2**63),
    "uint8_t,Min<uint8_t>": 255,
    "bool,And<bool>": True,
    "bool,Or<bool>": False,
}


def test_init(bench) -> None:
    unit = unit_of("reduce_init.h", [f"init_reduce:{arguments}" for arguments in INIT])
    for arguments, value in INIT.items():
        expected = torch.full((37,), value, dtype=TYPES[arguments.split(",")[0]])
        out = unlike(expected)
        bench.run(unit, f"init_reduce:{arguments}", out, threads=(37, 1), group=(32, 1))
        assert_same(out, expected, arguments)


ALL = [
    "all_reduce:float,float,Sum<float>",
    "all_reduce:half,half,Min<half>",
    "all_reduce:bool,int,Sum<int>",
    "all_reduce:int,bool,And<bool>",
    "all_reduce:int64_t,int64_t,Max<int64_t>",
    "all_reduce:complex64_t,complex64_t,Sum<complex64_t>",
    "all_reduce:bool,bool,And<bool>",
    "all_reduce:int,int,Sum<int>",
]


def reduce_all(bench, unit: Unit, kernel: str, x: torch.Tensor, out: torch.Tensor) -> None:
    """Reduce in one threadgroup, or in 128 and then again."""
    size = x.numel()
    if size <= N_READS * 1024:
        threads = SIMD * up(up(size, N_READS), SIMD)
        bench.run(unit, kernel, x, out, size, size, threads=(threads, 1), group=(threads, 1))
        return
    rows = 32 * N_READS
    row_size = up(size, rows)
    between = unlike(out.expand(rows))
    threads = SIMD * up(up(row_size, N_READS), SIMD)
    bench.run(unit, kernel, x, between, size, row_size, threads=(threads, rows), group=(threads, 1))
    given, result, op = types(kernel)
    again = f"all_reduce:{result},{result},{op}<{result}>"
    assert given == result or again in ALL
    bench.run(unit, again, between, out, rows, rows, threads=(SIMD, 1), group=(SIMD, 1))


@pytest.mark.parametrize("kernel", ALL)
def test_all(bench, kernel: str) -> None:
    unit = unit_of("reduce_all.h", ALL)
    for size in (1, 33, 515, 5000):
        x = values(kernel, size)
        expected = reference(kernel, x, [0]).reshape(1)
        out = unlike(expected)
        reduce_all(bench, unit, kernel, x, out)
        assert_same(out, expected, size)


def reduced(kernel: str, x: torch.Tensor, axes: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the expected result, and memory for it that is unlike it."""
    expected = reference(kernel, x, axes).contiguous()
    return expected, unlike(expected)


def axes_of(x: torch.Tensor, axes: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return sizes, strides and number of some axes, as kernels take them."""
    return ints(x.shape[a] for a in axes), longs(x.stride(a) for a in axes), len(axes)


def split(x: torch.Tensor, axes: Sequence[int]) -> tuple[list[int], list[int], int]:
    """Return the axes that stay, those that are reduced beside the last of them, and the number of these reductions."""
    kept = [axis for axis in range(x.dim()) if axis not in axes]
    others = list(axes[:-1])
    return kept, others, math.prod(x.shape[axis] for axis in others)


def threads_of_row(size: int) -> int:
    if size <= 512:
        return 32
    return 128 if size <= 1024 else min(1024, SIMD * up(up(size, N_READS), SIMD))


ROW_SMALL = [
    "row_reduce_small:float,float,Sum<float>,int,1",
    "row_reduce_small:half,half,Max<half>,int,2",
    "row_reduce_small:bool,int,Sum<int>,int,5",
    "row_reduce_small:int,bool,Or<bool>,int,1",
    "row_reduce_small:complex64_t,complex64_t,Sum<complex64_t>,int64_t,5",
    "row_reduce_small:int64_t,int64_t,Min<int64_t>,int64_t,1",
    "row_reduce_small:bfloat16_t,bfloat16_t,Prod<bfloat16_t>,int,2",
]
# shape, reduced axes, and the order in which memory has the axes
ROWS = {
    1: [((37, 7), [1], None), ((5, 40, 6), [1, 2], None), ((9, 5, 3), [0, 2], [1, 0, 2])],
    2: [((3, 4, 5, 6), [0, 2, 3], None), ((12, 3, 4, 17), [0, 1, 3], [2, 0, 1, 3])],
    5: [((2, 3, 4, 3, 5), [0, 1, 3, 4], None), ((4, 2, 11, 3, 9), [0, 2, 3, 4], [2, 0, 1, 3, 4])],
}


def row_case(kernel: str, shape: tuple[int, ...], order: list[int] | None) -> torch.Tensor:
    x = values(kernel, *shape)
    if order is None:
        return x
    # the same numbers, with other strides and gaps between the rows
    wide = torch.nn.functional.pad(x.permute(order), (0, 3), value=1)
    return wide[..., :-3].permute([order.index(axis) for axis in range(len(order))])


@pytest.mark.parametrize("kernel", ROW_SMALL)
def test_small_rows(bench, kernel: str) -> None:
    unit = unit_of("reduce_row.h", ROW_SMALL)
    for shape, axes, order in ROWS[int(kernel[-1])]:
        x = row_case(kernel, shape, order)
        expected, out = reduced(kernel, x, axes)
        kept, others, count = split(x, axes)
        row = x.shape[-1]
        if (count < 32 and row <= 8) or count <= 8:
            launch = {"threads": (out.numel(), 1, 1), "group": (min(out.numel(), 1024), 1, 1)}
        else:
            launch = {"threads": (32, out.numel(), 1), "group": (32, 1, 1)}
        bench.run(unit, kernel, x, out, row, count, *axes_of(x, kept), *axes_of(x, others), **launch)
        assert_same(out, expected, (shape, axes))


ROW_SIMPLE = [
    "row_reduce_simple:float,float,Sum<float>",
    "row_reduce_simple:half,half,Max<half>",
    "row_reduce_simple:int,int,Prod<int>",
    "row_reduce_simple:complex64_t,complex64_t,Sum<complex64_t>",
    "row_reduce_simple:int,bool,And<bool>",
]


@pytest.mark.parametrize("kernel", ROW_SIMPLE)
def test_simple_rows(bench, kernel: str) -> None:
    unit = unit_of("reduce_row.h", ROW_SIMPLE)
    for rows, size in ((33, 65), (6, 130), (5, 515), (6, 1100)):
        x = values(kernel, rows, size)
        expected, out = reduced(kernel, x, [1])
        width = min(threads_of_row(size), 512 if x.itemsize == 8 else 1024)
        # four rows a threadgroup; the last ones are moved back to the end
        launch = groups(1, up(rows, N_WRITES), 1, group=(width, 1, 1))
        bench.run(unit, kernel, x, out, size, rows, **launch)
        assert_same(out, expected, (rows, size))


ROW_LOOPED = [
    "row_reduce_looped:float,float,Max<float>,int,1",
    "row_reduce_looped:half,half,Sum<half>,int,2",
    "row_reduce_looped:int64_t,int64_t,Sum<int64_t>,int64_t,5",
    "row_reduce_looped:bool,bool,And<bool>,int,1",
]
LONG_ROWS = {
    1: [((3, 70), [1], None), ((2, 3, 531), [0, 2], [1, 0, 2]), ((2, 1030), [1], None)],
    2: [((3, 2, 2, 67), [0, 2, 3], None), ((2, 3, 2, 600), [0, 1, 3], [2, 0, 1, 3])],
    5: [((2, 3, 2, 2, 66), [0, 1, 3, 4], None), ((3, 2, 2, 2, 129), [0, 2, 3, 4], [2, 0, 1, 3, 4])],
}


@pytest.mark.parametrize("kernel", ROW_LOOPED)
def test_looped_rows(bench, kernel: str) -> None:
    unit = unit_of("reduce_row.h", ROW_LOOPED)
    for shape, axes, order in LONG_ROWS[int(kernel[-1])]:
        x = row_case(kernel, shape, order)
        expected, out = reduced(kernel, x, axes)
        kept, others, count = split(x, axes)
        launch = groups(1, out.numel(), 1, group=(threads_of_row(x.shape[-1]), 1, 1))
        arguments = (x.shape[-1], count, *axes_of(x, kept), *axes_of(x, others))
        bench.run(unit, kernel, x, out, *arguments, **launch)
        assert_same(out, expected, (shape, axes))


def column_arguments(x: torch.Tensor, axes: Sequence[int]) -> tuple:
    """Return what the column kernels take after their two buffers; the columns are the last axis."""
    kept, others, count = split(x, axes)
    size, stride = x.shape[axes[-1]], x.stride(axes[-1])
    return size, stride, *axes_of(x, kept[:-1]), *axes_of(x, [*others, axes[-1]]), count


def folded(bench, unit: Unit, kernel: str, partial: torch.Tensor, out: torch.Tensor) -> None:
    """Reduce the first axis of what a first pass has left, as MLX does: with ``col_reduce_looped``."""
    _, result, op = types(kernel)
    again = f"col_reduce_looped:{result},{result},{op}<{result}>,int,1,32,32"
    flat = partial.reshape(len(partial), -1)
    arguments = column_arguments(flat, [0])
    bench.run(unit, again, flat, out, *arguments, 0, **groups(up(out.numel(), 32), 1, 1, group=(256, 1, 1)))


COL_SMALL = [
    "col_reduce_small:float,float,Sum<float>,int,1",
    "col_reduce_small:half,half,Max<half>,int,2",
    "col_reduce_small:int64_t,int64_t,Prod<int64_t>,int64_t,5",
    "col_reduce_small:int,bool,And<bool>,int,1",
    "col_reduce_small:complex64_t,complex64_t,Sum<complex64_t>,int,2",
]
SHORT_COLUMNS = {
    1: [((5, 3), [0]), ((3, 9, 66), [1]), ((2, 1, 5), [1]), ((2, 7, 256), [1])],
    2: [((3, 2, 4, 10), [0, 2]), ((2, 5, 3, 33), [0, 2])],
    5: [((2, 3, 2, 2, 7), [0, 1, 3]), ((3, 2, 3, 1, 40), [0, 2, 3])],
}


def small_columns(bench, kernel: str, shape: tuple[int, ...], axes: list[int], checked: bool = True) -> None:
    unit = unit_of("reduce_col.h", COL_SMALL)
    x = values(kernel, *shape)
    expected, out = reduced(kernel, x, axes)
    columns, total = shape[-1], math.prod(shape[axis] for axis in axes)
    width = min(up(columns, 4), 32)
    group = (width, min(8, 1024 // width, total), 1)
    launch = groups(up(up(columns, 4), width), out.numel() // columns, 1, group=group)
    bench.run(unit, kernel, x, out, *column_arguments(x, axes), **launch, checked=checked)
    assert_same(out, expected, (shape, axes))


@pytest.mark.parametrize("kernel", COL_SMALL)
def test_small_columns(bench, kernel: str) -> None:
    for shape, axes in SHORT_COLUMNS[int(kernel[-1])]:
        small_columns(bench, kernel, shape, axes)


@pytest.mark.xfail(
    strict=True,
    raises=metalwright.BarrierFault,
    reason="`col_reduce_small` returns before a barrier in the threads beyond the last column, where more than 128 "
    "columns are no multiple of 128; Metal leaves open what then happens at the barrier",
)
def test_small_columns_with_a_ragged_threadgroup(bench) -> None:
    small_columns(bench, COL_SMALL[0], (2, 7, 131), [1])


def test_small_columns_with_a_ragged_threadgroup_unchecked(bench) -> None:
    small_columns(bench, COL_SMALL[0], (2, 7, 131), [1], checked=False)


LOOPED = [
    "col_reduce_looped:float,float,Sum<float>,int,1,32,32",
    "col_reduce_looped:half,half,Min<half>,int,1,32,32",
    "col_reduce_looped:int,int,Prod<int>,int,1,32,32",
    "col_reduce_looped:bool,bool,Or<bool>,int,1,32,32",
]
COL_LONG = [
    "col_reduce_longcolumn:float,float,Sum<float>,int,1",
    "col_reduce_longcolumn:half,half,Min<half>,int,2",
    "col_reduce_longcolumn:int,bool,Or<bool>,int,1",
]
COL_2PASS = [
    "col_reduce_2pass:float,float,Sum<float>,int,1,32,32",
    "col_reduce_2pass:half,half,Min<half>,int,2,32,32",
    "col_reduce_2pass:int,int,Prod<int>,int,1,32,32",
]
LONG_COLUMNS = {1: [((1050, 3), [0]), ((2, 70, 31), [1])], 2: [((3, 2, 500, 5), [0, 2])]}
HIGH_COLUMNS = {1: [((300, 50), [0]), ((2, 1100, 6), [1])], 2: [((3, 2, 100, 35), [0, 2])]}
COLUMNS = {
    1: [((40, 33), [0]), ((2, 70, 100), [1])],
    2: [((3, 2, 20, 34), [0, 2])],
    5: [((2, 3, 2, 9, 70), [0, 1, 3])],
}
COL_LOOPED = [
    LOOPED[0],
    "col_reduce_looped:bfloat16_t,bfloat16_t,Max<bfloat16_t>,int,2,32,32",
    "col_reduce_looped:complex64_t,complex64_t,Sum<complex64_t>,int64_t,5,32,32",
    "col_reduce_looped:bool,bool,And<bool>,int,1,32,32",
]


@pytest.mark.parametrize("kernel", COL_LONG)
def test_long_columns(bench, kernel: str) -> None:
    unit = unit_of("reduce_col.h", [*COL_LONG, *LOOPED])
    for shape, axes in LONG_COLUMNS[int(kernel[-1])]:
        x = values(kernel, *shape)
        expected, out = reduced(kernel, x, axes)
        blocks, columns = 32, shape[-1]
        rows = math.prod(shape[axis] for axis in axes)
        partial = unlike(expected.expand(blocks, *expected.shape))
        launch = groups(out.numel() // columns, 1, blocks, group=(columns, min(32, up(rows, blocks)), 1))
        bench.run(unit, kernel, x, partial, *column_arguments(x, axes), out.numel(), **launch)
        folded(bench, unit, kernel, partial, out)
        assert_same(out, expected, (shape, axes))


@pytest.mark.parametrize("kernel", COL_LOOPED)
def test_looped_columns(bench, kernel: str) -> None:
    unit = unit_of("reduce_col.h", COL_LOOPED)
    for shape, axes in COLUMNS[int(kernel.split(",")[4])]:
        x = values(kernel, *shape)
        expected, out = reduced(kernel, x, axes)
        columns = shape[-1]
        outer = out.numel() // columns
        # the first tile of columns, then the others, which begin at an offset
        for first, tiles in ((0, 1), (32, up(columns, 32) - 1)):
            launch = groups(tiles, outer, 1, group=(256, 1, 1))
            bench.run(unit, kernel, x, out, *column_arguments(x, axes), first, **launch)
        assert_same(out, expected, (shape, axes))


@pytest.mark.parametrize("kernel", COL_2PASS)
def test_columns_in_two_passes(bench, kernel: str) -> None:
    unit = unit_of("reduce_col.h", [*COL_2PASS, *LOOPED])
    for shape, axes in HIGH_COLUMNS[int(kernel.split(",")[4])]:
        x = values(kernel, *shape)
        expected, out = reduced(kernel, x, axes)
        blocks, columns = 32, shape[-1]
        outer = out.numel() // columns
        partial = unlike(expected.expand(blocks, *expected.shape))
        launch = groups(up(columns, 32), outer * blocks, 1, group=(256, 1, 1))
        bench.run(unit, kernel, x, partial, *column_arguments(x, axes), 0, outer, **launch)
        folded(bench, unit, kernel, partial, out)
        assert_same(out, expected, (shape, axes))
