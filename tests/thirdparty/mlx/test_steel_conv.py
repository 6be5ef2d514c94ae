"""MLX's steel convolutions: in two and three dimensions, and the general one, with gaps in the input too.

Operands are small whole numbers, whose sums are exact in ``float``: the only rounding is that of the stored result,
so results are compared for equality. Channels come last, in the input, the weights and the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from arrays import TYPES, garbage, groups, integers, up
from steel import Tile, struct, wide
from units import CONV, Unit

from metalwright.errors import MemoryFault

KERNELS = {
    2: ("steel/conv/kernels/steel_conv.h", "implicit_gemm_conv_2d"),
    3: ("steel/conv/kernels/steel_conv_3d.h", "implicit_gemm_conv_3d"),
}
GENERAL = ("steel/conv/kernels/steel_conv_general.h", "implicit_gemm_conv_2d_general")
BK = 16


def conv_params(dims: int) -> np.dtype[Any]:
    """Return the layout of ``MLXConvParams``."""
    return np.dtype(
        [
            *((name, "i4") for name in ("N", "C", "O")),
            *((name, "i4", dims) for name in ("iS", "wS", "oS", "str", "pad", "kdil", "idil")),
            *((f"{name}_strides", "i8", dims + 2) for name in ("in", "wt", "out")),
            ("groups", "i4"),
            ("flip", "?"),
        ],
        align=True,
    )


def gemm_params(dims: int) -> np.dtype[Any]:
    """Return the layout of ``ImplicitGemmConv2DParams`` or that for three dimensions."""
    jumps = [f"inp_jump_{axis}" for axis in ("dhw" if dims == 3 else "hw")][::-1]
    names = ["M", "N", "K", "gemm_k_iterations", *jumps, "inp_jump_c", "tiles_n", "tiles_m", "swizzle_log"]
    return np.dtype([(name, "i4") for name in names])


JUMPS = np.dtype(
    [
        (name, "i4")
        for name in (
            "f_wgt_jump_h",
            "f_wgt_jump_w",
            "f_out_jump_h",
            "f_out_jump_w",
            "adj_out_h",
            "adj_out_w",
            "adj_out_hw",
            "adj_implicit_m",
        )
    ]
)


@dataclass(frozen=True)
class Conv:
    """A convolution: sizes, and how the window moves; tuples have a number for each dimension at least."""

    kind: str
    batch: int
    size: tuple[int, ...]
    channels: int
    window: tuple[int, ...]
    results: int
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    gaps: tuple[int, ...] = (1, 1, 1)
    groups: int = 1
    flip: bool = False

    @property
    def dims(self) -> int:
        return len(self.size)

    @property
    def out(self) -> tuple[int, ...]:
        lines = zip(self.size, self.window, self.stride, self.padding, self.dilation, self.gaps, strict=False)
        return tuple(
            ((size - 1) * gap + 1 + 2 * pad - dilation * (window - 1) - 1) // stride + 1
            for size, window, stride, pad, dilation, gap in lines
        )

    def operands(self) -> tuple[torch.Tensor, torch.Tensor]:
        values = integers(1, self.batch, *self.size, self.channels, kind=self.kind)
        return values, integers(2, self.results, *self.window, self.channels // self.groups, kind=self.kind)

    def reference(self, values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return the result by PyTorch; gaps in the input are zeros written out."""
        spread = torch.zeros(
            self.batch,
            *((size - 1) * gap + 1 for size, gap in zip(self.size, self.gaps, strict=False)),
            self.channels,
            dtype=torch.float64,
        )
        spread[(slice(None), *(slice(None, None, gap) for gap in self.gaps[: self.dims]))] = wide(values)
        if self.flip:
            weights = weights.flip(*range(1, 1 + self.dims))
        run = torch.nn.functional.conv2d if self.dims == 2 else torch.nn.functional.conv3d
        result = run(
            spread.movedim(-1, 1),
            wide(weights).movedim(-1, 1),
            None,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
        )
        return result.movedim(1, -1).to(values.dtype)

    def params(self, values: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        steps = {"in_strides": values.stride(), "wt_strides": weights.stride(), "out_strides": out.stride()}
        if self.dims == 2 and self.size[1] == self.window[1] == 1:
            # a convolution of one dimension has no way to go along the other
            steps = {name: (step[0], step[1], 0, step[3]) for name, step in steps.items()}
        return struct(
            conv_params(self.dims),
            N=self.batch,
            C=self.channels,
            O=self.results,
            iS=self.size,
            wS=self.window,
            oS=self.out,
            str=self.stride,
            pad=self.padding,
            kdil=self.dilation,
            idil=self.gaps[: self.dims],
            groups=self.groups,
            flip=self.flip,
            **steps,
        )

    def gemm(self, tile: Tile, m: int, n: int, iterations: int, values: torch.Tensor) -> torch.Tensor:
        """Return the sizes of the product of matrices that stands for the convolution, and the loader's jumps."""
        sign = -1 if self.flip else 1
        # from one element of the window to the next, along each of its dimensions
        steps = [step * d for step, d in zip(values.stride()[1:-1], self.dilation, strict=True)]
        if self.dims == 2 and self.size[1] == self.window[1] == 1:
            steps[1] = 0
        jumps = {}
        back = 0
        for axis, step, size in reversed(list(zip("dhw"[-self.dims :], steps, self.window, strict=True))):
            jumps[f"inp_jump_{axis}"] = sign * (step - back)
            back += (size - 1) * step
        tiles_n, tiles_m = tile.tiles(m, n)
        return struct(
            gemm_params(self.dims),
            M=self.batch * math.prod(self.out),
            N=n,
            K=math.prod(self.window) * self.channels // self.groups,
            gemm_k_iterations=iterations,
            inp_jump_c=tile.bk - sign * back,
            tiles_n=tiles_n,
            tiles_m=tiles_m,
            swizzle_log=0,
            **jumps,
        )


def convolve(bench, conv: Conv, values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the convolution as ``implicit_gemm_conv_2D_gpu`` and ``implicit_gemm_conv_3D_gpu`` have it computed."""
    m, n, channels = (
        conv.batch * math.prod(conv.out),
        conv.results // conv.groups,
        conv.channels // conv.groups,
    )
    tile = Tile(32, 8, BK, 4, 1) if n <= 16 else Tile(32, 64 if n >= 64 else 32, BK, 2, 2)
    few = channels if conv.dims == 2 and channels <= 4 else 0
    small = not few and max(conv.window) <= 16
    places = math.prod(conv.window)
    iterations = places * up(channels, BK)
    if few:
        iterations = up(places * (few if few <= 2 else 4), BK)
    special = f"{few}, {str(small).lower()}" if conv.dims == 2 else str(small).lower()
    file, name = KERNELS[conv.dims]
    unit = Unit(file, CONV, ((name, name, f"{conv.kind}, {tile.arguments}, {special}"),))
    out = garbage(conv.batch, *conv.out, conv.results, dtype=TYPES[conv.kind])
    bench.run(
        unit,
        name,
        values,
        weights,
        out,
        conv.params(values, weights, out),
        conv.gemm(tile, m, n, iterations, values),
        **groups(*tile.tiles(m, n), conv.groups, group=tile.group),
    )
    return out


CONVOLUTIONS = {
    "2d": Conv("float", 2, (9, 11), 32, (3, 3), 32, (2, 1), (1, 2), (1, 2)),
    "2d, few results, groups": Conv("half", 2, (7, 6), 32, (3, 2), 24, (1, 2), (2, 0), (2, 1), groups=2),
    "2d, turned": Conv("bfloat16_t", 1, (8, 9), 16, (2, 3), 64, (1, 1), (1, 1), (1, 2), flip=True),
    "1d, long window": Conv("half", 2, (40, 1), 16, (18, 1), 8, (2, 1), (5, 0), (2, 1)),
    "2d, long window": Conv("float", 1, (5, 30), 32, (1, 17), 32, (1, 3), (0, 9), (1, 1)),
    "2d, a channel": Conv("half", 1, (9, 10), 1, (3, 3), 32, (1, 2), (1, 1), (2, 1)),
    "2d, two channels, groups": Conv("float", 2, (6, 9), 4, (3, 4), 64, (1, 1), (0, 2), (1, 1), groups=2),
    "2d, three channels, turned": Conv("float", 2, (9, 8), 3, (3, 3), 10, (2, 2), (1, 1), (1, 1), flip=True),
    "2d, four channels": Conv("bfloat16_t", 1, (7, 9), 4, (5, 3), 64, (1, 1), (2, 1), (1, 1)),
    "3d": Conv("float", 2, (4, 5, 6), 32, (2, 3, 3), 32, (1, 2, 1), (1, 1, 0), (1, 1, 2)),
    "3d, turned, few results, groups": Conv(
        "half", 1, (4, 5, 6), 32, (3, 2, 2), 20, (2, 1, 1), (1, 0, 2), (1, 2, 1), groups=2, flip=True
    ),
    "3d, long window, turned": Conv(
        "bfloat16_t", 1, (3, 4, 24), 16, (2, 1, 17), 32, (1, 1, 2), (1, 0, 3), (1, 1, 1), flip=True
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(bench, name: str) -> None:
    conv = CONVOLUTIONS[name]
    values, weights = conv.operands()
    assert torch.equal(convolve(bench, conv, values, weights), conv.reference(values, weights))


@pytest.mark.xfail(
    strict=True,
    raises=MemoryFault,
    reason="`Conv2DInputBlockLoaderLargeFilter` does not turn the window where it asks what is padding",
)
def test_long_window_turned(bench) -> None:
    conv = Conv("float", 2, (40, 1), 16, (18, 1), 8, (2, 1), (5, 0), (2, 1), flip=True)
    values, weights = conv.operands()
    assert torch.equal(convolve(bench, conv, values, weights), conv.reference(values, weights))


@pytest.mark.parametrize(("dims", "channels"), [(2, 1), (2, 16), (3, 16)])
def test_results_that_fill_no_tile(bench, dims: int, channels: int) -> None:
    """48 results are a tile and a half; here more weights follow: see test_weights_are_read_to_their_end."""
    conv, values, weights = _ragged(dims, channels)
    room = torch.cat([weights, integers(3, *weights.shape, kind="float")])
    assert torch.equal(convolve(bench, conv, values, room[:48]), conv.reference(values, weights))


@pytest.mark.parametrize(("dims", "channels"), [(2, 1), (2, 16), (3, 16)])
@pytest.mark.xfail(
    strict=True,
    raises=MemoryFault,
    reason="weights are loaded for whole tiles of 32 results where MLX's host code launches multiples of 16",
)
def test_weights_are_read_to_their_end(bench, dims: int, channels: int) -> None:
    convolve(bench, *_ragged(dims, channels))


def _ragged(dims: int, channels: int) -> tuple[Conv, torch.Tensor, torch.Tensor]:
    ones = (1,) * dims
    conv = Conv("float", 1, (4,) * dims, channels, (2,) * dims, 48, ones, (0,) * dims, ones)
    return conv, *conv.operands()


def general(bench, conv: Conv, values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the convolution as ``implicit_gemm_conv_2D_general_gpu`` has it computed.

    Results are in turn those that meet the same elements of the window; the others of the window fall into gaps.
    """
    tile = Tile(32, 32, BK, 2, 2)
    among_weights = [math.lcm(gap, d) // d for gap, d in zip(conv.gaps, conv.dilation, strict=False)]
    among_results = [math.lcm(gap, step) // step for gap, step in zip(conv.gaps, conv.stride, strict=False)]
    height, width = (up(size, jump) for size, jump in zip(conv.out, among_results, strict=True))
    m, n = conv.batch * height * width, conv.results
    jumps = struct(
        JUMPS,
        f_wgt_jump_h=among_weights[0],
        f_wgt_jump_w=among_weights[1],
        f_out_jump_h=among_results[0],
        f_out_jump_w=among_results[1],
        adj_out_h=height,
        adj_out_w=width,
        adj_out_hw=height * width,
        adj_implicit_m=m,
    )
    whole = conv.channels % BK == 0
    file, name = GENERAL
    unit = Unit(file, CONV, ((name, name, f"{conv.kind}, {tile.arguments}"),), ((200, whole),))
    out = garbage(conv.batch, *conv.out, conv.results, dtype=TYPES[conv.kind])
    bench.run(
        unit,
        name,
        values,
        weights,
        out,
        conv.params(values, weights, out),
        conv.gemm(tile, m, n, up(conv.channels, BK), values),
        jumps,
        *(_bases(conv, axis, among_weights[axis], among_results[axis]) for axis in (0, 1)),
        **groups(*tile.tiles(m, n), math.prod(among_results), group=tile.group),
    )
    return out


def _bases(conv: Conv, axis: int, among_weights: int, among_results: int) -> torch.Tensor:
    """Return, for each turn of results, the first element of the window that meets the input, and how many do."""
    size, dilation = conv.window[axis], conv.dilation[axis]
    pairs = []
    for result in range(among_results):
        start = result * conv.stride[axis] - conv.padding[axis]
        places = [start + (size - 1 - i if conv.flip else i) * dilation for i in range(size)]
        meeting = [i for i, place in enumerate(places) if place % conv.gaps[axis] == 0]
        assert meeting == list(range(meeting[0], size, among_weights)) if meeting else True
        pairs.append((meeting[0] if meeting else size, len(meeting)))
    return torch.tensor(pairs, dtype=torch.int32)


GENERALS = {
    "gaps": Conv("float", 2, (6, 5), 16, (3, 4), 32, (1, 1), (2, 1), (1, 1), gaps=(2, 3)),
    "gaps, strides, turned": Conv(
        "float", 1, (7, 6), 32, (4, 3), 48, (3, 2), (1, 3), (1, 1), gaps=(2, 3), flip=True
    ),
    "gaps and dilation that never meet": Conv(
        "float", 1, (7, 6), 16, (3, 3), 32, (1, 1), (0, 0), (2, 2), gaps=(2, 4)
    ),
    "channels and results of no multiple": Conv("half", 2, (7, 8), 21, (3, 2), 37, (2, 1), (1, 1), (1, 2)),
    "few channels, gaps, turned": Conv(
        "half", 1, (5, 7), 6, (3, 3), 70, (1, 2), (2, 2), (2, 1), gaps=(3, 1), flip=True
    ),
}


@pytest.mark.parametrize("name", GENERALS)
def test_general_convolution(bench, name: str) -> None:
    conv = GENERALS[name]
    values, weights = conv.operands()
    assert torch.equal(general(bench, conv, values, weights), conv.reference(values, weights))
