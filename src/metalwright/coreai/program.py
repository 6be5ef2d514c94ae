"""An artifact that is ready to run, over Core AI's own arrays."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from metalwright.authoring import dtypes
from metalwright.coreai import arrays, compiled, elements, interpreter
from metalwright.coreai.artifact import TensorInfo
from metalwright.coreai.compiled import Compiled
from metalwright.coreai.execute import Executor, Observer, Value
from metalwright.coreai.kernels import EmbeddedKernel
from metalwright.coreai.plan import Constant, FunctionPlan, Plan
from metalwright.coreai.segments import input_names
from metalwright.engine import workers
from metalwright.errors import ArgumentError, MetalwrightError


def prepare(path: Path, *, checked: bool, math_mode: str) -> Program:
    """Make an artifact ready to run: from the caches, or by compiling its parts and its kernels.

    Raises:
        ArtifactError: It does not exist, is damaged, of another version, or has something that cannot be run here.
        CompileError: The MSL of a kernel does not compile.
    """
    parts = compiled.compiled(path)
    try:
        return Program(path, parts, checked=checked, math_mode=math_mode)
    except MetalwrightError:
        raise
    except Exception:
        # somebody clears the cache just now; what has been opened once needs its files no longer
        parts = compiled.compiled_for_now(path)
    return Program(path, parts, checked=checked, math_mode=math_mode)


class Program:
    """An artifact's functions, by name."""

    def __init__(self, path: Path, parts: Compiled, *, checked: bool, math_mode: str) -> None:
        self.path = path
        self._parts = parts  # its folder may go with it
        self._model = interpreter.load(parts.folder)
        plan = parts.plan
        with ThreadPoolExecutor(workers.processors()) as pool:
            self.kernels = tuple(
                pool.map(
                    lambda text: EmbeddedKernel(text, checked=checked, math_mode=math_mode), plan.kernels
                )
            )
        self._constants = _constants(plan.constants, parts.constants)
        self.allocator = arrays.Allocator(self._descriptors(plan))
        self.functions: Mapping[str, Function] = MappingProxyType(
            {one.function.name: Function(self, one) for one in plan.functions}
        )

    def load(self, name: str) -> Any:
        """Return a function of the interpreter's."""
        return self._model.load_function(function_name=name, intermediate_logger=None, profiler=None)

    def _descriptors(self, plan: Plan) -> dict[Any, Any]:
        if not plan.types:
            return {}
        described = self.load(plan.types_of).desc
        names = input_names(len(plan.types))
        return {kind: described.input_descriptor(name) for kind, name in zip(plan.types, names, strict=True)}


class Function:
    """A function of an artifact. Calls of one that has states, on the same states, must come one after another."""

    def __init__(self, program: Program, plan: FunctionPlan) -> None:
        self.name = plan.function.name
        self.inputs = plan.function.inputs
        self.outputs = plan.function.outputs
        self.states = plan.function.states
        self._program = program
        self._body = plan.body

    @property
    def has_kernels(self) -> bool:
        """Whether any of it runs outside the interpreter."""
        return self._body is not None

    @functools.cached_property
    def _executor(self) -> Executor:
        assert self._body is not None
        program = self._program
        return Executor(
            self.name, self._body, program.load, program.kernels, program._constants, program.allocator
        )

    @functools.cached_property
    def _whole(self) -> Any:
        return self._program.load(self.name)

    async def run(
        self, inputs: Mapping[str, Any], state: Mapping[str, Any], observer: Observer | None = None
    ) -> dict[str, Any]:
        """Run on Core AI's arrays (``coreai.runtime._NDArray``); those of states are changed in place.

        Raises:
            ArgumentError: An input or a state is missing, unknown, or of another dtype or shape.
            ArtifactError: The interpreter cannot run a part of it.
        """
        given = {name: Value(native=array) for name, array in inputs.items()}
        made = await self.run_values(given, state, observer)
        return {name: value.native(self._program.allocator) for name, value in made.items()}

    async def run_values(
        self, inputs: Mapping[str, Value], state: Mapping[str, Any], observer: Observer | None = None
    ) -> dict[str, Value]:
        """Run on values; see :meth:`run`."""
        _check_names(self.name, "input", self.inputs, inputs)
        _check_names(self.name, "state", self.states, state)
        held = [Value(native=state[info.name]) for info in self.states]
        taken = [inputs[info.name] for info in self.inputs]
        for kind, infos, values in (("input", self.inputs, taken), ("state", self.states, held)):
            for info, value in zip(infos, values, strict=True):
                check_tensor(f"function {self.name!r}: {kind} {info.name!r}", info, value.array)
        interpreter.check_process()
        if self._body is None:
            natives = {name: value.native(self._program.allocator) for name, value in inputs.items()}
            made = await interpreter.call(self._whole, natives, state, f"function {self.name!r}", "it")
            return {info.name: Value(native=made[info.name]) for info in self.outputs}
        # now: the memory that an input is copied to is used again during the run
        given, kept = ([value.array for value in values] for values in (taken, held))
        results, states = await self._executor.run(taken, held, observer)
        outputs = [_apart(value, [*given, *kept]) for value in results]
        # a new value may lie in the memory of another state
        new = [
            value if value is old else _apart(value, kept) for value, old in zip(states, held, strict=True)
        ]
        for info, value, old in zip(self.states, new, held, strict=True):
            if value is not old and value.array.nbytes:
                np.copyto(arrays.writable(state[info.name]), value.array)
        return {info.name: value for info, value in zip(self.outputs, outputs, strict=True)}


def _apart(value: Value, others: Sequence[np.ndarray]) -> Value:
    """Return a value that shares no memory with others, which will be written to."""
    if any(np.may_share_memory(value.array, other) for other in others):
        return Value(array=value.array.copy())
    return value


def _check_names(function: str, kind: str, infos: Sequence[TensorInfo], given: Mapping[str, Any]) -> None:
    wanted = [info.name for info in infos]
    for name in given:
        if name not in wanted:
            raise ArgumentError(
                f"function {function!r} has no {kind} {name!r}; it has {', '.join(wanted) or 'none'}"
            )
    if missing := [name for name in wanted if name not in given]:
        raise ArgumentError(f"function {function!r}: {kind} {missing[0]!r} is missing")


def check_tensor(where: str, info: TensorInfo, values: np.ndarray) -> None:
    """Check values against a type. Raises :class:`ArgumentError`, which begins with ``where``."""
    row = dtypes.BY_NAME.get(info.dtype)
    if row is not None and row.numpy != values.dtype:
        raise ArgumentError(f"{where}: expected dtype {row.name}, got {values.dtype}")
    fits = len(info.shape) == values.ndim and all(
        wanted in ("?", extent) for wanted, extent in zip(info.shape, values.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join(map(str, info.shape))
        raise ArgumentError(f"{where}: expected shape [{wanted}], got {list(values.shape)}")


def _constants(constants: Sequence[Constant], path: Path) -> dict[int, Value]:
    """Return the constants as views of their file, of which only what is used is read."""
    if not constants:
        return {}
    size = path.stat().st_size
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
    found: dict[int, Value] = {}
    for one in constants:
        dtype = elements.numpy_dtype(one.type.dtype)
        shape = tuple(int(extent) for extent in one.type.shape)
        if one.nbytes:
            array = np.frombuffer(data, dtype, one.nbytes // dtype.itemsize, one.offset).reshape(shape)
        else:
            array = np.empty(shape, dtype)
        found[one.value] = Value(array=array)
    return found
