"""Kernels that are wrong in different ways, and the cases that show it."""

from __future__ import annotations

import torch

import metalwright
from metalwright import MetalKernel, MetalParameter
from metalwright.check import random

GID = [MetalParameter("gid", "uint", "thread_position_in_grid")]
SCRIPT = "<script>document.title = 'taken over'</script>"


def add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def make(name, src, reference=add_one, **more):
    return MetalKernel(
        name, input_names=["x"], result_names=["out"], src=src, torch_defn=reference, metal_params=GID, **more
    )


def case(x, threads, shape=None, name="only"):
    return {
        "name": name,
        "inputs": [x],
        "threads_per_grid": (threads, 1, 1),
        "threads_per_thread_group": (min(threads, 64), 1, 1),
        "result_shapes": [[threads] if shape is None else shape],
    }


outside = make(
    "outside",
    f"""
    float a = x[gid];
    out[gid] = a + x[gid + 5];  // {SCRIPT}
""",
)
column = make("column", "if (gid < 930) out[gid] = x[gid] + (gid % 32 == 7 ? 1.5f : 1.0f);")
nans = make("nans", "out[gid] = gid % 97 == 3 ? NAN : x[gid] + 1;")
right = make("right", "out[gid] = x[gid] + 1;")


def reports():
    return [
        metalwright.check(outside, [case(torch.ones(10), 10, name=SCRIPT)]),
        metalwright.check(column, [case(random((1000,)), 1000)]),
        metalwright.check(nans, [case(random((100_000,), low=0), 100_000)]),
        metalwright.check(right, [case(random((50,)), 50)]),
    ]
