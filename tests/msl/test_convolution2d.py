"""``convolution2d`` of Metal Performance Primitives against torch: padding, strides, dilations, tiles, modes."""

from __future__ import annotations

import pytest
import torch
from test_matmul2d import HEAD, TORCH, values

from metalwright import CompileError, compile_shader

KERNEL = """
struct Sizes { int channels, width, height, batch, out_channels, out_width, out_height, pad_x, pad_y, groups_x; };
kernel void convolve(device IN* X, device WEIGHT* W, device OUT* Y, constant Sizes& s,
                     uint3 group [[threadgroup_position_in_grid]]) {
  using image = dextents<int32_t, 4>;
  auto x = tensor(X, image(s.channels, s.width, s.height, s.batch));
  auto w = tensor(W, image(s.out_channels, s.channels, KW, KH));
  auto y = tensor(Y, image(s.out_channels, s.out_width, s.out_height, s.batch));
  constexpr auto descriptor = convolution2d_descriptor(
      int4(16, 8, 4, 1), int4(-1, 8, 4, 1), int2(KW, KH), convolution2d_activation_layout::nhwc,
      convolution2d_weights_layout::hwio, int2(SX, SY), int2(DX, DY), 1, false,
      convolution2d_descriptor::mode::MODE);
  convolution2d<descriptor, execution_simdgroups<2>> op;
  const int ox = group.x % s.groups_x * 8, oy = group.y * 4, oc = group.x / s.groups_x * 16;
  // the middle of the window
  op.set_offsets(int2(ox * SX - s.pad_x + ((KW - 1) * DX + 1) / 2, oy * SY - s.pad_y + ((KH - 1) * DY + 1) / 2));
  auto mx = x.slice(0, 0, 0, group.z);
  auto mw = w.slice(oc, 0, 0, 0);
  auto my = y.slice(oc, ox, oy, group.z);
  RUN
}
"""
DIRECT = "op.run(mx, mw, my);"
COOPERATIVE = """
  auto c = op.get_destination_cooperative_tensor<decltype(mx), decltype(mw), float>();
  for (auto it = c.begin(); it != c.end(); ++it) *it = 0;
  op.run(mx, mw, c);
  for (ushort i = 0; i < c.get_capacity(); ++i) {
    auto at = c.get_multidimensional_index(i);
    if (c.is_valid_element(i) && at[0] < my.get_extent(0) && at[1] < my.get_extent(1) && at[2] < my.get_extent(2))
      my[at[0], at[1], at[2], at[3]] += OUT(c[i]);
  }
"""


def convolve(
    x: torch.Tensor,
    w: torch.Tensor,
    before: torch.Tensor,
    types: tuple[str, str, str],
    *,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    mode: str = "multiply",
    run: str = DIRECT,
) -> torch.Tensor:
    """Run the kernel on tensors in torch's layout (batch, channels, height, width)."""
    batch, channels, height, width = x.shape
    out_channels, _, kernel_height, kernel_width = w.shape
    _, _, out_height, out_width = before.shape
    text = HEAD + KERNEL.replace("RUN", run).replace("MODE", mode)
    words = {"WEIGHT": types[1], "IN": types[0], "OUT": types[2], "KW": kernel_width, "KH": kernel_height}
    words |= {"SX": stride[1], "SY": stride[0], "DX": dilation[1], "DY": dilation[0]}
    for word, value in words.items():
        text = text.replace(word, str(value))
    groups_x = -(-out_width // 8)
    sizes = [
        channels,
        width,
        height,
        batch,
        out_channels,
        out_width,
        out_height,
        padding[1],
        padding[0],
        groups_x,
    ]
    y = before.permute(0, 2, 3, 1).contiguous()
    compile_shader(text).convolve(
        x.permute(0, 2, 3, 1).contiguous(),
        w.permute(2, 3, 1, 0).contiguous(),
        y,
        torch.tensor(sizes, dtype=torch.int32).view(torch.uint8),
        threads=(64 * groups_x * -(-out_channels // 16), -(-out_height // 4), batch),
        group_size=(64, 1, 1),
    )
    return y.permute(0, 3, 1, 2)


CASES = {
    "pointwise": ((2, 5, 4, 8), (16, 5, 1, 1), {}),
    "same": ((1, 3, 9, 11), (20, 3, 3, 3), {"padding": (1, 1)}),
    "valid": ((2, 17, 7, 10), (3, 17, 3, 2), {}),
    "strided": ((1, 4, 15, 18), (8, 4, 3, 5), {"stride": (2, 3), "padding": (1, 2)}),
    "dilated": ((1, 4, 15, 18), (8, 4, 3, 2), {"dilation": (2, 3), "padding": (2, 0)}),
    "even": ((1, 6, 10, 10), (33, 6, 4, 4), {"stride": (2, 2), "dilation": (1, 2), "padding": (1, 3)}),
}


@pytest.mark.parametrize("run", [DIRECT, COOPERATIVE], ids=["direct", "cooperative"])
@pytest.mark.parametrize("name", CASES)
def test_shapes(name: str, run: str) -> None:
    image, kernel, options = CASES[name]
    x, w = values(torch.float32, *image), values(torch.float32, *kernel)
    expected = torch.nn.functional.conv2d(x.double(), w.double(), **options)
    # the cooperative kernel adds to what it finds
    before = torch.zeros(expected.shape) if run == COOPERATIVE else torch.full(expected.shape, 7.0)
    y = convolve(x, w, before, ("float", "float", "float"), run=run, **options)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)


def test_accumulating_adds_to_the_destination() -> None:
    x, w, before = (
        values(torch.float16, 1, 4, 6, 9),
        values(torch.float16, 5, 4, 3, 3),
        values(torch.float32, 1, 5, 4, 7),
    )
    y = convolve(x, w, before, ("half", "half", "float"), mode="multiply_accumulate")
    expected = before.double() + torch.nn.functional.conv2d(x.double(), w.double())
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("types", ["half half half", "bfloat bfloat float", "int8_t int8_t int"])
def test_element_types(types: str) -> None:
    of_x, of_w, of_y = types.split()
    x, w = values(TORCH[of_x], 1, 9, 6, 9), values(TORCH[of_w], 17, 9, 3, 3)
    expected = torch.nn.functional.conv2d(x.double(), w.double(), padding=1)
    y = convolve(x, w, torch.zeros(expected.shape, dtype=TORCH[of_y]), (of_x, of_w, of_y), padding=(1, 1))
    if of_y == "int":
        assert torch.equal(y.double(), expected)
    else:
        torch.testing.assert_close(y.double(), expected, rtol=torch.finfo(TORCH[of_y]).eps, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("execution_simdgroups<2>", "execution_thread"),
            "the scope of a convolution2d is execution_simdgroups<N>",
        ),
        (("int2(DX, DY), 1,", "int2(DX, DY), 2,"), "convolution2d with groups is not supported"),
        (("OUT*", "char*"), "does not take these element types together"),
    ],
)
def test_what_does_not_compile(change: tuple[str, str], message: str) -> None:
    text = HEAD + KERNEL.replace("RUN", DIRECT).replace("MODE", "multiply").replace(*change)
    for word in ("WEIGHT", "IN", "OUT"):
        text = text.replace(word, "float")
    for word in ("KW", "KH", "SX", "SY", "DX", "DY"):
        text = text.replace(word, "1")
    with pytest.raises(CompileError, match=message):
        compile_shader(text)
