"""A case is one set of inputs with the sizes of its launch; this is where cases come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from metalwright.check.inputs import CANCELLING, SPECIAL_VARIANTS, Random, random, seed_for
from metalwright.check.reference import run
from metalwright.errors import ArgumentError

if TYPE_CHECKING:
    from metalwright.check.family import Family

_KEYS = ("inputs", "threads_per_grid", "threads_per_thread_group", "result_shapes")
_THREADS_IN_A_GROUP = {1: (256,), 2: (16, 16), 3: (8, 8, 4)}


@dataclass(frozen=True)
class Case:
    """One set of inputs (tensors, scalars or :class:`Random`), the launch sizes, and one shape a result.

    A case that was made from extents has them, and the ``family`` that makes it for others; ``at_edge`` says that they
    were chosen to be at an edge.
    """

    name: str
    inputs: tuple[Any, ...]
    threads_per_grid: tuple[int, ...]
    threads_per_thread_group: tuple[int, ...]
    result_shapes: tuple[tuple[int, ...], ...]
    extents: tuple[tuple[str, int], ...] = ()
    family: Family | None = field(default=None, compare=False, repr=False)
    at_edge: bool = False

    def variants(self, finite: bool, adversarial: bool = False) -> tuple[str, ...]:
        """Return what is run: ``"given"``, or generated inputs with normal, extreme and non-finite values.

        ``finite`` leaves out the last; ``adversarial`` adds values that cancel in a sum. A case at an edge of shapes
        has normal values only: what other values show, they show at ordinary extents too.
        """
        found = {
            variant for value in self.inputs if isinstance(value, Random) for variant in value.variants()
        }
        if not found:
            return ("given",)
        if self.at_edge:
            return ("normal",)
        wanted = ("normal", "extreme") if finite else ("normal", *SPECIAL_VARIANTS)
        cancelling = (CANCELLING,) if adversarial and any(map(_may_cancel, self.inputs)) else ()
        return (*(variant for variant in wanted if variant in found), *cancelling)

    def draw(self, variant: str, seed: int, names: Sequence[str]) -> tuple[Any, ...]:
        """Return the inputs of a variant; each generated one is drawn from a seed of its own."""
        return tuple(
            value.draw(seed_for(seed, self.name, name, variant), variant)
            if isinstance(value, Random)
            else value
            for name, value in zip(names, self.inputs, strict=True)
        )


def _may_cancel(value: Any) -> bool:
    return isinstance(value, Random) and value.may_cancel


def cases_of(kernel: Any, given: Iterable[Mapping[str, Any] | Case] | None) -> Iterator[Case]:
    """Yield the given cases, or those of ``kernel.cases``. A :class:`Case` among them is yielded as it is.

    Raises:
        ArgumentError: there are none, or one of them is not a dict with the keys of a case.
    """
    if given is None:
        source: Any = getattr(kernel, "cases", None)
        if source is None:
            from metalwright.check.family import stated_family

            stated = stated_family(kernel)
            ordinary = stated.case(stated.example) if stated else None
            if ordinary is not None:
                yield ordinary
                return
            raise ArgumentError(
                f"kernel {kernel.name!r} has no cases: pass check(kernel, cases=[...]), or set kernel.cases to a "
                f"callable giving dicts with {_quoted(_KEYS)} (command line: --shape and --dtype)"
            )
        made: Any = source() if callable(source) else source
        given = made
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise ArgumentError(f"kernel {kernel.name!r}: expected a list of cases, got {type(given).__name__}")
    empty = True
    for position, entry in enumerate(given, start=1):
        empty = False
        where = f"kernel {kernel.name!r}, case {position}"
        yield entry if isinstance(entry, Case) else parse(kernel, entry, where, f"case {position}")
    if empty:
        raise ArgumentError(f"kernel {kernel.name!r}: there are no cases to check")


def parse(kernel: Any, entry: Any, where: str, name: str) -> Case:
    """Return the case that a dict says; ``where`` begins messages, ``name`` is the case's unless it has one.

    Raises:
        ArgumentError: it does not have the keys of a case.
    """
    if not isinstance(entry, Mapping):
        raise ArgumentError(f"{where}: expected a dict with {_quoted(_KEYS)}, got {entry!r:.80}")
    missing = [key for key in _KEYS if key not in entry]
    unknown = [key for key in entry if key not in (*_KEYS, "name")]
    if missing or unknown:
        problem = (
            f"lacks {', '.join(map(repr, missing))}"
            if missing
            else f"has unknown {', '.join(map(repr, unknown))}"
        )
        raise ArgumentError(f"{where} {problem}: a case has {_quoted(_KEYS)} and optionally 'name'")
    inputs = tuple(entry["inputs"])
    if len(inputs) != len(kernel.input_names):
        raise ArgumentError(
            f"{where}: expected {len(kernel.input_names)} inputs ({', '.join(kernel.input_names)}), got {len(inputs)}"
        )
    return Case(
        name=str(entry.get("name", name)),
        inputs=inputs,
        threads_per_grid=_sizes(where, "threads_per_grid", entry["threads_per_grid"]),
        threads_per_thread_group=_sizes(where, "threads_per_thread_group", entry["threads_per_thread_group"]),
        result_shapes=tuple(_sizes(where, "result_shapes", shape) for shape in entry["result_shapes"]),
    )


def _quoted(names: Iterable[Any]) -> str:
    return ", ".join(map(repr, names))


def _sizes(where: str, key: str, value: Any) -> tuple[int, ...]:
    try:
        return tuple(value)
    except TypeError:
        raise ArgumentError(f"{where}: expected a sequence of sizes in {key!r}, got {value!r}") from None


def case_for_shape(
    kernel: Any, reference: Callable[..., Any], shape: Sequence[int], dtype: torch.dtype, seed: int = 0
) -> dict[str, Any]:
    """Return a case for an element-wise kernel: every tensor input has this shape and dtype.

    Scalars get a value from the seed: a float in ``0.5 <= value < 2``, 1 for an int. The result shapes are the
    reference's. The grid has one thread for each element of the first result: where the kernel's
    ``thread_position_in_grid`` is a ``uint2`` or ``uint3`` that has a component for each axis, the result's
    extents in reversed order (x is the last axis of a torch shape); otherwise all elements along x. Threadgroups
    have up to 256 threads.

    Raises:
        ArgumentError: the reference does not take such inputs.
    """
    inputs = tuple(_input(kernel, name, shape, dtype, seed) for name in kernel.input_names)
    drawn = tuple(value.draw(seed) if isinstance(value, Random) else value for value in inputs)
    try:
        results = run(reference, drawn)
    except Exception as error:
        raise ArgumentError(
            f"kernel {kernel.name!r}: its reference does not take {dtype} inputs of shape {list(shape)} each "
            f"({type(error).__name__}: {error}); give the kernel cases of its own"
        ) from error
    result_shapes = [list(result.shape) for result in results]
    grid = _grid(kernel, result_shapes[0])
    group = _THREADS_IN_A_GROUP[len(grid)]
    return {
        "name": f"{str(dtype).removeprefix('torch.')}[{','.join(map(str, shape))}]",
        "inputs": list(inputs),
        "threads_per_grid": _three(grid),
        "threads_per_thread_group": _three(tuple(min(g, t) for g, t in zip(grid, group, strict=True))),
        "result_shapes": result_shapes,
    }


def _input(kernel: Any, name: str, shape: Sequence[int], dtype: torch.dtype, seed: int) -> Any:
    scalar = kernel._scalar_input_types.get(name)
    if scalar is None:
        return random(shape, dtype)
    generator = torch.Generator().manual_seed(seed_for(seed, name))
    if scalar is float:
        return float(torch.rand((), generator=generator)) * 1.5 + 0.5
    return bool(torch.randint(0, 2, (), generator=generator)) if scalar is bool else 1


def _grid(kernel: Any, shape: Sequence[int]) -> tuple[int, ...]:
    positions = [p.dtype for p in kernel.metal_parameters if p.attr == "thread_position_in_grid"]
    axes = int(positions[0][-1]) if positions and positions[0][-1] in "23" else 1
    if 1 < len(shape) <= axes:
        return tuple(reversed(shape))
    return (math.prod(shape),)


def _three(sizes: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
