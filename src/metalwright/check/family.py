"""Cases by their extents: what lets a check choose shapes of its own.

A kernel's author says how a case of any shape is launched with ``kernel.case_for``, a function whose parameters are
the extents; a kernel that works element by element needs none: the rule is read from its cases.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from metalwright.check.cases import Case, parse
from metalwright.check.inputs import Random
from metalwright.errors import ArgumentError

_EXAMPLE_EXTENT = 33
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_POSITION_ONLY = {"thread_position_in_grid", "threads_per_grid"}
_OTHER_GROUPS = ((1, 1, 1), (32, 1, 1), (7, 3, 1), (1, 64, 1))


@dataclass(frozen=True)
class Family:
    """All cases of a kernel that differ in their extents.

    ``make`` takes the extents by name and gives a case, or ``None`` for extents that the kernel does not take.
    ``example`` are extents of an ordinary case. ``more`` are keywords for ``make`` that give further families of
    the same extents: other dtypes, other threadgroups.
    """

    kernel: Any
    make: Callable[..., Mapping[str, Any] | None] = field(compare=False)
    example: Mapping[str, int]
    given: Mapping[str, Any] = field(default_factory=dict)
    more: tuple[Mapping[str, Any], ...] = ()

    def case(self, extents: Mapping[str, int]) -> Case | None:
        """Return the case of these extents; ``None`` where the kernel takes no such extents.

        Raises:
            ArgumentError: ``make`` raises, or gives something that is no case.
        """
        shown = ", ".join(f"{name}={value}" for name, value in {**extents, **self.given}.items())
        where = f"kernel {self.kernel.name!r}, case_for({shown.replace('torch.', '')})"
        try:
            made = self.make(**extents, **self.given)
        except Exception as error:
            # the user's code may raise anything: it must be told for which extents
            raise ArgumentError(
                f"{where} raised {type(error).__name__}: {error}; return None for extents that the kernel does not take"
            ) from error
        if made is None:
            return None
        case = parse(self.kernel, made, where, shown.replace("torch.", ""))
        return replace(case, extents=tuple(extents.items()), family=self)

    def variants(self) -> tuple[Family, ...]:
        """Return the families that ``more`` describes."""
        return tuple(replace(self, given={**self.given, **extra}, more=()) for extra in self.more)


def family_of(kernel: Any, cases: Sequence[Case]) -> Family:
    """Return the family of ``kernel.case_for``, or of an element-wise kernel's cases.

    Raises:
        ArgumentError: there is no such function and the kernel does not look element-wise.
    """
    stated = stated_family(kernel)
    family = stated if stated is not None else _elementwise(kernel, cases)
    if family is None:
        raise ArgumentError(
            f"kernel {kernel.name!r}: edges needs to know how other shapes are launched: set kernel.case_for to a "
            "function of the extents, such as case_for(rows: int = 33, columns: int = 50), that returns a case"
        )
    return family


def stated_family(kernel: Any) -> Family | None:
    """Return the family of ``kernel.case_for``, if the kernel has one."""
    make: Any = getattr(kernel, "case_for", None)
    if make is None:
        return None
    example: dict[str, int] = {}
    more: list[Mapping[str, Any]] = []
    for parameter in inspect.signature(make).parameters.values():
        default = None if parameter.default is parameter.empty else parameter.default
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and (default is None or _is_extent(default)):
            example[parameter.name] = _EXAMPLE_EXTENT if default is None else default
        elif default in _FLOATS and _has_template(kernel):
            more += ({parameter.name: dtype} for dtype in _FLOATS if dtype is not default)
    if not example:
        raise ArgumentError(
            f"kernel {kernel.name!r}: case_for has no extents: its parameters, but keyword-only ones, are the extents"
        )
    return Family(kernel, make, example, more=tuple(more))


def _is_extent(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _has_template(kernel: Any) -> bool:
    return bool(getattr(kernel, "dtype_templates", None))


def _elementwise(kernel: Any, cases: Sequence[Case]) -> Family | None:
    """Return the family of a kernel whose cases all have one shape for all tensors, and a thread an element."""
    largest = max(cases, key=lambda case: math.prod(case.result_shapes[0]), default=None)
    if largest is None or math.prod(largest.result_shapes[0]) == 1:
        return None
    if not all(_is_elementwise(case) for case in cases):
        return None
    shape = largest.result_shapes[0]
    reversed_grid = len(shape) > 1 and _padded(shape) == _padded_sizes(largest.threads_per_grid)

    def make(group: Sequence[int] = largest.threads_per_thread_group, **extents: int) -> Mapping[str, Any]:
        new = tuple(extents.values())
        grid = _padded(new) if reversed_grid else (math.prod(new), 1, 1)
        return {
            "inputs": [_resized(value, new) for value in largest.inputs],
            "threads_per_grid": grid,
            "threads_per_thread_group": group,
            "result_shapes": [new] * len(largest.result_shapes),
        }

    example = {f"axis{axis}": extent for axis, extent in enumerate(shape)}
    return Family(kernel, make, example, more=_other_groups(kernel))


def _is_elementwise(case: Case) -> bool:
    shape = case.result_shapes[0]
    tensors = [value for value in case.inputs if isinstance(value, (Random, torch.Tensor))]
    alike = all(tuple(value.shape) == shape for value in tensors) and set(case.result_shapes) == {shape}
    grid = _padded_sizes(case.threads_per_grid)
    return bool(tensors) and alike and grid in (_padded(shape), (math.prod(shape), 1, 1))


def _other_groups(kernel: Any) -> tuple[Mapping[str, Any], ...]:
    """Other threadgroups are legal where the kernel cannot see them: it knows its position in the grid only."""
    seen = {parameter.attr for parameter in kernel.metal_parameters}
    shared = "threadgroup" in (kernel.src or "") or "simd" in (kernel.src or "")
    return tuple({"group": group} for group in _OTHER_GROUPS) if seen <= _POSITION_ONLY and not shared else ()


def _resized(value: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(value, Random):
        return replace(value, shape=shape)
    if isinstance(value, torch.Tensor):
        # its own values again: others might not be legal, as indices are not
        flat = value.reshape(-1)
        return flat[torch.arange(math.prod(shape)) % flat.numel()].reshape(shape)
    return value


def _padded(shape: Sequence[int]) -> tuple[int, ...]:
    """The launch sizes of a shape: x is the last axis."""
    return _padded_sizes(tuple(reversed(shape)))


def _padded_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    return (*sizes, 1, 1)[: max(3, len(sizes))]
