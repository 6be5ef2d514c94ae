"""``load``: an ``.aimodel`` becomes something to call, on a machine without Metal."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch

from metalwright.authoring import definition, dtypes
from metalwright.coreai import arrays, elements, interpreter, tensors
from metalwright.coreai.artifact import TensorInfo
from metalwright.coreai.execute import Observer, Value
from metalwright.coreai.program import Function, check_tensor, prepare
from metalwright.errors import ArgumentError

_MAIN = "main"
# a tensor begins at a page on a GPU, so kernels lay float4 over it; a slice begins at any of its elements
_ALIGNMENT = 16
_NARROW = {"si32": (np.int64, np.int32), "ui32": (np.uint64, np.uint32)}


def load(path: str | Path, *, checked: bool = True, math_mode: str = "safe") -> Model:
    """Make an ``.aimodel`` ready to run on this machine, its Metal kernels included.

    Everything but the kernels runs in Core AI's own interpreter; the kernels' MSL, their launch sizes and the shapes
    of their results are taken from the artifact. What has been compiled is kept on disk for the next process.

    Args:
        path: The ``.aimodel``.
        checked: Stop with a :class:`KernelFault` at an access outside a buffer and the like.
        math_mode: ``"safe"`` or ``"fast"``.

    Raises:
        ArgumentError: An option is wrong.
        ArtifactError: The artifact does not exist, is damaged, of another version, or has something that cannot be
            run here; the message names the place.
        CompileError: The MSL of a kernel does not compile.
    """
    if problem := definition.option_problem(math_mode, checked, 0):
        raise ArgumentError(f"load: {problem}")
    return Model(Path(path), checked=checked, math_mode=math_mode)


class ModelFunction:
    """A function of a model.

    ``inputs``, ``outputs`` and ``states`` are tuples of :class:`TensorInfo`: name, dtype under Core AI's name
    (``"f32"``), and shape with ``"?"`` where the extent is known only when it runs.
    """

    def __init__(self, model: Model, function: Function) -> None:
        self._model = model
        self._function = function
        self.name = function.name
        self.inputs = function.inputs
        self.outputs = function.outputs
        self.states = function.states

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """Run; see :meth:`Model.run`."""
        return self._model.run(self.name, inputs)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{info.name}: {_described(info)}" for info in self.inputs)
        outputs = ", ".join(f"{info.name}: {_described(info)}" for info in self.outputs)
        return f"{self.name}({inputs}) -> ({outputs})"


class Model:
    """A loaded artifact. Its states begin as zeros and keep their values from call to call.

    ``functions`` maps names to :class:`ModelFunction`. Functions of one model share states of one name. Calls from
    several threads are run one after another where the function has states.
    """

    def __init__(self, path: Path, *, checked: bool, math_mode: str) -> None:
        self.path = path
        self._program = prepare(path, checked=checked, math_mode=math_mode)
        self.functions: Mapping[str, ModelFunction] = {
            name: ModelFunction(self, function) for name, function in self._program.functions.items()
        }
        self._states: dict[str, Any] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<Model {self.path}: {'; '.join(map(repr, self.functions.values())) or 'no functions'}>"

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """Run the function ``main``, or the only one that there is."""
        names = list(self.functions)
        if _MAIN not in names and len(names) != 1:
            raise ArgumentError(f"{self.path}: has the functions {', '.join(names)}: use run(name, inputs)")
        return self.run(_MAIN if _MAIN in names else names[0], inputs)

    def run(
        self, function: str, inputs: Mapping[str, Any], *, observer: Observer | None = None
    ) -> dict[str, Any]:
        """Run a function.

        Args:
            function: Its name.
            inputs: CPU tensors or NumPy arrays by name, of the dtypes and shapes that ``functions[name].inputs`` says;
                64-bit integers are taken for 32-bit ones where their values fit, as Core AI's converter does.
            observer: Called after each part of the graph and each kernel, in order, with what it read and wrote.

        Returns:
            The outputs by name: arrays if the inputs are arrays, and tensors otherwise.

        Raises:
            ArgumentError: A function or an input that is not there, or of another dtype or shape.
            ArtifactError: Core AI's interpreter cannot run a part of it.
            DispatchError: The graph launches a kernel with sizes that no GPU accepts.
            KernelFault: A kernel was caught doing something wrong (``checked``).
        """
        if function not in self.functions:
            raise ArgumentError(
                f"{self.path}: has no function {function!r}; it has {', '.join(self.functions) or 'none'}"
            )
        target = self._program.functions[function]
        kinds = {isinstance(value, np.ndarray) for value in inputs.values()}
        if kinds == {True, False}:
            raise ArgumentError(
                f"function {function!r}: expected all inputs as tensors or all as NumPy arrays, got both"
            )
        wanted = {info.name: info for info in target.inputs}
        values = {
            name: Value(array=_array(f"function {function!r}: input {name!r}", value, wanted.get(name)))
            for name, value in inputs.items()
        }
        if not target.states:
            made = interpreter.run(target.run_values(values, {}, observer))
        else:
            with self._lock:
                state = {info.name: self._state(info) for info in target.states}
                made = interpreter.run(target.run_values(values, state, observer))
        return {name: _result(value.array, kinds == {True}) for name, value in made.items()}

    def reset(self, values: Mapping[str, Any] | None = None) -> None:
        """Set every state to zeros, or to the value given for it by name.

        Raises:
            ArgumentError: There is no such state, or its dtype or shape is another.
        """
        known = {info.name: info for info in self._state_infos()}
        new: dict[str, Any] = {}
        for name, value in (values or {}).items():
            if name not in known:
                raise self._no_state(name)
            array = _array(f"state {name!r}", value, known[name])
            check_tensor(f"state {name!r}", known[name], array)
            new[name] = self._program.allocator.copy(array)
        with self._lock:
            self._states = new

    def state(self, name: str) -> torch.Tensor:
        """Return a copy of a state's present value. Raises :class:`ArgumentError` if there is no such state."""
        for info in self._state_infos():
            if info.name == name:
                with self._lock:
                    return _result(arrays.view(self._state(info)).copy(), False)
        raise self._no_state(name)

    def _no_state(self, name: str) -> ArgumentError:
        known = dict.fromkeys(info.name for info in self._state_infos())
        return ArgumentError(f"{self.path}: has no state {name!r}; it has {', '.join(known) or 'none'}")

    def _state_infos(self) -> Iterator[TensorInfo]:
        for function in self.functions.values():
            yield from function.states

    def _state(self, info: TensorInfo) -> Any:
        native = self._states.get(info.name)
        if native is None:
            if "?" in info.shape:
                raise ArgumentError(
                    f"{self.path}: state {info.name!r} has shape {_described(info)}: give it a value with "
                    f"reset({{{info.name!r}: ...}})"
                )
            shape = tuple(int(extent) for extent in info.shape)
            native = self._states[info.name] = self._program.allocator.copy(
                np.zeros(shape, elements.numpy_dtype(info.dtype))
            )
        return native


def _described(info: TensorInfo) -> str:
    return f"{info.dtype}[{', '.join(map(str, info.shape))}]"


def _array(where: str, value: Any, info: TensorInfo | None) -> np.ndarray:
    """Return a tensor or an array as an array in order, at an address that kernels may be given."""
    if isinstance(value, torch.Tensor):
        value = _of_tensor(where, value, info)
    elif not isinstance(value, np.ndarray):
        raise ArgumentError(f"{where}: expected a torch.Tensor or a NumPy array, got {type(value).__name__}")
    native = value.dtype.newbyteorder("=")
    if native not in dtypes.BY_NUMPY:
        raise _wrong_dtype(where, str(value.dtype), info)
    value = np.ascontiguousarray(value, native).reshape(value.shape)
    if value.ctypes.data % _ALIGNMENT:
        value = value.copy()
    if info is not None and info.dtype in _NARROW and value.dtype == _NARROW[info.dtype][0]:
        narrow = value.astype(_NARROW[info.dtype][1])
        if not np.array_equal(narrow, value):
            raise ArgumentError(f"{where}: has values that do not fit {info.dtype}, which the artifact takes")
        return narrow
    return value


def _wrong_dtype(where: str, dtype: str, info: TensorInfo | None) -> ArgumentError:
    if info is not None and (wanted := dtypes.BY_NAME.get(info.dtype)):
        return ArgumentError(f"{where}: expected dtype {wanted.name}, got {dtype}")
    return ArgumentError(f"{where}: dtype {dtype} is none that Metal has; known: {dtypes.SUPPORTED}")


def _of_tensor(where: str, value: torch.Tensor, info: TensorInfo | None) -> np.ndarray:
    if value.device.type != "cpu" or value.layout != torch.strided or value.is_nested:
        layout = "a nested tensor" if value.is_nested else value.layout
        raise ArgumentError(f"{where}: expected a dense CPU tensor, got {layout} on {value.device}")
    if value.dtype not in dtypes.BY_TORCH:
        raise _wrong_dtype(where, str(value.dtype).removeprefix("torch."), info)
    value = value.detach().resolve_conj().resolve_neg().contiguous()
    if value.dtype == torch.bfloat16:
        return value.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return value.numpy()


def _result(array: np.ndarray, as_array: bool) -> Any:
    if not as_array:
        return tensors.tensor(array)
    # memory of the interpreter's is handed out read-only
    return array if array.flags.writeable else array.copy()
