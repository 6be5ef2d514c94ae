"""From the bytecode of an artifact to what is run: a plan, the parts for the interpreter, the constants for kernels.

This runs in a process of its own (:mod:`metalwright.coreai.apart`), and what Core AI's reader takes of memory goes
with it.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metalwright.coreai import apart, arrays, elements, interpreter
from metalwright.coreai.flatten import INVOKE, Flattener, callee_name, nested, tensor_type
from metalwright.coreai.inspect import GRAPH, KERNEL, PRIVATE, function_of
from metalwright.coreai.plan import (
    Constant,
    FunctionPlan,
    Launch,
    Plan,
    TensorType,
    steps,
)
from metalwright.coreai.segments import Segments, output_names
from metalwright.coreai.splitting import Splitter
from metalwright.errors import ArtifactError

_SCATTER = "coreai.scatter_nd"
PLAN, CONSTANTS = "plan.pickle", "constants.bin"
_ALIGNMENT = 64


def main() -> None:
    """Compile for the parent, which gives two paths: bytecode to read and a folder to write."""
    apart.answer(lambda paths: compile_artifact(*map(Path, paths)))


def compile_artifact(bytecode: Path, folder: Path) -> None:
    """Write the plan, the compiled parts and the constants of an artifact to a folder."""
    module = interpreter.read_module(bytecode)
    graphs = {
        _name(view.operation): view.operation
        for view in module.body.operations
        if view.operation.name == GRAPH
    }
    with_kernels = _with_kernels(graphs)
    _check_sizes(graphs.values())
    _check_scatters(graphs.values())
    prefix = _unused_prefix(graphs)

    flattener = Flattener(graphs)
    segments = Segments(module, flattener.types, f"{prefix}segment")
    splitter = Splitter(segments.add)
    functions: list[FunctionPlan] = []
    for name, graph in graphs.items():
        if PRIVATE in graph.attributes:
            continue
        try:
            body = splitter.split(flattener.function(graph)) if name in with_kernels else None
        except ArtifactError as error:
            raise ArtifactError(f"function {name!r}: {error}") from error
        functions.append(FunctionPlan(function_of(graph), body))
    kernels = tuple(flattener.kernels)
    types = _static_types(functions, kernels)
    types_of = Segments(module, {}, f"{prefix}types").add_types(types) if types else ""

    constants = Segments(module, flattener.types, f"{prefix}constant")
    names = {
        value: constants.add(splitter.with_free([plain]), [], [value])
        for value, plain in sorted(splitter.constants.items())
    }
    for_constants = interpreter.copy_module(module) if names else None
    # a function with kernels is all in its parts now, and nothing else that is left invokes it
    _erase(module, {*with_kernels, *names.values()})
    interpreter.write(module, folder)
    del module, graphs, flattener.types
    written: tuple[Constant, ...] = ()
    if for_constants is not None:
        _erase(
            for_constants,
            {name for name in _all_names(for_constants) if name.startswith(prefix)} - {*names.values()},
        )
        _erase(for_constants, {*with_kernels} | {one.function.name for one in functions})
        written = _write_constants(for_constants, names, folder)
    plan = Plan(tuple(functions), kernels, written, types, types_of)
    (folder / PLAN).write_bytes(pickle.dumps(plan))


def _write_constants(module: Any, names: Mapping[int, str], folder: Path) -> tuple[Constant, ...]:
    """Work out constants and write them one behind the other; equal ones are written once."""
    parts = folder / f"constants{interpreter.SUFFIX}"
    parts.mkdir()
    interpreter.write(module, parts)
    del module
    model = interpreter.load(parts)
    written: list[Constant] = []
    offsets: dict[tuple[bytes, TensorType], int] = {}

    async def value_of(name: str) -> Any:
        function = model.load_function(function_name=name, intermediate_logger=None, profiler=None)
        return (await interpreter.call(function, {}, {}, "the artifact", "what depends on constants alone"))[
            output_names(1)[0]
        ]

    with (folder / CONSTANTS).open("wb") as file:
        for value, name in names.items():
            values = arrays.view(interpreter.run(value_of(name)))
            kind = TensorType(elements.name_of(values.dtype), values.shape)
            data = values.reshape(-1).view("u1").data if values.size else b""
            digest = hashlib.sha256(data).digest()
            if (digest, kind) not in offsets:
                file.write(b"\0" * (-file.tell() % _ALIGNMENT))
                offsets[digest, kind] = file.tell()
                file.write(data)
            written.append(Constant(value, kind, offsets[digest, kind], values.nbytes))
    shutil.rmtree(parts)
    return tuple(written)


def _static_types(functions: Sequence[FunctionPlan], kernels: Sequence[Any]) -> tuple[TensorType, ...]:
    """Return the static types of what is handed to the interpreter from outside it."""
    found: dict[TensorType, None] = {}
    for function in functions:
        if function.body is None:
            continue
        for info in (*function.function.inputs, *function.function.states):
            found[TensorType(info.dtype, info.shape)] = None
        for step in steps(function.body):
            if isinstance(step, Launch):
                found.update(dict.fromkeys(kernels[step.kernel].results))
    return tuple(kind for kind in found if kind.static)


def _with_kernels(graphs: Mapping[str, Any]) -> set[str]:
    """Return the graphs with a kernel in them, or in a graph that they invoke."""
    found: set[str] = set()
    callers: dict[str, set[str]] = {}
    for name, graph in graphs.items():
        for operation in nested(graph):
            if operation.name == KERNEL:
                found.add(name)
            if operation.name == INVOKE:
                callers.setdefault(callee_name(operation), set()).add(name)
    waiting = list(found)
    while waiting:
        new = callers.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def _check_sizes(graphs: Any) -> None:
    """Refuse a tensor that no memory of this machine holds: the interpreter would end the process over it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    from coreai._compiler.ir import RankedTensorType

    for graph in graphs:
        for operation in nested(graph):
            for result in operation.results:
                if not isinstance(result.type, RankedTensorType):
                    continue
                kind = tensor_type(result.type)
                # of another element type it is not known here how large it is
                size = elements.NUMPY[kind.dtype].itemsize if kind.dtype in elements.NUMPY else 1
                if math.prod(extent for extent in kind.shape if extent != "?") * size > memory:
                    raise ArtifactError(
                        f"function {_name(graph)!r}: {operation.name!r} makes a tensor of {list(kind.shape)} "
                        f"{kind.dtype}, which is more than this machine's memory of {memory >> 30} GiB"
                    )


def _check_scatters(graphs: Any) -> None:
    """Refuse values that do not lie as their indices say: the interpreter would end the process over them."""
    from coreai._compiler.ir import RankedTensorType

    for graph in graphs:
        for operation in nested(graph):
            if operation.name != _SCATTER:
                continue
            types = [operand.type for operand in operation.operands]
            if not all(isinstance(one, RankedTensorType) for one in types):
                continue
            into, at, values = map(tensor_type, types)
            if not at.shape or at.shape[-1] == "?":
                continue
            wanted = len(at.shape) - 1 + len(into.shape) - at.shape[-1]
            if len(values.shape) != wanted:
                raise ArtifactError(
                    f"function {_name(graph)!r}: {operation.name!r} puts values of {list(values.shape)} at indices of "
                    f"{list(at.shape)} into {list(into.shape)}, which Core AI's interpreter cannot run: they should "
                    f"have rank {wanted}. coreai-torch writes this for x[positions] = y with one position, and not for "
                    f"x.index_copy_(0, positions, y)"
                )


def _unused_prefix(graphs: Mapping[str, Any]) -> str:
    prefix = "metalwright_"
    while any(name.startswith(prefix) for name in graphs):
        prefix += "_"
    return prefix


def _all_names(module: Any) -> list[str]:
    return [_name(view.operation) for view in module.body.operations if view.operation.name == GRAPH]


def _erase(module: Any, names: set[str]) -> None:
    for view in list(module.body.operations):
        if view.operation.name == GRAPH and _name(view.operation) in names:
            view.operation.erase()


def _name(graph: Any) -> str:
    from coreai._compiler.ir import StringAttr

    return StringAttr(graph.attributes["sym_name"]).value
