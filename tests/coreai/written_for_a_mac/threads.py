"""Grids, threadgroups and their memory, simdgroups."""

from __future__ import annotations

import pytest
import torch
from coreai_torch import MetalParameter

from tests.coreai.written_for_a_mac.common import (
    GID,
    GID2,
    GID3,
    GROUP,
    TID,
    Calls,
    check,
    kernel_of,
    sizes,
)


@pytest.mark.parametrize("group", [7, 32, 1024])
def test_one_dimension(group: int) -> None:
    kernel = kernel_of(
        "out[gid] = x[gid] + float(tid) + 100.0f * float(group);", places, params=[GID, TID, GROUP]
    )
    model = Calls(lambda x: kernel(x, **sizes((300, 1, 1), (group, 1, 1), (300,))))
    x, place = torch.rand(300), torch.arange(300)
    check(model, (x,), [kernel], x + place % group + 100.0 * (place // group))


def places(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@pytest.mark.parametrize("group", [(8, 8, 1), (5, 3, 1)], ids=str)
def test_two_dimensions_with_partial_threadgroups(group: tuple[int, int, int]) -> None:
    kernel = kernel_of("out[gid.x, gid.y] = x[gid.x, gid.y] + 10.0f * gid.x + gid.y;", places, params=[GID2])
    model = Calls(lambda x: kernel(x, **sizes((11, 13, 1), group, (13, 11))))
    x = torch.rand(13, 11)
    check(model, (x,), [kernel], x + 10.0 * torch.arange(11) + torch.arange(13)[:, None])


def test_three_dimensions_with_partial_threadgroups() -> None:
    src = "out[gid.x, gid.y, gid.z] = x[gid.x, gid.y, gid.z] + gid.x + 10.0f * gid.y + 100.0f * gid.z;"
    kernel = kernel_of(src, places, params=[GID3])
    model = Calls(lambda x: kernel(x, **sizes((5, 6, 7), (2, 4, 3), (7, 6, 5))))
    x = torch.zeros(7, 6, 5)
    z, y, at = torch.meshgrid(torch.arange(7), torch.arange(6), torch.arange(5), indexing="ij")
    check(model, (x,), [kernel], (at + 10 * y + 100 * z).float())


def row_sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1)


def test_threadgroup_memory_and_barriers() -> None:
    src = """threadgroup float part[64];
part[tid] = x[tid, group];
for (uint step = 32; step > 0; step /= 2) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid < step) { part[tid] += part[tid + step]; }
}
if (tid == 0) { out[group] = part[0]; }"""
    kernel = kernel_of(src, row_sums, params=[TID, GROUP])
    model = Calls(lambda x: kernel(x, **sizes((64 * 5, 1, 1), (64, 1, 1), (5,))))
    x = torch.rand(5, 64)
    check(model, (x,), [kernel], x.sum(1))


def test_simdgroup_sums() -> None:
    kernel = kernel_of(
        "float total = simd_sum(x[gid]); if (lane == 0) { out[gid / 32] = total; }",
        simd_sums,
        params=[GID, MetalParameter("lane", "uint", "thread_index_in_simdgroup")],
    )
    model = Calls(lambda x: kernel(x, **sizes((128, 1, 1), (64, 1, 1), (4,))))
    x = torch.rand(128)
    check(model, (x,), [kernel], x.reshape(4, 32).sum(1))


def simd_sums(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(4, 32).sum(1)


def test_simdgroup_shuffles() -> None:
    kernel = kernel_of("out[gid] = simd_shuffle_xor(x[gid], ushort(1));", swapped)
    model = Calls(lambda x: kernel(x, **sizes((64, 1, 1), (64, 1, 1), (64,))))
    x = torch.rand(64)
    check(model, (x,), [kernel], swapped(x))


def swapped(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, 2).flip(1).reshape(-1)
