"""MW108: experts' weights gathered for each slot, and one activation row for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from metalwright.lint.expressions import Node
from metalwright.lint.flow import leaves
from metalwright.lint.rule import Hit, Rule
from metalwright.lint.subject import Launch, Subject


def _find(subject: Subject) -> Iterator[Hit]:
    for launch in subject.launches:
        for indices in _gathering(subject, launch):
            slots = launch.shapes[indices]
            for name in subject.inputs:
                shape = launch.shapes.get(name, ())
                # a row for each slot: [k, K] beside indices [k]
                if name == indices or shape[:-1] != slots or math.prod(slots) == 1:
                    continue
                first = _first_row_only(subject, name, shape)
                if first is not None:
                    yield subject.hit(
                        subject.body,
                        first,
                        f"{name!r} has a row for each of the slots of {indices!r} ({list(shape)} and "
                        f"{list(slots)} in "
                        f"{launch.name!r}), and every slot reads row 0 of it: index it with the slot",
                    )
                    return


def _gathering(subject: Subject, launch: Launch) -> list[str]:
    """Return the inputs of integers that choose a slab of another input of rank 3 or more."""
    integers = [name for name, row in launch.types.items() if row.kind == "int"]
    found: list[str] = []
    for node in subject.body.nodes:
        if node.kind != "subscript" or not subject.is_parameter(node.root, node.at):
            continue
        if len(launch.shapes.get(node.root, ())) >= 3 and len(node.parts) >= 4:
            found += [
                name for name in integers if name in leaves(subject, node.parts[-1]) and name != node.root
            ]
    return list(dict.fromkeys(found))


def _first_row_only(subject: Subject, name: str, shape: tuple[int, ...]) -> int | None:
    """Return a read of an input, all of whose reads have 0 for a coordinate of more than one row."""
    reads = subject.body.accesses(name)
    if not reads or any(len(a.indices) != len(shape) for a in reads):
        return None
    for position in range(1, len(shape)):
        extent = shape[-1 - position]
        if extent > 1 and all(_is_zero(subject, a.indices[position]) for a in reads):
            return reads[0].at
    return None


def _is_zero(subject: Subject, node: Node) -> bool:
    return subject.body.constant(node) == 0


RULES = (
    Rule(
        id="MW108",
        title="experts' weights gathered with one shared row",
        severity="error",
        explanation=(
            "In a mixture of experts, gate and up read the token's one activation row, whatever the "
            "expert; down reads "
            "a row of its own for each slot. A kernel that gathers weights by slot, and is given a row for "
            "each slot, "
            "but reads row 0 for all of them, is wrong by a relative error near 1."
        ),
        bad='''
def down(W: torch.Tensor, A: torch.Tensor, IDX: torch.Tensor) -> torch.Tensor:
    return torch.einsum("snk,sk->sn", torch.index_select(W, 0, IDX), A)

kernel = MetalKernel(
    "down", ["W", "A", "IDX"], ["out"], torch_defn=down,
    metal_params=[MetalParameter("gid", "uint2", "thread_position_in_grid")],
    src="""
    uint expert = uint(IDX[gid.y]);
    float sum = 0.0f;
    for (int k = 0; k < W.get_extent(0); ++k) sum += W[k, gid.x, expert] * A[k, 0];
    out[gid.x, gid.y] = sum;
    """,
)
kernel.cases = lambda: [{"inputs": [random((8, 64, 32)), random((2, 32)), random((2,), torch.int32, low=0, high=8)],
                         "threads_per_grid": (64, 2, 1), "threads_per_thread_group": (32, 1, 1),
                         "result_shapes": [[2, 64]]}]
''',
        good='''
def down(W: torch.Tensor, A: torch.Tensor, IDX: torch.Tensor) -> torch.Tensor:
    return torch.einsum("snk,sk->sn", torch.index_select(W, 0, IDX), A)

kernel = MetalKernel(
    "down", ["W", "A", "IDX"], ["out"], torch_defn=down,
    metal_params=[MetalParameter("gid", "uint2", "thread_position_in_grid")],
    src="""
    uint expert = uint(IDX[gid.y]);
    float sum = 0.0f;
    for (int k = 0; k < W.get_extent(0); ++k) sum += W[k, gid.x, expert] * A[k, gid.y];
    out[gid.x, gid.y] = sum;
    """,
)
kernel.cases = lambda: [{"inputs": [random((8, 64, 32)), random((2, 32)), random((2,), torch.int32, low=0, high=8)],
                         "threads_per_grid": (64, 2, 1), "threads_per_thread_group": (32, 1, 1),
                         "result_shapes": [[2, 64]]}]
''',
        fix="Index the activation with the slot; pass a single row, `[1, K]`, where all slots share it.",
        find=_find,
    ),
)
