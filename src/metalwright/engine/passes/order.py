"""The order of a function's blocks in which lanes of a simdgroup catch up with each other.

Lanes run one after another up to an exchange; those that wait at the earliest one go on first. Early and late follow
the control flow, not the program's text, which may put what follows a loop before the rest of the loop. In this
order a block comes before all that it leads to, and each loop stands together; only the way back to a loop's head
leads backwards. So lanes that left a loop, or skipped the rest of a round, wait for the others as on a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from metalwright.engine.passes import text

_TARGET = re.compile(r'label %([-\w.$]+|"[^"]*")')
_TERMINATOR = re.compile(r"^\s*(?:br|switch) ")


@dataclass(frozen=True)
class Block:
    """A basic block: its first and last line, and the numbers of the blocks that it may lead to."""

    first: int
    last: int
    successors: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """A block in order. ``ends`` says that this is no block but the end of the loop that ``block`` is the head of."""

    block: int
    ends: bool = False


def find_blocks(body: Sequence[str]) -> list[Block]:
    """Return a function's blocks as they stand in its text, from its ``define`` line to its closing brace."""
    labels = {index: match.group(1) for index, line in enumerate(body) if (match := text.LABEL.match(line))}
    # the first block mostly has no label
    starts = [*([] if 1 in labels else [1]), *labels]
    numbers = {labels[start]: number for number, start in enumerate(starts) if start in labels}
    found = []
    for first, following in zip(starts, [*starts[1:], len(body)], strict=True):
        last = following - 1
        # a switch is printed over several lines
        end = next((i for i in range(last, first - 1, -1) if _TERMINATOR.match(body[i])), last)
        targets = [numbers[label] for line in body[end : last + 1] for label in _TARGET.findall(line)]
        found.append(Block(first, last, tuple(dict.fromkeys(targets))))
    return found


def in_order(blocks: Sequence[Block]) -> Iterator[Step]:
    """Return the steps through a function's blocks; a loop's head comes first in it, and its end last."""
    return _order([block.successors for block in blocks], set(range(len(blocks))), [0])


def _order(successors: list[tuple[int, ...]], members: set[int], starts: Sequence[int]) -> Iterator[Step]:
    for head, component in _components(successors, members, starts):
        yield Step(head)
        if len(component) == 1 and head not in successors[head]:
            continue
        inside = component - {head}
        yield from _order(successors, inside, successors[head])
        yield Step(head, ends=True)


def _components(
    successors: list[tuple[int, ...]], members: set[int], starts: Sequence[int]
) -> list[tuple[int, set[int]]]:
    """Return the strongly connected parts (Tarjan) that the starts lead to, each with the block entered first."""
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_: list[int] = []
    closed: set[int] = set()
    found: list[tuple[int, set[int]]] = []
    for start in reversed(starts):
        if start in number or start not in members:
            continue
        path = [(start, iter(reversed(successors[start])))]
        number[start] = lowest[start] = len(number)
        open_.append(start)
        while path:
            block, rest = path[-1]
            following = next(rest, None)
            if following is None:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[block])
                if lowest[block] == number[block]:
                    component: set[int] = set()
                    while block not in component:
                        component.add(open_.pop())
                    closed |= component
                    found.append((block, component))
            elif following not in members or following in closed:
                continue
            elif following in number:
                lowest[block] = min(lowest[block], number[following])
            else:
                number[following] = lowest[following] = len(number)
                open_.append(following)
                path.append((following, iter(reversed(successors[following]))))
    return found[::-1]
