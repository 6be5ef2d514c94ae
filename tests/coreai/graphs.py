"""Programs written in Core AI's own terms, for what PyTorch's export does not produce: control flow around kernels,
graphs that invoke graphs, states that are written inside a branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import coreai.authoring
import numpy as np
from coreai._compiler.dialects import coreai
from coreai._compiler.ir import Type
from coreai.authoring import AIProgram, CustomMetalKernel, MetalParameter, Module
from coreai.authoring.graph_builder import GraphOp
from coreai.authoring.tensor_type import TensorType

GID = MetalParameter("i", "uint", "thread_position_in_grid")
DOUBLE = CustomMetalKernel("twice", ["x"], ["y"], "y[i] = x[i] * 2;", [GID])


def constant(values: Any, dtype: Any) -> Any:
    return coreai.constant(np.array(values, dtype))


# A type of the IR, made when the program is that it belongs to.
MakeType = Callable[[], Any]


def tensor(shape: Sequence[int], dtype: Any = np.float32) -> MakeType:
    return lambda: TensorType(tuple(shape), dtype)._to_mlir_type()


def handle(shape: Sequence[int], dtype: str = "f32") -> MakeType:
    return lambda: Type.parse(f"!coreai.handle<tensor<{'x'.join(map(str, shape))}x{dtype}>>")


def token() -> Any:
    return Type.parse("!coreai.token")


def launch(kernel: CustomMetalKernel, values: Sequence[Any], size: int, shapes: Sequence[Sequence[int]],
           types: Sequence[Any]) -> list[Any]:  # fmt: skip
    """Add a launch of `size` threads to the graph that is being written."""
    operands = [*values, constant([size, 1, 1], np.uint32), constant([min(size, 64), 1, 1], np.uint32)]
    operands += [constant(shape, np.uint32) for shape in shapes]
    return list(kernel._construct_kernel_op(operands, list(types)))


def doubled(x: Any, kernel: CustomMetalKernel = DOUBLE) -> Any:
    (size,) = x.type.shape
    return launch(kernel, [x], size, [[size]], [x.type])[0]


def save(path: Path, *graphs: Callable[[], Any]) -> Path:
    """Save a program whose graphs are written by these functions."""
    module = Module.create()
    with module:
        for graph in graphs:
            graph()
    AIProgram(module).save_asset(path)
    return path


def one(name: str, inputs: Mapping[str, MakeType], outputs: Mapping[str, MakeType],
        body: Callable[..., Sequence[Any]], **options: Any) -> GraphOp:  # fmt: skip
    """Add a graph whose body takes the inputs and returns the outputs."""
    taken, made = ([make() for make in types.values()] for types in (inputs, outputs))
    graph = GraphOp(name, taken, made, list(inputs), list(outputs), **options)
    with graph.block:
        coreai.output(list(body(*graph.arguments)))
    return graph
