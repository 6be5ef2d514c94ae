"""MW107: products of 32 bits in an index that are too large for them."""

from __future__ import annotations

from collections.abc import Iterator

from metalwright.lint.bounds import bound
from metalwright.lint.expressions import Node
from metalwright.lint.rule import Hit, Rule
from metalwright.lint.subject import Launch, Subject

_LARGEST_EXTENT = (
    1 << 20
)  # a literal beyond this belongs to a hash or a random number, which is meant to wrap


def _find(subject: Subject) -> Iterator[Hit]:
    indices = _indices(subject)
    if not any(node.kind == "binary" and node.text == "*" for index in indices for node in index.walk()):
        return
    said: set[int] = set()
    for launch in subject.launches:
        for index in indices:
            for node, what in _overflowing(subject, index, launch):
                if node.at not in said:
                    said.add(node.at)
                    yield subject.hit(subject.body, node.at, what)


def _indices(subject: Subject) -> list[Node]:
    """Return the expressions that decide where memory is accessed, and those of the variables in them."""
    body = subject.body
    pending: list[Node] = []
    for node in body.nodes:
        if node.kind == "subscript":
            pending += node.parts[1:]
        elif (node.kind == "binary" and node.text == "+" and _is_pointer(subject, node.parts[0])) or (
            node.kind == "assign" and node.text in ("+=", "-=") and _is_pointer(subject, node.parts[0])
        ):
            pending.append(node.parts[1])
    found: list[Node] = []
    seen: set[int] = set()
    while pending:
        index = pending.pop()
        found.append(index)
        for node in index.walk():
            variable = body.variable(node.text, node.at) if node.kind == "name" else None
            if variable is not None and variable.index not in seen and variable.kind == "value":
                seen.add(variable.index)
                pending += [variable.value] if variable.value else []
                pending += [a.parts[1] for a in body.assignments(variable.name) if a.kind == "assign"]
    return found


def _is_pointer(subject: Subject, node: Node) -> bool:
    if node.kind == "cast":
        return False
    if node.kind == "unary" and node.text == "&":
        return True
    variable = subject.body.variable(node.text, node.at) if node.kind == "name" else None
    return variable is not None and variable.kind == "pointer"


def _overflowing(subject: Subject, node: Node, launch: Launch) -> Iterator[tuple[Node, str]]:
    deeper = [found for part in node.parts for found in _overflowing(subject, part, launch)]
    if deeper or node.kind != "binary" or node.text not in ("*", "+"):
        yield from deeper
        return
    products = [part for part in node.walk() if part.kind == "binary" and part.text == "*"]
    literals = [bound(subject, part, launch) for part in node.walk() if part.kind == "number"]
    if not products or any(one is not None and one.most > _LARGEST_EXTENT for one in literals):
        return
    result = bound(subject, node, launch)
    if result is None or result.wide or result.most <= result.limit:
        return
    type_ = "uint" if result.unsigned else "int"
    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in launch.shapes.items())
    yield (
        node,
        (
            f"this index is computed in 32 bits and reaches {result.most} for {launch.name!r} ({shapes}); "
            f"{type_} ends at {result.limit}: make one factor a long or ulong"
        ),
    )


RULES = (
    Rule(
        id="MW107",
        title="an index that does not fit into 32 bits",
        severity="error",
        explanation=(
            "A product of two `uint` or `int` values is computed in 32 bits, also where the result goes "
            "into a `long`. "
            "For the shapes of a case, the largest index is beyond the type: it wraps around, and the "
            "kernel reads and "
            "writes elsewhere. Only products in an index count, with factors whose largest value is known "
            "from extents, "
            "positions and constants."
        ),
        bad='''
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

kernel = MetalKernel(
    "doubled", ["x"], ["out"], torch_defn=doubled,
    metal_params=[MetalParameter("gid", "uint2", "thread_position_in_grid")],
    src="""
    device const int8_t* from = &x[0, 0];
    device int8_t* to = &out[0, 0];
    int at = int(gid.y) * x.get_extent(0) + int(gid.x);
    to[at] = from[at] * 2;
    """,
)
kernel.cases = lambda: [{"inputs": [random((50000, 50000), torch.int8)], "threads_per_grid": (50000, 50000, 1),
                         "threads_per_thread_group": (32, 8, 1), "result_shapes": [[50000, 50000]]}]
''',
        good='''
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

kernel = MetalKernel(
    "doubled", ["x"], ["out"], torch_defn=doubled,
    metal_params=[MetalParameter("gid", "uint2", "thread_position_in_grid")],
    src="""
    device const int8_t* from = &x[0, 0];
    device int8_t* to = &out[0, 0];
    long at = long(gid.y) * x.get_extent(0) + int(gid.x);
    to[at] = from[at] * 2;
    """,
)
kernel.cases = lambda: [{"inputs": [random((50000, 50000), torch.int8)], "threads_per_grid": (50000, 50000, 1),
                         "threads_per_thread_group": (32, 8, 1), "result_shapes": [[50000, 50000]]}]
''',
        fix=(
            "Widen one factor before the multiplication, `long(row) * width`, or index the tensor itself: "
            "`x[column, row]`."
        ),
        find=_find,
    ),
)
