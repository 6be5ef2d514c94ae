"""A graph of the IR as numbered values, with the graphs that it calls put in their callers' place.

What Core AI's interpreter runs stays an operation of the IR (:class:`Plain`). What it does not is a :class:`Cut`:
kernel launches, the control flow around them, and states. Moves of a value into a GPU's buffer and back are no
operations here: the value keeps its number.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from metalwright.coreai.inspect import KERNEL, TOKEN, described, is_handle
from metalwright.coreai.plan import Branch, KernelText, Launch, Loop, Read, TensorType, Write
from metalwright.errors import ArtifactError

INVOKE = "coreai.invoke"
_IF, _WHILE, _GROUP = "coreai.if", "coreai.while", "coreai.isolated_group"
_READ, _WRITE = "coreai.read_handle", "coreai.write_handle"
_TOKENS = ("coreai.create_token", "coreai.join_token")
COPY_IN, COPY_OUT = "coreaix.copy_with_constraints", "coreaix.copy_discarding_constraints"
# Core AI wraps the name in an attribute that its bindings have no class for
_CALLEE = re.compile(r'@(?:"(?P<quoted>[^"]+)"|(?P<name>[\w$.]+))')

Values = dict[Any, "int | State | None"]
"""What each value of the IR is known by; a token is by nothing."""


@dataclass(frozen=True)
class State:
    """A handle: the place of its state among the function's states."""

    index: int


@dataclass(frozen=True)
class Plain:
    """An operation of the IR; ``captures`` are the values from outside that its own regions use.

    ``position`` grows along the function, through all blocks.
    """

    position: int
    operation: Any
    operands: tuple[int, ...]
    captures: Mapping[Any, int]
    results: tuple[int, ...]

    @property
    def uses(self) -> tuple[int, ...]:
        return (*self.operands, *self.captures.values())


Cut = Launch | Branch["Block"] | Loop["Block"] | Read | Write


@dataclass(frozen=True)
class Block:
    """The operations of a region, in order."""

    arguments: tuple[int, ...]
    items: tuple[Plain | Cut, ...]
    results: tuple[int, ...]


@dataclass
class Flattener:
    """Flattens the functions of one module; values and kernels are numbered through all of them."""

    graphs: Mapping[str, Any]
    types: dict[int, Any] = field(default_factory=dict)  # of the IR
    kernels: dict[KernelText, int] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _positions: Iterator[int] = field(default_factory=itertools.count)
    _cut: dict[Any, bool] = field(default_factory=dict)
    _inside: list[str] = field(default_factory=list)

    def function(self, graph: Any) -> Block:
        """Flatten a function; its arguments are those that are no states."""
        block = graph.regions[0].blocks[0]
        values: Values = {}
        arguments: list[int] = []
        states = itertools.count()
        for argument in block.arguments:
            if is_handle(argument.type):
                values[argument] = State(next(states))
            else:
                arguments.append(self._new(argument.type))
                values[argument] = arguments[-1]
        return _BlockFlattener(self, values).flatten(block, tuple(arguments))

    def needs_cutting(self, operation: Any) -> bool:
        """True if an operation, a region of it or a graph that it invokes has a kernel or touches a state."""
        known = self._cut.get(operation)
        if known is None:
            self._cut[operation] = False  # a graph that invokes itself is found out when it is flattened
            known = self._cut[operation] = self._look(operation)
        return known

    def _look(self, operation: Any) -> bool:
        if operation.name in (KERNEL, _READ, _WRITE):
            return True
        if operation.name == INVOKE:
            return self.needs_cutting(self.callee(operation))
        return any(self.needs_cutting(inner) for inner in _inner(operation))

    def callee(self, operation: Any) -> Any:
        name = callee_name(operation)
        if name not in self.graphs:
            raise ArtifactError(f"invokes a graph {name!r} that is not there")
        return self.graphs[name]

    def _new(self, ir_type: Any) -> int:
        number = next(self._numbers)
        self.types[number] = plain_type(ir_type)
        return number


class _BlockFlattener:
    """Flattens one block. States that it has read or written are values of its own until something else may."""

    def __init__(self, whole: Flattener, values: Values) -> None:
        self._whole = whole
        self._values = values
        self._items: list[Plain | Cut] = []
        self._present: dict[int, int] = {}  # what a state's value is now
        self._unwritten: set[int] = set()

    def flatten(self, block: Any, arguments: tuple[int, ...]) -> Block:
        results = self._operations(block)
        self._write_back()
        return Block(arguments, tuple(self._items), results)

    def _operations(self, block: Any) -> tuple[int, ...]:
        """Flatten the operations of a block and return what its last one, the terminator, hands on."""
        *operations, last = block.operations
        for view in operations:
            self._operation(view.operation)
        handed = [self._value(operand) for operand in last.operation.operands]
        return tuple(value for value in handed if isinstance(value, int))

    def _operation(self, operation: Any) -> None:
        name = operation.name
        if name in (COPY_IN, COPY_OUT):
            self._values[operation.results[0]] = self._value(operation.operands[0])
        elif name in _TOKENS:
            self._values[operation.results[0]] = None
        elif name == KERNEL:
            self._kernel(operation)
        elif name == _READ:
            self._read(operation)
        elif name == _WRITE:
            self._write(operation)
        elif not self._whole.needs_cutting(operation):
            self._plain(operation)
        elif name == INVOKE:
            self._invoke(operation)
        elif name == _GROUP:
            self._inline(operation, operation.regions[0].blocks[0])
        elif name == _IF:
            self._branch(operation)
        elif name == _WHILE:
            self._loop(operation)
        else:
            raise ArtifactError(f"a Metal kernel or a state inside {name!r} cannot be run here")

    def _plain(self, operation: Any) -> None:
        operands = tuple(self._tensor(operand, operation) for operand in operation.operands)
        captures: dict[Any, int] = {}
        for inner in nested(operation):
            for operand in inner.operands:
                if operand in self._values:
                    captures[operand] = self._tensor(operand, operation)
        position = next(self._whole._positions)
        self._items.append(Plain(position, operation, operands, captures, self._results(operation)))

    def _kernel(self, operation: Any) -> None:
        op = operation.opview
        text = KernelText(
            op.kernel_name.value,
            op.kernel_source.value,
            tuple(tensor_type(operand.type) for operand in op.kernel_args),
            tuple(tensor_type(result.type) for result in operation.results),
        )
        cut = Launch(
            kernel=self._whole.kernels.setdefault(text, len(self._whole.kernels)),
            operands=tuple(self._tensor(operand, operation) for operand in op.kernel_args),
            threads_per_grid=self._tensor(op.threads_per_grid, operation),
            threads_per_threadgroup=self._tensor(op.threads_per_thread_group, operation),
            result_shapes=tuple(self._tensor(shape, operation) for shape in op.result_shapes),
            results=self._results(operation),
        )
        self._items.append(cut)

    def _read(self, operation: Any) -> None:
        state = self._state(operation.operands[0], operation)
        if state not in self._present:
            number = self._whole._new(operation.results[0].type)
            self._items.append(Read(state, number))
            self._present[state] = number
        self._values[operation.results[0]] = self._present[state]
        self._values[operation.results[1]] = None

    def _write(self, operation: Any) -> None:
        state = self._state(operation.operands[0], operation)
        self._present[state] = self._tensor(operation.operands[1], operation)
        self._unwritten.add(state)
        self._values[operation.results[0]] = None

    def _write_back(self) -> None:
        for state in sorted(self._unwritten):
            self._items.append(Write(state, self._present[state]))
        self._unwritten.clear()
        self._present.clear()

    def _invoke(self, operation: Any) -> None:
        callee = self._whole.callee(operation)
        self._inline(operation, callee.regions[0].blocks[0])

    def _inline(self, operation: Any, block: Any) -> None:
        inside = self._whole._inside
        name = str(operation.attributes["callee"]) if operation.name == INVOKE else ""
        if name and name in inside:
            raise ArtifactError(f"the graph {name} invokes itself around a Metal kernel, which does not end")
        own = self._values
        # a graph sees nothing of its caller; a group sees all
        self._values = {} if name else dict(own)
        for argument, operand in zip(block.arguments, operation.operands, strict=True):
            self._values[argument] = own[operand]
        inside.append(name)
        *operations, last = block.operations
        for view in operations:
            self._operation(view.operation)
        handed = [self._value(operand) for operand in last.operation.operands]
        inside.pop()
        self._values = own
        for result, value in zip(operation.results, handed, strict=True):
            self._values[result] = value

    def _branch(self, operation: Any) -> None:
        self._check_carried(operation)
        self._write_back()
        then, otherwise = (self._region(region) for region in operation.regions)
        condition = self._tensor(operation.operands[0], operation)
        self._items.append(Branch(condition, then, otherwise, self._results(operation)))

    def _loop(self, operation: Any) -> None:
        self._check_carried(operation)
        self._write_back()
        initial = tuple(
            self._tensor(operand, operation) for operand in operation.operands if not _is_token(operand)
        )
        before, after = (self._region(region) for region in operation.regions)
        self._items.append(Loop(initial, before, after, self._results(operation)))

    def _region(self, region: Any) -> Block:
        if not region.blocks:
            return Block((), (), ())
        block = region.blocks[0]
        inner = _BlockFlattener(self._whole, dict(self._values))
        return inner.flatten(block, inner._numbered(block.arguments))

    def _check_carried(self, operation: Any) -> None:
        """Handles have nowhere to go. Tokens keep an order that is kept anyway: they are left out."""
        for value in (*operation.operands, *operation.results):
            if is_handle(value.type):
                raise ArtifactError(
                    f"{operation.name!r} with a Metal kernel hands on {value.type}, which cannot be run here"
                )

    def _results(self, operation: Any) -> tuple[int, ...]:
        return self._numbered(operation.results)

    def _numbered(self, values: Iterable[Any]) -> tuple[int, ...]:
        """Number new values, and return the numbers of those that are no tokens."""
        numbers = []
        for value in values:
            if _is_token(value):
                self._values[value] = None
            else:
                self._values[value] = number = self._whole._new(value.type)
                numbers.append(number)
        return tuple(numbers)

    def _value(self, value: Any) -> int | State | None:
        return self._values[value]

    def _tensor(self, value: Any, operation: Any) -> int:
        number = self._values[value]
        if not isinstance(number, int):
            raise ArtifactError(f"{operation.name!r} takes {value.type}, which cannot be run beside a kernel")
        return number

    def _state(self, value: Any, operation: Any) -> int:
        state = self._values[value]
        if not isinstance(state, State):
            raise ArtifactError(f"{operation.name!r}: a handle that is no state of the function")
        return state.index


def _inner(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            for view in block.operations:
                yield view.operation


def nested(operation: Any) -> Iterator[Any]:
    """Yield the operations inside an operation, through all nested regions."""
    for inner in _inner(operation):
        yield inner
        yield from nested(inner)


def _is_token(value: Any) -> bool:
    return str(value.type) == TOKEN


def callee_name(operation: Any) -> str:
    """Return the name of the graph that an operation invokes."""
    text = str(operation.attributes["callee"])
    if (match := _CALLEE.search(text)) is None:
        raise ArtifactError(f"invokes {text}, which is no name of a graph")
    return match["quoted"] or match["name"]


def plain_type(ir_type: Any) -> Any:
    """Return a type without what it says about the memory that it lies in."""
    from coreai._compiler.ir import Location, RankedTensorType

    if isinstance(ir_type, RankedTensorType) and ir_type.encoding is not None:
        with Location.unknown(ir_type.context):
            return RankedTensorType.get(ir_type.shape, ir_type.element_type)
    return ir_type


def tensor_type(ir_type: Any) -> TensorType:
    """Return a tensor's type of the IR as plain data."""
    from coreai._compiler.ir import RankedTensorType

    if not isinstance(ir_type, RankedTensorType):
        raise ArtifactError(f"a kernel takes or makes {ir_type}, which is no tensor with a rank")
    return TensorType(*described(ir_type))
