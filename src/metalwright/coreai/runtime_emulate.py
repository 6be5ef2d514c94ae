"""``emulate("coreai")``: Core AI's own runtime runs artifacts with Metal kernels, on a machine without Metal.

While it is active anywhere, a few methods of :mod:`coreai.runtime` and :mod:`coreai.authoring` are replaced. The
options belong to the context (thread or task) that began it; in any other, the methods do what they did, and so they
do for artifacts without kernels wherever they can.
"""

from __future__ import annotations

import asyncio
import mmap
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from metalwright.authoring import dtypes
from metalwright.authoring import emulate as emulate  # with what is registered here
from metalwright.authoring.registry import Options, Target, register
from metalwright.authoring.replacing import Replacement, Replacing
from metalwright.coreai import files
from metalwright.coreai.artifact import TensorInfo
from metalwright.errors import (
    ArgumentError,
    ArtifactError,
    CompileError,
    Diagnostic,
    DispatchError,
    RefusedSourceError,
    UnsupportedFeatureError,
)

# the kernel's operation, as the bytecode of an artifact spells it
_KERNEL = b"metal4_kernel"
# what Core AI says of a kernel that does not compile; code that runs on a Mac may look for these words
_INVALID = "Kernel coreai.metal4_kernel invoked with invalid parameters"
_DYNAMIC = -1
# Core AI's runtime has names of its own for some element types
_RUNTIME_NAMES = {
    **{row.element: row.name for row in dtypes.ELEMENT_TYPES},
    "f64": "float64",
    "f8E4M3FN": "float8e4m3fn",
    "f8E5M2": "float8e5m2",
    "f8E8M0FNU": "float8e8m0fn",
    "f4E2M1FN": "float4e2m1fn",
    "si4": "int4",
    "ui4": "uint4",
    "si2": "int2",
    "ui2": "uint2",
}


class RuntimeKernelError(CompileError, RuntimeError):
    """A kernel that does not compile: Core AI raises a ``RuntimeError`` when its function is loaded."""

    def __init__(self, kernel: str, diagnostics: tuple[Diagnostic, ...]) -> None:
        super().__init__(kernel, diagnostics)
        self.args = (f"{_INVALID}: {self.args[0]}",)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kernel, self.diagnostics)


class UnsupportedKernelError(RuntimeKernelError, UnsupportedFeatureError):
    """What Metalwright does not run."""


class RefusedKernelError(RuntimeKernelError, RefusedSourceError):
    """What reaches outside a kernel."""


_COMPILE_ERRORS: Mapping[type[CompileError], type[RuntimeKernelError]] = {
    CompileError: RuntimeKernelError,
    UnsupportedFeatureError: UnsupportedKernelError,
    RefusedSourceError: RefusedKernelError,
}


class RuntimeArgumentError(ArgumentError, RuntimeError):
    """An input or a state that does not fit: Core AI raises a ``RuntimeError``."""


class RuntimeDispatchError(DispatchError, RuntimeError):
    """Launch sizes that no GPU accepts: Core AI raises a ``RuntimeError``."""


class RuntimeArtifactError(ArtifactError, RuntimeError):
    """An artifact that is damaged or cannot be run: Core AI raises a ``RuntimeError``."""


@contextmanager
def _as_coreai_raises() -> Iterator[None]:
    """Turn our errors into such as are Core AI's too: both kinds of ``except`` catch them."""
    try:
        yield
    except CompileError as error:
        raise _COMPILE_ERRORS[type(error)](error.kernel, error.diagnostics) from None
    except ArgumentError as error:
        raise RuntimeArgumentError(*error.args) from None
    except DispatchError as error:
        raise RuntimeDispatchError(*error.args) from None
    except ArtifactError as error:
        raise RuntimeArtifactError(*error.args) from None


class TensorDescriptor:
    """A tensor of a function, as Core AI's ``NDArrayDescriptor`` tells of it."""

    def __init__(self, info: TensorInfo) -> None:
        self.shape: list[int] = [_DYNAMIC if extent == "?" else extent for extent in info.shape]
        self.dtype: str = _RUNTIME_NAMES.get(info.dtype, info.dtype)
        self.storage_kind = "bytes"

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"{self.shape}, {self.dtype}, {self.storage_kind}"


class FunctionDescriptor:
    """What a function takes and gives, as Core AI's ``InferenceFunctionDescriptor`` tells it."""

    def __init__(self, function: Any) -> None:
        self.name: str = function.name
        self._inputs = {info.name: TensorDescriptor(info) for info in function.inputs}
        self._outputs = {info.name: TensorDescriptor(info) for info in function.outputs}
        self._states = {info.name: TensorDescriptor(info) for info in function.states}

    @property
    def input_names(self) -> list[str]:
        return list(self._inputs)

    @property
    def output_names(self) -> list[str]:
        return list(self._outputs)

    @property
    def state_names(self) -> list[str]:
        return list(self._states)

    def input_descriptor(self, name: str) -> TensorDescriptor:
        return _described(self._inputs, "input", name)

    def output_descriptor(self, name: str) -> TensorDescriptor:
        return _described(self._outputs, "output", name)

    def state_descriptor(self, name: str) -> TensorDescriptor:
        return _described(self._states, "state", name)

    def __repr__(self) -> str:
        def listed(names: Mapping[str, TensorDescriptor]) -> str:
            return ", ".join(f'"{name}"' for name in names)

        return (
            f"{self.name}\n\tInputs:  [{listed(self._inputs)}]\n"
            f"\tOutputs: [{listed(self._outputs)}]\n\tStates:  [{listed(self._states)}]"
        )


def _described(descriptors: Mapping[str, TensorDescriptor], kind: str, name: str) -> TensorDescriptor:
    try:
        return descriptors[name]
    except KeyError:
        raise KeyError(f"No {kind} descriptor named: {name}") from None


class _Function:
    """In the place of Core AI's native function, inside its ``InferenceFunction``."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.desc = FunctionDescriptor(function)

    def __str__(self) -> str:
        return str(self.desc)

    async def __call__(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        from coreai.runtime import _NDArray

        for name, value in inputs.items():
            if not isinstance(value, _NDArray):
                raise RuntimeArgumentError(
                    f"function {self.desc.name!r}: input {name!r} is an image; a function with Metal kernels takes "
                    f"arrays when it is emulated"
                )
        with _as_coreai_raises():
            return await self._function.run(inputs, state)


class _Model:
    """In the place of Core AI's native model, inside its ``AIModel``."""

    def __init__(self, path: Path, options: Options) -> None:
        from metalwright.coreai.inspect import inspect
        from metalwright.coreai.program import prepare

        self._problem: CompileError | None = None
        self._functions: Mapping[str, Any] = {}
        try:
            self._functions = prepare(path, checked=options.checked, math_mode=options.math_mode).functions
            self.function_names = list(self._functions)
        except CompileError as error:  # Core AI says so when the function is loaded
            self._problem = error
            self.function_names = [function.name for function in inspect(path).functions]

    def __str__(self) -> str:
        return "\n\t".join(["Function Names:", *self.function_names])

    def load_function(self, function_name: str, intermediate_logger: Any, profiler: Any) -> _Function | None:
        if function_name not in self.function_names:
            return None
        for name, given in (("intermediate_logger", intermediate_logger), ("profiler", profiler)):
            if given is not None:
                raise RuntimeArgumentError(f"load_function({function_name!r}): {name} is not emulated")
        with _as_coreai_raises():
            if self._problem is not None:
                raise self._problem
        return _Function(self._functions[function_name])


def _has_kernels(path: Path) -> bool:
    """True if the program of an artifact names the kernel's operation; a file that cannot be read has none."""
    try:
        with (
            files.program_of(path).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return data.find(_KERNEL) >= 0
    except (OSError, ValueError):  # not there, or empty
        return False


async def _load(path: Path, options: Options) -> Any:
    """Return Core AI's ``AIModel`` with our model inside."""
    from coreai.runtime import AIModel

    with _as_coreai_raises():
        inner: Any = await asyncio.to_thread(_Model, path, options)
    model = object.__new__(AIModel)
    model._specialization_options = None
    model._model = inner
    return model


def _executable(
    options: Options,
    original: Callable[..., AbstractAsyncContextManager[Any]],
    asset: Any,
    specialization_options: Any = None,
) -> AbstractAsyncContextManager[Any]:
    path = Path(asset.path)
    if specialization_options is not None or not _has_kernels(path):
        return original(asset, specialization_options)

    @asynccontextmanager
    async def executable() -> AsyncIterator[Any]:
        yield await _load(path, options)

    return executable()


async def _load_model(
    options: Options,
    original: Callable[..., Any],
    kind: type,
    path: Path | str,
    specialization_options: Any = None,
) -> Any:
    path = Path(path)
    # away from a Mac, the runtime loads compiled models only
    only_here = sys.platform != "darwin" and files.is_artifact(path)
    if specialization_options is None and (only_here or _has_kernels(path)):
        return await _load(path, options)
    return await original(kind, path, specialization_options)


def _array(
    options: Options, original: Callable[..., None], array: Any, data: Any, backing: Any = None
) -> None:
    """Make an ``NDArray``: memory is memory here, whatever it would be backed by on a Mac."""
    from coreai.runtime._ndarray import StorageKind

    if backing is None or isinstance(backing, StorageKind):
        backing = StorageKind.BYTES
    original(array, data, backing)


def _from_descriptor(options: Options, original: Callable[..., Any], kind: type, descriptor: Any) -> Any:
    if not isinstance(descriptor, TensorDescriptor):
        return original(kind, descriptor)
    from coreai.runtime._ndarray import _RUNTIME_TO_NUMPY_DTYPE

    if _DYNAMIC in descriptor.shape:
        raise RuntimeArgumentError(
            f"NDArray.from_descriptor: the shape {descriptor.shape} is dynamic; make an array of the shape you mean"
        )
    dtype = np.dtype(_RUNTIME_TO_NUMPY_DTYPE.get(descriptor.dtype, descriptor.dtype))
    return kind(np.zeros(descriptor.shape, dtype))


def _replacements() -> tuple[Replacement, ...]:
    from coreai.authoring import AIModelAsset
    from coreai.runtime import AIModel, NDArray

    return (
        Replacement(AIModelAsset, "executable", _executable),
        Replacement(AIModel, "load", _load_model),
        Replacement(NDArray, "__init__", _array),
        Replacement(NDArray, "from_descriptor", _from_descriptor),
    )


_replacing = Replacing("coreai", _replacements)
register(Target(name="coreai", package="coreai", begin=_replacing.begin, end=_replacing.end))
