"""How a function of an artifact is run here: parts that Core AI interprets, and kernel launches in between.

A value is known by a number; a body's steps read and set numbers. Bodies nest: a step of an inner one may read what
the bodies around it have set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from metalwright.coreai.artifact import Function, Shape

Inner = TypeVar("Inner")


@dataclass(frozen=True)
class TensorType:
    """An element type under Core AI's name (``"f32"``), and a shape with ``"?"`` where it is known only when run."""

    dtype: str
    shape: Shape

    @property
    def static(self) -> bool:
        return "?" not in self.shape


@dataclass(frozen=True)
class Segment:
    """Plain operations, as one function for Core AI's interpreter; ``operations`` are their names, in order."""

    function: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operations: tuple[str, ...]


@dataclass(frozen=True)
class Launch:
    """A launch of kernel number ``kernel``; the sizes and each result's shape are values like any other."""

    kernel: int
    operands: tuple[int, ...]
    threads_per_grid: int
    threads_per_threadgroup: int
    result_shapes: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class Branch(Generic[Inner]):
    """One of two bodies, by a scalar bool."""

    condition: int
    then: Inner
    otherwise: Inner
    results: tuple[int, ...]


@dataclass(frozen=True)
class Loop(Generic[Inner]):
    """While the first result of ``before`` is true, its other results go to ``after``, and from there around again.

    The results are those of ``before`` when its first is false.
    """

    initial: tuple[int, ...]
    before: Inner
    after: Inner
    results: tuple[int, ...]


@dataclass(frozen=True)
class Read:
    """Takes the present value of a state, by its place among the function's states."""

    state: int
    result: int


@dataclass(frozen=True)
class Write:
    """Gives a state a value."""

    state: int
    value: int


Step = Segment | Launch | Branch["Body"] | Loop["Body"] | Read | Write


@dataclass(frozen=True)
class Body:
    """Steps in order, the values that they begin with and those that come out."""

    arguments: tuple[int, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class KernelText:
    """A kernel as it is embedded: its name with Core AI's suffix, its complete MSL, and what it is launched on."""

    name: str
    source: str
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]


@dataclass(frozen=True)
class Constant:
    """Where in the file of constants a value lies."""

    value: int
    type: TensorType
    offset: int
    nbytes: int


@dataclass(frozen=True)
class FunctionPlan:
    """A function; one without kernels has no body: the interpreter runs it whole."""

    function: Function
    body: Body | None


@dataclass(frozen=True)
class Plan:
    """An artifact's functions, kernels and constants; ``types`` are the inputs, in order, of the function ``types_of``.

    That function is never run: the interpreter's descriptors of its inputs are how memory for a tensor of a static
    shape is had from it.
    """

    functions: tuple[FunctionPlan, ...]
    kernels: tuple[KernelText, ...]
    constants: tuple[Constant, ...]
    types: tuple[TensorType, ...]
    types_of: str


def steps(body: Body) -> Iterator[Step]:
    """Yield every step of a body and of those inside it."""
    for step in body.steps:
        yield step
        for inner in inner_bodies(step):
            yield from steps(inner)


def inner_bodies(step: Step) -> tuple[Body, ...]:
    """Return the bodies that a step runs."""
    if isinstance(step, Branch):
        return (step.then, step.otherwise)
    if isinstance(step, Loop):
        return (step.before, step.after)
    return ()


def reads(step: Step) -> tuple[int, ...]:
    """Return the values that a step itself reads, those inside its bodies aside."""
    match step:
        case Segment():
            return step.inputs
        case Launch():
            return (
                *step.operands,
                step.threads_per_grid,
                step.threads_per_threadgroup,
                *step.result_shapes,
            )
        case Branch():
            return (step.condition,)
        case Loop():
            return step.initial
        case Write():
            return (step.value,)
        case Read():
            return ()


def sets(step: Step) -> tuple[int, ...]:
    """Return the values that a step sets."""
    match step:
        case Segment():
            return step.outputs
        case Launch() | Branch() | Loop():
            return step.results
        case Read():
            return (step.result,)
        case Write():
            return ()


def outer_reads(body: Body) -> frozenset[int]:
    """Return the values that a body takes from around it."""
    found: set[int] = set(body.results)
    made: set[int] = set(body.arguments)
    for step in body.steps:
        found.update(reads(step))
        for inner in inner_bodies(step):
            found |= outer_reads(inner)
        made.update(sets(step))
    return frozenset(found - made)
