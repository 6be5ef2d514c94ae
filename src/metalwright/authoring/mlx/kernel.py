"""``metal_kernel``: bodies of kernels, defined and called as ``mx.fast.metal_kernel`` has them."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from metalwright.authoring import definition, kernel_log, names
from metalwright.authoring.mlx import arrays
from metalwright.authoring.mlx.arrays import Input
from metalwright.authoring.mlx.call import Call, check
from metalwright.authoring.mlx.element_types import MLXType
from metalwright.authoring.mlx.source import (
    Definition,
    InputForm,
    Template,
    entry_name,
    infos,
    sections,
    shown,
)
from metalwright.authoring.run import WithoutGradient
from metalwright.engine import Buffer, Program, Scalar, load
from metalwright.errors import ArgumentError, KernelDefinitionError, KernelFault
from metalwright.msl import CompileOptions, compile_msl
from metalwright.msl.attributes import THREAD_ATTRIBUTES

_MOST_BUFFERS = 31  # of a compute kernel, in Apple's "Metal Feature Set Tables"
# Metal's relaxed math is fast math that keeps NaN and infinity, and so is our fast math
_MATH_MODES = {"safe": "safe", "relaxed": "fast", "fast": "fast"}


class CustomKernel:
    """A kernel whose signature is made anew for the arguments of each call; see :func:`metal_kernel`."""

    def __init__(self, definition: Definition, ensure_row_contiguous: bool, options: CompileOptions) -> None:
        self.definition = definition
        self.ensure_row_contiguous = ensure_row_contiguous
        self.options = options
        self.library: str | None = None  # whose arrays the results are, where it is not that of the inputs
        self._programs: dict[Any, Program] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self.definition.name

    def __call__(
        self,
        *,
        inputs: Sequence[Any],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[Any],
        grid: Sequence[int],
        threadgroup: Sequence[int],
        template: Sequence[tuple[str, Any]] | None = None,
        init_value: float | None = None,
        verbose: bool = False,
        stream: Any = None,
    ) -> list[Any]:
        """Run the kernel.

        Args:
            inputs: Arrays or numbers, one for each input name.
            output_shapes: A shape for each output name.
            output_dtypes: A dtype for each output name, of MLX, PyTorch or NumPy.
            grid: Threads along x, y, z.
            threadgroup: Threads of a threadgroup along x, y, z; no more are used than the grid has.
            template: Template parameters: a name, and a dtype, an int or a bool.
            init_value: What all outputs hold before the kernel runs.
            verbose: Print the generated source.
            stream: For MLX's call; a kernel runs here and now.

        Returns:
            The outputs, of the library of the inputs. Without ``init_value``, elements that no thread wrote are NaN,
            or bytes of 0xA5 for integers.

        Raises:
            ArgumentError: An argument does not fit the kernel.
            DispatchError: Sizes that no GPU accepts.
            CompileError: The MSL does not compile.
            KernelFault: The kernel did something wrong while it ran (in checked mode).
        """
        call = check(
            self.definition,
            inputs,
            output_shapes,
            output_dtypes,
            grid,
            threadgroup,
            template,
            init_value,
            library=self.library,
        )
        execute = functools.partial(self._execute, call, verbose)
        if call.library == "mlx":
            return list(arrays.without_gradient(self.name, execute, inputs))
        if torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in inputs):
            return list(WithoutGradient.apply(self.name, execute, *inputs))
        return list(execute(*inputs))

    def variant(self, options: CompileOptions, library: str) -> CustomKernel:
        """Return this kernel with other options and results of that library; it shares what is compiled."""
        other = copy.copy(self)
        other.options, other.library = options, library
        return other

    def __repr__(self) -> str:
        made = self.definition
        return f"<CustomKernel {made.name}: {', '.join(made.input_names)} -> {', '.join(made.output_names)}>"

    def _execute(self, call: Call, verbose: bool, *inputs: Any) -> tuple[Any, ...]:
        name, made = self.name, self.definition
        taken = [
            arrays.take(name, input_name, value, call.library, self.ensure_row_contiguous)
            for input_name, value in zip(made.input_names, inputs, strict=True)
        ]
        forms = tuple(InputForm.of(value.dtype, value.shape, value.size) for value in taken)
        if verbose:
            text = shown(made, call.template, forms, call.dtypes)
            print(f"Generated source code for `{name}`:\n```\n{text}\n```")
        program = self._program(call.template, forms, call.dtypes)
        outputs = [
            arrays.make(dtype, shape, call.library, call.init_value)
            for dtype, shape in zip(call.dtypes, call.shapes, strict=True)
        ]
        arguments, alive = self._inputs(taken, forms)
        arguments += [
            output.buffer(output_name) for output_name, output in zip(made.output_names, outputs, strict=True)
        ]
        try:
            report = program.launch(arguments, call.grid, call.threadgroup)
        except KernelFault as fault:
            kernel_log.emit(name, fault.log)
            raise
        del alive
        kernel_log.emit(name, report.log)
        return tuple(output.array() for output in outputs)

    def _program(
        self,
        template: tuple[Template, ...],
        forms: tuple[InputForm, ...],
        dtypes: tuple[MLXType, ...],
    ) -> Program:
        # a bool equals an int in a dict, but makes another template
        key = (tuple((*pair, type(pair[1])) for pair in template), forms, dtypes, self.options)
        with self._lock:
            program = self._programs.get(key)
            if program is None:
                made = self.definition
                count = len(dtypes) + sum(
                    1 + len(infos(made, name, form))
                    for name, form in zip(made.input_names, forms, strict=True)
                )
                if count > _MOST_BUFFERS:
                    raise ArgumentError(
                        f"kernel {made.name!r}: a kernel has at most {_MOST_BUFFERS} buffers, got {count} (inputs, "
                        "outputs, and each shape, strides and ndim)"
                    )
                module = compile_msl(sections(made, template, forms, dtypes), self.options, made.name)
                name = entry_name(made, template, forms, dtypes)
                program = self._programs[key] = load(module, name)
            return program

    def _inputs(
        self, taken: Sequence[Input], forms: Sequence[InputForm]
    ) -> tuple[list[Buffer | Scalar | None], list[Any]]:
        """Return the inputs for the engine, each followed by what the signature has of its layout, and their owners."""
        arguments: list[Buffer | Scalar | None] = []
        alive: list[Any] = list(taken)
        for name, value, form in zip(self.definition.input_names, taken, forms, strict=True):
            arguments.append(value.argument(name))
            for info in infos(self.definition, name, form):
                layout = value.layout(info)
                alive.append(layout)
                arguments.append(layout.argument(f"{name}_{info}"))
        return arguments, alive


def metal_kernel(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    source: str,
    header: str = "",
    ensure_row_contiguous: bool = True,
    atomic_outputs: bool = False,
    compile_options: Mapping[str, str] | None = None,
    *,
    math_mode: str = "safe",
    checked: bool = True,
    recursion: int = 0,
) -> CustomKernel:
    """Define a kernel by its body, as ``mx.fast.metal_kernel`` does; it runs on arrays of MLX, PyTorch and NumPy.

    Args:
        name: The kernel's name.
        input_names: Names of the inputs in the body; each ``x`` brings ``x_shape``, ``x_strides`` and ``x_ndim``
            where the body speaks of them.
        output_names: Names of the outputs.
        source: The body in MSL. A thread attribute that it names is a parameter of the kernel.
        header: MSL that stands before the kernel.
        ensure_row_contiguous: Copy inputs that are not in row-major order; otherwise they keep their strides.
        atomic_outputs: Outputs are ``device atomic<T>*``.
        compile_options: MLX's way to give the math mode: ``{"math_mode": "fast"}``.
        math_mode: ``"safe"`` (MLX's own default), ``"relaxed"`` or ``"fast"``; the last two are one here.
        checked: Stop at an access outside an array and the like.
        recursion: How many calls of a function that calls itself may be nested; such functions are refused where it
            is 0, as Metal's compiler refuses them.

    Raises:
        KernelDefinitionError: A name or an option cannot be used.
    """
    if problem := names.kernel_problem(f"custom_kernel_{name}" if isinstance(name, str) and name else name):
        raise KernelDefinitionError(f"kernel {name!r}: name: {problem}")
    given = (*_names(name, "input_names", input_names), *_names(name, "output_names", output_names))
    if not output_names:
        raise KernelDefinitionError(f"kernel {name!r}: output_names: expected at least one name")
    for parameter in given:
        if parameter in THREAD_ATTRIBUTES:
            raise KernelDefinitionError(f"kernel {name!r}: {parameter!r} is the name of a thread attribute")
        if given.count(parameter) > 1:
            raise KernelDefinitionError(f"kernel {name!r}: {parameter!r} is there twice; names must differ")
    for argument, text in (("source", source), ("header", header)):
        if not isinstance(text, str):
            raise KernelDefinitionError(f"kernel {name!r}: {argument}: expected MSL, got {text!r}")
    made = Definition(name, tuple(input_names), tuple(output_names), source, header, bool(atomic_outputs))
    options = _options(name, compile_options, math_mode, checked, recursion)
    return CustomKernel(made, bool(ensure_row_contiguous), options)


def _options(name: str, compile_options: Any, math_mode: Any, checked: Any, recursion: Any) -> CompileOptions:
    where = f"kernel {name!r}"
    if compile_options is not None:
        if not isinstance(compile_options, Mapping) or set(compile_options) - {"math_mode"}:
            raise KernelDefinitionError(
                f"{where}: compile_options: expected a dict with the key 'math_mode', got {compile_options!r}"
            )
        math_mode = compile_options.get("math_mode", math_mode)
    if math_mode not in _MATH_MODES:
        raise KernelDefinitionError(
            f"{where}: math_mode: expected {', '.join(map(repr, _MATH_MODES))}, got {math_mode!r}"
        )
    if problem := definition.option_problem(_MATH_MODES[math_mode], checked, recursion):
        raise KernelDefinitionError(f"{where}: {problem}")
    return CompileOptions(_MATH_MODES[math_mode], checked, recursion=recursion)


def _names(kernel: str, argument: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise KernelDefinitionError(f"kernel {kernel!r}: {argument}: expected a list of names, got {value!r}")
    for name in value:
        if problem := names.parameter_problem(name):
            raise KernelDefinitionError(f"kernel {kernel!r}: {argument}: {problem}")
    return tuple(value)
