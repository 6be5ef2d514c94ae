"""``MetalKernel``: a ``coreai_torch.TorchMetalKernel`` whose MSL is executed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from coreai.authoring import MetalParameter
from coreai_torch import TorchMetalKernel
from torch._library.custom_ops import OPDEFS, CustomOpDef

from metalwright.authoring import definition, preview, references, run, tracing, validation
from metalwright.errors import KernelDefinitionError

NAMESPACE = "coreai_metal_kernels"


class MetalKernel(TorchMetalKernel):
    """A Metal kernel: the MSL of its body beside a PyTorch reference.

    A drop-in for ``coreai_torch.TorchMetalKernel``, and a subclass of it. Called on CPU tensors it executes the MSL;
    under ``torch.export``, ``torch.compile`` and on fake or meta tensors it traces its reference, as Core AI
    expects. A program exported with it executes the MSL too when it is called.

    Args:
        name: The kernel's name, a C++ identifier. A later kernel of the same name takes its PyTorch operator over,
            as when a notebook cell runs again; called directly, each still runs its own MSL.
        input_names: Names of the inputs in the MSL.
        result_names: Names of the results in the MSL.
        src: The body of the kernel; Core AI generates the signature around it.
        torch_defn: The reference. Parameters are annotated ``torch.Tensor``, ``int``, ``float`` or ``bool``; the
            result ``torch.Tensor``, ``list[torch.Tensor]`` or a fixed ``tuple``.
        metal_params: Thread attributes, such as ``MetalParameter("gid", "uint", "thread_position_in_grid")``.
        helper_src: MSL before the kernel, for functions and constants.
        template_dtypes: Input name to a placeholder that stands for the input's type in ``src`` and ``helper_src``.
        math_mode: ``"safe"`` (IEEE, no reordering) or ``"fast"`` (what Metal does by default).
        checked: Stop with a ``KernelFault`` at an access outside a buffer, at a barrier that not all threads meet.
        recursion: How many calls of a function that calls itself may be nested; such functions are refused where
            it is 0.

    Attributes:
        cases: Inputs to check the kernel with: a method of a subclass, or a callable set on the object, that
            returns mappings with ``inputs``, ``threads_per_grid``, ``threads_per_thread_group`` and
            ``result_shapes``.
        case_for: A function of extents, such as ``case_for(rows: int = 33, columns: int = 50)``, that returns one
            such mapping, or ``None`` for extents that the kernel does not take. Its positional parameters are the
            extents, their defaults those of an ordinary case; ``check(edges=True)`` tries others. A keyword with a
            float dtype for its default is tried with the other float dtypes, where the kernel has a template.

    Raises:
        KernelDefinitionError: Names, Metal parameters, templates or their number are wrong (a ``ValueError``).
        KernelSignatureError: The reference cannot be one (a ``TypeError``).
    """

    cases: Callable[[], Iterable[Mapping[str, Any]]] | None = None
    case_for: Callable[..., Mapping[str, Any] | None] | None = None

    def __init__(
        self,
        name: str,
        input_names: list[str],
        result_names: list[str],
        src: str,
        torch_defn: Callable[..., Any],
        metal_params: list[MetalParameter] | None = None,
        helper_src: str | None = None,
        template_dtypes: dict[str, str] | None = None,
        *,
        math_mode: str = "safe",
        checked: bool = True,
        recursion: int = 0,
    ) -> None:
        metal_params = definition.check_metal_params(name, metal_params)
        definition.check_names(name, input_names, result_names, metal_params)
        definition.check_texts(name, src, helper_src)
        definition.check_parameter_count(name, len(input_names), len(result_names), len(metal_params))
        definition.check_templates(name, template_dtypes, input_names)
        if problem := definition.option_problem(math_mode, checked, recursion):
            raise KernelDefinitionError(f"kernel {name!r}: {problem}")
        self.torch_defn = torch_defn
        self.math_mode = math_mode
        self.checked = checked
        self.recursion = recursion
        with definition.translated(name):
            definition.check_reference(name, torch_defn, input_names)
            super().__init__(
                name,
                input_names=list(input_names),
                result_names=list(result_names),
                src=src,
                torch_defn=torch_defn,
                metal_params=metal_params,
                helper_src=helper_src,
                template_dtypes=template_dtypes,
            )

    def __call__(
        self,
        *args: Any,
        threads_per_grid: Sequence[int],
        threads_per_thread_group: Sequence[int],
        result_shapes: Sequence[Sequence[int]],
    ) -> Any:
        """Execute the MSL on CPU tensors, or trace the reference.

        Args:
            args: The inputs in the order of ``input_names``: contiguous CPU tensors, and Python numbers where the
                reference has a scalar.
            threads_per_grid: Threads along x, y, z. Threadgroups at the edge may be partial.
            threads_per_thread_group: Threads in a threadgroup along x, y, z; at most 1024 together.
            result_shapes: One shape per result, in PyTorch's order.

        Returns:
            What the reference returns: a tensor, a list or a tuple. Elements that no thread wrote are NaN, or
            bytes of 0xA5 for integers.

        Raises:
            ArgumentError: An input or a result shape does not fit the kernel.
            DispatchError: Launch sizes that no GPU accepts.
            CompileError: The MSL does not compile; the message shows the line of ``src``.
            KernelFault: The kernel did something wrong while it ran (``checked``).
        """
        if not tracing.in_dynamo():
            if not tracing.is_traced(args) and not tracing.is_observed():
                return self._execute(args, threads_per_grid, threads_per_thread_group, result_shapes)
            return self._traced(args, threads_per_grid, threads_per_thread_group, result_shapes)
        return super().__call__(
            *args,
            threads_per_grid=threads_per_grid,  # type: ignore[arg-type]
            threads_per_thread_group=threads_per_thread_group,  # type: ignore[arg-type]
            result_shapes=result_shapes,  # type: ignore[arg-type]
        )

    def reference(self, *inputs: Any) -> Any:
        """Run the PyTorch reference on the inputs and return what it returns."""
        validation.check_count(self.name, self.input_names, inputs)
        return self.torch_defn(*inputs)

    def source(
        self,
        *inputs: Any,
        dtypes: Mapping[str, Any] | Any = None,
        ranks: Mapping[str, int] | int | None = None,
        scalars: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the complete generated MSL, as Core AI would embed it (its random suffix of the name apart).

        The text depends on the dtype and rank of each input and result and on the values of scalars. They come, in
        this order, from the keywords, from ``inputs``, and from the first of ``cases``.

        Args:
            inputs: Inputs as for a call (anything with ``dtype`` and ``shape``; numbers for scalars).
            dtypes: A dtype for all inputs, or a mapping of input or result names to dtypes; ``torch.float16``,
                ``"float16"`` and ``"half"`` are the same.
            ranks: A rank for all inputs, or a mapping of input or result names to ranks.
            scalars: A mapping of names to values.

        Raises:
            ArgumentError: Something is not known, or does not fit.
        """
        return preview.generate(self, inputs, dtypes, ranks, scalars)

    # What Core AI sees ------------------------------------------------------------------------------------------

    def _construct_torch_custom_op(self, torch_callable: Callable[..., Any]) -> CustomOpDef:
        """Register Core AI's operator, with a CPU implementation that executes the MSL."""
        operator = super()._construct_torch_custom_op(torch_callable)

        def executed(*operands: Any) -> Any:
            count = len(self.input_names)
            grid, group, *shapes = (operand.tolist() for operand in operands[count:])
            return self._execute(operands[:count], grid, group, shapes)

        operator.register_kernel("cpu", executed)
        return operator

    def _execute(self, args: tuple[Any, ...], grid: Any, group: Any, shapes: Any) -> Any:
        if (note := references.wanted()) is not None:
            return references.run(self, args, note)
        return run.call(self, args, grid, group, shapes)

    def _traced(
        self,
        args: tuple[Any, ...],
        grid: Sequence[Any],
        group: Sequence[Any],
        shapes: Sequence[Sequence[Any]],
    ) -> Any:
        validation.check_count(self.name, self.input_names, args)
        for label, sizes in (("threads_per_grid", grid), ("threads_per_thread_group", group)):
            if len(sizes) != 3:
                validation.size3(self.name, label, sizes)
        validation.check_sizes(self.name, "threads_per_grid", grid, "threads_per_thread_group", group)
        if len(shapes) != len(self.result_names):
            validation.shapes(self.name, self.result_names, shapes)
        for name, value in zip(self.input_names, args, strict=True):
            if name in self._scalar_input_types and isinstance(value, (int, float)):
                validation.scalar(self.name, name, self._scalar_input_types[name], value)
            elif isinstance(value, torch.Tensor):
                validation.check_traced(self.name, name, value)
        self._claim_operator()
        # torch's own errors pass as they are: export and compile read some of them
        traced = super().__call__(
            *args,
            threads_per_grid=tuple(grid),  # type: ignore[arg-type]
            threads_per_thread_group=tuple(group),  # type: ignore[arg-type]
            result_shapes=[list(shape) for shape in shapes],
        )
        validation.check_results(self.name, self.result_names, shapes, traced)
        return traced

    def _claim_operator(self) -> None:
        """Take the operator back if a later kernel of the same name has it: the one that is called is traced."""
        if OPDEFS.get(f"{NAMESPACE}::{self.name}") is not self.torch_custom_op:
            self.torch_custom_op = self._construct_torch_custom_op(self.torch_defn)
