"""Runs a plan: parts through Core AI's interpreter, kernels through the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metalwright.coreai import arrays, elements, interpreter
from metalwright.coreai.kernels import EmbeddedKernel
from metalwright.coreai.plan import (
    Body,
    Branch,
    Launch,
    Loop,
    Read,
    Segment,
    Step,
    Write,
    inner_bodies,
    outer_reads,
    reads,
    sets,
    steps,
)
from metalwright.coreai.segments import input_names, output_names


class Value:
    """A tensor on its way: as NumPy sees it, as Core AI's interpreter does, or both, in one memory where it can be."""

    __slots__ = ("_array", "_native", "_shared")

    def __init__(self, *, array: np.ndarray | None = None, native: Any = None) -> None:
        self._array = array
        self._native = native
        self._shared = False

    @property
    def array(self) -> np.ndarray:
        """The values in order (C-contiguous), not for writing."""
        if self._array is None:
            self._array = arrays.view(self._native)
        return self._array

    def native(self, allocator: arrays.Allocator) -> Any:
        """Return Core AI's array of the values."""
        if self._native is None:
            assert self._array is not None
            self._native = allocator.copy(self._array)
            self._array = None
        return self._native

    def share(self) -> None:
        """Let the value have more than one name."""
        self._shared = True

    def release(self, workspace: arrays.Workspace) -> None:
        """Give the memory back, unless the value has another name; by this one it is not asked for again."""
        if not self._shared:
            workspace.release(self._native)


@dataclass(frozen=True)
class SegmentRun:
    """Plain operations that the interpreter has run, with what they read and made.

    The arrays are read-only, and valid until the next step.
    """

    operations: tuple[str, ...]
    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]
    seconds: float


@dataclass(frozen=True)
class KernelRun:
    """A kernel that has been launched, with what it read and wrote. The arrays are valid until the next step.

    ``kernel.name`` is its name in the artifact, ``kernel.inputs`` and ``kernel.results`` are its parameters' names.
    """

    kernel: EmbeddedKernel
    operands: tuple[np.ndarray, ...]
    results: tuple[np.ndarray, ...]
    threads_per_grid: tuple[int, int, int]
    threads_per_threadgroup: tuple[int, int, int]
    seconds: float


Observer = Callable[["SegmentRun | KernelRun"], None]


class Executor:
    """Runs one function of an artifact."""

    def __init__(
        self,
        name: str,
        body: Body,
        load: Callable[[str], Any],
        kernels: Sequence[EmbeddedKernel],
        constants: Mapping[int, Value],
        allocator: arrays.Allocator,
    ) -> None:
        self._name = name
        self._body = body
        self._kernels = kernels
        self._constants = constants
        self._allocator = allocator
        self._segments = {
            s.function: _Native(load(s.function), s) for s in steps(body) if isinstance(s, Segment)
        }
        # what the interpreter will ask for is made in its memory at once
        self._for_interpreter = _for_interpreter(body)
        self._last_uses: dict[int, tuple[tuple[int, ...], ...]] = {}
        # what the last call worked in; two calls at once each have their own
        self._spare: list[arrays.Spare] = []

    async def run(
        self, inputs: Sequence[Value], states: Sequence[Value], observer: Observer | None
    ) -> tuple[list[Value], list[Value]]:
        """Return the results, and what the states are afterwards."""
        spare = self._spare
        workspace = arrays.Workspace(self._allocator.descriptors, spare.pop() if spare else {})
        run = _Run(self, list(states), observer, workspace)
        run.values.update(zip(self._body.arguments, inputs, strict=True))
        await run.body(self._body)
        spare[:] = [workspace.released]
        return [run.value(number) for number in self._body.results], run.states

    def last_uses(self, body: Body) -> tuple[tuple[int, ...], ...]:
        """Return for each step the values of this body that nothing needs after it."""
        known = self._last_uses.get(id(body))
        if known is None:
            known = self._last_uses[id(body)] = _last_uses(body)
        return known


class _Native:
    """A function of the interpreter's for one segment."""

    def __init__(self, function: Any, segment: Segment) -> None:
        self.function = function
        self.inputs = input_names(len(segment.inputs))
        self.outputs = output_names(len(segment.outputs))
        self.operations = ", ".join(dict.fromkeys(segment.operations))


class _Run:
    """One call."""

    def __init__(
        self,
        executor: Executor,
        states: list[Value],
        observer: Observer | None,
        workspace: arrays.Workspace,
    ) -> None:
        self.values: dict[int, Value] = {}
        self.states = states
        self._executor = executor
        self._observer = observer
        self._workspace = workspace

    def value(self, number: int) -> Value:
        found = self.values.get(number)
        return self._executor._constants[number] if found is None else found

    async def body(self, body: Body) -> None:
        for step, done in zip(body.steps, self._executor.last_uses(body), strict=True):
            await self._step(step)
            for number in done:
                if (value := self.values.pop(number, None)) is not None:
                    value.release(self._workspace)

    async def _step(self, step: Step) -> None:
        match step:
            case Segment():
                await self._segment(step)
            case Launch():
                self._launch(step)
            case Branch():
                body = step.then if self.value(step.condition).array.item() else step.otherwise
                await self.body(body)
                self._hand_on(step.results, body.results)
            case Loop():
                await self._loop(step)
            case Read():
                self.values[step.result] = self.states[step.state]
            case Write():
                self.states[step.state] = value = self.value(step.value)
                value.share()

    def _hand_on(self, to: Sequence[int], values: Sequence[int]) -> None:
        handed = [self.value(number) for number in values]
        for value in handed:
            value.share()
        self.values.update(zip(to, handed, strict=True))

    async def _loop(self, loop: Loop) -> None:
        self._hand_on(loop.before.arguments, loop.initial)
        while True:
            await self.body(loop.before)
            condition, *carried = loop.before.results
            if not self.value(condition).array.item():
                self._hand_on(loop.results, carried)
                return
            self._hand_on(loop.after.arguments, carried)
            await self.body(loop.after)
            self._hand_on(loop.before.arguments, loop.after.results)

    async def _segment(self, segment: Segment) -> None:
        executor = self._executor
        native = executor._segments[segment.function]
        given = {
            name: self.value(number).native(self._workspace)
            for name, number in zip(native.inputs, segment.inputs, strict=True)
        }
        began = time.perf_counter()
        made = await interpreter.call(
            native.function, given, {}, f"function {executor._name!r}", native.operations
        )
        seconds = time.perf_counter() - began
        self._workspace.give_up(given.values(), (made[name] for name in native.outputs))
        for name, number in zip(native.outputs, segment.outputs, strict=True):
            self.values[number] = Value(native=made[name])
        if self._observer is not None:
            read = tuple(arrays.view(value) for value in given.values())
            written = tuple(arrays.view(made[name]) for name in native.outputs)
            self._observer(SegmentRun(segment.operations, read, written, seconds))

    def _launch(self, launch: Launch) -> None:
        executor = self._executor
        kernel = executor._kernels[launch.kernel]
        operands = tuple(self.value(number).array for number in launch.operands)
        grid = _size(self.value(launch.threads_per_grid).array)
        group = _size(self.value(launch.threads_per_threadgroup).array)
        results: list[np.ndarray] = []
        for index, (number, shape_of) in enumerate(zip(launch.results, launch.result_shapes, strict=True)):
            shape = kernel.result_shape(index, self.value(shape_of).array)
            element = kernel.text.results[index].dtype
            if number in executor._for_interpreter:
                native = self._workspace.make(element, shape)
                results.append(arrays.writable(native))
                self.values[number] = Value(native=native)
            else:
                results.append(np.empty(shape, elements.numpy_dtype(element)))
                self.values[number] = Value(array=results[-1])
        report = kernel.launch(operands, results, grid, group)
        if self._observer is not None:
            self._observer(KernelRun(kernel, operands, tuple(results), grid, group, report.seconds))


def _size(values: np.ndarray) -> tuple[int, int, int]:
    x, y, z = values.tolist()
    return x, y, z


def _for_interpreter(body: Body) -> frozenset[int]:
    """Return the values that segments read, or that are results, also by another name."""
    found: set[int] = set(body.results)
    for step in steps(body):
        for inner in inner_bodies(step):
            found.update(inner.results)
        if isinstance(step, (Segment, Loop, Write)):
            found.update(reads(step))
    return frozenset(found)


def _last_uses(body: Body) -> tuple[tuple[int, ...], ...]:
    last: dict[int, int] = dict.fromkeys(body.arguments, 0)
    for index, step in enumerate(body.steps):
        used = set(reads(step)).union(*(outer_reads(inner) for inner in inner_bodies(step)))
        last.update(dict.fromkeys(sets(step), index))
        last.update({number: index for number in used if number in last})
    ending: list[list[int]] = [[] for _ in body.steps]
    for number, index in last.items():
        if number not in body.results and ending:
            ending[index].append(number)
    return tuple(map(tuple, ending))
