"""Textures that kernels read and write, against NumPy and the specification's rules for formats and edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metalwright import ArgumentError, CompileError, Texture, UnsupportedFeatureError, compile_shader

H, W = 5, 7
FLOATS = {"float": torch.float32, "half": torch.float16}
INTEGERS = {"int": torch.int32, "uint": torch.uint32, "short": torch.int16, "ushort": torch.uint16}
SIZES = {"threads": (W, H), "group_size": (4, 2)}
BOTH = pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])


def numbers(dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    random = np.random.default_rng(seed)
    if dtype.is_floating_point:
        return torch.from_numpy(random.uniform(-4, 4, shape)).to(dtype)
    limits = torch.iinfo(dtype)
    return torch.from_numpy(random.integers(limits.min, limits.max, shape, np.int64, endpoint=True)).to(dtype)


def four(pixels: torch.Tensor) -> np.ndarray:
    """Return pixels as a kernel sees them: the channels that a format lacks are 0, 0, 0, 1."""
    array = pixels.numpy()
    whole = np.zeros((*array.shape[:-1], 4), array.dtype)
    whole[..., 3] = 1
    whole[..., : array.shape[-1]] = array
    return whole


COPY = """
using namespace metal;
kernel void copy(texture2d<{T}, access::read> in [[texture(0)]], texture2d<{T}, access::write> out [[texture(1)]],
                 device {T}4* seen [[buffer(0)]], {I}2 gid [[thread_position_in_grid]]) {{
  const {T}4 pixel = in.read(gid);
  seen[gid.y * in.get_width() + gid.x] = pixel;
  out.write(pixel, gid);
}}
"""


@BOTH
@pytest.mark.parametrize("index", ["uint", "ushort"])
@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("kind", [*FLOATS, *INTEGERS])
def test_every_type_is_read_and_written(kind: str, channels: int, index: str, checked: bool) -> None:
    dtype = (FLOATS | INTEGERS)[kind]
    pixels, out = numbers(dtype, H, W, channels), torch.zeros(H, W, channels, dtype=dtype)
    seen = torch.zeros(H, W, 4, dtype=dtype)
    library = compile_shader(COPY.format(T=kind, I=index), checked=checked)
    library.copy(seen, textures=[pixels, out], **SIZES)
    np.testing.assert_array_equal(seen.numpy(), four(pixels))
    np.testing.assert_array_equal(out.numpy(), pixels.numpy())


def test_one_channel_needs_no_dimension_of_its_own() -> None:
    pixels, out, seen = numbers(torch.float32, H, W), torch.zeros(H, W), torch.zeros(H, W, 4)
    compile_shader(COPY.format(T="float", I="uint")).copy(seen, textures=[pixels, out], **SIZES)
    assert torch.equal(out, pixels)
    np.testing.assert_array_equal(seen.numpy(), four(pixels[..., None]))


@pytest.mark.parametrize(("kind", "dtype"), [("half", torch.float32), ("float", torch.float16)])
def test_a_format_of_another_width_is_converted(kind: str, dtype: torch.dtype) -> None:
    pixels, out = numbers(dtype, H, W, 2), torch.zeros(H, W, 2, dtype=dtype)
    seen = torch.zeros(H, W, 4, dtype=FLOATS[kind])
    compile_shader(COPY.format(T=kind, I="uint")).copy(seen, textures=[pixels, out], **SIZES)
    np.testing.assert_array_equal(seen.numpy(), four(pixels.to(FLOATS[kind])))
    np.testing.assert_array_equal(out.numpy(), pixels.half().to(dtype).numpy())


NORMALISED = {
    "8unorm": (torch.uint8, 255, 0),
    "16unorm": (torch.uint16, 65535, 0),
    "8snorm": (torch.int8, 127, -1),
    "16snorm": (torch.int16, 32767, -1),
}


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("component", NORMALISED)
def test_normalised_formats_are_read_as_the_specification_divides(component: str, kind: str) -> None:
    """Every value of the format, rounded once to the texture's type."""
    dtype, most, lowest = NORMALISED[component]
    limits = torch.iinfo(dtype)
    pixels = torch.arange(limits.min, limits.max + 1).to(dtype).reshape(1, -1)
    width = pixels.shape[1]
    seen = torch.zeros(1, width, 4, dtype=FLOATS[kind])
    copied = torch.zeros_like(pixels)
    textures = [Texture(pixels, f"r{component}"), Texture(copied, f"r{component}")]
    compile_shader(COPY.format(T=kind, I="uint")).copy(
        seen, textures=textures, threads=(width, 1), group_size=(256, 1)
    )
    exact = np.maximum(pixels.numpy().astype(np.float64) / most, lowest)
    expected = exact.astype(np.float32 if kind == "float" else np.float16)
    np.testing.assert_array_equal(seen[..., 0].numpy(), expected)
    if kind == "float":
        # written back it is what it was, but for the lowest number, which stands for -1 too
        np.testing.assert_array_equal(copied.numpy(), np.maximum(pixels.numpy().astype(int), lowest * most))


STORE = """
using namespace metal;
kernel void store(device const {T}* values, texture1d<{T}, access::write> out, uint i [[thread_position_in_grid]]) {{
  out.write({T}4(values[i]), i);
}}
"""


@pytest.mark.parametrize("component", NORMALISED)
def test_normalised_formats_are_written_to_the_nearest_even_number(component: str) -> None:
    dtype, most, lowest = NORMALISED[component]
    ties = (np.arange(0, 40) + 0.5) / most
    special = np.array([0, -0.0, 1, -1, 2, -2, 0.5, -0.5, np.inf, -np.inf, np.nan])
    values = np.concatenate([ties, -ties, special, np.random.default_rng(1).uniform(-1.2, 1.2, 200)])
    values = values.astype(np.float32)
    out = torch.zeros(len(values), dtype=dtype)
    library = compile_shader(STORE.format(T="float"))
    library.store(torch.from_numpy(values), textures=[Texture(out, f"r{component}")])
    scaled = np.clip(values.astype(np.float64) * most, lowest * most, most)
    expected = np.rint(np.where(np.isnan(scaled), 0, scaled)).astype(int)
    np.testing.assert_array_equal(out.numpy().astype(int), expected)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("int", torch.int8),
        ("int", torch.int16),
        ("uint", torch.uint8),
        ("uint", torch.uint16),
        ("short", torch.int8),
        ("ushort", torch.uint8),
    ],
)
def test_integers_are_saturated_when_they_are_written(kind: str, dtype: torch.dtype) -> None:
    own, limits = torch.iinfo(INTEGERS[kind]), torch.iinfo(dtype)
    edges = [own.min, own.max, 0, 1, limits.max, limits.max + 1, limits.min]
    edges += [limits.min - 1] if own.min < 0 else []
    values = torch.tensor(edges, dtype=torch.int64).to(INTEGERS[kind])
    out = torch.zeros(len(edges), dtype=dtype)
    compile_shader(STORE.format(T=kind)).store(values, textures=[out])
    np.testing.assert_array_equal(
        out.numpy(), np.clip(edges, limits.min, limits.max).astype(out.numpy().dtype)
    )


OUTSIDE = """
using namespace metal;
kernel void outside(texture2d<float, access::read> in [[texture(0)]],
                    texture2d<float, access::read_write> both [[texture(1)]],
                    device float4* seen [[buffer(0)]], uint2 gid [[thread_position_in_grid]]) {
  const uint2 at = gid - uint2(2, 2);  // wraps below zero
  seen[gid.y * 16 + gid.x] = in.read(at);
  both.write(float4(9), at);
  both.write(float4(7), at, 1);
  if (gid.x == 0 && gid.y == 0) {
    seen[255] = in.read(uint2(0), 1);
    seen[254] = float4(in.get_width(), in.get_height(), in.get_num_mip_levels(), in.get_width(2));
    seen[253] = in.read(uint2(0x7fffffff, 0xffffffff));
  }
}
"""


@BOTH
@pytest.mark.parametrize("channels", [1, 2, 4])
def test_what_is_outside_reads_as_zero_and_is_not_written(channels: int, checked: bool) -> None:
    """As the specification defines it, so checked mode has nothing to report."""
    pixels = torch.rand(H, W, channels) + 1
    room = torch.full((H + 2, W, channels), 5.0)
    both, guard = room[:H], room[H:]
    seen = torch.full((16, 16, 4), -1.0)
    compile_shader(OUTSIDE, checked=checked).outside(
        seen, textures=[pixels, both], threads=(16, 15), group_size=(8, 5)
    )
    expected = np.zeros((15, 16, 4))
    expected[..., 3] = channels < 4
    expected[2 : 2 + H, 2 : 2 + W] = four(pixels)
    np.testing.assert_array_equal(seen[:15].numpy(), expected.astype(np.float32))
    outside = [0, 0, 0, float(channels < 4)]
    assert seen[15, 15].tolist() == outside and seen[15, 13].tolist() == outside
    assert seen[15, 14].tolist() == [W, H, 1, W // 4]
    assert (both == 9).all() and (guard == 5).all()


SHAPES = """
using namespace metal;
kernel void shapes(texture1d<uint, access::read> a, texture1d_array<uint, access::read_write> b,
                   texture2d_array<uint, access::read_write> c, texture3d<uint, access::read_write> d,
                   texture_buffer<uint, access::read_write> e, texture2d<uint> f, device uint* sizes,
                   uint3 g [[thread_position_in_grid]]) {
  b.write(b.read(g.x, g.y) + a.read(g.x).x, g.x, g.y);
  c.write(c.read(g.xy, g.z) + 1, g.xy, g.z);
  d.write(d.read(ushort3(g)) + 2, g);
  if (g.y == 0 && g.z == 0) e.write(e.read(g.x) + f.read(g.xy).x, g.x);
  const uint all[] = {a.get_width(), b.get_width(), b.get_array_size(), c.get_width(), c.get_height(),
                      c.get_array_size(), d.get_width(), d.get_height(), d.get_depth(), e.get_width(), f.get_width(),
                      f.get_height(), a.get_num_mip_levels(), b.get_num_mip_levels(), c.get_num_mip_levels(),
                      d.get_num_mip_levels()};
  for (uint i = 0; i < 16; ++i) sizes[i] = all[i];
}
"""


@BOTH
def test_every_shape_of_texture(checked: bool) -> None:
    """Without attributes they are numbered in order, as buffers are."""
    counts = iter(range(100))
    make = [(6,), (3, 6), (2, 3, 6), (4, 3, 6), (9,), (3, 6)]
    given = [
        (torch.arange(np.prod(shape), dtype=torch.int64) + 1000 * next(counts))
        .to(torch.uint32)
        .reshape(shape)
        for shape in make
    ]
    a, b, c, d, e, f = (tensor.numpy().copy() for tensor in given)
    sizes = torch.zeros(16, dtype=torch.uint32)
    compile_shader(SHAPES, checked=checked).shapes(
        sizes, textures=given, threads=(6, 1, 1), group_size=(6, 1, 1)
    )
    b[0] += a
    c[0, 0] += 1
    d[0, 0] += 2
    e[:6] += f[0]
    for tensor, expected in zip(given, (a, b, c, d, e, f), strict=True):
        np.testing.assert_array_equal(tensor.numpy(), expected)
    assert sizes.tolist() == [6, 6, 3, 6, 3, 2, 6, 3, 4, 9, 6, 3, 0, 0, 1, 1]


BLUR = """
using namespace metal;
static float4 tap(texture2d<float, access::read_write> t, int2 at) { return t.read(uint2(at)); }
template <typename Image> float4 around(Image t, uint2 at) {
  float4 sum = 0;
  for (int y = -1; y <= 1; ++y)
    for (int x = -1; x <= 1; ++x) sum += tap(t, int2(at) + int2(x, y));
  return sum;
}
kernel void blur(texture2d<float, access::read_write> image [[texture(3)]], uint2 gid [[thread_position_in_grid]],
                 uint2 size [[threads_per_grid]]) {
  const float4 sum = around(image, gid);
  threadgroup_barrier(mem_flags::mem_texture);
  image.write(sum / 9, gid);
  image.fence();
  if (is_null_texture(image)) image.write(float4(0), gid);
}
"""


@BOTH
def test_a_filter_reads_its_neighbours_through_helpers(checked: bool) -> None:
    image = torch.rand(8, 8, 4)
    padded = torch.nn.functional.pad(image.permute(2, 0, 1), (1, 1, 1, 1))
    expected = torch.nn.functional.avg_pool2d(padded[None].double(), 3, stride=1)[0].permute(1, 2, 0)
    compile_shader(BLUR, checked=checked).blur(
        textures=[None, None, None, image], threads=(8, 8), group_size=(8, 8)
    )
    torch.testing.assert_close(image.double(), expected, rtol=0, atol=1e-6)


def test_a_null_texture_is_one_that_is_left_out() -> None:
    source = """
using namespace metal;
kernel void k(texture2d<float, access::read> t [[texture(0)]], texture2d<float, access::read> u [[texture(1)]],
              device int* out) { out[0] = is_null_texture(t); out[1] = is_null_texture(u); }
"""
    out = torch.full((2,), -1, dtype=torch.int32)
    compile_shader(source).k(out, textures=[None, torch.ones(1, 1)], threads=1)
    assert out.tolist() == [1, 0]


def two(*shape: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)]


@pytest.mark.parametrize(
    ("kind", "textures", "message"),
    [
        ("float", [], "takes 2 textures (in [[texture(0)]], out [[texture(1)]]), got 0"),
        ("float", two(4), "texture 0, 'in' is a texture2d: expected a tensor of shape (height, width) or"),
        ("float", two(4, 4, 4, 4), "(height, width, channels), got (4, 4, 4, 4)"),
        ("float", two(4, 4, 3), "a pixel has 1, 2 or 4 channels, got 3"),
        ("float", two(0, 4), "at least one pixel in each dimension, got shape (0, 4)"),
        ("float", two(4, 4, dtype=torch.float64), "Metal has no pixel format for torch.float64"),
        ("float", two(4, 4, dtype=torch.bfloat16), "Metal has no pixel format for torch.bfloat16"),
        (
            "float",
            two(4, 4, dtype=torch.int32),
            "is a texture2d<float>, and the pixels are r32sint: signed numbers",
        ),
        ("float", two(4, 4, 4, dtype=torch.uint8), "give metalwright.Texture(tensor, 'rgba8unorm')"),
        ("half", two(4, 4, dtype=torch.uint8), "is a texture2d<half>, and the pixels are r8uint"),
        ("uint", two(4, 4, dtype=torch.int32), "is a texture2d<uint>, and the pixels are r32sint"),
        ("int", two(4, 4), "is a texture2d<int>, and the pixels are r32float: float numbers"),
        (
            "short",
            two(4, 4, dtype=torch.int32),
            "is a texture2d<short>, and the pixels are r32sint: 32 bits do not fit",
        ),
        ("float", [torch.zeros(4, 4).t()[::2], torch.zeros(4, 4)], "must lie without gaps"),
        ("float", [torch.zeros(4, 4).to_sparse(), torch.zeros(4, 4)], "expected a dense CPU tensor"),
        ("float", [np.zeros((4, 4)), torch.zeros(4, 4)], "expected a tensor or a Texture, got ndarray"),
        ("float", [Texture(torch.zeros(4, 4), "rgba32float")], "got 1"),
        (
            "float",
            [Texture(torch.zeros(4, 4), "rgba32float")] * 2,
            "rgba32float is 4 channels of torch.float32",
        ),
        ("float", [Texture(torch.zeros(4, 4), "r8unorm")] * 2, "r8unorm is 1 channels of torch.uint8"),
        ("float", [Texture(torch.zeros(4, 4), "rgb32float")] * 2, "expected a format such as 'rgba8unorm'"),
        ("float", [Texture(torch.zeros(4, 4), "")] * 2, "expected a format such as 'rgba8unorm'"),
        (
            "uint",
            [Texture(torch.zeros(4, 4, dtype=torch.uint8), "r8unorm")] * 2,
            "the pixels are r8unorm: float",
        ),
    ],
)
def test_textures_that_do_not_fit(kind: str, textures: list, message: str) -> None:
    kernel = compile_shader(COPY.format(T=kind, I="uint")).copy
    dtype = (FLOATS | INTEGERS)[kind]
    with pytest.raises(ArgumentError) as caught:
        kernel(torch.zeros(4, 4, 4, dtype=dtype), textures=textures, threads=(4, 4), group_size=(4, 4))
    assert message in str(caught.value)


def test_one_texture_is_spoken_of_as_one() -> None:
    kernel = compile_shader("using namespace metal; kernel void k(texture1d<int> t) { t.read(0); }").k
    with pytest.raises(ArgumentError, match=r"takes 1 texture \(t \[\[texture\(0\)\]\]\), got 0"):
        kernel(threads=1)


def test_a_kernel_without_textures_takes_none() -> None:
    kernel = compile_shader("kernel void k(device float* x) { x[0] = 1; }").k
    with pytest.raises(ArgumentError, match=r"takes 0 textures \(none\), got 1"):
        kernel(torch.zeros(1), textures=[torch.zeros(1, 1)])


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        (
            "t.sample(s, float2(0));",
            UnsupportedFeatureError,
            "'sample' is not supported: Metalwright does not run sampled",
        ),
        ("t.gather(s, float2(0));", UnsupportedFeatureError, "'gather' is not supported"),
        ("t.sparse_read(uint2(0));", UnsupportedFeatureError, "'sparse_read' is not supported"),
        ("t.atomic_load(uint2(0));", UnsupportedFeatureError, "'atomic_load' is not supported"),
        ("constexpr sampler s;", UnsupportedFeatureError, "'sampler' is not supported"),
        ("depth2d<float> d;", UnsupportedFeatureError, "'depth2d' is not supported"),
        ("texturecube<float> d;", UnsupportedFeatureError, "'texturecube' is not supported"),
        ("texture2d_ms<float> d;", UnsupportedFeatureError, "'texture2d_ms' is not supported"),
        (
            "t.write(float4(0), gid);",
            CompileError,
            "error: only a texture with access::write or access::read_write",
        ),
        ("w.read(gid);", CompileError, "error: a texture with access::write cannot be read"),
        ("t.fence();", CompileError, "error: only a texture with access::read_write has a fence"),
        ("t.read(float2(0));", CompileError, "no matching member function for call to 'read'"),
        ("t.colour();", CompileError, "no member named 'colour'"),
        ("texture2d<float> u;", CompileError, "no matching constructor"),
    ],
)
def test_what_textures_cannot_do(line: str, kind: type[CompileError], message: str) -> None:
    source = f"""using namespace metal;
kernel void k(texture2d<float> t [[texture(0)]], texture2d<float, access::write> w [[texture(1)]],
              uint2 gid [[thread_position_in_grid]]) {{
  int s;
  {line}
}}
"""
    with pytest.raises(CompileError) as caught:
        compile_shader(source)
    assert type(caught.value) is kind
    assert message in str(caught.value)
    site = caught.value.diagnostics[0].site
    assert site is not None and site.line == 5


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("texture2d<bfloat> t [[texture(0)]]", "a texture is one of float, half, int, uint, short or ushort"),
        ("device float* t [[texture(0)]]", "one with [[texture(n)]] a texture"),
        ("texture2d<float> t [[buffer(0)]]", "one with [[texture(n)]] a texture"),
        ("array<texture2d<float>, 2> t [[texture(0)]]", "one with [[texture(n)]] a texture"),
        (
            "texture2d<float> t [[texture(128)]]",
            "[[texture(128)]] is out of range: Metal has textures 0 to 127",
        ),
        ("texture1d<int> t [[texture(2)]], texture1d<int> u [[texture(2)]]", "is already taken by 't'"),
        ("sampler s [[sampler(0)]]", "[[sampler]] is not supported"),
    ],
)
def test_parameters_that_are_no_textures(parameter: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_shader(f"using namespace metal;\nkernel void k({parameter}) {{}}\n")
    assert message in str(caught.value)
