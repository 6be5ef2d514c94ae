"""MW101: a reduction over 32 lanes taken for one over the threadgroup."""

from __future__ import annotations

from collections.abc import Iterator

from metalwright.lint.expressions import Node
from metalwright.lint.flow import (
    beyond_lane,
    is_position_in_threadgroup,
    is_threadgroup_size,
    leaves,
    strides,
)
from metalwright.lint.msl import Statement
from metalwright.lint.rule import Hit, Rule
from metalwright.lint.subject import Launch, Subject

_REDUCTIONS = tuple(f"simd_{name}" for name in "sum product min max and or xor".split())


def _find(subject: Subject) -> Iterator[Hit]:
    launch = max(subject.launches, key=lambda one: one.threads, default=None)
    if launch is None or launch.threads <= 32:
        return
    for call in subject.body.calls(*_REDUCTIONS):
        if len(call.parts) == 1 and (why := _taken_for_more(subject, call, launch)):
            yield subject.hit(
                subject.body,
                call.at,
                f"{call.text} combines the 32 lanes of one simdgroup, and the threadgroup of "
                f"{launch.name!r} has "
                f"{launch.threads} threads: {why}; the other simdgroups' values are lost",
            )


def _taken_for_more(subject: Subject, call: Node, launch: Launch) -> str:
    """Say how the result is used as if it were the threadgroup's; ``""`` where it is not, or not for sure."""
    body = subject.body
    given = leaves(subject, call.parts[0])
    shared = {v.name for v in body.variables if v.space == "threadgroup"}
    # the second step of a reduction reads what the first one left in threadgroup memory
    if given & shared or "?" in given or not any(beyond_lane(leaf, launch) for leaf in given):
        return ""
    if _only_some_take_part(subject, call, launch):
        return ""
    tainted = _tainted(subject, call)
    if _combined(subject, call, tainted, shared):
        return ""
    for write in body.nodes:
        target = write.parts[0] if write.kind == "assign" else None
        if (
            target is None
            or not subject.is_parameter(target.root, target.at)
            or target.root not in subject.results
        ):
            continue
        if not _uses(write.parts[1], call, tainted):
            continue
        guards = _guards(subject, write.at)
        if any(_is_first_thread(subject, guard, launch) for guard in guards):
            return f"only the first thread writes {target.root!r}"
        where = set[str]().union(*(leaves(subject, part) for part in target.parts[1:]))
        about = where.union(*(leaves(subject, guard) for guard in guards))
        if "?" not in about and not any(beyond_lane(leaf, launch) for leaf in about):
            return f"every simdgroup writes its own result to the same element of {target.root!r}"
        if _strided_over_threadgroup(subject, call, launch):
            return f"the values were spread over the whole threadgroup and {target.root!r} is computed from one part"
    return ""


def _only_some_take_part(subject: Subject, call: Node, launch: Launch) -> bool:
    """Whether a condition on the thread decides about the reduction: it may keep to one simdgroup."""
    if any(
        beyond_lane(leaf, launch) for guard in _guards(subject, call.at) for leaf in leaves(subject, guard)
    ):
        return True
    ends = [i for i in range(call.at) if subject.body.text(i) == "return"]
    return any(
        beyond_lane(leaf, launch) and leaf.partition(".")[0] != "thread_position_in_grid"
        for end in ends
        for guard in _guards(subject, end)
        for leaf in leaves(subject, guard)
    )


def _guards(subject: Subject, at: int) -> list[Node]:
    """Return the conditions of the ifs around a token."""
    around: list[Statement] = subject.body.around(at)
    return [
        s.expressions[0] for s in around
        if s.kind == "if" and s.expressions and s.expressions[0] is not None and s.parts[0].first <= at
    ]  # fmt: skip


def _is_first_thread(subject: Subject, guard: Node, launch: Launch) -> bool:
    """Whether a condition is ``tid == 0``, for the number of a thread in its whole threadgroup."""
    if guard.kind == "binary" and guard.text == "&&":
        return any(_is_first_thread(subject, part, launch) for part in guard.parts)
    if guard.kind != "binary" or guard.text != "==" or subject.body.constant(guard.parts[1]) != 0:
        return False
    attribute = subject.attribute(guard.parts[0])
    return is_position_in_threadgroup(attribute) and beyond_lane(attribute, launch)


def _tainted(subject: Subject, call: Node) -> set[str]:
    """Return the variables that the reduction's result goes into."""
    body = subject.body
    found: set[str] = set()
    before = -1
    while before != len(found):
        before = len(found)
        for variable in body.variables:
            if variable.value is not None and _uses(variable.value, call, found):
                found.add(variable.name)
        for node in body.nodes:
            if node.kind == "assign" and node.parts[0].root and _uses(node.parts[1], call, found):
                found.add(node.parts[0].root)
    return found


def _uses(value: Node, call: Node, tainted: set[str]) -> bool:
    return any(
        node is call or (node.kind == "name" and node.text in tainted and node.at > call.at)
        for node in value.walk()
    )


def _combined(subject: Subject, call: Node, tainted: set[str], shared: set[str]) -> bool:
    """Whether the simdgroups' results meet: in threadgroup memory, by atomics, or in a function of the "
    "user's."""
    if tainted & shared:
        return True
    for node in subject.body.nodes:
        if node.kind != "call" or node is call or not _uses(node, call, tainted):
            continue
        names = node.names()
        if node.text.startswith("atomic_") or names & shared or (names & set(subject.results)):
            return True
    return False


def _strided_over_threadgroup(subject: Subject, call: Node, launch: Launch) -> bool:
    """Whether the values that are reduced were added up in a loop that the whole threadgroup shares."""
    names = _accumulated(subject, call.parts[0])
    for stride in strides(subject.body):
        attribute = subject.attribute(stride.start)
        if not is_position_in_threadgroup(attribute) or stride.loop.first > call.at:
            continue
        axis = "xyz".index(attribute[-1])
        size = launch.threads if attribute.startswith("thread_index") else launch.group[axis]
        steps_over = is_threadgroup_size(subject, stride.step, launch, axis) or (
            subject.body.constant(stride.step) == size
        )
        inside = any(
            stride.loop.first <= node.at < stride.loop.last
            for name in names
            for node in subject.body.assignments(name)
        )
        if steps_over and size > 32 and inside:
            return True
    return False


def _accumulated(subject: Subject, node: Node) -> set[str]:
    return {name for name in node.names() if subject.body.variable(name, node.at) is not None}


RULES = (
    Rule(
        id="MW101",
        title="a simdgroup's reduction used as the threadgroup's",
        severity="error",
        explanation=(
            "`simd_sum`, `simd_max` and the like combine the 32 lanes of one simdgroup. In a larger "
            "threadgroup each "
            "simdgroup gets a result of its own, which have to be combined through threadgroup memory (or "
            "atomics). "
            "With 32 threads or fewer the kernel looks right."
        ),
        bad='''
def row_sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1)

kernel = MetalKernel(
    "row_sums", ["x"], ["out"], torch_defn=row_sums,
    metal_params=[
        MetalParameter("row", "uint", "threadgroup_position_in_grid"),
        MetalParameter("tid", "uint", "thread_index_in_threadgroup"),
    ],
    src="""
    float sum = 0.0f;
    for (uint i = tid; i < uint(x.get_extent(0)); i += 256) sum += x[i, row];
    sum = simd_sum(sum);
    if (tid == 0) out[row] = sum;
    """,
)
kernel.cases = lambda: [{"inputs": [random((3, 1000))], "threads_per_grid": (3 * 256, 1, 1),
                         "threads_per_thread_group": (256, 1, 1), "result_shapes": [[3]]}]
''',
        good='''
def row_sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1)

kernel = MetalKernel(
    "row_sums", ["x"], ["out"], torch_defn=row_sums,
    metal_params=[
        MetalParameter("row", "uint", "threadgroup_position_in_grid"),
        MetalParameter("tid", "uint", "thread_index_in_threadgroup"),
        MetalParameter("lane", "uint", "thread_index_in_simdgroup"),
        MetalParameter("simdgroup", "uint", "simdgroup_index_in_threadgroup"),
    ],
    src="""
    threadgroup float partial[8];
    float sum = 0.0f;
    for (uint i = tid; i < uint(x.get_extent(0)); i += 256) sum += x[i, row];
    sum = simd_sum(sum);
    if (lane == 0) partial[simdgroup] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = simd_sum(tid < 8 ? partial[tid] : 0.0f);
    if (tid == 0) out[row] = sum;
    """,
)
kernel.cases = lambda: [{"inputs": [random((3, 1000))], "threads_per_grid": (3 * 256, 1, 1),
                         "threads_per_thread_group": (256, 1, 1), "result_shapes": [[3]]}]
''',
        fix=(
            "Let lane 0 of each simdgroup store its result in threadgroup memory, meet at a barrier, and "
            "combine "
            "these; or launch threadgroups of 32 threads."
        ),
        find=_find,
    ),
)
