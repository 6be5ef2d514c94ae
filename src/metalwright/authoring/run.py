"""From tensors and arrays to the engine and back: prepare once per signature, then only addresses change."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from coreai_torch import TorchMetalKernel

from metalwright.authoring import definition, dtypes, kernel_log, reference, source, validation
from metalwright.authoring.dtypes import ElementType
from metalwright.authoring.source import Parameter
from metalwright.engine import Buffer, LaunchReport, Scalar, load
from metalwright.errors import ArgumentError, KernelFault
from metalwright.msl import CompileOptions, compile_msl

_C: Any = torch._C  # its private parts have no type stubs
_PLANS_KEPT = 256  # per kernel; a plan is small, but shapes may be without end
_INT32 = struct.Struct("=i")
_FLOAT32 = struct.Struct("=f")
_BOOL = struct.Struct("=?")
_PACK = {int: _INT32, float: _FLOAT32, bool: _BOOL}


@dataclass(frozen=True)
class Execution:
    """What one launch did.

    ``results`` are tensors or arrays, of the kind of the inputs, in the order of ``result_names``. ``written`` has,
    for each result, a bool tensor or array of its shape: was the element written by a thread (``None``: not asked
    for). ``report`` is the engine's.
    """

    results: tuple[Any, ...]
    written: tuple[Any, ...] | None
    report: LaunchReport


class _Options(NamedTuple):
    math_mode: str
    checked: bool
    recursion: int


@dataclass(frozen=True)
class _Result:
    """A result to make: ``dtype`` is the reference's, ``device`` what the kernel writes."""

    name: str
    shape: tuple[int, ...]
    dtype: ElementType
    device: ElementType
    extents: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True)
class _Plan:
    """Everything about a launch that the values do not change, checked."""

    program: Any
    results: tuple[_Result, ...]


@dataclass
class _Prepared:
    """What is kept of a kernel between launches."""

    structure: Callable[[Sequence[Any]], Any]
    lock: threading.Lock = field(default_factory=threading.Lock)
    programs: dict[Any, Any] = field(default_factory=dict)
    plans: dict[Any, _Plan] = field(default_factory=dict)


# Beside the kernels, not on them: a plain Core AI kernel stays as it is, and a kernel stays free of locks.
_prepared: WeakKeyDictionary[TorchMetalKernel, _Prepared] = WeakKeyDictionary()
_prepared_lock = threading.Lock()


def execute(
    kernel: TorchMetalKernel,
    inputs: Sequence[Any],
    threads_per_grid: Sequence[int],
    threads_per_threadgroup: Sequence[int],
    result_shapes: Sequence[Sequence[int]],
    *,
    math_mode: str | None = None,
    checked: bool | None = None,
    workers: int | None = None,
    reverse: bool = False,
    track_written: bool = False,
    timeout: float | None = None,
    watched: bool = False,
    group_name: str = "threads_per_threadgroup",
) -> Execution:
    """Execute the MSL of a kernel on the CPU.

    Args:
        kernel: A :class:`MetalKernel` or a plain ``TorchMetalKernel``.
        inputs: One per input name: CPU tensors, or NumPy arrays, contiguous; numbers for scalar inputs.
        threads_per_grid: Threads along x, y, z, as Metal's ``dispatchThreads`` counts them.
        threads_per_threadgroup: Threads in a threadgroup along x, y, z; at most 1024 together.
        result_shapes: One shape (in PyTorch's order) per result.
        math_mode: ``"safe"`` or ``"fast"``; the kernel's own by default.
        checked: Stop with a :class:`KernelFault` at an access outside a buffer and the like; the kernel's own
            setting by default.
        workers: Number of CPU threads.
        reverse: Let the threadgroups, and the threads of each, run in the opposite order.
        track_written: Record which elements of the results were written; needs ``checked``.
        timeout: Seconds after which a kernel that runs ``checked`` is stopped; no limit by default.
        watched: Observe races and reads of what nobody wrote, for the report; needs ``checked``.
        group_name: What messages call ``threads_per_threadgroup``.

    Raises:
        ArgumentError: An input, a result shape or an option does not fit.
        DispatchError: Launch sizes that no GPU accepts.
        CompileError: The MSL does not compile.
        KernelFault: The kernel did something wrong while it ran.
    """
    options = _options(kernel, math_mode, checked)
    if track_written and not options.checked:
        raise ArgumentError(f"kernel {kernel.name!r}: track_written needs checked=True")
    if watched and not options.checked:
        raise ArgumentError(f"kernel {kernel.name!r}: watched needs checked=True")
    name = kernel.name
    grid = validation.size3(name, "threads_per_grid", threads_per_grid)
    group = validation.size3(name, group_name, threads_per_threadgroup)
    shapes = validation.shapes(name, kernel.result_names, result_shapes)
    validation.check_count(name, kernel.input_names, inputs)
    values = _scalars(kernel, inputs)
    arrays = any(isinstance(value, np.ndarray) for value in values)
    if arrays and any(isinstance(value, torch.Tensor) for value in values):
        raise ArgumentError(
            f"kernel {name!r}: expected all inputs as tensors or all as NumPy arrays, got both"
        )
    _check_kinds(kernel, values)
    prepared = _prepare(kernel)

    key = (_signature(kernel, values), shapes, grid, group, options, watched, _text(kernel))
    plan = prepared.plans.get(key)
    if plan is None:
        validation.check_sizes(name, "threads_per_grid", grid, group_name, group)
        plan = _plan(kernel, prepared, values, shapes, options, watched)
        if len(prepared.plans) >= _PLANS_KEPT:
            prepared.plans.clear()
        prepared.plans[key] = plan

    arguments, alive = _arguments(kernel, values)
    made: list[Any] = []
    shadows: list[Any] = []
    for result in plan.results:
        made.append(_empty(result.shape, result.device, arrays))
        address = _address(made[-1])
        ctypes.memset(address, result.device.poison, result.nbytes)
        written = None
        if track_written:
            shadows.append(np.zeros((*result.shape, result.device.size), np.uint8))
            written = shadows[-1].ctypes.data
        arguments.append(
            Buffer(
                result.name,
                address,
                result.device.element,
                result.extents,
                result.nbytes,
                True,
                written,
                fresh=True,
            )
        )
    report = plan.program.launch(
        arguments, grid, group, max_workers=workers, reverse=reverse, timeout=timeout
    )
    del alive
    results = tuple(_widened(value, result) for value, result in zip(made, plan.results, strict=True))
    return Execution(results, tuple(_whole(s, arrays) for s in shadows) if track_written else None, report)


def _execute_with_log(kernel: TorchMetalKernel, *args: Any, **options: Any) -> Execution:
    """Execute, and pass on what the kernel logged, also where it then did something wrong."""
    try:
        execution = execute(kernel, *args, **options)
    except KernelFault as fault:
        kernel_log.emit(kernel.name, fault.log)
        raise
    kernel_log.emit(kernel.name, execution.report.log)
    return execution


def call(
    kernel: TorchMetalKernel,
    args: Sequence[Any],
    threads_per_grid: Sequence[int],
    threads_per_thread_group: Sequence[int],
    result_shapes: Sequence[Sequence[int]],
    *,
    math_mode: str | None = None,
    checked: bool | None = None,
) -> Any:
    """Execute an eager call of a kernel on tensors and return what its reference would: a tensor, list or tuple.

    Lines that the kernel writes with ``os_log`` go to the logger ``metalwright.kernel``.
    """

    def run(*inputs: Any) -> tuple[Any, ...]:
        execution = _execute_with_log(
            kernel, inputs, threads_per_grid, threads_per_thread_group, result_shapes,
            math_mode=math_mode, checked=checked, group_name="threads_per_thread_group",
        )  # fmt: skip
        return execution.results

    for name, value in zip(kernel.input_names, args, strict=False):
        if isinstance(value, np.ndarray) and value.ndim:
            raise ArgumentError(
                f"kernel {kernel.name!r}: input {name!r}: expected a torch.Tensor, got a NumPy array; "
                f"metalwright.launch takes arrays"
            )
    if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
        results = WithoutGradient.apply(kernel.name, run, *args)
    else:
        results = run(*args)
    return _prepare(kernel).structure(results)


def launch(
    kernel: TorchMetalKernel,
    inputs: Sequence[Any] | Mapping[str, Any],
    *,
    threads_per_grid: Sequence[int],
    threads_per_threadgroup: Sequence[int],
    result_shapes: Sequence[Sequence[int]],
    math_mode: str | None = None,
    checked: bool | None = None,
    workers: int | None = None,
) -> Any:
    """Execute a kernel's MSL on tensors or NumPy arrays, whatever else is going on (no tracing, no gradients).

    Lines that the kernel writes with ``os_log`` go to the logger ``metalwright.kernel`` of Python's ``logging``.

    Args:
        kernel: A :class:`MetalKernel` or a plain ``coreai_torch.TorchMetalKernel``.
        inputs: A sequence in the order of the kernel's inputs, or a mapping by input name.
        threads_per_grid: Threads along x, y, z.
        threads_per_threadgroup: Threads in a threadgroup along x, y, z; at most 1024 together.
        result_shapes: One shape per result.
        math_mode: ``"safe"`` or ``"fast"``; the kernel's own by default.
        checked: Stop at an access outside a buffer and the like; the kernel's own setting by default.
        workers: Number of CPU threads; all by default.

    Returns:
        The results, of the same kind as the inputs (tensors if all inputs are scalars), in the structure that the
        kernel's reference returns. Elements that no thread wrote are NaN, or bytes of 0xA5 for integers.

    Raises:
        ArgumentError, DispatchError, CompileError, KernelFault: see :func:`execute`.
    """
    if not isinstance(kernel, TorchMetalKernel):
        raise ArgumentError(
            f"launch: expected a MetalKernel or TorchMetalKernel, got {type(kernel).__name__}"
        )
    if isinstance(inputs, Mapping):
        if set(inputs) != set(kernel.input_names):
            raise ArgumentError(
                f"kernel {kernel.name!r}: expected the inputs {', '.join(kernel.input_names)}, got "
                f"{', '.join(map(str, inputs))}"
            )
        inputs = [inputs[name] for name in kernel.input_names]
    elif isinstance(inputs, (torch.Tensor, np.ndarray, str)) or not isinstance(inputs, Sequence):
        raise ArgumentError(
            f"kernel {kernel.name!r}: inputs: expected a list of inputs or a mapping, got {type(inputs).__name__}"
        )
    execution = _execute_with_log(
        kernel, inputs, threads_per_grid, threads_per_threadgroup, result_shapes,
        math_mode=math_mode, checked=checked, workers=workers,
    )  # fmt: skip
    return _prepare(kernel).structure(execution.results)


class WithoutGradient(torch.autograd.Function):
    """Executes the kernel; a backward pass that reaches it stops with an error instead of a silent zero."""

    @staticmethod
    def forward(ctx: Any, kernel: str, run: Callable[..., tuple[Any, ...]], *inputs: Any) -> tuple[Any, ...]:
        ctx.kernel = kernel
        results = run(*inputs)
        ctx.mark_non_differentiable(*(r for r in results if not r.is_floating_point()))
        return results

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise ArgumentError(f"kernel {ctx.kernel!r} has no derivative; call it on tensors without tangents")

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise ArgumentError(f"kernel {ctx.kernel!r} has no gradient; call it under torch.no_grad()")


# Preparing --------------------------------------------------------------------------------------------------------


def _options(kernel: TorchMetalKernel, math_mode: str | None, checked: bool | None) -> _Options:
    options = _Options(
        getattr(kernel, "math_mode", "safe") if math_mode is None else math_mode,
        getattr(kernel, "checked", True) if checked is None else checked,
        getattr(kernel, "recursion", 0),
    )
    if problem := definition.option_problem(*options):
        raise ArgumentError(f"kernel {kernel.name!r}: {problem}")
    return options


def _prepare(kernel: TorchMetalKernel) -> _Prepared:
    prepared = _prepared.get(kernel)
    if prepared is None:
        with _prepared_lock:
            prepared = _prepared.setdefault(kernel, _Prepared(reference.structure(kernel)))
    return prepared


def _scalars(kernel: TorchMetalKernel, inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs with those that the reference declares as int, float or bool as Python values."""
    scalars = kernel._scalar_input_types
    if not scalars:
        return list(inputs)
    return [
        validation.scalar(kernel.name, name, scalars[name], value) if name in scalars else value
        for name, value in zip(kernel.input_names, inputs, strict=True)
    ]


def _check_kinds(kernel: TorchMetalKernel, values: Sequence[Any]) -> None:
    """Refuse what has no dtype or shape to go by; everything else about an input is checked once per signature."""
    for name, value in zip(kernel.input_names, values, strict=True):
        if name in kernel._scalar_input_types or isinstance(value, np.ndarray):
            continue
        wrapped = isinstance(value, torch.Tensor) and _C._functorch.is_functorch_wrapped_tensor(value)
        if wrapped or not isinstance(value, torch.Tensor) or value.is_nested:
            validation.check_tensor(kernel.name, name, value)


def _signature(kernel: TorchMetalKernel, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return what a plan depends on. Of a float only its kind: a reference's shapes do not follow from one."""
    return tuple(
        (type(v), v.dtype, v.shape)
        if isinstance(v, (torch.Tensor, np.ndarray))
        else float
        if type(v) is float
        else v
        for v in values
    )


def _text(kernel: TorchMetalKernel) -> tuple[Any, ...]:
    """Return what the MSL depends on beside the inputs, so that an edited kernel is not mistaken for itself."""
    return (kernel.src, kernel.helpers, tuple([(p.name, p.dtype, p.attr) for p in kernel.metal_parameters]))


def _plan(
    kernel: TorchMetalKernel,
    prepared: _Prepared,
    values: Sequence[Any],
    shapes: tuple[tuple[int, ...], ...],
    options: _Options,
    watched: bool,
) -> _Plan:
    described: list[Any] = []
    parameters: list[Parameter] = []
    for name, value in zip(kernel.input_names, values, strict=True):
        if name in kernel._scalar_input_types:
            described.append(value)
            parameters.append(Parameter(dtypes.SCALAR_TYPES[kernel._scalar_input_types[name]], 0))
        else:
            row = validation.check_tensor(kernel.name, name, value)
            described.append((row, tuple(value.shape)))
            parameters.append(Parameter(dtypes.on_device(row), value.ndim))
    for name, shape in zip(kernel.result_names, shapes, strict=True):
        validation.check_result_shape(kernel.name, name, shape)
    types = reference.result_types(kernel, described, shapes)
    results = tuple(
        _Result(name, shape, dtype, device, shape[::-1], int(np.prod(shape, dtype=np.int64)) * device.size)
        for name, shape, dtype, device in zip(
            kernel.result_names, shapes, types, map(dtypes.on_device, types), strict=True
        )
    )
    outputs = [Parameter(result.device, len(result.shape)) for result in results]
    return _Plan(_program(kernel, prepared, parameters, outputs, options, watched), results)


def _program(
    kernel: TorchMetalKernel,
    prepared: _Prepared,
    inputs: Sequence[Parameter],
    results: Sequence[Parameter],
    options: _Options,
    watched: bool,
) -> Any:
    key = (tuple(inputs), tuple(results), options, watched, _text(kernel))
    with prepared.lock:
        program = prepared.programs.get(key)
        if program is None:
            compiled = compile_msl(
                source.sections(kernel, inputs, results),
                CompileOptions(**options._asdict(), watched=watched),
                label=kernel.name,
            )
            program = prepared.programs[key] = load(compiled, source.entry_name(kernel), watched=watched)
    return program


# Values -----------------------------------------------------------------------------------------------------------


def _arguments(kernel: TorchMetalKernel, values: Sequence[Any]) -> tuple[list[Buffer | Scalar], list[Any]]:
    """Return the inputs for the engine, and what has to stay alive while it runs."""
    arguments: list[Buffer | Scalar] = []
    alive: list[Any] = []
    scalars = kernel._scalar_input_types
    for name, value in zip(kernel.input_names, values, strict=True):
        kind = scalars.get(name)
        if kind is not None:
            arguments.append(Scalar(name, _PACK[kind].pack(value), dtypes.SCALAR_TYPES[kind].element))
            continue
        if isinstance(value, torch.Tensor):
            # not in the plan's key: two tensors of one shape and dtype may differ in these
            shrunk = value.untyped_storage().nbytes() < value.nbytes
            if (
                shrunk
                or not value.is_contiguous()
                or value.is_neg()
                or value.is_conj()
                or value.device.type != "cpu"
            ):
                validation.check_tensor(kernel.name, name, value)
            dtype = dtypes.BY_TORCH[value.dtype]
        else:
            validation.check_tensor(kernel.name, name, value)
            dtype = dtypes.BY_NUMPY[value.dtype]
        device = dtypes.on_device(dtype)
        if device is not dtype:
            validation.check_narrow(kernel.name, name, int(value.min()), int(value.max()))
            value = value.to(device.torch) if isinstance(value, torch.Tensor) else value.astype(device.numpy)
        alive.append(value)
        nbytes = value.nbytes
        if value.ndim == 0:
            arguments.append(Scalar(name, ctypes.string_at(_address(value), nbytes), device.element))
        else:
            arguments.append(
                Buffer(name, _address(value), device.element, tuple(value.shape[::-1]), nbytes, False)
            )
    return arguments, alive


def _address(value: Any) -> int:
    return value.data_ptr() if isinstance(value, torch.Tensor) else value.__array_interface__["data"][0]


def _empty(shape: tuple[int, ...], dtype: ElementType, array: bool) -> Any:
    if array:
        return np.empty(shape, dtype.numpy)
    return torch.empty(shape, dtype=dtype.torch, device="cpu")


def _widened(value: Any, result: _Result) -> Any:
    if result.device is result.dtype:
        return value
    return (
        value.to(result.dtype.torch) if isinstance(value, torch.Tensor) else value.astype(result.dtype.numpy)
    )


def _whole(shadow: np.ndarray, array: bool) -> Any:
    """Return which elements had all their bytes written."""
    written = shadow.all(axis=-1)
    return written if array else torch.from_numpy(written)
