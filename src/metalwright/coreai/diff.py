"""``diff``: the functions and kernels in which two artifacts differ."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

from metalwright.coreai.artifact import Artifact, Function, Kernel
from metalwright.coreai.names import plain


@dataclass(frozen=True)
class Change:
    """Something that both have, but not the same."""

    what: str
    before: str
    after: str


@dataclass(frozen=True)
class FunctionDifference:
    """A function that only the first or the second artifact has, or that has changed."""

    name: str
    only_in: Literal["first", "second"] | None
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class KernelDifference:
    """The same for launch number ``launch`` (from 1) of a kernel in a function.

    ``name`` is without Core AI's suffix; ``source`` is a unified diff of the MSL, by lines.
    """

    function: str
    name: str
    launch: int
    only_in: Literal["first", "second"] | None
    changes: tuple[Change, ...] = ()
    source: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """What differs between two artifacts; false if nothing does. Plain operations and weights are not looked at."""

    functions: tuple[FunctionDifference, ...]
    kernels: tuple[KernelDifference, ...]

    def __bool__(self) -> bool:
        return bool(self.functions or self.kernels)


def diff(first: Artifact, second: Artifact) -> Difference:
    """Compare the functions of two artifacts by name, and their kernels by function, name and order."""
    return Difference(tuple(_functions(first, second)), tuple(_kernels(first, second)))


def _functions(first: Artifact, second: Artifact) -> Iterable[FunctionDifference]:
    before = {function.name: function for function in first.functions}
    after = {function.name: function for function in second.functions}
    for name in dict.fromkeys([*before, *after]):
        if name not in after or name not in before:
            yield FunctionDifference(name, "first" if name in before else "second")
            continue
        changes = _changes(_function_rows(first, before[name]), _function_rows(second, after[name]))
        if changes:
            yield FunctionDifference(name, None, changes)


def _kernels(first: Artifact, second: Artifact) -> Iterable[KernelDifference]:
    before, after = _launches(first), _launches(second)
    for function, name in dict.fromkeys([*before, *after]):
        pairs = zip_longest(before.get((function, name), []), after.get((function, name), []))
        for launch, (a, b) in enumerate(pairs, start=1):
            if a is None or b is None:
                yield KernelDifference(function, name, launch, "second" if a is None else "first")
                continue
            changes, source = _changes(_kernel_rows(a), _kernel_rows(b)), _source(a, b)
            if changes or source:
                yield KernelDifference(function, name, launch, None, changes, source)


def _launches(artifact: Artifact) -> dict[tuple[str, str], list[Kernel]]:
    found: dict[tuple[str, str], list[Kernel]] = defaultdict(list)
    for kernel in artifact.kernels:
        found[kernel.function, plain(kernel.name)].append(kernel)
    return dict(found)


def _changes(before: dict[str, str], after: dict[str, str]) -> tuple[Change, ...]:
    return tuple(Change(what, before[what], after[what]) for what in before if before[what] != after[what])


def _function_rows(artifact: Artifact, function: Function) -> dict[str, str]:
    names = [plain(kernel.name) for kernel in artifact.kernels if kernel.function == function.name]
    return {
        "inputs": _tensors(function.inputs),
        "outputs": _tensors(function.outputs),
        "states": _tensors(function.states),
        "kernels in order": ", ".join(names) or "none",
    }


def _kernel_rows(kernel: Kernel) -> dict[str, str]:
    return {
        "operands": _tensors(kernel.operands),
        "results": _tensors(kernel.results),
        "threads per grid": _size(kernel.threads_per_grid),
        "threads per threadgroup": _size(kernel.threads_per_threadgroup),
    }


def _source(before: Kernel, after: Kernel) -> tuple[str, ...]:
    old, new = (kernel.source.replace(kernel.name, plain(kernel.name)) for kernel in (before, after))
    return tuple(difflib.unified_diff(old.splitlines(), new.splitlines(), "first", "second", lineterm=""))


def _tensors(tensors: Iterable[Any]) -> str:
    return ", ".join(f"{t.name}: {t.dtype}[{', '.join(map(str, t.shape))}]" for t in tensors) or "none"


def _size(size: Any) -> str:
    return size if isinstance(size, str) else " x ".join(map(str, size))
