"""The arguments of one call of a kernel that is defined as MLX has it, checked."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from metalwright.authoring import names, validation
from metalwright.authoring.mlx import arrays, element_types
from metalwright.authoring.mlx.element_types import MLXType
from metalwright.authoring.mlx.source import Definition, Template
from metalwright.authoring.validation import Size3
from metalwright.errors import ArgumentError

_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class Call:
    """Everything about a call but the inputs; ``library`` says whose arrays it gives back."""

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[MLXType, ...]
    grid: Size3
    threadgroup: Size3
    template: tuple[Template, ...]
    init_value: float | None
    library: str


def check(
    definition: Definition,
    inputs: Sequence[Any],
    output_shapes: Sequence[Sequence[int]],
    output_dtypes: Sequence[Any],
    grid: Sequence[int],
    threadgroup: Sequence[int],
    template: Sequence[tuple[str, Any]] | None,
    init_value: float | None,
    library: str | None,
) -> Call:
    """Return a call's arguments as what they mean.

    Raises:
        ArgumentError: one does not fit the kernel.
        DispatchError: sizes that no GPU accepts.
    """
    name, outputs = definition.name, definition.output_names
    _check_list(name, "inputs", inputs, definition.input_names)
    _check_list(name, "output_shapes", output_shapes, outputs)
    _check_list(name, "output_dtypes", output_dtypes, outputs)
    threads = validation.size3(name, "grid", grid)
    x, y, z = validation.size3(name, "threadgroup", threadgroup)
    validation.check_sizes(name, "grid", threads, "threadgroup", (x, y, z))
    shapes = tuple(_shape(name, *pair) for pair in zip(outputs, output_shapes, strict=True))
    dtypes = tuple(_dtype(definition, *pair) for pair in zip(outputs, output_dtypes, strict=True))
    for output, dtype in zip(outputs, dtypes, strict=True):
        if init_value is not None and (problem := arrays.initial_problem(init_value, dtype)):
            raise ArgumentError(f"kernel {name!r}: init_value: {problem} (output {output!r})")
    return Call(
        shapes,
        dtypes,
        threads,
        # dispatchThreads with a threadgroup that reaches past the grid: cut down, as MLX does
        (min(x, threads[0]), min(y, threads[1]), min(z, threads[2])),
        _template(name, template),
        init_value,
        library or arrays.library(name, inputs, output_dtypes),
    )


def _dtype(definition: Definition, output: str, value: Any) -> MLXType:
    where = f"kernel {definition.name!r}: output {output!r}"
    found = element_types.find(value)
    if found is None:
        raise ArgumentError(
            f"{where}: output_dtypes: expected a dtype of MLX, PyTorch or NumPy among {element_types.SUPPORTED}, "
            f"got {value!r}"
        )
    if definition.atomic_outputs and not found.atomic:
        raise ArgumentError(
            f"{where}: Metal has no atomic<{found.msl}>; with atomic_outputs, expected bool, int32, uint32, uint64 "
            "or float32"
        )
    return found


def _check_list(kernel: str, argument: str, value: Any, expected: Sequence[str]) -> None:
    if isinstance(value, (str, np.ndarray, torch.Tensor)) or not isinstance(value, Sequence):
        raise ArgumentError(f"kernel {kernel!r}: {argument}: expected a list, got {type(value).__name__}")
    if len(value) != len(expected):
        raise ArgumentError(
            f"kernel {kernel!r}: {argument}: expected {len(expected)} ({', '.join(expected) or 'none'}), "
            f"got {len(value)}"
        )


def _shape(kernel: str, output: str, value: Any) -> tuple[int, ...]:
    try:
        shape = tuple(operator.index(extent) for extent in value)
    except TypeError:
        shape = (-1,)
    if any(extent < 0 for extent in shape) or math.prod(shape) > _INT32.max:
        raise ArgumentError(
            f"kernel {kernel!r}: output {output!r}: output_shapes: expected whole numbers of at least 0, fewer than "
            f"2**31 elements in all, got {value!r}"
        )
    return shape


def _template(kernel: str, value: Any) -> tuple[Template, ...]:
    made: list[Template] = []
    for entry in value or ():
        where = f"kernel {kernel!r}: template"
        if not isinstance(entry, Sequence) or isinstance(entry, str) or len(entry) != 2:
            raise ArgumentError(f"{where}: expected pairs of a name and a dtype, int or bool, got {entry!r}")
        name, given = entry
        if problem := names.parameter_problem(name):
            raise ArgumentError(f"{where}: {problem}")
        if name in [known for known, _ in made]:
            raise ArgumentError(f"{where}: {name!r} is there twice")
        made.append((name, _template_value(f"{where}: {name!r}", given)))
    return tuple(made)


def _template_value(where: str, value: Any) -> MLXType | int | bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        if not _INT32.min <= value <= _INT32.max:
            raise ArgumentError(f"{where}: {value} does not fit in MSL's int")
        return int(value)
    found = element_types.find(value)
    if found is None:
        raise ArgumentError(f"{where}: expected a dtype, an int or a bool, got {value!r}")
    return found
