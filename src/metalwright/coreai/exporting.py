"""``export``: a PyTorch module that uses Metal kernels becomes an ``.aimodel``, through Core AI's own converter."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from coreai_torch import TorchConverter, TorchMetalKernel, get_decomp_table
from torch.export.graph_signature import OutputKind, TensorArgument

from metalwright.authoring import intercept
from metalwright.authoring.kernel import NAMESPACE
from metalwright.coreai import files
from metalwright.errors import ArtifactError, MetalwrightError


def export(
    module: torch.nn.Module,
    args: Sequence[Any] | torch.Tensor,
    path: str | Path,
    *,
    kernels: Sequence[TorchMetalKernel] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    state_names: Sequence[str] | None = None,
) -> Path:
    """Write ``module`` as an ``.aimodel`` with the MSL of its kernels embedded.

    The module is exported in evaluation mode; its own mode is restored afterwards.

    Args:
        module: The module to export.
        args: Example inputs, as for ``torch.export.export`` (one tensor may stand alone).
        path: Where to write; the name ends in ``.aimodel``. An artifact that is there is replaced in one step.
        kernels: The kernels that the module calls; found while it is traced by default.
        kwargs: Example keyword inputs.
        dynamic_shapes: As for ``torch.export.export``.
        input_names: Names of the function's inputs; those of ``forward`` by default.
        output_names: Names of its outputs.
        state_names: Names of its states, which are the buffers that ``forward`` changes, in the order in which they
            were registered, then the inputs that it changes.

    Returns:
        The path.

    Raises:
        ArtifactError: The path cannot be written to, the module cannot be traced or converted, or it uses a kernel
            that is not among ``kernels``.
        ArgumentError, DispatchError: A call of a kernel inside the module is wrong.
    """
    path = Path(path)
    files.check_target(path)
    if not isinstance(module, torch.nn.Module):
        raise ArtifactError(f"export: expected a torch.nn.Module, got {type(module).__name__}")
    args = (args,) if isinstance(args, torch.Tensor) else tuple(args)
    program, called = _trace(module, args, kwargs, dynamic_shapes)
    _check_outputs(program, type(module).__name__)
    registered = _registered(program, called if kernels is None else kernels)
    try:
        converter = TorchConverter()
        converter.register_custom_kernels(registered)
        converter.add_exported_program(
            program, input_names=input_names, output_names=output_names, state_names=state_names
        )
        converted = converter.to_coreai()
        # since 1.0.0b3 a program is optimised as it is built, and has no such method
        getattr(converted, "optimize", lambda: None)()
    except MetalwrightError:
        raise
    except Exception as error:
        raise ArtifactError(
            f"export: Core AI cannot convert {type(module).__name__}: {_line(error)}"
        ) from error
    with files.replacing(path) as new:
        try:
            converted.save_asset(new)
        except Exception as error:
            raise ArtifactError(f"{path}: cannot be written: {_line(error)}") from error
    return path


def _trace(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> tuple[torch.export.ExportedProgram, list[TorchMetalKernel]]:
    """Export and decompose the module, and note the kernels that it calls on the way."""
    called: list[TorchMetalKernel] = []

    def note(kernel: TorchMetalKernel, proceed: Any, *_: Any) -> Any:
        if kernel not in called:
            called.append(kernel)
        return proceed()

    try:
        with _evaluating(module), intercept.calls(note), warnings.catch_warnings():
            # PyTorch 2.13 copies a graph with a call that it has deprecated itself
            warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
            program = torch.export.export(
                module, args, dict(kwargs) if kwargs else None, dynamic_shapes=dynamic_shapes
            )
            return program.run_decompositions(get_decomp_table()), called
    except MetalwrightError:
        raise
    except Exception as error:
        raise ArtifactError(
            f"export: PyTorch cannot export {type(module).__name__}: {_line(error)}"
        ) from error


def _check_outputs(program: torch.export.ExportedProgram, module: str) -> None:
    """Refuse a tensor that is given back twice, or also is a state's new value: the converter drops an output."""
    known: dict[str, str] = {}
    outputs = 0
    for spec in program.graph_signature.output_specs:
        if spec.kind is OutputKind.USER_OUTPUT:
            what = f"output {outputs}"
            outputs += 1
        else:
            what = f"the new value of {spec.target!r}"
        if not isinstance(spec.arg, TensorArgument):
            continue
        if (first := known.setdefault(spec.arg.name, what)) is not what:
            raise ArtifactError(
                f"export: {module}: {what} is the same tensor as {first}, of which Core AI keeps only one; "
                f"return a copy, made with .clone()"
            )


def _registered(
    program: torch.export.ExportedProgram, kernels: Sequence[TorchMetalKernel]
) -> list[TorchMetalKernel]:
    """Check the kernels against those in the graph and return them."""
    by_name: dict[str, TorchMetalKernel] = {}
    for kernel in kernels:
        if not isinstance(kernel, TorchMetalKernel):
            raise ArtifactError(f"export: kernels: expected MetalKernel objects, got {type(kernel).__name__}")
        if by_name.setdefault(kernel.name, kernel) is not kernel:
            raise ArtifactError(
                f"export: two different kernels are named {kernel.name!r}; a model tells its kernels apart by name, "
                f"so give each its own"
            )
    used = list(_used(program.graph_module))
    if missing := sorted({name for name, _ in used if name not in by_name}):
        raise ArtifactError(
            f"export: the model calls kernel {', '.join(map(repr, missing))}, which is not among kernels "
            f"({', '.join(map(repr, by_name)) or 'none'}); pass kernels=[...] with every kernel of the model"
        )
    for name, node in used:
        _check_scalars(by_name[name], node)
    return list(by_name.values())


def _used(graph_module: torch.fx.GraphModule) -> Iterator[tuple[str, torch.fx.Node]]:
    """Yield the calls of kernels, each with the kernel's name, in a graph and in the graphs inside it."""
    for part in graph_module.modules():
        if isinstance(part, torch.fx.GraphModule):
            for node in part.graph.nodes:
                target = getattr(node.target, "_schema", None)
                if target is not None and target.name.startswith(f"{NAMESPACE}::"):
                    yield target.name.removeprefix(f"{NAMESPACE}::"), node


def _check_scalars(kernel: TorchMetalKernel, node: torch.fx.Node) -> None:
    """Refuse a scalar that the graph computes: the converter makes it a tensor of rank 1 behind the MSL's back."""
    for name, value in zip(kernel.input_names, node.args, strict=False):
        if name in kernel._scalar_input_types and isinstance(value, torch.fx.Node):
            raise ArtifactError(
                f"export: kernel {kernel.name!r}: input {name!r} is computed while the model runs (from a dynamic "
                f"shape), but Core AI writes a scalar into the MSL as a constant; read the extent inside the kernel "
                f"with get_extent(i), pass a tensor, or export with a fixed shape"
            )


@contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Put every part of the module into evaluation mode, and each back into its own mode afterwards."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _line(error: BaseException) -> str:
    """Return what an error says; a KeyError's text is only its key."""
    return f"{type(error).__name__}: {error}"
