"""The attributes of kernels and their parameters, as the Metal Shading Language specification names them."""

from __future__ import annotations

# "Attributes for Kernel Function Input Arguments": each is a scalar, or a vector of up to three components
VECTOR_ATTRIBUTES = frozenset(
    {
        "thread_position_in_grid",
        "threads_per_grid",
        "thread_position_in_threadgroup",
        "threads_per_threadgroup",
        "dispatch_threads_per_threadgroup",
        "threadgroup_position_in_grid",
        "threadgroups_per_grid",
        "grid_origin",
        "grid_size",
    }
)
SCALAR_ATTRIBUTES = frozenset(
    {
        "thread_index_in_threadgroup",
        "thread_index_in_simdgroup",
        "thread_index_in_quadgroup",
        "simdgroup_index_in_threadgroup",
        "quadgroup_index_in_threadgroup",
        "simdgroups_per_threadgroup",
        "quadgroups_per_threadgroup",
        "threads_per_simdgroup",
        "thread_execution_width",
        "dispatch_simdgroups_per_threadgroup",
        "dispatch_quadgroups_per_threadgroup",
    }
)
THREAD_ATTRIBUTES = VECTOR_ATTRIBUTES | SCALAR_ATTRIBUTES
# on parameters: [[buffer(0)]] and so on
NUMBERED = ("buffer", "threadgroup", "texture")
# the textures that run, in the order of their numbers in the header <metal_texture>
TEXTURE_TYPES = (
    "texture1d",
    "texture1d_array",
    "texture2d",
    "texture2d_array",
    "texture3d",
    "texture_buffer",
)
# on a kernel or a statement; read or ignored, then removed
OTHER_ATTRIBUTES = frozenset(
    {
        "kernel",
        "host_name",
        "max_total_threads_per_threadgroup",
        "required_threads_per_threadgroup",
        "unroll",
        "function_constant",
    }
)
# attributes that clang itself reads
STANDARD_ATTRIBUTES = frozenset(
    {"maybe_unused", "nodiscard", "likely", "unlikely", "fallthrough", "deprecated", "noreturn"}
)
