"""Inputs and outputs of launches: values that are reproducible, results that are garbage until a kernel writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

TYPES = {
    "float": torch.float32,
    "half": torch.float16,
    "bfloat16_t": torch.bfloat16,
    "int": torch.int32,
    "int64_t": torch.int64,
    "int16_t": torch.int16,
    "int8_t": torch.int8,
    "uint8_t": torch.uint8,
    "uint32_t": torch.uint32,
    "bool": torch.bool,
    "complex64_t": torch.complex64,
}


def garbage(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor that equals no result: NaNs, or integers that no test computes."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.full(shape, float("nan"), dtype=dtype)
    if dtype == torch.bool:
        raise ValueError("every bool may be a result")
    return torch.full(shape, -0x5B if dtype.is_signed else 0xA5, dtype=dtype)


def integers(seed: int, *shape: int, kind: str = "float", limit: int = 4) -> torch.Tensor:
    """Return whole numbers from ``-limit`` to ``limit``: their sums of products are exact in any order."""
    generator = torch.Generator().manual_seed(seed)
    real = torch.randint(-limit, limit + 1, shape, generator=generator)
    if kind != "complex64_t":
        return real.to(TYPES[kind])
    return torch.complex(real.float(), torch.randint(-limit, limit + 1, shape, generator=generator).float())


def normal(seed: int, *shape: int, kind: str = "float") -> torch.Tensor:
    """Return numbers of a normal distribution."""
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.complex64 if kind == "complex64_t" else torch.float32
    return torch.randn(*shape, generator=generator, dtype=dtype).to(TYPES[kind])


def up(number: int, size: int) -> int:
    """Return how many groups of a size hold so many."""
    return -(-number // size)


def groups(*count: int, group: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the sizes of a launch of so many whole threadgroups, as MLX's ``dispatch_threadgroups`` takes them."""
    return {"threads": tuple(n * size for n, size in zip(count, group, strict=True)), "group": group}


def ints(values: Iterable[int]) -> torch.Tensor:
    """Return what MLX passes as a vector of ``int``: one 0 for none, since no buffer may be empty."""
    return torch.tensor(list(values) or [0], dtype=torch.int32)


def longs(values: Iterable[int]) -> torch.Tensor:
    """Return what MLX passes as a vector of ``int64_t``, strides for example."""
    return torch.tensor(list(values) or [0], dtype=torch.int64)


def placed(arguments: dict[int, Any]) -> list[Any]:
    """Return the arguments of a call by their ``[[buffer(n)]]``; None where the kernel has no such buffer."""
    return [arguments.get(index) for index in range(max(arguments) + 1)]
