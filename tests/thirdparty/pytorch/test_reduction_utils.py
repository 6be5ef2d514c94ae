"""The reductions of ``reduction_utils.h`` over simdgroups and threadgroups, against torch."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch

from metalwright import compile_shader
from metalwright.authoring import ShaderLibrary

HEADER = "reduction_utils.h"
KINDS = {
    "float": torch.float32,
    "half": torch.float16,
    "bfloat": torch.bfloat16,
    "int": torch.int32,
    "long": torch.int64,
    "float2": torch.complex64,
}
REAL = ("float", "half", "bfloat", "int", "long")
NAN = float("nan")


@functools.cache
def simdgroups() -> ShaderLibrary:
    """One kernel for each type, whose threads write every result of their simdgroup."""
    parts = ["#include <c10/metal/reduction_utils.h>\nusing namespace c10::metal;\n"]
    for kind in KINDS:
        names = ["simd_sum(v)", "simd_prod(v)"]
        ordered = ["simd_max(v)", "simd_min(v)", f"MaxOp<{kind}>::simd_reduce(v)", "simd_argmax(v, v).first"]
        stores = "".join(
            f"out[{k} * n + i] = c10::metal::{call};\n"
            for k, call in enumerate([*names, *(ordered if kind in REAL else [])])
        )
        if kind in REAL:
            stores += "where[i] = simd_argmax(v).second; where[n + i] = simd_argmin(v, i).second;\n"
        parts.append(f"""
kernel void k_{kind}(constant {kind}* x, device {kind}* out, device int* where,
                     uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {{
  const {kind} v = x[i];
  {stores} }}""")
    return compile_shader("".join(parts))


def small(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Whole numbers whose sums are exact in every type, no two of a row next to each other alike."""
    generator = torch.Generator().manual_seed(sum(shape))
    if dtype.is_complex:
        pair = torch.randint(-9, 10, (2, *shape), generator=generator).float()
        return torch.complex(pair[0], pair[1])
    return torch.randint(-9, 10, shape, generator=generator).to(dtype)


def ones_and_twos(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Factors whose products are powers of two that bfloat has."""
    x = torch.ones(shape, dtype=dtype)
    x[..., ::5] = 2
    x[..., 3] = -1
    return x * (1j if dtype.is_complex else 1)


@pytest.mark.parametrize("kind", KINDS)
def test_simdgroups(kind: str, ran: Callable[..., None]) -> None:
    dtype = KINDS[kind]
    for name in (
        "simd_sum",
        "simd_prod",
        *(("simd_max", "simd_min", "simd_argmax", "simd_argmin") * (kind in REAL)),
    ):
        ran(HEADER, name, kind)
    for make in (small, ones_and_twos):
        x = make(dtype, 4, 32)
        out = torch.full((6, 4, 32), 77, dtype=dtype)
        where = torch.full((2, 4, 32), -1, dtype=torch.int32)
        simdgroups()[f"k_{kind}"](x, out, where, threads=128, group_size=64)
        if make is small:
            assert torch.equal(out[0], x.sum(1, keepdim=True).expand(4, 32))
        else:
            # of complex products the first lane alone has all
            lanes = 1 if dtype.is_complex else 32
            assert torch.equal(out[1, :, :lanes], x.prod(1, keepdim=True).expand(4, lanes).to(dtype))
        if kind in REAL:
            most, least = x.max(1, keepdim=True).values, x.min(1, keepdim=True).values
            for result, expected in ((2, most), (3, least), (4, most), (5, most)):
                assert torch.equal(out[result], expected.expand(4, 32))
            first = (x == most).int().argmax(1, keepdim=True)
            assert torch.equal(where[0], first.expand(4, 32).int())
            last = torch.arange(4).view(4, 1) * 32 + (x == least).int().argmax(1, keepdim=True)
            assert torch.equal(where[1], last.expand(4, 32).int())


@pytest.mark.parametrize("kind", ["float", "half", "bfloat"])
def test_not_a_number_wins(kind: str, ran: Callable[..., None]) -> None:
    ran(HEADER, "simd_argmax", f"{kind}, NaN")
    x = small(KINDS[kind], 2, 32)
    x[1, 7], x[1, 20] = NAN, NAN
    out = torch.full((6, 2, 32), 77, dtype=x.dtype)
    where = torch.full((2, 2, 32), -1, dtype=torch.int32)
    simdgroups()[f"k_{kind}"](x, out, where, threads=64, group_size=64)
    for result in (2, 3, 4, 5):
        assert out[result, 1].isnan().all()
        assert not out[result, 0].isnan().any()
    assert (where[0, 1] == 7).all()
    assert (where[1, 1] == 32 + 7).all()


@functools.cache
def threadgroups() -> ShaderLibrary:
    parts = ["#include <c10/metal/reduction_utils.h>\nusing namespace c10::metal;\n"]
    for kind in KINDS:
        ordered = (
            f"""
  threadgroup {kind} most[32], least[32], of[32], best[32], worst[32];
  threadgroup int a[32], b[32];
  real[g] = threadgroup_max(most, v, t, n);
  real[groups + g] = threadgroup_min(least, v, t, n);
  real[2 * groups + g] = MinOp<{kind}>::threadgroup_reduce(of, v, t, n);
  where[g] = threadgroup_argmax(best, a, v, int(t), t, n);
  where[groups + g] = threadgroup_argmin(worst, b, v, int(t), t, n);"""
            if kind in REAL
            else ""
        )
        parts.append(f"""
kernel void k_{kind}(constant {kind}* x, device opmath_t<{kind}>* out, device {kind}* real, device int* where,
                     uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                     uint n [[threads_per_threadgroup]], uint g [[threadgroup_position_in_grid]],
                     uint groups [[threadgroups_per_grid]]) {{
  const {kind} v = x[i];
  threadgroup opmath_t<{kind}> sum[32], product[32], first[32], second[32];
  out[g] = threadgroup_sum(sum, v, t, n);
  out[groups + g] = threadgroup_prod(product, v, t, n);
  const auto two = threadgroup_sum2(first, second, v, {kind}(v + v), t, n);
  out[2 * groups + g] = two[0];
  out[3 * groups + g] = two[1];{ordered} }}""")
    parts.append("""
kernel void welford(constant float* x, device packed_float3* out, uint i [[thread_position_in_grid]],
                    uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]],
                    uint g [[threadgroup_position_in_grid]]) {
  threadgroup float data[256];
  threadgroup float3 parts[256];
  data[t] = x[i];
  out[2 * g] = threadgroup_welford_reduce(data, n);
  // each thread's part is two elements: its own, and the next one's
  const float next = data[(t + 1) % n], mean = (x[i] + next) / 2;
  parts[t] = float3(mean, (x[i] - mean) * (x[i] - mean) + (next - mean) * (next - mean), 2);
  out[2 * g + 1] = threadgroup_welford_combine(parts, n);
}""")
    return compile_shader("".join(parts))


WIDE = {"half": torch.float32, "bfloat": torch.float32}


@pytest.mark.parametrize("kind", KINDS)
def test_threadgroups(kind: str, ran: Callable[..., None]) -> None:
    dtype = KINDS[kind]
    names = ["sum", "prod", "sum2", *(["max", "min", "argmax", "argmin"] if kind in REAL else [])]
    for name in names:
        ran(HEADER, f"threadgroup_{name}", kind)
    # ragged ones too; 64-bit integers and complex numbers are reduced by shuffles, which need whole simdgroups
    sizes = (32, 1024) if kind in ("long", "float2") else (1, 7, 32, 33, 100, 256)
    for size in sizes:
        groups = 2
        out = torch.full((4, groups), 77, dtype=WIDE.get(kind, dtype))
        real = torch.full((3, groups), 77, dtype=dtype)
        where = torch.full((2, groups), -1, dtype=torch.int32)
        x = small(dtype, groups, size)
        threadgroups()[f"k_{kind}"](x, out, real, where, threads=size * groups, group_size=size)
        wide = x.to(out.dtype)
        for result, expected in ((0, wide.sum(1)), (2, wide.sum(1)), (3, 2 * wide.sum(1))):
            assert torch.equal(out[result], expected), (size, result)
        if kind in REAL:
            most, least = x.max(1), x.min(1)
            assert torch.equal(real[0], most.values)
            assert torch.equal(real[1], least.values)
            assert torch.equal(real[2], least.values)
            assert torch.equal(where[0].long(), (x == most.values.view(-1, 1)).int().argmax(1))
            assert torch.equal(where[1].long(), (x == least.values.view(-1, 1)).int().argmax(1))
        x = torch.ones(groups, size, dtype=dtype)
        x[:, :: max(size // 5, 1)] = 2
        threadgroups()[f"k_{kind}"](x, out, real, where, threads=size * groups, group_size=size)
        assert torch.equal(out[1], x.to(out.dtype).prod(1))


def test_welford(ran: Callable[..., None]) -> None:
    for name in ("threadgroup_welford_reduce", "threadgroup_welford_combine", "welford_combine"):
        ran(HEADER, name)
    for size in (1, 2, 33, 200):
        x = torch.randn(2, size, generator=torch.Generator().manual_seed(size))
        out = torch.full((2, 2, 3), 77.0)
        threadgroups().welford(x, out, threads=2 * size, group_size=size)
        for row, got in zip(x.double(), out.double(), strict=True):
            squares = ((row - row.mean()) ** 2).sum()
            expected = torch.stack([row.mean(), squares, torch.tensor(float(size))])
            torch.testing.assert_close(got[0], expected, rtol=2e-5, atol=2e-5)
            both = torch.stack([row.mean(), 2 * squares, torch.tensor(2.0 * size)])
            torch.testing.assert_close(got[1], both, rtol=2e-5, atol=4e-5)


def test_the_operators(ran: Callable[..., None]) -> None:
    """What MaxOp and MinOp say of pairs: the identity, which replaces which, and the two combined."""
    for name in ("identity", "replace", "combine"):
        ran(HEADER, name)
    library = compile_shader("""
#include <c10/metal/reduction_utils.h>
using namespace c10::metal;
template <typename T> void ask(T x, T y, device T* out, device bool* replaced) {
  out[0] = MaxOp<T>::combine(x, y); out[1] = MinOp<T>::combine(x, y);
  out[2] = MaxOp<T>::identity(); out[3] = MinOp<T>::identity();
  replaced[0] = MaxOp<T>::replace(x, y); replaced[1] = MinOp<T>::replace(x, y);
}
kernel void floats(constant float* x, device float* out, device bool* replaced, uint i [[thread_position_in_grid]]) {
  ask(x[2 * i], x[2 * i + 1], out + 4 * i, replaced + 2 * i);
}
kernel void ints(constant int* x, device int* out, device bool* replaced, uint i [[thread_position_in_grid]]) {
  ask(x[2 * i], x[2 * i + 1], out + 4 * i, replaced + 2 * i);
}""")
    inf = float("inf")
    for kernel, numbers, ends in (
        (library.floats, [1.0, -2.0, inf, NAN], (-inf, inf)),
        (library.ints, [1, -2, 7], (-(2**31), 2**31 - 1)),
    ):
        pairs = torch.tensor([(a, b) for a in numbers for b in numbers])
        pairs = pairs if pairs.is_floating_point() else pairs.int()
        out = torch.full((len(pairs), 4), 77, dtype=pairs.dtype)
        replaced = torch.zeros(len(pairs), 2, dtype=torch.bool)
        kernel(pairs, out, replaced, threads=len(pairs))
        a, b = pairs.unbind(1)
        assert torch.equal(out[:, 0].nan_to_num(99), torch.maximum(a, b).nan_to_num(99))
        assert torch.equal(out[:, 1].nan_to_num(99), torch.minimum(a, b).nan_to_num(99))
        assert (out[:, 2] == ends[0]).all()
        assert (out[:, 3] == ends[1]).all()
        wins = a.isnan() & ~b.isnan()
        assert torch.equal(replaced[:, 0], ~b.isnan() & (wins | (a > b)))
        assert torch.equal(replaced[:, 1], ~b.isnan() & (wins | (a < b)))
