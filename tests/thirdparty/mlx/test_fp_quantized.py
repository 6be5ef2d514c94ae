"""fp_quantized.h: matrices of mxfp4, mxfp8 and nvfp4, whose codes and scales are small floating-point numbers.

A few kernels take a scale of the whole tensor beside those of its groups: the largest number of the tensor, which
stands for the product of the largest code and the largest scale.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from arrays import TYPES, garbage
from products import (
    WHOLE_SCALE,
    Case,
    alignment,
    floating_weights,
    multiply,
    multiply_gathered,
    multiply_matrices_in_parts,
    multiply_sorted,
    multiply_vectors_in_parts,
    unit,
)
from quantizing import (
    E2M1,
    E4M3,
    E8M0,
    MXFP4,
    MXFP8,
    NVFP4,
    Floating,
    floating_quantized,
    generator,
    unpack,
)
from units import ALIGNED, QUANTIZED, Unit

from metalwright.errors import MemoryFault

INSIDE_A_TILE = (
    "where a row of the matrix ends inside a tile of 32, as rows of nvfp4 may, the kernel reads the codes and scales of "
    "the rest of the tile, past the last row's end too"
)

# vectors whose number, length and result end inside a block, a group of rows or a simdgroup's share
VECTORS = [
    Case("qmv_fast", "half", 32, 4, (False,), ((2, 16, 512),)),
    Case("qmv_fast", "bfloat16_t", 16, 4, (True, True, True), ((1, 13, 1024),), batch=(2, 3)),
    Case("qmv_fast", "float", 32, 8, (False, False, False, 2), ((1, 12, 512),)),
    Case("qmv", "float", 16, 4, (False, False, True), ((2, 5, 48), (1, 13, 272))),
    Case("qmv", "half", 32, 8, (True,), ((1, 11, 160),), batch=(2,)),
    Case("qmv_quad", "half", 32, 4, (64, False), ((2, 64, 64),)),
    Case("qmv_quad", "bfloat16_t", 16, 4, (128, True), ((1, 64, 128),), batch=(2,)),
    Case("qmv_wide", "half", 32, 8, (2, 16, False), ((3, 13, 96),)),
    Case("qmv_wide", "float", 16, 4, (5, 16, True), ((6, 5, 272),), batch=(2,)),
    Case("qvm", "float", 16, 4, (False, True), ((2, 48, 37), (1, 32, 64))),
    Case("qvm", "half", 32, 8, (True,), ((2, 64, 33),), batch=(2, 2)),
]
GATHERED_VECTORS = [
    Case("gather_qmv_fast", "half", 32, 4, (), ((1, 8, 512),)),
    Case("gather_qmv", "bfloat16_t", 16, 4, (True,), ((2, 11, 80),)),
    Case("gather_qvm", "half", 32, 8, (), ((2, 96, 40),)),
]
SPLIT_VECTORS = [
    Case("qvm_split_k", "half", 32, 4, (8,), ((2, 64, 300),)),
    Case("qvm_split_k", "float", 16, 4, (32,), ((1, 48, 1000),)),
]
MATRICES = [
    Case("qmm_t", "half", 32, 4, (True, False), ((40, 32, 128),)),
    Case("qmm_t", "float", 16, 4, (False, True, True), ((5, 45, 96),), batch=(2,)),
    Case("qmm_t", "bfloat16_t", 32, 8, (False, False), ((33, 33, 96),)),
    Case("qmm_n", "half", 32, 8, (False,), ((40, 64, 72),)),
    Case("qmm_n", "float", 16, 4, (True,), ((3, 64, 40),), batch=(2, 2)),
]
GATHERED_MATRICES = [
    Case("gather_qmm_t", "half", 16, 4, (False, True), ((34, 35, 64),)),
    Case("gather_qmm_n", "float", 32, 8, (), ((7, 64, 40),)),
]
SPLIT_MATRICES = [Case("qmm_t_splitk", "half", 32, 4, (False,), ((35, 40, 128),))]
TILES = (16, 32, 32, 1, 2)
ALIGNED_ROWS = Case("gather_qmm_rhs", "half", 32, 4, (*TILES, True), ((0, 64, 128),))
RAGGED_COLUMNS = Case("gather_qmm_rhs", "float", 32, 8, (*TILES, True), ((0, 45, 64),))
RAGGED_SUMS = Case("gather_qmm_rhs", "bfloat16_t", 16, 4, (*TILES, True, True), ((0, 64, 80),))
ROWS_OF_SUMS = Case("gather_qmm_rhs", "half", 16, 4, (*TILES, False), ((0, 64, 40),))

ALL_VECTORS = unit("fp_quantized.h", "fp", [*VECTORS, *GATHERED_VECTORS, *SPLIT_VECTORS])
ALL_MATRICES = unit("fp_quantized.h", "fp", [*MATRICES, *GATHERED_MATRICES, *SPLIT_MATRICES, ALIGNED_ROWS])
SORTED = {
    ALIGNED_ROWS: ALL_MATRICES,
    RAGGED_COLUMNS: unit("fp_quantized.h", "fp", [RAGGED_COLUMNS], alignment(columns=False)),
    RAGGED_SUMS: unit("fp_quantized.h", "fp", [RAGGED_SUMS], alignment(sums=False)),
    ROWS_OF_SUMS: unit("fp_quantized.h", "fp", [ROWS_OF_SUMS], alignment(sums=False)),
}


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case.host)
def test_vectors(bench, case: Case) -> None:
    for sizes in case.sizes:
        multiply(bench, ALL_VECTORS, case, sizes, floating_weights(case, sizes, *case.batch))


@pytest.mark.parametrize("case", GATHERED_VECTORS, ids=lambda case: case.host)
def test_gathered_vectors(bench, case: Case) -> None:
    multiply_gathered(bench, ALL_VECTORS, case, case.sizes[0], floating_weights(case, case.sizes[0], 3))


@pytest.mark.parametrize("case", SPLIT_VECTORS, ids=lambda case: case.host)
def test_sums_in_parts(bench, case: Case) -> None:
    multiply_vectors_in_parts(bench, ALL_VECTORS, case, case.sizes[0], floating_weights(case, case.sizes[0]))


@pytest.mark.parametrize("case", MATRICES, ids=lambda case: case.host)
def test_matrices(bench, case: Case) -> None:
    for sizes in case.sizes:
        multiply(bench, ALL_MATRICES, case, sizes, floating_weights(case, sizes, *case.batch))


@pytest.mark.parametrize("case", GATHERED_MATRICES, ids=lambda case: case.host)
def test_gathered_matrices(bench, case: Case) -> None:
    multiply_gathered(bench, ALL_MATRICES, case, case.sizes[0], floating_weights(case, case.sizes[0], 3))


@pytest.mark.parametrize("case", SPLIT_MATRICES, ids=lambda case: case.host)
def test_matrices_in_parts(bench, case: Case) -> None:
    sizes = case.sizes[0]
    multiply_matrices_in_parts(bench, ALL_MATRICES, case, sizes, floating_weights(case, sizes), parts=2)


@pytest.mark.parametrize("case", SORTED, ids=lambda case: case.host)
def test_sorted_rows(bench, case: Case) -> None:
    for counts in ((0, 19, 16, 0, 1), (35,)):
        matrices = floating_weights(case, case.sizes[0], len(counts))
        if case is RAGGED_SUMS:
            matrices = matrices.with_room()
        multiply_sorted(bench, SORTED[case], case, case.sizes[0], matrices, counts)


# sizes that MLX launches these kernels with, at which they read past the last row's end what they do not use
PAST_THE_END = {
    Case("qmv_quad", "half", 32, 4, (64, False), ((1, 70, 64),)): (
        ALL_VECTORS,
        "where the rows of the result are no multiple of 64, the kernel reads scales past the last",
    ),
    Case("qmm_t", "float", 16, 4, (False, True, True), ((5, 45, 80),), batch=(2,)): (
        ALL_MATRICES,
        INSIDE_A_TILE,
    ),
    Case("qmm_n", "float", 16, 4, (True,), ((3, 48, 40),), batch=(2, 2)): (ALL_MATRICES, INSIDE_A_TILE),
}


@pytest.mark.parametrize("case", PAST_THE_END, ids=lambda case: case.host)
def test_ragged_rows_with_memory_behind_them(bench, case: Case) -> None:
    matrices = floating_weights(case, case.sizes[0], *case.batch).with_room()
    multiply(bench, PAST_THE_END[case][0], case, case.sizes[0], matrices)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.xfail(raises=MemoryFault, strict=True, reason=reason))
        for case, (_, reason) in PAST_THE_END.items()
    ],
    ids=lambda case: case.host,
)
def test_ragged_rows(bench, case: Case) -> None:
    matrices = floating_weights(case, case.sizes[0], *case.batch)
    multiply(bench, PAST_THE_END[case][0], case, case.sizes[0], matrices)


@pytest.mark.xfail(raises=MemoryFault, strict=True, reason=INSIDE_A_TILE)
def test_sorted_ragged_rows(bench) -> None:
    matrices = floating_weights(RAGGED_SUMS, RAGGED_SUMS.sizes[0], 2)
    multiply_sorted(bench, SORTED[RAGGED_SUMS], RAGGED_SUMS, RAGGED_SUMS.sizes[0], matrices, (5, 20))


CODES = [
    ("float", MXFP4, False),
    ("half", MXFP8, False),
    ("bfloat16_t", NVFP4, False),
    ("float", NVFP4, True),
]
CONVERSIONS = ("quantize", "dequantize", "quantize_dequantize")


def host(kernel: str, form: Floating, scaled: bool) -> str:
    return f"{kernel}_{form.group}_{form.bits}_{scaled:d}"


ALL_CODES = Unit(
    "fp_quantized.h",
    QUANTIZED,
    tuple(
        (
            host(kernel, form, scaled),
            f"fp_{kernel}",
            f"{kind}, {form.group}, {form.bits}, {str(scaled).lower()}",
        )
        for kind, form, scaled in CODES
        for kernel in CONVERSIONS
    ),
    ALIGNED,
)
every_format = pytest.mark.parametrize(
    ("kind", "form", "scaled"), CODES, ids=[host("as", form, scaled) for _, form, scaled in CODES]
)


def numbers(kind: str, form: Floating) -> torch.Tensor:
    """Return groups with every fraction of a step in them, large and small ones, and one of zeros."""
    groups = generator(form.group, form.bits).normal(0, 1, (9, 64))
    groups *= np.exp2([0, 6, -6, 1, 3, -3, 0, 0, 0])[:, None]
    groups[5, :32] = np.linspace(-6, 6, 32)
    groups[6, :32] = np.repeat(E2M1, 2) + [0, 0.25] * 16
    groups[7] = 0
    return torch.from_numpy(groups).to(TYPES[kind])


def converted(
    form: Floating, scaled: bool, w: torch.Tensor
) -> tuple[np.ndarray, np.ndarray, torch.Tensor, Any]:
    """Return the codes and codes of scales of numbers, what they stand for, and the scale of them all."""
    largest = torch.full((1,), float("nan"))
    if scaled:
        largest[0] = w.abs().max()
    groups = w.float().numpy().reshape(-1, form.group)
    codes, scales = floating_quantized(groups, form, float(largest) if scaled else None)
    scale = form.scales[scales].astype(np.float32)
    if scaled:
        scale /= np.float32(WHOLE_SCALE) / largest.numpy()
    values = scale[:, None] * form.numbers[codes].astype(np.float32)
    return codes, scales, torch.from_numpy(values).to(w.dtype).view(w.shape), largest


@every_format
def test_quantize(bench, kind: str, form: Floating, scaled: bool) -> None:
    w = numbers(kind, form)
    codes, scales, _, largest = converted(form, scaled, w)
    out = garbage(w.numel() * form.bits // 8, dtype=torch.uint8)
    found = garbage(w.numel() // form.group, dtype=torch.uint8)
    kernel = host("quantize", form, scaled)
    bench.run(ALL_CODES, kernel, w, out, found, largest, threads=(w.numel(), 1), group=(192, 1))
    assert found.tolist() == scales.tolist()
    assert unpack(out, form.bits).reshape(codes.shape).tolist() == codes.tolist()


@every_format
def test_quantize_and_back(bench, kind: str, form: Floating, scaled: bool) -> None:
    w = numbers(kind, form)
    *_, values, largest = converted(form, scaled, w)
    out = garbage(*w.shape, dtype=w.dtype)
    kernel = host("quantize_dequantize", form, scaled)
    bench.run(ALL_CODES, kernel, w, largest, out, threads=(w.numel(), 1), group=(192, 1))
    assert torch.equal(out, values)


@every_format
def test_dequantize(bench, kind: str, form: Floating, scaled: bool) -> None:
    # every code, each with several scales, that are neither NaN nor too large for a half
    count = 1 << form.bits
    codes = torch.arange(count, dtype=torch.uint8).repeat(4 * form.group // count * 16 or 1)
    few = [100, 120, 126, 127, 128, 130] if form.scale == "e8m0" else [1, 7, 8, 56, 65, 112]
    scales = torch.tensor(few, dtype=torch.uint8).repeat(codes.numel() // form.group)[
        : codes.numel() // form.group
    ]
    numbers = form.numbers[codes.numpy()]
    factor = np.float32(4) if scaled else np.float32(1)
    values = (
        form.scales[scales.numpy()].astype(np.float32)[:, None] * factor * numbers.reshape(-1, form.group)
    )
    packed = codes if form.bits == 8 else codes[::2] | codes[1::2] << 4
    out = garbage(codes.numel(), dtype=TYPES[kind])
    largest = torch.tensor([4.0 * WHOLE_SCALE])
    threads = packed.numel()
    bench.run(ALL_CODES, host("dequantize", form, scaled), packed, scales, largest, out,
              threads=(threads, 1), group=(64, 1))  # fmt: skip
    assert torch.equal(out.nan_to_num(0), torch.from_numpy(values).flatten().to(out.dtype).nan_to_num(0))


def test_the_tables_are_the_formats() -> None:
    for table, name in ((E2M1, "float4_e2m1fn"), (E4M3, "float8_e4m3fn"), (E8M0, "float8_e8m0fnu")):
        numbers = np.arange(len(table), dtype=np.uint8).view(getattr(ml_dtypes, name)).astype(np.float64)
        assert np.array_equal(table, numbers, equal_nan=True)
