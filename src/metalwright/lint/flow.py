"""What a value depends on: followed through a body's variables, as far as a rule may rely on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from metalwright.lint.expressions import Node
from metalwright.lint.msl import Code, Statement
from metalwright.lint.subject import Launch, Subject

_IN_THREADGROUP = frozenset({"thread_position_in_threadgroup", "thread_index_in_threadgroup"})
_THREADS = frozenset({"threads_per_threadgroup", "dispatch_threads_per_threadgroup"})


def leaves(subject: Subject, node: Node) -> set[str]:
    """Return what a value of the body is computed from.

    Thread attributes with their component (``thread_position_in_grid.x``), and names of inputs, results and
    arrays as they are; ``?`` where something is not understood. What decides whether a statement runs does not count.
    """
    found: set[str] = set()
    seen: set[int] = set()
    _follow(subject, node, found, seen)
    return found


def _follow(subject: Subject, node: Node, found: set[str], seen: set[int]) -> None:
    body = subject.body
    if node.kind == "opaque":
        found.add("?")
    if node.kind == "member" and (attribute := _parameter(subject, node)):
        found.add(attribute)
        return
    if node.kind == "name":
        variable = body.variable(node.text, node.at)
        if variable is None:
            found |= _bare(subject, node.text)
            return
        if variable.space == "threadgroup" or variable.dimensions:
            found.add(variable.name)
        if variable.index in seen:
            return
        seen.add(variable.index)
        if variable.space == "threadgroup":
            return
        for source in (variable.value, *body.assignments(variable.name)):
            if source is not None:
                _follow(subject, source.parts[-1] if source.kind == "assign" else source, found, seen)
        return
    for part in node.parts:
        _follow(subject, part, found, seen)


def _parameter(subject: Subject, node: Node) -> str:
    """Return the attribute that ``gid.x`` is, where ``gid`` is a parameter."""
    inner = node.parts[0]
    hidden = inner.kind != "name" or subject.body.variable(inner.text, inner.at) is not None
    attribute = None if hidden else subject.attributes.get(inner.text)
    return f"{attribute}.{node.text}" if attribute and node.text in ("x", "y", "z") else ""


def _bare(subject: Subject, name: str) -> set[str]:
    attribute = subject.attributes.get(name)
    if attribute is None:
        return {name}
    parameter = next(p for p in subject.kernel.metal_parameters if p.name == name)
    components = "xyz"[: int(parameter.dtype[-1])] if parameter.dtype[-1] in "23" else "x"
    return {f"{attribute}.{component}" for component in components}


def beyond_lane(leaf: str, launch: Launch) -> bool:
    """Whether a leaf differs between the simdgroups of one threadgroup."""
    attribute, _, component = leaf.partition(".")
    if attribute in ("thread_index_in_threadgroup", "simdgroup_index_in_threadgroup"):
        return True
    if attribute not in ("thread_position_in_threadgroup", "thread_position_in_grid"):
        return False
    axis = "xyz".index(component)
    return launch.group[axis] > 1 and (axis > 0 or launch.group[0] > 32 or 32 % launch.group[0] != 0)


@dataclass(frozen=True)
class Stride:
    """A loop ``for (i = start; …; i += step)``."""

    loop: Statement
    name: str
    start: Node
    step: Node


def strides(code: Code) -> Iterator[Stride]:
    """Yield the loops that step by a value that is written in their head."""
    for loop in code.statements:
        step = loop.expressions[2] if loop.kind == "for" and len(loop.expressions) == 3 else None
        if step is None or step.kind != "assign" or step.text not in ("+=", "="):
            continue
        name = step.parts[0].text
        start = next((v.value for v in loop.variables if v.name == name), None)
        first = loop.expressions[0]
        if first is not None and first.kind == "assign" and first.parts[0].text == name:
            start = first.parts[1]
        by = step.parts[1]
        if step.text == "=":
            # i = i + step
            if by.kind != "binary" or by.text != "+" or by.parts[0].text != name:
                continue
            by = by.parts[1]
        if start is not None and step.parts[0].kind == "name":
            yield Stride(loop, name, start, by)


def is_threadgroup_size(subject: Subject, node: Node, launch: Launch, axis: int) -> bool:
    """Whether a value is the number of threads in a threadgroup along an axis."""
    attribute, _, component = subject.attribute(node).partition(".")
    if attribute in _THREADS:
        return component == "xyz"[axis]
    return subject.body.constant(node) == launch.group[axis]


def is_position_in_threadgroup(leaf: str) -> bool:
    """Whether a leaf says which thread of its threadgroup a thread is."""
    return leaf.partition(".")[0] in _IN_THREADGROUP


def names_of(nodes: Iterable[Node]) -> set[str]:
    """Return the names in several expressions."""
    return {name for node in nodes for name in node.names()}


def alike(a: Node, b: Node) -> bool:
    """Whether two expressions are written alike."""
    return (
        a.kind == b.kind
        and a.text == b.text
        and len(a.parts) == len(b.parts)
        and all(map(alike, a.parts, b.parts))
        and a.kind != "opaque"
    )
