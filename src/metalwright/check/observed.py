"""What a watched kernel was seen to do: findings."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Iterable, Iterator

from metalwright.check.verdict import Finding
from metalwright.engine import Access, BadNumber, Race, Seen, Uninitialised
from metalwright.errors import Related, Site

_LIKELY_FLOATS = 1e-9, 1e9
_FLAGS = {"device": "mem_flags::mem_device", "threadgroup": "mem_flags::mem_threadgroup"}


def findings_of(*runs: Iterable[Seen], numbers: bool = True) -> Iterator[Finding]:
    """Yield a finding for each race, each read of what nobody wrote that no race explains, and each bad number.

    What more than one run has seen is one finding. ``numbers=False`` leaves bad numbers out: where the inputs are not
    finite, turning one into an integer is the reference's affair too.
    """
    found: dict[object, Seen] = {}
    for seen in runs:
        here: dict[object, Seen] = {}
        for one in seen:
            known = here.get(key := _key(one))
            here[key] = one if known is None else dataclasses.replace(known, count=known.count + one.count)
        found = here | found
    races = [one for one in found.values() if isinstance(one, Race)]
    raced = {(race.memory, access.site) for race in races for access in (race.now, race.before)}
    for race in races:
        yield _race(race)
    for one in found.values():
        # where a barrier is missing, some threads read too early: that is the same mistake
        if isinstance(one, Uninitialised) and (one.memory, one.now.site) not in raced:
            yield _uninitialised(one)
        if isinstance(one, BadNumber) and numbers:
            yield _number(one)


def _key(one: Seen) -> object:
    if isinstance(one, Race):
        # the other thread may be the first to come: there and back again is one race
        return one.memory, frozenset((one.now.site, one.before.site)), one.other_threadgroup
    return (one.memory, one.now.site) if isinstance(one, Uninitialised) else (one.what, one.site)


def _race(race: Race) -> Finding:
    head = (
        f"{_at(race)}: two threads {'of different threadgroups ' if race.other_threadgroup else ''}use the same bytes, "
        f"and nothing orders them{_times(race.count)}"
    )
    return Finding(
        "race",
        f"{head}; {_advice(race)}\n{_place(race.now.site)}{_access(race.now)}",
        site=race.now.site,
        excerpt=race.now.excerpt,
        related=(Related(f"{_access(race.before)}, before that", race.before.site, race.before.excerpt),),
    )


def _advice(race: Race) -> str:
    if race.other_threadgroup:
        return (
            "nothing orders the threadgroups of one dispatch but atomics: split the work into two dispatches"
        )
    if race.before.site == race.now.site and race.before.how == race.now.how == "writes":
        # all threads run that line alike: a barrier would not say whose value remains
        return (
            "let one thread write it, or each an element of its own (in a loop: a barrier after each round)"
        )
    flags = _FLAGS[race.space]
    if race.barrier_between:
        return f"the barrier between them does not cover {race.space} memory: give it {flags}"
    return f"put threadgroup_barrier({flags}) between the two"


def _uninitialised(one: Uninitialised) -> Finding:
    head = f"{_at(one)}: a thread reads what no thread has written{_times(one.count)}"
    message = f"{head}\n{_place(one.now.site)}{_access(one.now)}"
    return Finding("uninitialised", message, site=one.now.site, excerpt=one.now.excerpt)


def _number(one: BadNumber) -> Finding:
    message = f"{one.what}, by the thread at {one.thread}{_times(one.count)}: it may give anything on a GPU"
    return Finding("number", _place(one.site) + message, site=one.site, excerpt=one.excerpt)


def _at(one: Race | Uninitialised) -> str:
    what = f"the threadgroup memory {one.memory!r}" if one.space == "threadgroup" else f"{one.memory!r}"
    return f"byte {one.offset} of {what}"


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""


def _place(site: Site | None) -> str:
    return f"{site}: " if site else ""


def _access(access: Access) -> str:
    return f"the thread at {access.thread} {access.how} {_value(access.value)}"


def _value(value: bytes) -> str:
    """Return bytes as a number: what they stand for is the kernel's affair, so the likelier of two."""
    integer = int.from_bytes(value, "little")
    shown = f"0x{integer:0{2 * len(value)}x}"
    kind = {2: "<e", 4: "<f"}.get(len(value))
    if kind is None:
        return shown
    number = struct.unpack(kind, value)[0]
    smallest, largest = _LIKELY_FLOATS
    if math.isfinite(number) and smallest < abs(number) < largest:
        return f"{shown} ({number:.6g} as a float)"
    return f"{shown} ({integer})"
