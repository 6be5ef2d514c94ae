"""quantized.h: matrices of affine codes of 1 to 8 bits, with one scale and bias a group."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from arrays import TYPES, garbage
from products import (
    Case,
    affine_weights,
    alignment,
    multiply,
    multiply_gathered,
    multiply_matrices_in_parts,
    multiply_sorted,
    multiply_vectors_in_parts,
    unit,
)
from quantizing import affine, affine_quantized, generator, unpack
from units import ALIGNED, QUANTIZED, Unit

from metalwright.errors import MemoryFault

# vectors whose number, length and result end inside a block, a group of rows or a simdgroup's share
VECTORS = [
    Case("qmv_fast", "half", 64, 4, (False,), ((2, 16, 1024),)),
    Case("qmv_fast", "bfloat16_t", 128, 2, (True, True), ((1, 13, 512),), batch=(2, 3)),
    Case("qmv_fast", "float", 32, 5, (False,), ((1, 8, 512),)),
    Case("qmv_fast", "half", 64, 1, (False, True), ((1, 9, 2560),)),
    Case("qmv", "float", 64, 3, (False,), ((2, 5, 64), (1, 13, 576))),
    Case("qmv", "half", 32, 6, (True,), ((1, 11, 160),), batch=(2,)),
    Case("qmv", "bfloat16_t", 128, 8, (False,), ((2, 9, 256),)),
    Case("qmv_quad", "half", 64, 4, (64, False), ((2, 64, 64),)),
    Case("qmv_quad", "bfloat16_t", 32, 2, (128, True), ((1, 128, 128),), batch=(2,)),
    Case("qmv_wide", "half", 64, 4, (2, 8, False), ((3, 13, 192),)),
    Case("qmv_wide", "float", 128, 6, (5, 8, True), ((6, 9, 256),), batch=(2,)),
    Case("qvm", "float", 32, 2, (False,), ((2, 96, 37), (1, 32, 64))),
    Case("qvm", "half", 64, 3, (True,), ((2, 64, 33),), batch=(2, 2)),
    Case("qvm", "bfloat16_t", 128, 8, (False,), ((1, 128, 20),)),
]
GATHERED_VECTORS = [
    Case("gather_qmv_fast", "half", 64, 4, (), ((1, 8, 512),)),
    Case("gather_qmv", "float", 32, 3, (), ((2, 11, 96),)),
    Case("gather_qmv", "bfloat16_t", 64, 8, (), ((1, 3, 128),)),
    Case("gather_qvm", "half", 32, 2, (), ((2, 96, 40),)),
    Case("gather_qvm", "float", 64, 6, (), ((1, 64, 32),)),
]
SPLIT_VECTORS = [
    Case("qvm_split_k", "half", 64, 4, (8,), ((2, 64, 300),)),
    Case("qvm_split_k", "float", 32, 6, (32,), ((1, 32, 1000),)),
]
MATRICES = [
    Case("qmm_t", "half", 64, 4, (True, False), ((40, 32, 128),)),
    Case("qmm_t", "float", 32, 3, (False, True), ((5, 45, 64),), batch=(2,)),
    Case("qmm_t", "bfloat16_t", 128, 8, (False, False), ((33, 33, 128),)),
    Case("qmm_n", "half", 64, 2, (False,), ((40, 64, 72),)),
    Case("qmm_n", "float", 32, 6, (True,), ((3, 32, 32),), batch=(2, 2)),
]
GATHERED_MATRICES = [
    Case("gather_qmm_t", "half", 32, 5, (False,), ((34, 35, 32),)),
    Case("gather_qmm_n", "float", 64, 4, (), ((7, 64, 40),)),
]
SPLIT_MATRICES = [Case("qmm_t_splitk", "half", 64, 4, (False,), ((35, 40, 256),))]
TILES = (16, 32, 32, 1, 2)
ALIGNED_ROWS = Case("gather_qmm_rhs", "half", 64, 4, (*TILES, True), ((0, 64, 128),))
RAGGED_COLUMNS = Case("gather_qmm_rhs", "float", 32, 3, (*TILES, True), ((0, 45, 64),))
RAGGED_SUMS = Case("gather_qmm_rhs", "bfloat16_t", 64, 8, (*TILES, False), ((0, 64, 40),))

ALL_VECTORS = unit("quantized.h", "affine", [*VECTORS, *GATHERED_VECTORS, *SPLIT_VECTORS])
ALL_MATRICES = unit("quantized.h", "affine", [*MATRICES, *GATHERED_MATRICES, *SPLIT_MATRICES, ALIGNED_ROWS])
SORTED = {
    ALIGNED_ROWS: ALL_MATRICES,
    RAGGED_COLUMNS: unit("quantized.h", "affine", [RAGGED_COLUMNS], alignment(columns=False)),
    RAGGED_SUMS: unit("quantized.h", "affine", [RAGGED_SUMS], alignment(sums=False)),
}


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case.host)
def test_vectors(bench, case: Case) -> None:
    for sizes in case.sizes:
        multiply(bench, ALL_VECTORS, case, sizes, affine_weights(case, sizes, *case.batch))


PAST_THE_END = Case("qmv_quad", "half", 64, 4, (64, False), ((1, 70, 64),))


def test_quads_with_memory_behind_them(bench) -> None:
    sizes = PAST_THE_END.sizes[0]
    multiply(bench, ALL_VECTORS, PAST_THE_END, sizes, affine_weights(PAST_THE_END, sizes).with_room())


@pytest.mark.xfail(
    raises=MemoryFault,
    strict=True,
    reason="where the rows of the result are no multiple of 64, the kernel reads scales and biases past the last",
)
def test_quads(bench) -> None:
    sizes = PAST_THE_END.sizes[0]
    multiply(bench, ALL_VECTORS, PAST_THE_END, sizes, affine_weights(PAST_THE_END, sizes))


@pytest.mark.parametrize("case", GATHERED_VECTORS, ids=lambda case: case.host)
def test_gathered_vectors(bench, case: Case) -> None:
    multiply_gathered(bench, ALL_VECTORS, case, case.sizes[0], affine_weights(case, case.sizes[0], 3))


@pytest.mark.parametrize("case", SPLIT_VECTORS, ids=lambda case: case.host)
def test_sums_in_parts(bench, case: Case) -> None:
    multiply_vectors_in_parts(bench, ALL_VECTORS, case, case.sizes[0], affine_weights(case, case.sizes[0]))


@pytest.mark.parametrize("case", MATRICES, ids=lambda case: case.host)
def test_matrices(bench, case: Case) -> None:
    for sizes in case.sizes:
        multiply(bench, ALL_MATRICES, case, sizes, affine_weights(case, sizes, *case.batch))


@pytest.mark.parametrize("case", GATHERED_MATRICES, ids=lambda case: case.host)
def test_gathered_matrices(bench, case: Case) -> None:
    multiply_gathered(bench, ALL_MATRICES, case, case.sizes[0], affine_weights(case, case.sizes[0], 3))


@pytest.mark.parametrize("case", SPLIT_MATRICES, ids=lambda case: case.host)
def test_matrices_in_parts(bench, case: Case) -> None:
    sizes = case.sizes[0]
    multiply_matrices_in_parts(bench, ALL_MATRICES, case, sizes, affine_weights(case, sizes), parts=2)


@pytest.mark.parametrize("case", SORTED, ids=lambda case: case.host)
def test_sorted_rows(bench, case: Case) -> None:
    for counts in ((0, 19, 16, 0, 1), (35,)):
        matrices = affine_weights(case, case.sizes[0], len(counts))
        multiply_sorted(bench, SORTED[case], case, case.sizes[0], matrices, counts)


CODES = [("float", 32, 4), ("half", 64, 3), ("bfloat16_t", 128, 2), ("float", 64, 6), ("half", 32, 8), ("float", 64, 5),
         ("bfloat16_t", 64, 1)]  # fmt: skip
BOTH = Unit(
    "quantized.h",
    QUANTIZED,
    tuple(
        (f"{kernel}_{group}_{bits}", f"affine_{kernel}", f"{kind}, {group}, {bits}")
        for kind, group, bits in CODES
        for kernel in ("quantize", "dequantize")
    ),
    ALIGNED,
)
CODES_A_THREAD = {1: 8, 2: 4, 3: 8, 4: 2, 5: 8, 6: 4, 8: 1}


@pytest.mark.parametrize(("kind", "group", "bits"), CODES)
def test_quantize(bench, kind: str, group: int, bits: int) -> None:
    dtype = TYPES[kind]
    groups = generator(group, bits).normal(0, 2, (6, group))
    groups[1] = np.abs(groups[1]) + 1
    groups[2] = -np.abs(groups[2])
    groups[3] = 0
    groups[4] = -1.5
    w = torch.from_numpy(groups).to(dtype)
    out = garbage(w.numel() * bits // 8, dtype=torch.uint8)
    scales, biases = (garbage(6, dtype=dtype) for _ in range(2))
    count = w.numel() // (group // 32)
    bench.run(BOTH, f"quantize_{group}_{bits}", w, out, scales, biases, threads=(count, 1), group=(32, 1))
    codes, scale, bias = affine_quantized(w.float().numpy(), bits)
    assert torch.equal(scales, torch.from_numpy(scale).to(dtype))
    assert torch.equal(biases, torch.from_numpy(bias).to(dtype))
    assert np.array_equal(unpack(out, bits).reshape(codes.shape), codes)
    # and what the codes stand for is as near as the steps are fine: within one, where the step was fitted to zero
    back = codes * scale[:, None].astype(np.float64) + bias[:, None]
    steps = np.abs(w.double().numpy() - back) / np.abs(scale[:, None])
    assert steps.max() <= (0.5 if bits == 1 else 1) + 1e-3


@pytest.mark.parametrize(("kind", "group", "bits"), CODES)
def test_dequantize(bench, kind: str, group: int, bits: int) -> None:
    matrix = affine((3, 2 * group), group, bits, kind)
    out = garbage(3, 2 * group, dtype=TYPES[kind])
    count = out.numel() // CODES_A_THREAD[bits]
    bench.run(
        BOTH,
        f"dequantize_{group}_{bits}",
        *matrix.parts,
        out,
        threads=(count, 1),
        group=(min(count, 1024), 1),
    )
    assert torch.equal(out, matrix.values.to(out.dtype))
