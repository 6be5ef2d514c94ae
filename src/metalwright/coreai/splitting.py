"""Cuts a flattened function into parts for Core AI's interpreter, and puts kernels and control flow in between.

The operations of a block fall into levels. At level 0 is what needs no cut's result; at level n + 1 what needs a
result of a cut at level n. The operations of one level are one segment. Those that depend on constants alone belong
to no level: each segment that needs one has a copy, and where a kernel needs one its value is worked out once, when
the artifact is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from metalwright.coreai.flatten import Block, Cut, Plain
from metalwright.coreai.plan import (
    Body,
    Branch,
    Loop,
    Read,
    Segment,
    Step,
    Write,
    inner_bodies,
    outer_reads,
    reads,
    sets,
)

AddSegment = Callable[[Sequence[Plain], Sequence[int], Sequence[int]], str]
"""Adds a function of these operations, inputs and outputs to the module and returns its name."""


@dataclass
class Splitter:
    """Splits the functions of one module. ``constants`` are the values that steps need and no step sets."""

    add_segment: AddSegment
    free: dict[int, Plain] = field(default_factory=dict)
    constants: dict[int, Plain] = field(default_factory=dict)

    def split(self, block: Block) -> Body:
        """Split a function's block."""
        return _BlockSplitter(self, block).split()

    def with_free(self, operations: Iterable[Plain]) -> list[Plain]:
        """Return operations with all of constants alone that they depend on, in order."""
        found: dict[int, Plain] = {}
        waiting = list(operations)
        while waiting:
            plain = waiting.pop()
            if plain.position not in found:
                found[plain.position] = plain
                waiting += [self.free[use] for use in plain.uses if use in self.free]
        return [found[position] for position in sorted(found)]


@dataclass
class _Placed:
    """A step that is no segment, at its level."""

    level: int
    step: Step


class _BlockSplitter:
    def __init__(self, whole: Splitter, block: Block) -> None:
        self._whole = whole
        self._block = block
        # what comes from around the block is there from the beginning
        self._levels: dict[int, int] = {}
        self._plains: list[tuple[int, Plain]] = []
        self._placed: list[_Placed] = []
        self._state_level = 0

    def split(self) -> Body:
        for item in self._block.items:
            if isinstance(item, Plain):
                self._place_plain(item)
            else:
                self._place_cut(item)
        needed = self._needed_between()
        alive = self._alive(needed)
        last = max([0, *(level for level, _ in alive), *(placed.level for placed in self._placed)], default=0)
        steps: list[Step] = []
        for level in range(last + 1):
            here = [placed.step for placed in self._placed if placed.level == level]
            steps += [step for step in here if isinstance(step, Read)]
            if segment := self._segment(level, alive, needed):
                steps.append(segment)
            steps += [step for step in here if not isinstance(step, Read)]
        return Body(self._block.arguments, tuple(steps), self._block.results)

    def _level(self, values: Iterable[int]) -> int:
        return max(
            (self._levels.get(value, 0) for value in values if value not in self._whole.free), default=0
        )

    def _place_plain(self, plain: Plain) -> None:
        if all(use in self._whole.free for use in plain.uses):
            self._whole.free.update(dict.fromkeys(plain.results, plain))
            return
        level = self._level(plain.uses)
        self._levels.update(dict.fromkeys(plain.results, level))
        self._plains.append((level, plain))

    def _place_cut(self, cut: Cut) -> None:
        step = self._step(cut)
        used = set(reads(step)).union(*(outer_reads(body) for body in inner_bodies(step)))
        level = self._level(used)
        touches_states = isinstance(step, (Read, Write)) or any(map(_touches_states, inner_bodies(step)))
        if touches_states:
            level = max(level, self._state_level)
            # within a level, reads come first: what comes after a body that may write goes to the next
            self._state_level = level + isinstance(step, (Branch, Loop))
        self._placed.append(_Placed(level, step))
        self._levels.update(dict.fromkeys(sets(step), level if isinstance(step, Read) else level + 1))

    def _step(self, cut: Cut) -> Step:
        match cut:
            case Branch():
                then, otherwise = self._whole.split(cut.then), self._whole.split(cut.otherwise)
                return Branch(cut.condition, then, otherwise, cut.results)
            case Loop():
                before, after = self._whole.split(cut.before), self._whole.split(cut.after)
                return Loop(cut.initial, before, after, cut.results)
            case _:
                return cut

    def _needed_between(self) -> set[int]:
        """Return the values that something other than a segment needs, and note those that are constants."""
        needed = set(self._block.results)
        for placed in self._placed:
            needed.update(reads(placed.step), *(outer_reads(body) for body in inner_bodies(placed.step)))
        for value in sorted(needed & self._whole.free.keys()):
            self._whole.constants[value] = self._whole.free[value]
        return needed - self._whole.free.keys()

    def _alive(self, needed: set[int]) -> list[tuple[int, Plain]]:
        """Return the operations that something needs, in order."""
        used = set(needed)
        alive: list[tuple[int, Plain]] = []
        for level, plain in reversed(self._plains):
            if used.intersection(plain.results):
                alive.append((level, plain))
                used.update(plain.uses)
        return alive[::-1]

    def _segment(self, level: int, alive: list[tuple[int, Plain]], needed: set[int]) -> Segment | None:
        here = [plain for at, plain in alive if at == level]
        if not here:
            return None
        made = {result for plain in here for result in plain.results}
        later = {use for at, plain in alive if at > level for use in plain.uses}
        operations = self._whole.with_free(here)
        made_anywhere = made.union(*(plain.results for plain in operations))
        inputs = sorted({use for plain in operations for use in plain.uses} - made_anywhere)
        outputs = sorted(made & (needed | later))
        names = tuple(plain.operation.name for plain in here)
        return Segment(
            self._whole.add_segment(operations, inputs, outputs), tuple(inputs), tuple(outputs), names
        )


def _touches_states(body: Body) -> bool:
    return any(
        isinstance(step, (Read, Write)) or any(map(_touches_states, inner_bodies(step)))
        for step in body.steps
    )
