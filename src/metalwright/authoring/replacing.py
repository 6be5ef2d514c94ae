"""Functions of other packages that do something else while an emulation is active, and nowhere else."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from metalwright.authoring.registry import Options

_ABSENT = object()


@dataclass(frozen=True)
class Replacement:
    """A function, a method or a class method; ``owner`` is its module or class.

    ``call`` is given the options, the original and the arguments. ``absent`` is what a ``RuntimeError`` says that is
    raised outside of any emulation where the owner has no such function.
    """

    owner: Any
    name: str
    call: Callable[..., Any]
    absent: str = ""


class Replacing:
    """Replaces functions as long as any context (thread or task) emulates; in the others they do what they did.

    Args:
        name: The target that is emulated.
        replacements: Returns what to replace; called when an emulation begins or ends.
    """

    def __init__(self, name: str, replacements: Callable[[], Sequence[Replacement]]) -> None:
        self._replacements = replacements
        self._active: ContextVar[tuple[Options, ...]] = ContextVar(f"metalwright_{name}", default=())
        self._lock = threading.Lock()
        self._begun = 0
        self._originals: dict[tuple[str, str], Any] = {}

    def active(self) -> Options | None:
        """Return the options of the emulation that this context is in."""
        active = self._active.get()
        return active[-1] if active else None

    def begin(self, options: Options) -> None:
        """Emulate in this context, before what is emulated there already."""
        replacements = self._replacements()
        with self._lock:
            if self._begun == 0:
                for one in replacements:
                    current = _attribute(one)
                    if _is_ours(current):
                        continue  # it stayed, because somebody had patched on top of it
                    self._originals[one.owner.__name__, one.name] = current
                    setattr(one.owner, one.name, self._dispatching(current, one))
            self._begun += 1
        self._active.set((*self._active.get(), options))

    def end(self, options: Options) -> None:
        """Undo the latest :meth:`begin` with these options in this context."""
        active = list(self._active.get())
        last = len(active) - 1 - active[::-1].index(options)
        self._active.set((*active[:last], *active[last + 1 :]))
        with self._lock:
            self._begun -= 1
            if self._begun:
                return
            for one in self._replacements():
                # taking ours out from under somebody's patch would take theirs too: leave it, it passes calls on
                if not _is_ours(_attribute(one)):
                    continue
                original = self._originals[one.owner.__name__, one.name]
                if original is _ABSENT:
                    delattr(one.owner, one.name)
                else:
                    setattr(one.owner, one.name, original)

    def _dispatching(self, original: Any, replacement: Replacement) -> Any:
        function = getattr(original, "__func__", original)

        def call(*args: Any, **kwargs: Any) -> Any:
            if (options := self.active()) is not None:
                return replacement.call(options, function, *args, **kwargs)
            if original is _ABSENT:
                raise RuntimeError(replacement.absent)
            return function(*args, **kwargs)

        if original is not _ABSENT:
            functools.update_wrapper(call, function, updated=())
        call._metalwright = True  # type: ignore[attr-defined]
        return classmethod(call) if isinstance(original, classmethod) else call


def _attribute(replacement: Replacement) -> Any:
    """Return what the owner has: of a class, a class method as such."""
    return vars(replacement.owner).get(replacement.name, _ABSENT)


def _is_ours(function: Any) -> bool:
    return getattr(getattr(function, "__func__", function), "_metalwright", False)
