"""Products of matrices with vectors that leave out, or scale, whole blocks by masks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from arrays import garbage, groups, integers, up
from test_gemv import UNREACHED, Tile, ints, times
from units import UTILS, Unit

import metalwright

NONE = "nomask_t"
# a block of 32 or 64 elements has one value of a mask; how MLX tiles for each
ROWS = {32: Tile(2, 1, 4, 8, 4, 4), 64: Tile(2, 1, 2, 16, 4, 4)}
COLUMNS = {32: Tile(1, 2, 8, 4, 4, 4), 64: Tile(1, 4, 8, 4, 8, 4)}


def mask_values(seed: int, *shape: int, kind: str) -> torch.Tensor:
    """Return a mask with zeros and others in any case; of nothing where there is none."""
    if kind == NONE:
        return torch.zeros(*shape, dtype=torch.uint8)
    values = integers(seed, *shape, kind="int", limit=1)
    values.flatten()[:2] = torch.tensor([1, 0][: values.numel()])
    return values.bool() if kind == "bool" else 2.0 * values


def spread(mask: torch.Tensor, block: int, *sizes: int) -> torch.Tensor:
    """Return a value for each element of the last axes, of which a block has one."""
    if mask.dtype == torch.uint8:
        return torch.ones(sizes)
    for axis in range(-len(sizes), 0):
        mask = mask.repeat_interleave(block, axis).narrow(axis, 0, sizes[axis])
    return mask.float()


def check(
    bench: Any,
    block: int,
    rows: int,
    columns: int,
    *,
    transposed: bool = False,
    masks: tuple[str, str] = ("bool", "bool"),
    several_batch_axes: bool = False,
    checked: bool = True,
) -> None:
    """Launch with a mask of the output and one of each operand; the matrices' masks are the same for each batch."""
    of_out, of_operands = masks
    name = "gemv_t_masked" if transposed else "gemv_masked"
    tile = (COLUMNS if transposed else ROWS)[block]
    arguments = f"float, {of_out}, {of_operands}, {tile}, {str(several_batch_axes).lower()}"
    unit = Unit("gemv_masked.h", UTILS, ((name, name, arguments),))
    seed = rows * 1000 + columns
    batch = (2, 2) if several_batch_axes else (2,)
    axes = len(batch)
    stored = integers(seed, *batch, *((columns, rows) if transposed else (rows, columns)))
    matrix = stored.mT if transposed else stored
    vector = integers(seed + 1, *batch, columns)
    across, down = up(columns, block), up(rows, block)
    out_mask = mask_values(seed + 2, *batch, down, kind=of_out)
    matrix_mask = mask_values(seed + 3, *((across, down) if transposed else (down, across)), kind=of_operands)
    vector_mask = mask_values(seed + 4, *batch, across, kind=of_operands)
    # of each mask the step to the next column and to the next row; vectors are rows where the matrix is transposed
    vector_steps = [1, 0] if transposed else [0, 1]
    steps, batch_steps = [], []
    if of_out != NONE:
        steps += vector_steps
        batch_steps += out_mask.stride()[:axes]
    if of_operands != NONE:
        steps += [1, matrix_mask.stride(0), *vector_steps]
        batch_steps += [*([0] * axes), *vector_mask.stride()[:axes]]
    out = garbage(*batch, rows, dtype=torch.float32)
    bench.run(
        unit,
        name,
        stored,
        vector,
        None,
        out,
        columns,
        rows,
        stored.stride(-2),
        *[None] * 2,
        axes,
        ints(batch),
        torch.tensor(vector.stride()[:axes]),
        torch.tensor(stored.stride()[:axes]),
        *[None] * 7,
        out_mask,
        matrix_mask,
        vector_mask,
        ints(steps),
        torch.tensor(batch_steps),
        **groups(
            up(rows, tile.columns if transposed else tile.rows), 1, out[..., 0].numel(), group=tile.group
        ),
        checked=checked,
    )
    wide = spread(matrix_mask.mT if transposed else matrix_mask, block, rows, columns)
    expected = times(matrix * wide, vector * spread(vector_mask, block, columns))
    expected = expected * spread(out_mask, block, rows)
    assert torch.equal(out, expected.float()), (rows, columns)


@pytest.mark.parametrize(
    ("block", "masks", "several_batch_axes"),
    [
        (32, ("bool", "bool"), False),
        (64, ("bool", "float"), False),
        (64, (NONE, "bool"), True),
        (64, ("float", NONE), False),
    ],
    ids=str,
)
@pytest.mark.parametrize("transposed", [False, True])
def test_gemv_masked(
    bench, block: int, masks: tuple[str, str], several_batch_axes: bool, transposed: bool
) -> None:
    # transposed, the loop over whole blocks has a barrier: the threads of a group all need columns of their own
    shapes = ((128, 200), (256, 64)) if transposed else ((128, 200), (44, 33), (72, 130))
    for rows, columns in shapes:
        check(
            bench,
            block,
            rows,
            columns,
            transposed=transposed,
            masks=masks,
            several_batch_axes=several_batch_axes,
        )


@pytest.mark.parametrize("checked", [False, pytest.param(True, marks=pytest.mark.xfail(
    raises=metalwright.BarrierFault, reason=UNREACHED))])  # fmt: skip
def test_transposed_with_ragged_columns(bench, checked: bool) -> None:
    for rows, columns in ((40, 70), (100, 65)):
        check(bench, 32, rows, columns, transposed=True, checked=checked)


@pytest.mark.xfail(
    raises=AssertionError,
    reason="a tail of fewer than 4 rows is moved up, into the block before, whose mask its rows then get",
)
def test_a_tail_of_a_block_that_is_less_than_a_thread(bench) -> None:
    check(bench, 64, 65, 64, masks=("bool", NONE))
