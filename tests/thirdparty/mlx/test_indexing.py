"""Gathers and scatters, against torch's indexing.

MLX writes the kernels of its general gather and scatter when they are called, for as many index arrays as there are;
so does this module.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Sequence

import pytest
import torch
from arrays import integers, ints, longs, up
from compare import assert_same, unlike
from units import KERNELS, UTILS, Unit

FIRST_INDEX = 20  # the buffer of the first index array
INDEX_TYPES = {"int": torch.int32, "uint32_t": torch.uint32, "int64_t": torch.int64, "uint8_t": torch.uint8}


def declared(types: dict[int, str]) -> str:
    """Return parameters ``b0``, ``b1`` … of these buffers."""
    return ", ".join(f"{text} b{index} [[buffer({index})]]" for index, text in types.items())


def index_array(kind: str, count: int, shapes: int) -> tuple[dict[int, str], str]:
    """Return the parameters of ``count`` index arrays, and the struct that is made of them.

    Their shapes, strides, whether they are dense, and their rank are in the buffers from ``shapes`` on.
    """
    arrays = {FIRST_INDEX + i: f"const device {kind}*" for i in range(count)}
    names = ", ".join(f"b{index}" for index in arrays)
    facts = ", ".join(f"b{shapes + i}" for i in range(4))
    return arrays, f"Indices<{kind}, {count}> indices{{ {{ {names} }}, {facts} }};"


INTS, LONGS, SIZE = "const constant int*", "const constant int64_t*", "const constant size_t&"


def gather_source(kind: str, index: str, count: int, rank: int) -> str:
    arrays, indices = index_array(index, count, 7)
    buffers = [f"const device {kind}*", f"device {kind}*", INTS, LONGS, SIZE, INTS, INTS, INTS, LONGS]
    buffers += ["const constant bool*", "const constant int&"]
    parameters = declared({**dict(enumerate(buffers)), **arrays})
    return f"""
[[kernel]] void gather_{kind}_{index}_{count}_{rank}({parameters},
    uint3 position [[thread_position_in_grid]], uint3 grid [[threads_per_grid]]) {{
  {indices}
  gather_impl<{kind}, {index}, {count}, {rank}, int>(b0, b1, b2, b3, b4, b5, b6, indices, position, grid);
}}
"""


def generated(file: str, before: tuple[str, ...], template: str, sources: dict[str, str]) -> Unit:
    """Return the unit of kernels that are written here, on the function of a header."""
    text = "\n".join([f'#include "{KERNELS}/{file}"', *sources.values()])
    return Unit(file, before, tuple((name, template, "") for name in sources), text=text)


def indices_of(kind: str, seed: int, size: int, *shape: int) -> torch.Tensor:
    """Return indices of an axis of this size, from its end too where the type has a sign."""
    generator = torch.Generator().manual_seed(seed)
    low = -size if INDEX_TYPES[kind].is_signed else 0
    return torch.randint(low, size, shape, generator=generator).to(INDEX_TYPES[kind])


def index_facts(indices: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    shapes = ints(n for index in indices for n in index.shape)
    strides = longs(n for index in indices for n in index.stride())
    dense = torch.tensor([index.is_contiguous() for index in indices])
    return shapes, strides, dense, indices[0].dim()


GATHERS = [("float", "int", 1, 1), ("half", "uint32_t", 1, 2), ("int", "int64_t", 2, 2), ("bool", "uint8_t", 2, 1),
           ("complex64_t", "int", 1, 0)]  # fmt: skip


def gathered(
    source: torch.Tensor, axes: Sequence[int], indices: Sequence[torch.Tensor], sizes: Sequence[int]
) -> torch.Tensor:
    """Return a slice of the source for every place of the index arrays."""
    shape = indices[0].shape
    expected = torch.empty(*shape, *sizes, dtype=source.dtype)
    for place in itertools.product(*(range(n) for n in shape)):
        piece = source
        for axis, size in enumerate(sizes):
            start = int(indices[list(axes).index(axis)][place]) if axis in axes else 0
            piece = piece.narrow(axis, start % source.shape[axis], size)
        expected[place] = piece
    return expected


@pytest.mark.parametrize("case", GATHERS)
def test_gather(bench, case: tuple[str, str, int, int]) -> None:
    kind, index_kind, count, rank = case
    sources = {"gather_{}_{}_{}_{}".format(*row): gather_source(*row) for row in GATHERS}
    unit = generated("indexing/gather.h", UTILS, "gather_impl", sources)
    base = (
        torch.complex(integers(1, 6, 4, 5), integers(2, 6, 4, 5))
        if kind == "complex64_t"
        else integers(1, 6, 4, 5, kind=kind)
    )
    axes = (0, 2)[:count]
    for source, whole in ((base, True), (base.permute(2, 1, 0), False)):
        sizes = [1 if axis in axes else n if whole else n - 1 for axis, n in enumerate(source.shape)]
        shape = (3, 4, 2)[: rank if whole or rank < 2 else 3]
        indices = [indices_of(index_kind, 5 + axis, source.shape[axis], *shape) for axis in axes]
        if len(shape) > 1:
            indices[-1] = indices[-1].mT.contiguous().mT
        expected = gathered(source, axes, indices, sizes)
        out = unlike(expected)
        grid = (shape[0] if shape else 1, math.prod(shape[1:]), math.prod(sizes))
        arguments = [ints(source.shape), longs(source.stride()), source.dim(), ints(sizes), ints(axes)]
        unused = [None] * (FIRST_INDEX - 11)
        bench.run(unit, "gather_{}_{}_{}_{}".format(*case), base, out, *arguments, *index_facts(indices), *unused, *indices,
                  threads=grid, group=(1, 1, min(32, grid[2])))  # fmt: skip
        assert_same(out, expected, source.shape)


FRONTS = [("float", "int", 1), ("half", "uint32_t", 2), ("bfloat16_t", "int64_t", 2)]


@pytest.mark.parametrize("case", FRONTS)
def test_gather_front(bench, case: tuple[str, str, int]) -> None:
    kind, index_kind, per = case
    kernels = tuple((f"{k} {i}", "gather_front", f"{k}, {i}, int, {n}") for k, i, n in FRONTS)
    unit = Unit("indexing/gather_front.h", UTILS, kernels)
    for rows, width in ((1, 1), (7, 5), (9, 66)):
        source = integers(rows, rows, width, kind=kind)
        index = indices_of(index_kind, rows, rows, 11)
        expected = source[index.long()]
        out = unlike(expected)
        threads = (up(width, per), 11)
        bench.run(
            unit, f"{kind} {index_kind}", source, index, out, width, rows, threads=threads, group=(1, 11)
        )
        assert_same(out, expected, (rows, width))


def without(axis: int, numbers: Sequence[int]) -> list[int]:
    return [n for i, n in enumerate(numbers) if i != axis]


def axis_arguments(x: torch.Tensor, index: torch.Tensor, axis: int, size: int) -> tuple:
    """Return what kernels along an axis take after their buffers: of the array that goes with the indices, and these."""
    shape, strides = ints(without(axis, index.shape)), longs(without(axis, x.stride()))
    of_index = longs(without(axis, index.stride()))
    return shape, strides, of_index, x.dim() - 1, axis, size, x.stride(axis), index.stride(axis)


def axis_launch(index: torch.Tensor, axis: int) -> dict[str, tuple[int, int, int]]:
    before, after = math.prod(index.shape[:axis]), math.prod(index.shape[axis + 1 :])
    return {"threads": (after, index.shape[axis], before), "group": (min(after, 8), 1, 1)}


def transposed(x: torch.Tensor) -> torch.Tensor:
    """Return the same values in an array that is not dense."""
    return x.transpose(0, -1).contiguous().transpose(0, -1)


AXES = [
    ("float", "int", True, True),
    ("half", "uint32_t", False, True),
    ("int64_t", "int64_t", True, False),
    ("bool", "int", False, False),
]


@pytest.mark.parametrize("case", AXES)
def test_gather_axis(bench, case: tuple[str, str, bool, bool]) -> None:
    kind, index_kind, source_dense, index_dense = case
    kernels = tuple(
        (str(row), "gather_axis", f"{row[0]}, {row[1]}, int, {row[2]:d}, {row[3]:d}") for row in AXES
    )
    unit = Unit("indexing/gather_axis.h", UTILS, kernels)
    for axis in range(3):
        source = integers(axis, 4, 5, 6, kind=kind)
        shape = [4, 5, 6]
        shape[axis] = 9
        index = indices_of(index_kind, axis, source.shape[axis], *shape)
        expected = source.gather(axis, index.long() % source.shape[axis])
        x = source if source_dense else transposed(source)
        index = index if index_dense else transposed(index)
        out = unlike(expected)
        arguments = axis_arguments(x, index, axis, source.shape[axis])
        bench.run(unit, str(case), x, index, out, *arguments, **axis_launch(index, axis))
        assert_same(out, expected, axis)


def spare(x: torch.Tensor) -> torch.Tensor:
    """Return a copy with some bytes behind it: atomic updates of narrow types read and write whole words."""
    memory = torch.zeros(x.numel() + 8, dtype=x.dtype)
    copy = memory[: x.numel()].view(x.shape)
    return copy.copy_(x)


REDUCE = ("utils.h", "reduce_utils.h")
SCATTER_AXES = [("float", "int", "Sum<float>", True, True), ("half", "uint32_t", "Sum<half>", False, True),
                ("int", "int64_t", "None", True, False), ("uint8_t", "int", "None", False, False)]  # fmt: skip


@pytest.mark.parametrize("case", SCATTER_AXES)
def test_scatter_axis(bench, case: tuple[str, str, str, bool, bool]) -> None:
    kind, index_kind, op, update_dense, index_dense = case
    kernels = tuple(
        (str(row), "scatter_axis", f"{row[0]}, {row[1]}, int, {row[2]}, {row[3]:d}, {row[4]:d}")
        for row in SCATTER_AXES
    )
    unit = Unit("indexing/scatter_axis.h", REDUCE, kernels)
    for axis in range(3):
        target = integers(axis, 3, 5, 7, kind=kind)
        shape = list(target.shape)
        size = shape[axis]
        if op == "None":
            # each place once: which of two values stays is open
            shape[axis] = size - 1
            index = torch.rand(*target.shape, generator=torch.Generator().manual_seed(axis)).argsort(axis)
            index = index.narrow(axis, 0, size - 1)
        else:
            shape[axis] = 11
            index = indices_of("int", axis, size, *shape).long() % size
        update = integers(axis + 9, *shape, kind=kind)
        expected = (
            target.scatter_add(axis, index, update) if op != "None" else target.scatter(axis, index, update)
        )
        out = spare(target)
        negative = index - size if INDEX_TYPES[index_kind].is_signed else index
        given = negative.to(INDEX_TYPES[index_kind]).contiguous()
        given = given if index_dense else transposed(given)
        update = update if update_dense else transposed(update)
        bench.run(
            unit,
            str(case),
            update,
            given,
            out,
            *axis_arguments(update, given, axis, size),
            **axis_launch(given, axis),
        )
        assert_same(out, expected, axis)


def scatter_source(name: str, kind: str, index: str, op: str, count: int, dense: bool, work: int) -> str:
    arrays, indices = index_array(index, count, 11)
    buffers = [
        f"const device {kind}*",
        f"device mlx_atomic<{kind}>*",
        INTS,
        LONGS,
        SIZE,
        SIZE,
        INTS,
        LONGS,
        SIZE,
    ]
    buffers += [INTS, INTS, LONGS, "const constant bool*", "const constant int&", SIZE]
    parameters = declared({**dict(enumerate(buffers, 1)), **arrays})
    arguments = f"{kind}, {index}, {op}, {count}, {str(dense).lower()}, {work}, int"
    return f"""
[[kernel]] void {name}({parameters}, uint2 position [[thread_position_in_grid]]) {{
  {indices}
  scatter_impl<{arguments}>(b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b15, indices, position);
}}
"""


# kernel: element, index, operator, index arrays, whether updates are dense, updates of a thread
SCATTERS = {
    "scatter_sum": ("float", "int", "Sum<float>", 1, True, 1),
    "scatter_sum_half": ("half", "uint32_t", "Sum<half>", 2, False, 4),
    "scatter_prod": ("int", "int64_t", "Prod<int>", 1, True, 8),
    "scatter_max_half": ("half", "int", "Max<half>", 2, True, 1),
    "scatter_min": ("float", "int", "Min<float>", 1, False, 1),
    "scatter_none": ("uint8_t", "uint8_t", "None", 1, True, 1),
    "scatter_none_bool": ("bool", "int", "None", 2, True, 4),
    "scatter_max_int8": ("int8_t", "int", "Max<int8_t>", 1, True, 1),
}
REDUCTIONS = {
    "Sum": torch.add,
    "Prod": torch.mul,
    "Max": torch.maximum,
    "Min": torch.minimum,
    "None": lambda _, b: b,
}


@pytest.mark.parametrize("name", list(SCATTERS))
def test_scatter(bench, name: str) -> None:
    kind, index_kind, op, count, dense, work = SCATTERS[name]
    sources = {name: scatter_source(name, *row) for name, row in SCATTERS.items()}
    unit = generated("indexing/scatter.h", REDUCE, "scatter_impl", sources)
    combine = REDUCTIONS[op.split("<")[0]]
    axes = (0, 2)[:count]
    target = integers(3, 6, 3, 5, kind=kind)
    shape = (3, 2) if op == "None" else (5, 7)
    if op == "None":
        # no place twice
        indices = [torch.arange(6).flip(0).reshape(shape) % target.shape[axis] for axis in axes]
    else:
        indices = [indices_of("int", axis, target.shape[axis], *shape) % target.shape[axis] for axis in axes]
    indices = [index.to(INDEX_TYPES[index_kind]).contiguous() for index in indices]
    indices[-1] = indices[-1].mT.contiguous().mT
    window = [1 if axis in axes else n for axis, n in enumerate(target.shape)]
    update = integers(4, *shape, *window, kind=kind, limit=1 if op.startswith("Prod") else 4)
    expected = target.clone()
    for place in itertools.product(*(range(n) for n in shape)):
        view = expected
        for axis, index in zip(axes, indices, strict=True):
            view = view.narrow(axis, int(index[place]), 1)
        view.copy_(combine(view, update[place]))
    update = update if dense else transposed(update)
    out = spare(target)
    each, places = math.prod(window), math.prod(shape)
    arguments = [ints(update.shape), longs(update.stride()), update.dim(), each]
    arguments += [ints(target.shape), longs(target.stride()), target.dim(), ints(axes)]
    unused = [None] * (FIRST_INDEX - 16)
    bench.run(unit, name, None, update, out, *arguments, *index_facts(indices), places, *unused, *indices,
              threads=(each, up(places, work)), group=(each, 1))  # fmt: skip
    assert_same(out, expected)


MASKED = [("float", True), ("half", False)]


@pytest.mark.parametrize(("kind", "dense"), MASKED)
def test_masked_scatter(bench, kind: str, dense: bool, caplog: pytest.LogCaptureFixture) -> None:
    kernels = tuple((k, "masked_assign_impl", f"{k}, {str(d).lower()}") for k, d in MASKED)
    unit = Unit("indexing/masked_scatter.h", UTILS, kernels)
    batches, size = 3, 40
    mask = integers(1, batches, size) > 0
    source = integers(2, batches, int(mask.sum(1).max()), kind=kind)
    target = integers(3, batches, size, kind=kind)
    offsets = mask.cumsum(1) - mask.long()
    expected = torch.stack([t.masked_scatter(m, s) for t, m, s in zip(target, mask, source, strict=True)])
    given = source if dense else transposed(source)
    for available in (source.shape[1], 5):
        out = target.clone()
        shapes, strides = ints((batches, source.shape[1])), longs(given.stride())
        if available == 5:
            # what is not there is not assigned, and a debug message says so
            given = source[:, :5].contiguous() if dense else transposed(source[:, :5])
            shapes, strides = ints((batches, 5)), longs(given.stride())
            expected = torch.where(offsets < 5, expected, target)
        with caplog.at_level(logging.DEBUG, "metalwright.kernel"):
            bench.run(unit, kind, mask, offsets.to(torch.uint32), given, out, shapes, strides, 2, available, size,
                      threads=batches * size, group=32)  # fmt: skip
        assert_same(out, expected, available)
        assert ("Out of bound read from src" in caplog.text) == (available == 5)


# element, index, operator, dense target, dense updates, one update for all, elements of a thread, rank
UPDATES = [
    ("float", "int", "Sum<float>", False, True, False, 1, 1),
    ("half", "int", "Max<half>", False, False, False, 2, 2),
    ("int", "int64_t", "Prod<int>", False, True, False, 4, 3),
    ("int64_t", "int", "Min<int64_t>", False, False, False, 1, 0),
    ("float", "int", "Sum<float>", True, True, False, 2, 2),
    ("int", "int", "Sum<int>", False, True, True, 1, 3),
]


@pytest.mark.parametrize("case", UPDATES, ids=str)
def test_slice_update(bench, case: tuple) -> None:
    kernels = tuple(
        (
            str(row),
            "slice_update_op_impl",
            ", ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in row),
        )
        for row in UPDATES
    )
    unit = Unit("indexing/scatter.h", REDUCE, kernels)
    kind, _, op, target_dense, update_dense, scalar, work, rank = case
    shape = (2, 3, 6, 8)[4 - (rank or 4) :]
    # every second row and column, but for the first ones
    whole = shape if target_dense else tuple(2 * n + 1 for n in shape)
    target = integers(1, *whole, kind=kind)
    window = () if target_dense else (slice(1, None, 2),) * len(shape)
    update = integers(2, *((1,) * len(shape) if scalar else shape), kind=kind)
    given = update if update_dense else transposed(update)
    expected = target.clone()
    expected[window] = REDUCTIONS[op.split("<")[0]](expected[window], update)
    out = target.clone()
    view = out[window]
    grid = (shape[-1] // work, shape[-2] if len(shape) > 1 else 1, math.prod(shape[:-2]))
    strides = longs([0] * len(shape) if scalar else given.stride())
    arguments = [
        ints(shape),
        strides,
        len(shape),
        math.prod(shape),
        longs(view.stride()),
        view.storage_offset(),
    ]
    bench.run(unit, str(case), given, out, *arguments, threads=grid, group=(1, grid[1], 1))
    assert_same(out, expected)
