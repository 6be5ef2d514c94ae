"""What is damaged: the project's own kernels, and whole files of MSL that use most of the language."""

from __future__ import annotations

import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metalwright import MetalKernel
from metalwright.check.inputs import Random
from tests.kernels.breakable import BREAKAGES

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Body:
    """A kernel in Core AI's form and one case to run it on."""

    kernel: MetalKernel
    case: dict[str, Any]


def bodies() -> list[Body]:
    """Return the kernels of the examples and of the tests."""
    found = []
    for path in sorted(EXAMPLES.glob("*.py")):
        kernel = runpy.run_path(str(path))["kernel"]
        case = next(iter(kernel.cases()))
        inputs = [x.draw(seed) if isinstance(x, Random) else x for seed, x in enumerate(case["inputs"])]
        found.append(Body(kernel, {**case, "inputs": inputs}))
    subjects = {b.subject.name: b for b in BREAKAGES}
    found += [Body(b.subject.build(), b.subject.case(*b.sizes[0])) for b in subjects.values()]
    return found


FILES = tuple(
    "#include <metal_stdlib>\nusing namespace metal;\n" + text
    for text in (
        """
struct Params { uint n; float scale; };
constant float table[4] = {0.5, 1.5, 2.5, 3.5};
template <typename T> T twice(T v) { return v + v; }
float total(threadgroup const float* p, uint n) {
  float s = 0;
  for (uint i = 0; i < n; ++i) s += p[i];
  return s;
}
kernel void sums(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                 constant Params& p [[buffer(2)]], uint gid [[thread_position_in_grid]],
                 uint tid [[thread_position_in_threadgroup]], uint size [[threads_per_threadgroup]]) {
  threadgroup float tile[64];
  tile[tid] = gid < p.n ? x[gid] * p.scale : 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid == 0) out[gid / size] = total(tile, size) + table[gid & 3];
  out[gid] = twice(out[gid]) + simd_sum(x[gid]);
}
""",
        """
template <typename T, int N>
struct Row {
  T v[N];
  T sum() const thread { T s = 0; for (int i = 0; i < N; ++i) s += v[i]; return s; }
};
enum class Mode : uint { add, scale = 3 };
template <typename T> inline vec<T, 4> mixed(vec<T, 4> a, T b) { return mix(a, a.wzyx, b); }
template <typename T>
[[kernel]] void rows(device const T* x [[buffer(0)]], device T* out [[buffer(1)]],
                     device atomic_uint* count [[buffer(2)]], uint i [[thread_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]]) {
  Row<T, 4> row = {};
  for (int k = 0; k < 4; ++k) row.v[k] = x[(i * 4 + k) % 32];
  auto pick = [&](Mode m) { return m == Mode::scale ? row.sum() * T(2) : row.sum(); };
  vec<T, 4> v = mixed(vec<T, 4>(row.v[0], row.v[1], row.v[2], row.v[3]), T(0.25));
  switch (lane & 3) {
    case 0: out[i] = pick(Mode::add); break;
    case 1: out[i] = v.x + v.y; break;
    default: out[i] = simd_shuffle_xor(v.z, ushort(1));
  }
  atomic_fetch_add_explicit(count, 1u, memory_order_relaxed);
}
template [[host_name("rows_float")]] [[kernel]] void rows<float>(
    device const float*, device float*, device atomic_uint*, uint, uint);
template [[host_name("rows_half")]] [[kernel]] void rows<half>(
    device const half*, device half*, device atomic_uint*, uint, uint);
""",
        """
#define BLOCK 8
#define AT(p, i) ((p)[(i)])
constant int steps [[function_constant(0)]];
constant bool fast_path [[function_constant(1)]];
namespace util {
inline float4 load(device const float* p, uint i) { return float4(p[i], p[i + 1], p[i + 2], p[i + 3]); }
}
kernel void walk(device float* x, constant uint& n, threadgroup float* shared [[threadgroup(0)]],
                 uint2 at [[thread_position_in_grid]], ushort t [[thread_index_in_threadgroup]]) {
  uint i = at.y * BLOCK + at.x;
#if BLOCK > 4
  float4 v = util::load(x, i % 16);
  v.xy += v.zw * float2(half2(0.5h));
#endif
  while (v.x > 100.0f) { v *= 0.5f; if (any(isnan(v))) break; }
  shared[t] = is_function_constant_defined(steps) ? v.x : dot(v, v);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  do { v.x = fma(v.x, 0.5f, AT(x, i % 16)); } while (v.x > 1e6f);
  if (fast_path) return;
  x[i % n] = as_type<float>(as_type<uint>(clamp(v.x, -1.0f, 1.0f)) & 0x7fffffffu) + shared[t];
}
""",
    )
)
