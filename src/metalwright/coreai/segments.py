"""Functions added to a module of the IR: the parts of a function that has been split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from metalwright.coreai.flatten import COPY_IN, COPY_OUT, Plain, nested
from metalwright.coreai.plan import TensorType


class Segments:
    """Adds functions to a module; ``types`` are the types of values, without what they say of memory."""

    def __init__(self, module: Any, types: Mapping[int, Any], prefix: str) -> None:
        self._module = module
        self._types = types
        self._prefix = prefix
        self._count = 0

    def add(self, operations: Sequence[Plain], inputs: Sequence[int], outputs: Sequence[int]) -> str:
        """Add a function of these operations: clones, which take the values of the function."""
        taken = [self._types[value] for value in inputs]
        made = [self._types[value] for value in outputs]
        with self._graph(taken, made) as graph:
            values = dict(zip(inputs, graph.arguments, strict=True))
            for plain in operations:
                values.update(zip(plain.results, _clone(plain, values), strict=True))
            handed = [_as(values[value], self._types[value]) for value in outputs]
            _output(handed)
            return graph.symbol_name

    def add_types(self, types: Sequence[TensorType]) -> str:
        """Add a function whose inputs have these types; it hands on its first."""
        from coreai._compiler.ir import Location, RankedTensorType, Type

        with self._module.context, Location.unknown():
            taken = [
                RankedTensorType.get([int(extent) for extent in one.shape], Type.parse(one.dtype))
                for one in types
            ]
        with self._graph(taken, taken[:1]) as graph:
            _output(list(graph.arguments)[:1])
            return graph.symbol_name

    @contextmanager
    def _graph(self, taken: Sequence[Any], made: Sequence[Any]) -> Iterator[Any]:
        from coreai._compiler.ir import InsertionPoint, Location
        from coreai.authoring.graph_builder import GraphOp

        name = f"{self._prefix}{self._count}"
        self._count += 1
        with self._module.context, Location.unknown():
            graph = GraphOp(
                name,
                list(taken),
                list(made),
                input_names(len(taken)),
                output_names(len(made)),
                ip=InsertionPoint(self._module.body),
            )
            with graph.block:
                yield graph


def input_names(count: int) -> list[str]:
    """Return the names of a segment's inputs."""
    return [f"x{index}" for index in range(count)]


def output_names(count: int) -> list[str]:
    """Return the names of a segment's outputs."""
    return [f"y{index}" for index in range(count)]


def _output(values: list[Any]) -> None:
    from coreai._compiler.dialects import coreai

    coreai.output(values)


def _clone(plain: Plain, values: Mapping[int, Any]) -> list[Any]:
    original = plain.operation
    clone = original.clone().operation
    for index, number in enumerate(plain.operands):
        clone.operands[index] = _as(values[number], original.operands[index].type, before=clone)
    for inner in nested(clone):
        for index, operand in enumerate(inner.operands):
            if operand in plain.captures:
                inner.operands[index] = _as(values[plain.captures[operand]], operand.type, before=clone)
    return list(clone.results)


def _as(value: Any, wanted: Any, before: Any = None) -> Any:
    """Return a value under a type that says more or less about memory, which takes a move in the IR."""
    from coreai._compiler.ir import InsertionPoint, Operation

    if value.type == wanted:
        return value
    name = COPY_IN if getattr(wanted, "encoding", None) is not None else COPY_OUT
    with nullcontext() if before is None else InsertionPoint(before):
        return Operation.create(name, results=[wanted], operands=[value]).result
