"""``verify``: an artifact against the PyTorch module it was made of, and each of its kernels against its reference."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from coreai_torch import TorchMetalKernel
from torch.utils import _pytree as pytree

from metalwright.authoring import reference, references
from metalwright.coreai import distance, names, tensors
from metalwright.coreai.execute import KernelRun, SegmentRun
from metalwright.coreai.model import Model, ModelFunction
from metalwright.errors import ArgumentError, KernelFault


@dataclass(frozen=True)
class Error:
    """How far a tensor is from its reference: an output or a state, or a kernel's result; ``what`` names it."""

    what: str
    error: float
    bound: float

    @property
    def ok(self) -> bool:
        return self.error <= self.bound


@dataclass(frozen=True)
class Launch:
    """A kernel's launch number ``number`` (from 1), with its results' errors; ``problem`` says why there are none."""

    number: int
    kernel: str
    results: tuple[Error, ...] = ()
    problem: str | None = None
    fault: bool = False

    @property
    def ok(self) -> bool:
        return not self.fault and all(result.ok for result in self.results)


@dataclass(frozen=True)
class Verification:
    """One run of an artifact beside its module. After a fault there are no outputs."""

    outputs: tuple[Error, ...]
    launches: tuple[Launch, ...]

    @property
    def ok(self) -> bool:
        return all(output.ok for output in self.outputs) and all(launch.ok for launch in self.launches)

    @property
    def first_wrong(self) -> Launch | None:
        """The first launch that disagrees; what it was given is right, or nothing before it had a reference."""
        return next((launch for launch in self.launches if not launch.ok), None)


def verify(
    model: Model, function: str, module: torch.nn.Module, args: Sequence[Any], *, rtol: float | None = None
) -> Verification:
    """Run a function of an artifact and the module on the same inputs, from the same states.

    In the module every kernel is its reference. Each launch in the artifact is compared with the reference of the
    module's kernel of that name, on what the launch itself was given.

    Args:
        model: The artifact.
        function: The function's name.
        module: What it was made of; it is as before afterwards.
        args: The module's inputs.
        rtol: The largest error of floats, relative to the largest element that is expected; by default 1e-3, and
            more for 16-bit types. Whole numbers have to be equal.

    Raises:
        ArgumentError: The module has other inputs, outputs or states than the function.
    """
    target = model.functions[function]
    calls = _Calls()
    tensors = [leaf for leaf in pytree.tree_leaves(tuple(args)) if isinstance(leaf, torch.Tensor)]
    _check_count(target, "inputs", [info.name for info in target.inputs], len(tensors))
    inputs = {info.name: tensor.clone() for info, tensor in zip(target.inputs, tensors, strict=True)}
    with _restoring(module) as saved, references.instead_of_msl(calls.note), torch.no_grad():
        # copies: what is returned may be a state
        made = [leaf.clone() for leaf in pytree.tree_leaves(module(*args)) if isinstance(leaf, torch.Tensor)]
        changed = [name for name, value in module.named_buffers() if _changed(value, saved.get(name))]
        after = [module.get_buffer(name).clone() for name in changed]
    _check_count(target, "outputs", [info.name for info in target.outputs], len(made))
    _check_count(target, "states", [info.name for info in target.states], len(changed))
    model.reset({info.name: saved[name].value for info, name in zip(target.states, changed, strict=True)})
    launches: list[Launch] = []

    def observer(step: KernelRun | SegmentRun) -> None:
        if isinstance(step, KernelRun):
            launches.append(_judge(len(launches) + 1, step, calls, rtol))

    try:
        got = model.run(function, inputs, observer=observer)
    except KernelFault as fault:
        launches.append(Launch(len(launches) + 1, names.plain(fault.kernel), problem=str(fault), fault=True))
        return Verification((), tuple(launches))
    outputs = [
        _error(f"output {name}", value, wanted, rtol)
        for (name, value), wanted in zip(got.items(), made, strict=True)
    ]
    outputs += [
        _error(f"state {info.name}", model.state(info.name), wanted, rtol)
        for info, wanted in zip(target.states, after, strict=True)
    ]
    return Verification(tuple(outputs), tuple(launches))


def _error(what: str, got: torch.Tensor, expected: torch.Tensor, rtol: float | None) -> Error:
    return Error(what, distance.relative(got, expected), distance.bound(got.dtype, rtol))


def _check_count(function: ModelFunction, kind: str, own: list[str], count: int) -> None:
    if len(own) != count:
        raise ArgumentError(
            f"function {function.name!r} of the artifact has {len(own)} {kind} ({', '.join(own) or 'none'}), but the "
            f"module has {count}"
        )


# The module ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Saved:
    buffer: torch.Tensor
    version: int
    value: torch.Tensor


@contextmanager
def _restoring(module: torch.nn.Module) -> Iterator[dict[str, _Saved]]:
    """Put the module into evaluation mode, and its mode and its buffers back afterwards; give the buffers' values."""
    training = [part for part in module.modules() if part.training]
    saved = {
        name: _Saved(value, value._version, value.detach().clone()) for name, value in module.named_buffers()
    }
    module.eval()
    try:
        yield saved
    finally:
        for part in training:
            part.training = True
        with torch.no_grad():
            for name, one in saved.items():
                owner, _, leaf = name.rpartition(".")
                module.get_submodule(owner)._buffers[leaf] = one.buffer
                one.buffer.copy_(one.value)


def _changed(value: torch.Tensor, saved: _Saved | None) -> bool:
    return saved is None or value is not saved.buffer or value._version != saved.version


# The kernels ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """A call of a kernel in the module: for each input a tensor's type and shape, or a number."""

    kernel: TorchMetalKernel
    inputs: tuple[Any, ...]

    def fits(self, operands: Sequence[np.ndarray]) -> bool:
        """Whether a launch's operands have these shapes. A number is an operand without dimensions."""
        return [operand.shape for operand in operands] == [
            value.shape if isinstance(value, _Tensor) else () for value in self.inputs
        ]

    def equals(self, operands: Sequence[np.ndarray]) -> bool:
        """Whether the numbers are those of a launch."""
        return all(
            isinstance(value, _Tensor) or operand.dtype.type(value) == operand
            for value, operand in zip(self.inputs, operands, strict=True)
        )

    def reference(self, operands: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """Run the reference on the tensors of a launch, which has 32-bit integers for the module's 64-bit ones."""
        inputs = [
            tensors.tensor(operand.copy()).to(value.dtype) if isinstance(value, _Tensor) else value
            for value, operand in zip(self.inputs, operands, strict=True)
        ]
        with torch.no_grad():
            return pytree.tree_leaves(reference.of(self.kernel)(*inputs))


@dataclass(frozen=True)
class _Tensor:
    dtype: torch.dtype
    shape: tuple[int, ...]


class _Calls:
    """The calls of the module's kernels that no launch has been found for yet."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[_Call]] = defaultdict(list)
        self._known: Counter[str] = Counter()

    def note(self, kernel: TorchMetalKernel, args: tuple[Any, ...]) -> None:
        described = tuple(
            _Tensor(value.dtype, tuple(value.shape)) if isinstance(value, torch.Tensor) else value
            for value in args
        )
        self._by_name[kernel.name].append(_Call(kernel, described))
        self._known[kernel.name] += 1

    def take(self, run: KernelRun) -> _Call | str:
        """Return the call that a launch was made of, or why there is none."""
        name = names.plain(run.kernel.name)
        if not self._known[name]:
            return "the module calls no kernel of this name"
        fitting = [call for call in self._by_name[name] if call.fits(run.operands)]
        if not fitting:
            return "the module has no call of it with such shapes that is not another launch's"
        chosen = next((call for call in fitting if call.equals(run.operands)), fitting[0])
        self._by_name[name].remove(chosen)
        return chosen


def _judge(number: int, run: KernelRun, calls: _Calls, rtol: float | None) -> Launch:
    name = names.plain(run.kernel.name)
    call = calls.take(run)
    if isinstance(call, str):
        return Launch(number, name, problem=call)
    made = call.reference(run.operands)
    if len(made) != len(run.results):
        return Launch(
            number, name, fault=True,
            problem=f"the reference gives {len(made)} results, the artifact's kernel has {len(run.results)}",
        )  # fmt: skip
    results = [
        _error(result, tensors.tensor(values.copy()), wanted, rtol)
        for result, values, wanted in zip(run.kernel.results, run.results, made, strict=True)
    ]
    return Launch(number, name, tuple(results))
