"""Words that no MSL kernel needs: each with the sentence that says why it is not taken."""

from __future__ import annotations

# a kernel that reaches outside itself
REFUSED: dict[str, str] = {
    "asm": "inline assembly is refused",
    "__asm": "inline assembly is refused",
    "__asm__": "inline assembly is refused",
}

# features of C++ that MSL does not have ("C++ Feature Restrictions" of the specification)
NOT_IN_METAL: dict[str, str] = {
    "double": "'double' does not exist in Metal: use float",
    "virtual": "virtual functions do not exist in Metal",
    "throw": "exceptions do not exist in Metal",
    "try": "exceptions do not exist in Metal",
    "catch": "exceptions do not exist in Metal",
    "new": "'new' does not exist in Metal: a kernel has no heap",
    "delete": "'delete' does not exist in Metal: a kernel has no heap",
    "dynamic_cast": "'dynamic_cast' does not exist in Metal",
    "typeid": "'typeid' does not exist in Metal",
    "goto": "'goto' does not exist in Metal",
    "thread_local": "'thread_local' does not exist in Metal",
    "register": "'register' does not exist in Metal",
    "concept": "concepts do not exist in Metal: it is C++17",
    "requires": "concepts do not exist in Metal: it is C++17",
    "consteval": "'consteval' does not exist in Metal: it is C++17",
    "constinit": "'constinit' does not exist in Metal: it is C++17",
    "char8_t": "'char8_t' does not exist in Metal: it is C++17",
    "co_await": "coroutines do not exist in Metal",
    "co_return": "coroutines do not exist in Metal",
    "co_yield": "coroutines do not exist in Metal",
}

# types and words that clang has of its own; what some of them are called in Metal
_OF_CLANG = (
    "__float128 __float80 __ibm128 _Float32 _Float64 _Float128 __int128 __int128_t __uint128_t _Complex __complex "
    "__complex__ _Imaginary __real __real__ __imag __imag__ _BitInt _ExtInt _Decimal32 _Decimal64 _Decimal128 "
    "_Accum _Fract _Sat"
)
_CALLED = {"_Float16": "half", "__fp16": "half", "__bf16": "bfloat"}
NOT_IN_METAL |= {word: f"{word!r} does not exist in Metal" for word in _OF_CLANG.split()}
NOT_IN_METAL |= {word: f"{word!r} does not exist in Metal: use {name}" for word, name in _CALLED.items()}

# names of MSL that Metalwright does not run yet; looked up where clang does not know a name
_TEXTURES = (
    "texture2d_ms texture2d_ms_array texturecube texturecube_array depth2d depth2d_array depth2d_ms "
    "depth2d_ms_array depthcube depthcube_array"
)
_GROUPS: dict[str, str] = {
    "this kind of texture": _TEXTURES,
    "samplers": "sampler",
    "ray tracing": "raytracing intersection_function_table ray_data intersector acceleration_structure",
    "visible functions": "visible_function_table visible",
    "indirect command buffers": "command_buffer compute_command render_command",
    "graphics stages": "vertex fragment mesh object object_data imageblock threadgroup_imageblock patch_control_point",
    "packed numbers outside tensors": "packed_numeric_type",
}

# member functions of textures, looked up where clang finds none of that name
_TEXTURE_MEMBERS: dict[str, str] = {
    "sampled textures": "sample gather calculate_clamped_lod calculate_unclamped_lod",
    "sparse textures": "sparse_sample sparse_gather sparse_read",
    "atomic functions of textures": "atomic_load atomic_store atomic_exchange atomic_compare_exchange_weak "
    "atomic_fetch_add atomic_fetch_and atomic_fetch_max atomic_fetch_min atomic_fetch_or atomic_fetch_sub "
    "atomic_fetch_xor atomic_min atomic_max",
}


def _sentences(groups: dict[str, str]) -> dict[str, str]:
    return {
        name: f"'{name}' is not supported: Metalwright does not run {group} yet"
        for group, names in groups.items()
        for name in names.split()
    }


UNSUPPORTED = _sentences(_GROUPS)
UNSUPPORTED_OF_TEXTURES = _sentences(_TEXTURE_MEMBERS)
