"""``emulate()``: code written for a Mac runs here, with its MSL executed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coreai_torch import TorchMetalKernel

from metalwright.authoring import definition, intercept, run, tracing
from metalwright.authoring.kernel import MetalKernel
from metalwright.authoring.registry import Emulation, Options, Target, choose, register
from metalwright.errors import ArgumentError

# PyTorch's headers nest such calls two deep
_RECURSION = 4


def emulate(
    *names: str, checked: bool = True, math_mode: str = "safe", recursion: int = _RECURSION
) -> Emulation:
    """Execute the MSL of kernels that would otherwise need a Mac.

    Inside ``with metalwright.emulate():`` a call of a plain ``coreai_torch.TorchMetalKernel`` on CPU tensors runs
    its MSL instead of its reference; under ``torch.export``, ``torch.compile`` and on fake or meta tensors it
    traces as ever. ``torch.mps.compile_shader`` and MLX's ``mx.fast.metal_kernel`` compile for this CPU, and Core
    AI's runtime runs artifacts with kernels. It nests, holds for the current thread (or task) only, and ends with
    the block, also on an error. It decorates functions too: ``@metalwright.emulate()``.

    Args:
        names: What to emulate, for example ``"coreai_torch"``; everything installed by default.
        checked: Stop at an access outside a buffer, at a barrier that not all threads meet.
        math_mode: ``"safe"`` or ``"fast"``.
        recursion: How many calls of a function that calls itself may be nested in a shader of PyTorch's or MLX's.

    Raises:
        ArgumentError: A name is unknown, or an option is.
        ToolchainError: A package named here is not installed.
    """
    if problem := definition.option_problem(math_mode, checked, recursion):
        raise ArgumentError(f"emulate(): {problem}")
    return Emulation(choose(names), Options(checked, math_mode, recursion))


@dataclass(frozen=True)
class _RunMSL:
    """The handler for plain Core AI kernels. Equal options make equal handlers: ``end`` finds what ``begin`` pushed."""

    options: Options

    def __call__(
        self,
        kernel: TorchMetalKernel,
        proceed: Callable[[], Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        # a MetalKernel executes its MSL by itself, and comes here only to trace
        if isinstance(kernel, MetalKernel) or tracing.is_traced(args):
            return proceed()
        return run.call(
            kernel, args, checked=self.options.checked, math_mode=self.options.math_mode, **kwargs
        )


register(
    Target(
        name="coreai_torch",
        package="coreai_torch",
        begin=lambda options: intercept.push(_RunMSL(options)),
        end=lambda options: intercept.pop(_RunMSL(options)),
    )
)
