"""A kernel as an artifact embeds it, compiled and ready to launch."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from metalwright.authoring import dtypes, kernel_log, validation
from metalwright.coreai.plan import KernelText, TensorType
from metalwright.engine import Buffer, KernelSignature, LaunchReport, Parameter, Scalar, load
from metalwright.errors import ArgumentError, ArtifactError, KernelFault
from metalwright.msl import CompileOptions, Section, compile_msl

_BOOL = "i1"
_POINTING = ("tensor", "pointer")


class EmbeddedKernel:
    """The MSL of an artifact's kernel; ``inputs`` and ``results`` are its parameters' names."""

    def __init__(self, text: KernelText, *, checked: bool, math_mode: str) -> None:
        """Compile the MSL.

        Raises:
            CompileError: It does not compile, or is refused.
            ArtifactError: It has no such kernel, or one with other parameters than it is launched with.
        """
        self.text = text
        options = CompileOptions(math_mode=math_mode, checked=checked)
        module = compile_msl((Section(text.source, f"{text.name}.metal"),), options, label=text.name)
        try:
            signature = module.kernel(text.name)
        except KeyError as error:
            raise ArtifactError(f"kernel {text.name!r}: {error.args[0]}") from error
        buffers = _buffers(text, signature)
        self.inputs = tuple(parameter.name for parameter in buffers[: len(text.operands)])
        self.results = tuple(parameter.name for parameter in buffers[len(text.operands) :])
        self._elements = tuple(parameter.element for parameter in buffers[: len(text.operands)])
        self._program = load(module, text.name)

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    @property
    def name(self) -> str:
        return self.text.name

    def result_shape(self, index: int, given: np.ndarray) -> tuple[int, ...]:
        """Return the shape that the graph gives a result, after checking it.

        Raises:
            ArgumentError: It does not fit the result's type, or no memory holds it.
        """
        shape, kind = tuple(int(extent) for extent in given), self.text.results[index]
        where = f"kernel {self.name!r}: result {self.results[index]!r}"
        validation.check_result_shape(self.name, self.results[index], shape)
        if len(shape) != len(kind.shape) or any(
            fixed not in ("?", extent) for extent, fixed in zip(shape, kind.shape, strict=True)
        ):
            raise ArgumentError(
                f"{where}: the graph asks for shape {list(shape)}, but its type is {list(kind.shape)}"
            )
        if math.prod(shape) * dtypes.BY_NAME[kind.dtype].size > _memory():
            raise ArgumentError(f"{where}: shape {list(shape)} is more than this machine's memory")
        return shape

    def launch(
        self,
        operands: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
        threads_per_grid: Sequence[int],
        threads_per_threadgroup: Sequence[int],
        *,
        reverse: bool = False,
        written: Sequence[np.ndarray] | None = None,
        workers: int | None = None,
        timeout: float | None = None,
    ) -> LaunchReport:
        """Launch over a grid; ``results`` are written to. Arrays lie in order (C-contiguous).

        Args:
            operands: One per input.
            results: One per result.
            threads_per_grid: Threads along x, y, z.
            threads_per_threadgroup: Threads of a threadgroup along x, y, z.
            reverse: Run threadgroups and threads from last to first.
            written: For each result as many bytes as it has, set to 1 where a thread writes (checked kernels only).
            workers: OS threads.
            timeout: Seconds after which a checked kernel is stopped.

        Raises:
            DispatchError: Sizes that no GPU accepts.
            KernelFault: The kernel was caught doing something wrong (checked kernels only).
        """
        grid = validation.size3(self.name, "threads_per_grid", threads_per_grid)
        group = validation.size3(self.name, "threads_per_threadgroup", threads_per_threadgroup)
        validation.check_sizes(self.name, "threads_per_grid", grid, "threads_per_threadgroup", group)
        arguments: list[Buffer | Scalar] = []
        inputs = zip(self.inputs, self.text.operands, self._elements, operands, strict=True)
        for name, kind, element, values in inputs:
            if values.ndim:
                arguments.append(_buffer(name, kind, values, writable=False))
            else:
                value = np.bool_(values) if element == _BOOL else values
                arguments.append(Scalar(name, value.tobytes(), element or kind.dtype))
        shadows = written if written is not None else [None] * len(results)
        for name, kind, values, shadow in zip(self.results, self.text.results, results, shadows, strict=True):
            ctypes.memset(values.ctypes.data, dtypes.BY_NAME[kind.dtype].poison, values.nbytes)
            arguments.append(_buffer(name, kind, values, writable=True, written=shadow))
        try:
            report = self._program.launch(
                arguments, grid, group, max_workers=workers, reverse=reverse, timeout=timeout
            )
        except KernelFault as fault:
            kernel_log.emit(self.name, fault.log)
            raise
        kernel_log.emit(self.name, report.log)
        return report


def _buffer(
    name: str, kind: TensorType, values: np.ndarray, *, writable: bool, written: np.ndarray | None = None
) -> Buffer:
    return Buffer(
        name,
        values.ctypes.data,
        kind.dtype,
        values.shape[::-1],
        values.nbytes,
        writable,
        None if written is None else written.ctypes.data,
    )


def _buffers(text: KernelText, signature: KernelSignature) -> tuple[Parameter, ...]:
    """Return the kernel's buffers in order, after checking them against what the graph hands it."""
    buffers = sorted(
        (parameter for parameter in signature.parameters if parameter.attribute == "buffer"),
        key=lambda parameter: parameter.index,
    )
    handed = [*text.operands, *text.results]
    if len(buffers) != len(handed) or [p.index for p in buffers] != list(range(len(buffers))):
        raise ArtifactError(
            f"kernel {text.name!r}: its MSL has the buffers {_named(buffers)}, but the graph hands it "
            f"{len(text.operands)} operands and {len(text.results)} results"
        )
    for parameter, kind in zip(buffers, handed, strict=True):
        if kind.dtype not in dtypes.BY_NAME:
            raise ArtifactError(
                f"kernel {text.name!r}: {parameter.name!r} is of {kind.dtype}, which no kernel takes"
            )
        by_value = parameter.kind == "reference"
        # the graph has no bools to hand over: it widens those that are scalars
        widened = by_value and (parameter.element, kind.dtype) == (_BOOL, "ui8")
        fits = (parameter.element == kind.dtype or widened) and parameter.lanes == 1
        if parameter.kind == "tensor":
            fits = fits and parameter.rank == len(kind.shape)
        if not fits or by_value != (not kind.shape) or parameter.kind not in (*_POINTING, "reference"):
            raise ArtifactError(
                f"kernel {text.name!r}: parameter {parameter.name!r} of its MSL is a {parameter.kind} of "
                f"{parameter.element}{f', rank {parameter.rank}' if parameter.kind == 'tensor' else ''}, but the "
                f"graph hands it {kind.dtype} of shape {list(kind.shape)}"
            )
    return tuple(buffers)


def _named(parameters: Sequence[Any]) -> str:
    return ", ".join(f"{parameter.name} [[buffer({parameter.index})]]" for parameter in parameters) or "none"


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
