"""What a launch of a watched kernel brings along for its observers, and what they saw, in words of the user's MSL."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from metalwright.engine import abi, workers
from metalwright.engine.types import (
    Access,
    Argument,
    BadNumber,
    Buffer,
    Build,
    Module,
    Race,
    Seen,
    Uninitialised,
)
from metalwright.errors import Site

_EVENTS = 256
# as the front-end numbers them (msl/arithmetic.py)
_NUMBERS = (
    "a shift by a negative number, or by the width of its type or more",
    "a signed integer that its type does not hold",
    "a float turned into an integer that does not hold it",
)
_HOW = ("reads", "writes", "reads atomically", "writes atomically")
# fences order threadgroups in ways that are not followed: with one, races between threadgroups are not looked for
_FENCE = "atomic_thread_fence"


class Watch:
    """The observers' memory for one launch."""

    def __init__(
        self, module: Module, buffers: Iterable[abi.BufferStruct], arguments: Sequence[Argument | None]
    ) -> None:
        self._shadows: list[mmap.mmap] = []
        for struct, argument in zip(buffers, arguments, strict=False):
            # what no thread may write to cannot be raced for
            if isinstance(argument, Buffer) and argument.writable and argument.nbytes:
                struct.shadow = self._allocate(workers.shadow_bytes(argument.nbytes))
                struct.fresh = argument.fresh
        self._events = (abi.EventStruct * _EVENTS)()
        self._fenced = any(_FENCE in source for source in module.sources.values())

    def enter(self, launch: abi.LaunchStruct) -> None:
        """Tell a launch where its observers write."""
        launch.events, launch.event_room = ctypes.addressof(self._events), _EVENTS
        launch.fenced = self._fenced

    def seen(
        self,
        launch: abi.LaunchStruct,
        build: Build,
        module: Module,
        arguments: Sequence[Argument | None],
        threadgroup_memory: Sequence[tuple[str, int, int]],
    ) -> tuple[Seen, ...]:
        """Return what was seen.

        ``threadgroup_memory`` has the name, offset and size of each [[threadgroup(n)]] argument.
        """
        names = [variable.name for variable in module.threadgroup_variables]
        variables = [
            *zip(names, build.threadgroup_offsets, build.threadgroup_sizes, strict=False),
            *threadgroup_memory,
        ]
        events = self._events[: min(launch.event_count, _EVENTS)]
        return tuple(_told(event, build.sites, module, arguments, variables) for event in events)

    def _allocate(self, size: int) -> int:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        self._shadows.append(mmap.mmap(-1, size, flags=flags))
        return ctypes.addressof(ctypes.c_char.from_buffer(self._shadows[-1]))


@dataclass(frozen=True)
class _Place:
    memory: str
    space: str
    offset: int


def _told(
    event: abi.EventStruct,
    sites: Sequence[Site | None],
    module: Module,
    arguments: Sequence[Argument | None],
    variables: Sequence[tuple[str, int, int]],
) -> Seen:
    if event.kind == abi.EVENT_NUMBER:
        site = sites[event.now.site] if event.now.site < len(sites) else None
        x, y, z = event.now.position
        return BadNumber(_NUMBERS[event.object], site, module.excerpt(site), (x, y, z), event.count)
    # a word's first byte that both touched
    first = (event.mask & -event.mask).bit_length() - 1 if event.mask else 0
    count = event.mask.bit_count()
    place = _place(event, first, arguments, variables)

    def access(seen: abi.ObservedStruct) -> Access:
        site = sites[seen.site] if seen.site < len(sites) else None
        value = int(seen.value).to_bytes(abi.WORD_BYTES, "little")[first : first + count]
        thread = (seen.position[0], seen.position[1], seen.position[2])
        return Access(site, module.excerpt(site), thread, _HOW[seen.write & 3], value)

    if event.kind == abi.EVENT_UNINITIALISED:
        return Uninitialised(place.memory, place.space, place.offset, access(event.now), event.count)
    return Race(
        place.memory,
        place.space,
        place.offset,
        access(event.now),
        access(event.before),
        event.count,
        bool(event.other_group),
        bool(event.barriers),
    )


def _place(
    event: abi.EventStruct,
    first: int,
    arguments: Sequence[Argument | None],
    variables: Sequence[tuple[str, int, int]],
) -> _Place:
    offset = event.offset + first
    if event.place == abi.PLACE_BUFFER:
        argument = arguments[event.object]
        return _Place(argument.name if argument is not None else "", "device", offset)
    for name, start, size in variables:
        if start <= offset < start + size:
            return _Place(name, "threadgroup", offset - start)
    return _Place("", "threadgroup", offset)
