"""How large an integer of a kernel's body can become in one case, where that can be told for sure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from metalwright.lint.expressions import Node, integer
from metalwright.lint.msl import Statement
from metalwright.lint.subject import Launch, Subject

_UNSIGNED = frozenset({"uint", "uint32_t", "unsigned", "ulong", "uint64_t", "size_t"})
_WIDE = frozenset({"long", "ulong", "int64_t", "uint64_t", "size_t", "ptrdiff_t"})
_NARROW = frozenset(
    {"int", "int32_t", "short", "ushort", "char", "uchar", "int16_t", "uint16_t", "int8_t", "uint8_t"}
)
_DEPTH = 24
_SUFFIX = re.compile(r"[uUlL]+\Z")


@dataclass(frozen=True)
class Bound:
    """An upper bound of a value that is not negative, and its type."""

    most: int
    unsigned: bool = False
    wide: bool = False

    @property
    def limit(self) -> int:
        """The largest value of the type."""
        return 2 ** ((64 if self.wide else 32) - (not self.unsigned)) - 1


def bound(subject: Subject, node: Node, launch: Launch, depth: int = 0) -> Bound | None:
    """Return how large an expression of the body can become in a case; ``None`` where it cannot be told."""
    if depth > _DEPTH:
        return None
    again = depth + 1
    if node.kind == "number":
        value = integer(node.text)
        suffix = _SUFFIX.search(node.text)
        letters = suffix[0].lower() if suffix else ""
        return None if value is None else Bound(value, "u" in letters, "l" in letters)
    if node.kind == "cast" and len(node.parts) == 1:
        inner = bound(subject, node.parts[0], launch, again)
        return inner and _typed(inner.most, node.text)
    if node.kind in ("name", "member"):
        return _named(subject, node, launch, again)
    if node.kind == "call":
        return _called(subject, node, launch, again)
    if node.kind == "conditional":
        sides = [bound(subject, part, launch, again) for part in node.parts[1:]]
        return max((s for s in sides if s), key=lambda s: s.most) if all(sides) else None
    return _binary(subject, node, launch, again) if node.kind == "binary" else None


def _binary(subject: Subject, node: Node, launch: Launch, depth: int) -> Bound | None:
    left, right = (bound(subject, part, launch, depth) for part in node.parts)
    if left is None or right is None:
        return None
    exact = subject.body.constant(node.parts[1])
    if node.text in ("+", "*"):
        most = left.most + right.most if node.text == "+" else left.most * right.most
    elif node.text == "-":
        most = left.most
    elif node.text == "/" and exact:
        most = left.most // exact
    elif node.text == "%":
        most = min(left.most, max(right.most - 1, 0))
    elif node.text == "&":
        most = min(left.most, right.most)
    elif node.text == ">>" and exact is not None and exact < 64:
        most = left.most >> exact
    elif node.text == "<<" and exact is not None and exact < 64:
        return Bound(left.most << exact, left.unsigned, left.wide)
    else:
        return None
    return Bound(most, left.unsigned or right.unsigned, left.wide or right.wide)


def _called(subject: Subject, node: Node, launch: Launch, depth: int) -> Bound | None:
    if node.text == "get_extent" and len(node.parts) == 2:
        tensor, dimension = node.parts[0], subject.body.constant(node.parts[1])
        if dimension is None or not subject.is_parameter(tensor.root, tensor.at):
            return None
        extent = launch.extent(tensor.root, dimension)
        return None if extent is None else Bound(extent)
    if node.text in ("min", "max") and len(node.parts) == 2:
        sides = [bound(subject, part, launch, depth) for part in node.parts]
        known = [side for side in sides if side is not None]
        if len(known) == 2 or (known and node.text == "min"):
            pick = min if node.text == "min" else max
            return pick(known, key=lambda side: side.most)
    return None


def _named(subject: Subject, node: Node, launch: Launch, depth: int) -> Bound | None:
    variable = subject.body.variable(node.text, node.at) if node.kind == "name" else None
    if variable is None:
        if (attribute := subject.attribute(node)) and (most := _position(attribute, launch)) is not None:
            root = node.root
            given = next((p.dtype for p in subject.kernel.metal_parameters if p.name == root), "uint")
            return Bound(most, not given.startswith("ushort"))
        value = launch.scalars.get(node.text) if node.kind == "name" else None
        if isinstance(value, int) and value >= 0:
            return Bound(int(value))
        constant = subject.body.constant(node)
        return Bound(constant) if constant is not None and constant >= 0 else None
    if variable.kind != "value":
        return None
    if subject.body.assignments(variable.name):
        most = _loop_variable(subject, node, launch, depth)
        return None if most is None else _typed(most, variable.type_word)
    inner = variable.value and bound(subject, variable.value, launch, depth)
    if inner is None or variable.type_word == "auto":
        return inner
    return _typed(inner.most, variable.type_word)


def _typed(most: int, word: str) -> Bound | None:
    if word in _WIDE | _UNSIGNED | _NARROW:
        return Bound(most, word in _UNSIGNED, word in _WIDE)
    return None


def loop_of(subject: Subject, node: Node) -> Statement | None:
    """Return the ``for`` loop around a name whose head alone declares and changes it."""
    body = subject.body
    variable = body.variable(node.text, node.at) if node.kind == "name" else None
    if variable is None:
        return None
    for loop in body.around(node.at):
        if loop.kind == "for" and variable in loop.variables and len(loop.expressions) == 3:
            head = range(loop.first, loop.parts[0].first)
            same = [
                a for a in body.assignments(variable.name) if body.variable(variable.name, a.at) == variable
            ]
            return loop if all(a.at in head for a in same) else None
    return None


def _loop_variable(subject: Subject, node: Node, launch: Launch, depth: int) -> int | None:
    loop = loop_of(subject, node)
    test = loop.expressions[1] if loop else None
    if test is None or test.kind != "binary" or test.text not in ("<", "<=", "!="):
        return None
    if test.parts[0].kind != "name" or test.parts[0].text != node.text:
        return None
    end = bound(subject, test.parts[1], launch, depth)
    return None if end is None else max(end.most - (test.text != "<="), 0)


def _position(attribute: str, launch: Launch) -> int | None:
    name, _, component = attribute.partition(".")
    axis = "xyz".index(component)
    grid, group = launch.grid[axis], max(launch.group[axis], 1)
    return {
        "thread_position_in_grid": grid - 1,
        "threads_per_grid": grid,
        "thread_position_in_threadgroup": group - 1,
        "thread_index_in_threadgroup": launch.threads - 1,
        "threadgroup_position_in_grid": -(-grid // group) - 1,
        "threadgroups_per_grid": -(-grid // group),
        "threads_per_threadgroup": group,
        "dispatch_threads_per_threadgroup": group,
        "thread_index_in_simdgroup": 31,
        "simdgroup_index_in_threadgroup": (launch.threads - 1) // 32,
        "simdgroups_per_threadgroup": -(-launch.threads // 32),
        "threads_per_simdgroup": 32,
    }.get(name)
