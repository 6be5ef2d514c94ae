"""What an ``.aimodel`` holds, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Shape = tuple[int | Literal["?"], ...]
"""Extents in PyTorch's order; ``"?"`` where the extent is known only when the model runs."""

Size = tuple[int, int, int] | Literal["computed"]
"""Launch sizes along x, y, z, or ``"computed"`` where the graph works them out from its inputs."""


@dataclass(frozen=True)
class TensorInfo:
    """An input, output or state of a function. ``dtype`` is Core AI's name of the element type, such as ``"f32"``."""

    name: str
    dtype: str
    shape: Shape


@dataclass(frozen=True)
class Operand:
    """A tensor that a kernel reads or writes, under its name in the MSL."""

    name: str
    dtype: str
    shape: Shape


@dataclass(frozen=True)
class Parameter:
    """A parameter as written in the kernel's MSL signature: ``type name [[attribute]]``."""

    name: str
    type: str
    attribute: str


@dataclass(frozen=True)
class Kernel:
    """One launch of a Metal kernel in a function.

    ``name`` is the MSL function's, with the suffix that Core AI appended; two launches of one kernel share it.
    ``source`` is the complete embedded MSL.
    """

    name: str
    function: str
    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]
    threads_per_grid: Size
    threads_per_threadgroup: Size
    parameters: tuple[Parameter, ...]
    source: str


@dataclass(frozen=True)
class Function:
    """An entry point of the model.

    ``states`` are what it reads and writes in place: the buffers of the PyTorch module that its ``forward`` changes.
    """

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    states: tuple[TensorInfo, ...] = ()


@dataclass(frozen=True)
class Artifact:
    """An ``.aimodel``: its functions, and every kernel launch in them in the order of the graph."""

    path: Path
    functions: tuple[Function, ...]
    kernels: tuple[Kernel, ...]
