"""The functions that the Metal Shading Language specification (version 4) gives to kernels, each with a use of it.

Compiled by hand from the specification's tables, chapter by chapter; `support_table.py` finds out which of the uses
compile. A use is the body of a function that has the chapter's parameters; `@` stands for the type in question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Chapter:
    """A part of the standard library: its functions and what their uses may speak of.

    With `types`, each use is tried for each of them. A use may begin with parameters of its own and a `=>`.
    """

    title: str
    parameters: str
    uses: Mapping[str, str]
    types: tuple[str, ...] = ()
    note: str = ""


FLOATS = ("float", "half", "bfloat")
_NUMBERS = "@ x, @ y, @ z, vec<@, 3> v, vec<@, 3> w, vec<@, 3> u"


def _calls(arguments: str, names: str) -> dict[str, str]:
    return {name: f"(void)({name}({arguments}));" for name in names.split()}


COMMON = Chapter(
    "Common functions",
    _NUMBERS,
    {
        **_calls("x, y, z", "clamp mix smoothstep"),
        **_calls("x", "saturate sign"),
        **_calls("x, y", "step"),
    },
    FLOATS,
    "NaN is treated as by the `precise::` functions.",
)
INTEGER = Chapter(
    "Integer functions",
    "@ x, @ y, @ z, vec<@, 3> v",
    {
        **_calls("x", "abs clz ctz popcount reverse_bits"),
        **_calls("x, y", "absdiff addsat hadd max min mul24 mulhi rhadd rotate subsat"),
        **_calls("x, y, z", "clamp mad24 madhi madsat max3 median3 min3"),
        "extract_bits": "(void)(extract_bits(x, 3u, 4u) + extract_bits(v, 3u, 4u)[0]);",
        "insert_bits": "(void)(insert_bits(x, y, 3u, 4u));",
    },
    ("int", "uint"),
    "Also for the other integer types where the specification has them, and for vectors.",
)
RELATIONAL = Chapter(
    "Relational functions",
    _NUMBERS,
    {
        **_calls("v > w", "all any"),
        **_calls("v", "isfinite isinf isnan isnormal signbit"),
        **_calls("v, w", "isordered isunordered"),
        "not": "(void)(not(v > w));",
        "select": "(void)(select(v, w, v > w)); (void)(select(x, y, x > y));",
    },
    FLOATS,
)
MATH = Chapter(
    "Math functions",
    f"{_NUMBERS}, thread @& t, thread int& e",
    {
        **_calls(
            "x", "acos acosh asin asinh atan atanh ceil cos cosh cospi exp exp2 exp10 fabs abs floor fract"
        ),
        **_calls("x", "ilogb log log2 log10 rint round rsqrt sin sinh sinpi sqrt tan tanh tanpi trunc"),
        **_calls("x, y", "atan2 copysign divide fdim fmax max fmin min fmod nextafter pow powr"),
        **_calls("x, y, z", "fma fmax3 max3 fmedian3 median3 fmin3 min3"),
        **_calls("x, t", "modf sincos"),
        "frexp": "(void)(frexp(x, e));",
        "ldexp": "(void)(ldexp(x, e));",
    },
    FLOATS,
)
MATRIX = Chapter(
    "Matrix functions",
    "matrix<@, 3, 3> m, matrix<@, 2, 3> n",
    {"determinant": "(void)(determinant(m));", "transpose": "(void)(transpose(n));"},
    ("float", "half"),
)

_GROUP_VALUES = "broadcast_first sum product min max prefix_exclusive_sum prefix_inclusive_sum"
_GROUP_VALUES += " prefix_exclusive_product prefix_inclusive_product"


def _group(prefix: str) -> dict[str, str]:
    def named(names: str) -> str:
        return " ".join(f"{prefix}_{name}" for name in names.split())

    return {
        **_calls("", named("active_threads_mask is_first is_helper_thread")),
        **_calls("p", named("all any ballot")),
        **_calls("x", named(_GROUP_VALUES)),
        **_calls("i", named("and or xor")),
        **_calls("x, l", named("broadcast shuffle shuffle_down shuffle_up shuffle_xor")),
        **_calls("x, l", named("shuffle_rotate_down shuffle_rotate_up")),
        **{
            f"{prefix}_shuffle_and_fill_{way}": (
                f"(void)({prefix}_shuffle_and_fill_{way}(x, y, l)); "
                f"(void)({prefix}_shuffle_and_fill_{way}(x, y, l, ushort(2)));"
            )
            for way in ("down", "up")
        },
        f"{prefix}_vote": f"{prefix}_vote b = {prefix}_ballot(p); (void)b.all(); (void)b.any(); "
        f"(void)({prefix}_vote::vote_t)b;",
    }


_GROUP = "float x, float y, int i, bool p, ushort l"
SIMDGROUP = Chapter("Simdgroup functions", _GROUP, _group("simd"))
QUADGROUP = Chapter("Quadgroup functions", _GROUP, _group("quad"))
SIMDGROUP_MATRIX = Chapter(
    "Simdgroup matrix functions",
    "simdgroup_matrix<@, 8, 8> a, simdgroup_matrix<@, 8, 8> b, simdgroup_matrix<@, 8, 8> c, device @* p",
    {
        "simdgroup_matrix": "simdgroup_matrix<@, 8, 8> d(@(1)); (void)d;",
        "make_filled_simdgroup_matrix": "(void)(make_filled_simdgroup_matrix<@, 8, 8>(@(1)));",
        "simdgroup_load": "simdgroup_load(a, p); simdgroup_load(b, p, 8ul, ulong2(0, 8), true);",
        "simdgroup_store": "simdgroup_store(a, p); simdgroup_store(b, p, 8ul, ulong2(0, 8), true);",
        "simdgroup_multiply": "simdgroup_multiply(c, a, b);",
        "simdgroup_multiply_accumulate": "simdgroup_multiply_accumulate(c, a, b, c);",
    },
    FLOATS,
)
GEOMETRIC = Chapter(
    "Geometric functions",
    _NUMBERS,
    {
        **_calls("v, w", "cross distance distance_squared dot reflect"),
        **_calls("v", "length length_squared normalize"),
        **_calls("v, w, u", "faceforward"),
        **_calls("v, w, x", "refract"),
    },
    FLOATS,
)
SYNCHRONISATION = Chapter(
    "Synchronisation",
    "",
    {
        "threadgroup_barrier": "threadgroup_barrier(mem_flags::mem_threadgroup);",
        "simdgroup_barrier": "simdgroup_barrier(mem_flags::mem_device);",
        "atomic_thread_fence": "atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);",
        "mem_flags": "threadgroup_barrier(mem_flags::mem_none); threadgroup_barrier(mem_flags::mem_device "
        "| mem_flags::mem_texture); threadgroup_barrier(mem_flags::mem_threadgroup_imageblock);",
    },
)
_FETCHES = "add and max min or sub xor"
ATOMICS = Chapter(
    "Atomic functions",
    "device atomic_int* a, threadgroup atomic_uint* b, device atomic_float* f, device atomic_ulong* l, "
    "thread int& e",
    {
        "atomic_store_explicit": "atomic_store_explicit(a, 1, memory_order_relaxed);",
        "atomic_load_explicit": "(void)(atomic_load_explicit(b, memory_order_relaxed));",
        "atomic_exchange_explicit": "(void)(atomic_exchange_explicit(f, 1.0f, memory_order_relaxed));",
        "atomic_compare_exchange_weak_explicit": "(void)(atomic_compare_exchange_weak_explicit(a, &e, 1, "
        "memory_order_relaxed, memory_order_relaxed));",
        **{
            f"atomic_fetch_{name}_explicit": f"(void)(atomic_fetch_{name}_explicit(a, 1, memory_order_relaxed)); "
            f"(void)(atomic_fetch_{name}_explicit(b, 1u, memory_order_relaxed));"
            for name in _FETCHES.split()
        },
        "atomic_max_explicit": "atomic_max_explicit(l, 1ul, memory_order_relaxed);",
        "atomic_min_explicit": "atomic_min_explicit(l, 1ul, memory_order_relaxed);",
    },
)
_PACKED = "unorm4x8 snorm4x8 unorm4x8_srgb unorm2x16 snorm2x16 unorm10a2 unorm565 snorm10a2".split()


def _packing() -> dict[str, str]:
    uses: dict[str, str] = {}
    for name in _PACKED:
        lanes = {"4x8": 4, "srgb": 4, "2x16": 2, "10a2": 4, "565": 3}[
            name.removeprefix("unorm").removeprefix("snorm").split("_")[-1]
        ]
        word = "ushort" if name.endswith("565") else "uint"
        packed = "srgb_unorm4x8" if name.endswith("srgb") else name
        for kind in ("float", "half"):
            uses[f"unpack_{name}_to_{kind}"] = (
                f"{kind}{lanes} r = unpack_{name}_to_{kind}({word}(1)); (void)r;"
            )
            uses[f"pack_{kind}_to_{packed}"] = (
                f"{word} r = pack_{kind}_to_{packed}({kind}{lanes}(1)); (void)r;"
            )
    return dict(sorted(uses.items()))


PACKING = Chapter("Pack and unpack functions", "", _packing())

_MIPS = "texture2d texture2d_array texture3d".split()
_COORDS = {
    "texture1d": "0u",
    "texture1d_array": "0u, 0u",
    "texture2d": "uint2(0)",
    "texture2d_array": "uint2(0), 0u",
}
_COORDS |= {"texture3d": "uint3(0)", "texture_buffer": "0u"}
_OTHER_COORDS = {"texturecube": "uint2(0), 0u", "texturecube_array": "uint2(0), 0u, 0u"}
_MULTISAMPLED = {"texture2d_ms": "uint2(0), 0u", "texture2d_ms_array": "uint2(0), 0u, 0u"}
_DEPTH = {"depth2d": "uint2(0)", "depth2d_array": "uint2(0), 0u", "depthcube": "uint2(0), 0u"}
_DEPTH |= {
    "depthcube_array": "uint2(0), 0u, 0u",
    "depth2d_ms": "uint2(0), 0u",
    "depth2d_ms_array": "uint2(0), 0u, 0u",
}
_SIZES = {
    "get_width": [*_COORDS],
    "get_height": ["texture2d", "texture2d_array", "texture3d"],
    "get_depth": ["texture3d"],
    "get_array_size": ["texture1d_array", "texture2d_array"],
    "get_num_mip_levels": [*(name for name in _COORDS if name != "texture_buffer")],
}
_ATOMIC_TEXTURE = "texture2d<uint, access::read_write> t, thread uint4& e => "


def _textures() -> dict[str, str]:
    uses: dict[str, str] = {}
    for name, place in (_COORDS | _OTHER_COORDS).items():
        uses[f"{name}::read"] = f"{name}<float, access::read> t => (void)(t.read({place}));"
        uses[f"{name}::write"] = f"{name}<float, access::write> t => t.write(float4(1), {place});"
    for name, place in (_MULTISAMPLED | _DEPTH).items():
        uses[f"{name}::read"] = f"{name}<float, access::read> t => (void)(t.read({place}));"
    for query, names in _SIZES.items():
        for name in names:
            uses[f"{name}::{query}"] = f"{name}<float, access::read> t => (void)(t.{query}());"
    for name in _COORDS:
        uses[f"{name}::fence"] = f"{name}<float, access::read_write> t => t.fence();"
    uses["is_null_texture"] = "texture2d<float, access::read> t => (void)(is_null_texture(t));"
    sampled = "texture2d<float, access::sample> t, sampler s => (void)(t.{}(s, float2(0)));"
    for name in (
        "sample",
        "gather",
        "sparse_sample",
        "sparse_gather",
        "calculate_clamped_lod",
        "calculate_unclamped_lod",
    ):
        uses[f"texture2d::{name}"] = sampled.format(name)
    uses["texture2d::sparse_read"] = "texture2d<float, access::read> t => (void)(t.sparse_read(uint2(0)));"
    compared = "depth2d<float, access::sample> t, sampler s => (void)(t.{}(s, float2(0), 0.5f));"
    for name in ("sample_compare", "gather_compare"):
        uses[f"depth2d::{name}"] = compared.format(name)
    for name, rest in {
        "atomic_load": "uint2(0)",
        "atomic_store": "uint4(1), uint2(0)",
        "atomic_exchange": "uint2(0), uint4(1)",
        "atomic_compare_exchange_weak": "uint2(0), &e, uint4(1)",
        **{f"atomic_fetch_{name}": "uint2(0), uint4(1)" for name in _FETCHES.split()},
    }.items():
        uses[f"texture2d::{name}"] = f"{_ATOMIC_TEXTURE}(void)(t.{name}({rest}));"
    for name in ("atomic_min", "atomic_max"):
        uses[f"texture2d::{name}"] = (
            f"texture2d<ulong, access::read_write> t => t.{name}(uint2(0), ulong4(1));"
        )
    return uses


TEXTURES = Chapter(
    "Texture functions",
    "",
    _textures(),
    note="Where a function runs for no type of texture it is listed for one of them.",
)
_TENSOR = "tensor<device float, dextents<int, 2>, tensor_handle> t, device float* p"
TENSORS = Chapter(
    "Tensors",
    _TENSOR,
    {
        "tensor": "auto s = tensor(p, dextents<int, 2>(4, 4)); (void)s; "
        "tensor<device float, dextents<int, 2>, tensor_inline> r(p, dextents<int, 2>(4, 4), "
        "metal::array<int, 2>{1, 4}); (void)r;",
        "tensor::operator[]": "t[0, 1] = 1; t[metal::array<uint, 2>{0, 1}] = 2;",
        "tensor::get_rank": "(void)(t.get_rank());",
        "tensor::get_extent": "(void)(t.get_extent(0));",
        "tensor::get_static_extent": "(void)(t.get_static_extent(0));",
        "tensor::get_stride": "(void)(t.get_stride(0));",
        "tensor::slice": "(void)(t.slice(1, 1)); (void)(t.slice<2, 2>(1, 1));",
        "tensor_blockwise": "device uchar* q => using S = tensor_blockwise<tensor_plane_scales, device metal_fp8_ue8m0_format, "
        "32, 1>; tensor<device metal_fp8_e4m3_format, dextents<int, 2>, tensor_inline, S> s(q, dextents<int, 2>(32, 4), "
        "metal::array<int, 2>{1, 32}, S(q)); (void)s;",
        "extents": "extents<int, 4, dynamic_extent> e(3); (void)(e.extent(1) + e.rank() + e.static_extent(0));",
        "int8_t": "device int8_t* q => tensor<device int8_t, dextents<int, 1>, tensor_inline> s(q, "
        "dextents<int, 1>(4)); (void)(s[0]);",
        **{
            name: f"device uchar* q => using E = {name}; tensor<device E, dextents<int, 2>, tensor_inline> "
            "s((device E*)q, dextents<int, 2>(4, 4)); (void)s;"
            for name in "int4b_format uint4b_format int2b_format uint2b_format metal_fp8_e4m3_format metal_fp8_e5m2_format "
            "metal_fp4_e2m1_format metal_fp8_ue8m0_format".split()
        },
    },
    note="Rows named after an element type declare a tensor of it.",
)
_MPP = (
    "using namespace mpp::tensor_ops; constexpr auto d = matmul2d_descriptor(16, 16, 16); "
    "matmul2d<d, execution_simdgroup> op; auto a = tensor(p, dextents<int, 2>(16, 16)).slice<16, 16>(0, 0); "
    "auto b = tensor(q, dextents<int, 2>(16, 16)).slice<16, 16>(0, 0); "
)
_COOPERATIVE = _MPP + "auto c = op.get_destination_cooperative_tensor<decltype(a), decltype(b), float>(); "
_ROWS = "auto r = op.get_row_reduction_destination_cooperative_tensor<decltype(a), decltype(b), float>(); "
_COLUMNS = (
    "auto r = op.get_column_reduction_destination_cooperative_tensor<decltype(a), decltype(b), float>(); "
)
PRIMITIVES = Chapter(
    "Metal Performance Primitives: tensor_ops",
    "device half* p, device half* q, device float* o",
    {
        "matmul2d_descriptor": "constexpr auto d = mpp::tensor_ops::matmul2d_descriptor(16, 16, 16, false, true, "
        "false, mpp::tensor_ops::matmul2d_descriptor::mode::multiply_accumulate); (void)d;",
        "matmul2d::run": _MPP + "auto c = tensor(o, dextents<int, 2>(16, 16)); op.run(a, b, c);",
        "matmul2d::get_destination_cooperative_tensor": _COOPERATIVE + "op.run(a, b, c);",
        "matmul2d::get_left_input_cooperative_tensor": _MPP
        + "auto l = op.get_left_input_cooperative_tensor<half, half, float>(); (void)l;",
        "matmul2d::get_right_input_cooperative_tensor": _MPP
        + "auto l = op.get_right_input_cooperative_tensor<half, half, float>(); (void)l;",
        "matmul2d::get_row_reduction_destination_cooperative_tensor": _MPP + _ROWS + "(void)r;",
        "matmul2d::get_column_reduction_destination_cooperative_tensor": _MPP + _COLUMNS + "(void)r;",
        "matmul2d::is_compatible_as_left_input": _COOPERATIVE
        + "(void)(op.is_compatible_as_left_input<float, half, float>(c));",
        "cooperative_tensor::get_capacity": _COOPERATIVE + "(void)(c.get_capacity());",
        "cooperative_tensor::is_valid_element": _COOPERATIVE + "(void)(c.is_valid_element(0));",
        "cooperative_tensor::get_multidimensional_index": _COOPERATIVE
        + "(void)(c.get_multidimensional_index(ushort(0))[1]);",
        "cooperative_tensor::operator[]": _COOPERATIVE + "c[0] = 1.0f;",
        "cooperative_tensor::begin, end": _COOPERATIVE
        + "for (auto i = c.begin(); i != c.end(); i++) *i = 0.0f;",
        "cooperative_tensor::load": _COOPERATIVE + "auto t = tensor(o, dextents<int, 2>(16, 16)); c.load(t);",
        "cooperative_tensor::store": _COOPERATIVE
        + "auto t = tensor(o, dextents<int, 2>(16, 16)); c.store(t);",
        "cooperative_tensor::map_iterator": _COOPERATIVE
        + _ROWS
        + "auto i = r.map_iterator(c.begin()); (void)i;",
        "reduce_rows": _COOPERATIVE + _ROWS + "reduce_rows(c, r, reduction_operation::sum, 0.0f);",
        "reduce_columns": _COOPERATIVE + _COLUMNS + "reduce_columns(c, r, reduction_operation::max, 0.0f);",
        "convolution2d_descriptor": "constexpr auto d = mpp::tensor_ops::convolution2d_descriptor(int4(4, 8, 8, 1), "
        "int4(4, 8, 8, 1), int2(3, 3)); (void)d;",
        "convolution2d::run": "using namespace mpp::tensor_ops; constexpr auto d = convolution2d_descriptor("
        "int4(4, 8, 8, 1), int4(4, 8, 8, 1), int2(3, 3)); convolution2d<d, execution_simdgroups<4>> op; "
        "auto a = tensor(p, dextents<int, 4>(4, 8, 8, 1)); auto w = tensor(q, dextents<int, 4>(4, 4, 3, 3)); "
        "auto c = tensor(o, dextents<int, 4>(4, 8, 8, 1)); op.run(a, w, c);",
        **{
            scope: f"using namespace mpp::tensor_ops; constexpr auto d = matmul2d_descriptor(16, 16, 16); "
            f"matmul2d<d, {scope}{'<4>' if scope == 'execution_simdgroups' else ''}> op; (void)op;"
            for scope in ("execution_thread", "execution_simdgroup", "execution_simdgroups")
        },
    },
)
LOGGING = Chapter(
    "Logging",
    "int x",
    {
        "os_log": 'const os_log l("a.b", "c"); l.log("%d", x);',
        "os_log_default": 'os_log_default.log("%d", x);',
        **{
            f"os_log::{name}": f'os_log_default.{name}("%d", x);'
            for name in "log log_debug log_info log_error log_fault".split()
        },
        "os_log::log_with_type": 'os_log_default.log_with_type(log_type_error, "%d", x);',
    },
)
_CURVES = {
    "bezier": "p, p, p, p",
    "bspline": "p, p, p, p",
    "hermite": "p, p, p, p",
    "catmull_rom": "p, p, p, p",
}
CURVES = Chapter(
    "Curve functions",
    "float s, float3 p",
    {
        f"{name}{what}": f"(void)({name}{what}(s, {points}));"
        for name, points in _CURVES.items()
        for what in ("", "_derivative", "_second_derivative")
    },
)

CHAPTERS = (
    COMMON,
    INTEGER,
    RELATIONAL,
    MATH,
    MATRIX,
    GEOMETRIC,
    SYNCHRONISATION,
    ATOMICS,
    PACKING,
    SIMDGROUP,
    QUADGROUP,
    SIMDGROUP_MATRIX,
    TENSORS,
    PRIMITIVES,
    TEXTURES,
    LOGGING,
    CURVES,
)
