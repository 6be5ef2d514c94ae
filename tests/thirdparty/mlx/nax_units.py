"""What is compiled and run of the kernels for matrix units: quantised products and the gated delta rule.

They are written with Metal Performance Primitives. Each kernel takes seconds to compile, so that the test that all
compile and those that run them share these instantiations. Tiles and sizes are such that MLX launches.
"""

from __future__ import annotations

from gated_delta import Size
from products import Case, alignment, unit
from units import Unit

# rows, length and columns of a tile, and simdgroups in each direction
TILES, LOW_TILES = (64, 64, 64, 2, 2), (32, 64, 64, 2, 2)

AFFINE = [
    Case("qmm_t_nax", "half", 64, 4, (True, False, *TILES), ((70, 128, 128),)),
    Case("qmm_t_nax", "bfloat16_t", 32, 3, (False, True, *LOW_TILES), ((5, 45, 64),), batch=(2, 3)),
    Case("qmm_n_nax", "half", 64, 2, (True, *TILES), ((67, 64, 128),), batch=(2,)),
]
AFFINE_GATHERED = [
    Case("gather_qmm_t_nax", "half", 32, 5, (False, *TILES), ((20, 83, 64), (84, 128, 64))),
    Case("gather_qmm_n_nax", "bfloat16_t", 128, 8, TILES, ((66, 128, 64),)),
]
ALIGNED_ROWS = Case("gather_qmm_rhs_nax", "half", 64, 6, (*TILES, True), ((0, 64, 128),))
RAGGED_ROWS = Case("gather_qmm_rhs_nax", "bfloat16_t", 32, 4, (*LOW_TILES, True), ((0, 77, 96),))

FLOATING = [
    Case("qmm_t_nax", "half", 32, 4, (False, False, *TILES), ((70, 109, 128),)),
    Case("qmm_t_nax", "bfloat16_t", 16, 4, (True, True, *LOW_TILES, True), ((5, 64, 64),), batch=(2,)),
]
FLOATING_GATHERED = [
    Case("gather_qmm_t_nax", "half", 16, 4, (False, *TILES, True), ((20, 83, 64), (84, 128, 64))),
]
FLOATING_ALIGNED_ROWS = Case("gather_qmm_rhs_nax", "bfloat16_t", 32, 8, (*TILES, True), ((0, 64, 64),))
FLOATING_RAGGED_ROWS = Case("gather_qmm_rhs_nax", "half", 16, 4, (*LOW_TILES, True, True), ((0, 77, 80),))

AFFINE_UNIT = unit("quantized_nax.h", "affine", [*AFFINE, *AFFINE_GATHERED, ALIGNED_ROWS])
FLOATING_UNIT = unit("fp_quantized_nax.h", "fp", [*FLOATING, *FLOATING_GATHERED, FLOATING_ALIGNED_ROWS])
RAGGED = alignment(columns=False, sums=False)
RAGGED_UNIT = unit("quantized_nax.h", "affine", [RAGGED_ROWS], RAGGED)
FLOATING_RAGGED_UNIT = unit("fp_quantized_nax.h", "fp", [FLOATING_RAGGED_ROWS], RAGGED)

FORWARD, BACKWARD, BACKWARD_BY_CHUNK = (
    "gated_delta_fused_nax",
    "gated_delta_vjp_fused_nax",
    "gated_delta_vjp_fused_nax1",
)
BY_GATE = "gated_delta_dgamma_to_dg"
CHUNK = 16
SIZES = {
    FORWARD: [Size("half", 64, 64, 1, 2), Size("bfloat16_t", 128, 128, 1, 1)],
    BACKWARD: [Size("float", 64, 64, 1, 2), Size("half", 128, 128, 1, 1)],
    BACKWARD_BY_CHUNK: [Size("half", 64, 64, 2, 2, every=1)],
}


def forward(size: Size, save: bool) -> Unit:
    """Return a forward pass; it keeps what the gradient needs, or does not."""
    kernels = ((FORWARD, FORWARD, f"{size.arguments(CHUNK)}, {size.every}"),)
    return Unit("gated_delta_update_nax.h", ("utils.h",), kernels, ((200, save),))


def _gradient(kernel: str, arguments: str) -> Unit:
    return Unit("gated_delta_update_nax_vjp.h", ("utils.h",), ((kernel, kernel, arguments),))


def backward(kernel: str, size: Size) -> Unit:
    arguments = size.arguments(CHUNK)
    return _gradient(kernel, f"{arguments}, {size.every}" if kernel == BACKWARD else arguments)


def by_gate(size: Size) -> Unit:
    return _gradient(BY_GATE, f"{size.kind}, {CHUNK}")


ALL = (
    AFFINE_UNIT,
    FLOATING_UNIT,
    forward(SIZES[FORWARD][0], save=True),
    *(backward(kernel, SIZES[kernel][0]) for kernel in (BACKWARD, BACKWARD_BY_CHUNK)),
    by_gate(SIZES[BACKWARD][0]),
)

_PRODUCT_OF_ROWS = (
    "the header calls `fp_qmm_n_impl` with an array more than it takes: no instantiation compiles"
)
_FOLDED = "the header calls `reduce_tile_tg` as `reduce_tile_tg0` is to be called: no instantiation compiles"
# what no compiler takes: the text that is tried, what is said of it, and the reason
BROKEN = {
    unit("fp_quantized_nax.h", "fp", [Case("qmm_n_nax", "half", 32, 4, (False, *TILES), ())]): (
        "'fp_qmm_n_impl': it takes 13 arguments, got 14",
        _PRODUCT_OF_ROWS,
    ),
    unit("fp_quantized_nax.h", "fp", [Case("gather_qmm_n_nax", "half", 32, 4, TILES, ())]): (
        "'fp_qmm_n_impl': it takes 13 arguments, got 14",
        _PRODUCT_OF_ROWS,
    ),
    _gradient("gated_delta_vjp_fused_nax0", "half, 64, 64, 1, 2, 16"): (
        "'reduce_tile_tg': it takes 8 arguments, got 4",
        _FOLDED,
    ),
}
