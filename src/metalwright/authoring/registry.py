"""What can be emulated: a small registry, so that a new target touches no other file."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import ContextDecorator
from dataclasses import dataclass

from metalwright.errors import ArgumentError, ToolchainError


@dataclass(frozen=True)
class Options:
    """How kernels run while they are emulated."""

    checked: bool
    math_mode: str
    recursion: int


@dataclass(frozen=True)
class Target:
    """Something that can be emulated; ``package`` is what has to be installed for it.

    ``begin`` and ``end`` are called in pairs, with equal options, in the same context. Pairs may nest and may be
    active in several threads at once.
    """

    name: str
    package: str
    begin: Callable[[Options], None]
    end: Callable[[Options], None]

    def installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None


_targets: dict[str, Target] = {}


def register(target: Target) -> None:
    """Add a target; one of the same name is replaced."""
    _targets[target.name] = target


def choose(names: tuple[str, ...]) -> tuple[Target, ...]:
    """Return the targets of these names, or, for no names, all that are installed.

    Raises:
        ArgumentError: A name is unknown.
        ToolchainError: A target's package is not installed.
    """
    for name in names:
        if name not in _targets:
            raise ArgumentError(f"emulate(): unknown name {name!r}; known: {', '.join(sorted(_targets))}")
        if not _targets[name].installed():
            raise ToolchainError(
                f"emulate({name!r}): the package {_targets[name].package!r} is not installed"
            )
    if names:
        return tuple(_targets[name] for name in dict.fromkeys(names))
    return tuple(target for target in _targets.values() if target.installed())


class Emulation(ContextDecorator):
    """The context manager that ``emulate()`` returns; it also decorates functions.

    It keeps no state of its own, so one object may be entered inside itself and from several threads.
    """

    def __init__(self, chosen: tuple[Target, ...], options: Options) -> None:
        self._chosen = chosen
        self._options = options

    def __enter__(self) -> Emulation:
        for position, target in enumerate(self._chosen):
            try:
                target.begin(self._options)
            except BaseException:
                self._end(self._chosen[:position])
                raise
        return self

    def __exit__(self, *error: object) -> None:
        self._end(self._chosen)

    def _end(self, begun: tuple[Target, ...]) -> None:
        for target in reversed(begun):
            target.end(self._options)
