"""MW105: a loop over the grid that steps by the threadgroup."""

from __future__ import annotations

from collections.abc import Iterator

from metalwright.lint.flow import Stride, is_threadgroup_size, strides
from metalwright.lint.rule import Hit, Rule
from metalwright.lint.subject import Subject

_SIZES = ("threads_per_threadgroup", "dispatch_threads_per_threadgroup")


def _find(subject: Subject) -> Iterator[Hit]:
    for stride in strides(subject.body):
        attribute, _, component = subject.attribute(stride.start).partition(".")
        if attribute != "thread_position_in_grid":
            continue
        axis = "xyz".index(component)
        where = _several_threadgroups(subject, stride, axis)
        if where is not None:
            yield subject.hit(
                subject.body,
                stride.step.at,
                f"the loop over {stride.name!r} begins at the thread's position in the grid and steps by the "
                f"threadgroup's size{where}: threadgroups repeat each other's work; a grid-stride loop "
                f"steps by "
                "threads_per_grid",
            )


def _several_threadgroups(subject: Subject, stride: Stride, axis: int) -> str | None:
    """Say for which case a loop steps by the threadgroup where there are several; ``None``: for none."""
    if not subject.launches:
        named = subject.attribute(stride.step).partition(".")
        return "" if named[0] in _SIZES and named[2] == "xyz"[axis] else None
    for launch in subject.launches:
        if launch.grid[axis] > launch.group[axis] > 1 and is_threadgroup_size(
            subject, stride.step, launch, axis
        ):
            return f", {launch.group[axis]}, while {launch.name!r} has {launch.grid[axis]} threads along {'xyz'[axis]}"
    return None


RULES = (
    Rule(
        id="MW105",
        title="a grid-stride loop that steps by the threadgroup",
        severity="error",
        explanation=(
            "A loop that begins at `thread_position_in_grid` has to step by the number of threads in the "
            "grid. One "
            "that steps by `threads_per_threadgroup` visits most elements once for each threadgroup: sums "
            "and atomics "
            "count them several times, and everything takes longer."
        ),
        bad='''
def count_positive(x: torch.Tensor) -> torch.Tensor:
    return (x > 0).to(torch.float32)

kernel = MetalKernel(
    "count_positive", ["x"], ["out"], torch_defn=count_positive,
    metal_params=[
        MetalParameter("gid", "uint", "thread_position_in_grid"),
        MetalParameter("threads", "uint", "threads_per_threadgroup"),
    ],
    src="""
    for (uint i = gid; i < uint(x.get_extent(0)); i += threads)
        out[i] = x[i] > 0.0f ? 1.0f : 0.0f;
    """,
)
kernel.cases = lambda: [{"inputs": [random((5000,))], "threads_per_grid": (1024, 1, 1),
                         "threads_per_thread_group": (256, 1, 1), "result_shapes": [[5000]]}]
''',
        good='''
def count_positive(x: torch.Tensor) -> torch.Tensor:
    return (x > 0).to(torch.float32)

kernel = MetalKernel(
    "count_positive", ["x"], ["out"], torch_defn=count_positive,
    metal_params=[
        MetalParameter("gid", "uint", "thread_position_in_grid"),
        MetalParameter("threads", "uint", "threads_per_grid"),
    ],
    src="""
    for (uint i = gid; i < uint(x.get_extent(0)); i += threads)
        out[i] = x[i] > 0.0f ? 1.0f : 0.0f;
    """,
)
kernel.cases = lambda: [{"inputs": [random((5000,))], "threads_per_grid": (1024, 1, 1),
                         "threads_per_thread_group": (256, 1, 1), "result_shapes": [[5000]]}]
''',
        fix=(
            "Step by `threads_per_grid`; or begin at `thread_position_in_threadgroup` if each threadgroup "
            "does all of it."
        ),
        find=_find,
    ),
)
