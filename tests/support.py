"""Compiles MSL and launches it on NumPy arrays: what the tests of the front-end and the engine share."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from metalwright.engine import Buffer, LaunchReport, Program, Scalar, load
from metalwright.msl import CompileOptions, Section, compile_msl

ELEMENTS = {
    "bool": "i1",
    "int8": "si8",
    "uint8": "ui8",
    "int16": "si16",
    "uint16": "ui16",
    "int32": "si32",
    "uint32": "ui32",
    "int64": "si64",
    "uint64": "ui64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
}
FILE = "k.src"
PRELUDE = "#include <metal_stdlib>\nusing namespace metal;\n"


def tensor(element: str, rank: int, name: str, index: int, space: str = "device") -> str:
    """Return a tensor parameter as Core AI declares it."""
    return f"tensor<{space} {element}, dextents<int, {rank}>, tensor_handle> {name} [[buffer({index})]]"


@functools.cache
def body(
    src: str,
    *parameters: str,
    helper: str = "",
    checked: bool = True,
    math_mode: str = "safe",
    recursion: int = 0,
) -> Program:
    """Compile a kernel from the statements of its body, which diagnostics know as ``k.src``."""
    head = f"[[kernel]] void k({', '.join(parameters)}) {{"
    sections = (
        Section(PRELUDE),
        Section(helper, "k.helper_src"),
        Section(head),
        Section(src, FILE),
        Section("}"),
    )
    return load(compile_msl(sections, CompileOptions(math_mode, checked, recursion=recursion), "k"))


@functools.cache
def whole(text: str, kernel: str | None = None, *, checked: bool = True, math_mode: str = "safe") -> Program:
    """Compile a file of MSL, ``k.metal``, and load one of its kernels."""
    sections = (Section(PRELUDE), Section(text, "k.metal"))
    return load(compile_msl(sections, CompileOptions(math_mode, checked), "k"), kernel)


def buffer(name: str, array: np.ndarray, *, writable: bool, written: np.ndarray | None = None) -> Buffer:
    """Return an array as an argument: its shape reversed, as Metal counts dimensions."""
    assert array.flags.c_contiguous
    return Buffer(
        name,
        array.ctypes.data,
        ELEMENTS[array.dtype.name],
        array.shape[::-1],
        array.nbytes,
        writable,
        None if written is None else written.ctypes.data,
    )


def triple(size: int | tuple[int, ...]) -> tuple[int, int, int]:
    """Return a launch size with ones for the dimensions that are left out."""
    given = (size,) if isinstance(size, int) else size
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def launch(
    program: Program,
    inputs: Mapping[str, np.ndarray | np.generic],
    results: Mapping[str, np.ndarray],
    grid: int | tuple[int, ...],
    group: int | tuple[int, ...],
    **options: object,
) -> LaunchReport:
    """Launch with the inputs first, then the results; NumPy scalars go to ``constant T&`` parameters."""
    arguments: list[Buffer | Scalar] = [
        Scalar(name, value.tobytes(), ELEMENTS[value.dtype.name])
        if isinstance(value, np.generic)
        else buffer(name, value, writable=False)
        for name, value in inputs.items()
    ]
    arguments += [buffer(name, array, writable=True) for name, array in results.items()]
    return program.launch(arguments, triple(grid), triple(group), **options)  # type: ignore[arg-type]
