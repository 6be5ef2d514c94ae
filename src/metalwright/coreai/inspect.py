"""``inspect``: what is in an ``.aimodel``, read from its real program through Core AI's bindings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from metalwright.coreai import apart, files, interpreter, signature
from metalwright.coreai.artifact import (
    Artifact,
    Function,
    Kernel,
    Operand,
    Parameter,
    Shape,
    Size,
    TensorInfo,
)

KERNEL = "coreai.metal4_kernel"
GRAPH = "coreai.graph"
PRIVATE = "priv"  # an attribute of a graph that only other graphs call
TOKEN = "!coreai.token"  # what a function gives back for each state it wrote


def inspect(path: str | Path) -> Artifact:
    """Return the functions and kernels of an ``.aimodel``.

    Raises:
        ArtifactError: The path does not exist, is not an artifact, or is damaged.
    """
    path = Path(path)
    files.check_whole(path)
    functions, kernels = apart.call(path, "metalwright.coreai.inspect", str(files.program_of(path)))
    return Artifact(path, functions, kernels)


def main() -> None:
    """Read bytecode for the parent, which gives its path; reply with the functions and kernels."""
    apart.answer(lambda bytecode: _read(Path(bytecode)))


def _read(bytecode: Path) -> tuple[tuple[Function, ...], tuple[Kernel, ...]]:
    module = interpreter.read_module(bytecode)
    functions: list[Function] = []
    kernels: list[Kernel] = []
    for graph in operations(module.operation, GRAPH):
        function = function_of(graph)
        if PRIVATE not in graph.attributes:
            functions.append(function)
        kernels += [_kernel(op, function.name) for op in operations(graph, KERNEL)]
    return tuple(functions), tuple(kernels)


def operations(operation: Any, name: str) -> Iterator[Any]:
    """Yield the operations of a name inside ``operation``, in order, through all nested regions."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name == name:
                    yield inner.operation
                yield from operations(inner.operation, name)


def function_of(graph: Any) -> Function:
    """Return the name and the signature of a graph of the IR."""
    from coreai._compiler.ir import FunctionType, StringAttr, TypeAttr

    attributes = graph.attributes
    kind = FunctionType(TypeAttr(attributes["function_type"]).value)
    inputs = _named(kind.inputs, attributes, "arg_attrs", "arg")
    outputs = _named(kind.results, attributes, "res_attrs", "result")
    handles = [is_handle(value_type) for value_type in kind.inputs]
    return Function(
        StringAttr(attributes["sym_name"]).value,
        tuple(info for info, handle in zip(inputs, handles, strict=True) if not handle),
        tuple(info for info in outputs if info.dtype != TOKEN),
        tuple(info for info, handle in zip(inputs, handles, strict=True) if handle),
    )


def is_handle(value_type: Any) -> bool:
    """True for the type of a state."""
    from coreai._compiler.dialects.coreai import HandleType

    return isinstance(value_type, HandleType)


def _named(types: Any, attributes: Any, key: str, fallback: str) -> tuple[TensorInfo, ...]:
    from coreai._compiler.ir import DictAttr, StringAttr

    infos: list[TensorInfo] = []
    for index, value_type in enumerate(types):
        given = DictAttr(attributes[key][index])  # not there at all where there are no types
        name = StringAttr(given["coreai.name"]).value if "coreai.name" in given else f"{fallback}{index}"
        infos.append(TensorInfo(name, *described(value_type)))
    return tuple(infos)


def _kernel(operation: Any, function: str) -> Kernel:
    op = operation.opview
    name, source = op.kernel_name.value, op.kernel_source.value
    parameters = signature.parameters(source, name)
    arguments, results = list(op.kernel_args), list(operation.results)
    return Kernel(
        name=name,
        function=function,
        operands=_operands(arguments, parameters),
        results=_operands(results, parameters[len(arguments) :]),
        threads_per_grid=_size(op.threads_per_grid),
        threads_per_threadgroup=_size(op.threads_per_thread_group),
        parameters=parameters,
        source=source,
    )


def _operands(values: list[Any], parameters: tuple[Parameter, ...]) -> tuple[Operand, ...]:
    """Pair the values with the MSL parameters, which come in the same order."""
    return tuple(
        Operand(parameters[index].name if index < len(parameters) else f"arg{index}", *described(value.type))
        for index, value in enumerate(values)
    )


def described(value_type: Any) -> tuple[str, Shape]:
    """Return the element type and shape of a tensor, or of that behind a handle; another type is its own name."""
    from coreai._compiler.ir import RankedTensorType

    if is_handle(value_type):
        value_type = value_type.inner_type
    if not isinstance(value_type, RankedTensorType):
        return str(value_type), ()
    shape: Shape = tuple(
        "?" if value_type.is_dynamic_dim(axis) else value_type.get_dim_size(axis)
        for axis in range(value_type.rank)
    )
    return str(value_type.element_type), shape


def _size(value: Any) -> Size:
    from coreai._compiler.ir import DenseIntElementsAttr, OpResult

    if not OpResult.isinstance(value) or OpResult(value).owner.name != "coreai.constant":
        return "computed"
    elements = OpResult(value).owner.attributes["value"]
    if not isinstance(elements, DenseIntElementsAttr) or len(elements) != 3:
        return "computed"
    x, y, z = (int(entry) for entry in elements)
    return x, y, z
