"""MW104: a barrier whose flags do not cover the memory that is exchanged."""

from __future__ import annotations

from collections.abc import Iterator

from metalwright.lint.expressions import Node
from metalwright.lint.flow import alike
from metalwright.lint.msl import Access, Code
from metalwright.lint.rule import Hit, Rule
from metalwright.lint.subject import Subject

_FLAGS = frozenset(
    "mem_none mem_device mem_threadgroup mem_texture mem_threadgroup_imageblock mem_object_data".split()
)


def _find(subject: Subject) -> Iterator[Hit]:
    for code in subject.codes:
        barriers = [(call, _flags(call)) for call in code.calls("threadgroup_barrier")]
        exchanged = [
            (v.name, v.index, v.end, "mem_threadgroup") for v in code.variables if v.space == "threadgroup"
        ]
        if code is subject.body:
            exchanged += [(name, 0, len(code), "mem_device") for name in subject.results]
        for barrier, flags in barriers:
            for name, first, last, needed in exchanged:
                # flags that are computed may be anything
                if flags is None or needed in flags or not first <= barrier.at < last:
                    continue
                strong = [other.at for other, its in barriers if its is None or needed in its]
                if _exchanged(code, name, barrier.at, strong, first, last):
                    written = " | ".join(sorted(flags)) or "no flag"
                    memory = "threadgroup" if needed == "mem_threadgroup" else "device"
                    yield subject.hit(
                        code,
                        barrier.at,
                        f"threadgroup_barrier({written}) does not make writes to {memory} memory visible, "
                        f"and "
                        f"{name!r} is written before it and read after it: it needs mem_flags::{needed}",
                    )
                    break


def _flags(call: Node) -> frozenset[str] | None:
    names = frozenset(name for part in call.parts for name in part.names())
    return names if names and names <= _FLAGS else None


def _exchanged(code: Code, name: str, at: int, strong: list[int], first: int, last: int) -> bool:
    """Whether an element may be written before the barrier and read by another thread after it, with "
    "nothing between."""
    accesses = [a for a in code.accesses(name) if first <= a.at < last]
    writes = [a for a in accesses if a.writes and a.at < at and not any(a.at < s < at for s in strong)]
    reads = [a for a in accesses if a.reads and a.at > at and not any(at < s < a.at for s in strong)]
    return any(not _own(write, read) for write in writes for read in reads)


def _own(write: Access, read: Access) -> bool:
    """Whether a thread reads what it wrote itself, where both have the same indices."""
    same = len(write.indices) == len(read.indices) > 0
    return same and all(map(alike, write.indices, read.indices))


RULES = (
    Rule(
        id="MW104",
        title="a barrier without the flag of the memory that is exchanged",
        severity="error",
        explanation=(
            "`threadgroup_barrier(mem_flags::mem_none)` only makes threads wait. What they wrote before it "
            "need not be "
            "visible to others after it. `mem_threadgroup` covers threadgroup memory, `mem_device` device "
            "memory, and "
            "neither covers the other. Here and on many GPUs the kernel is right by luck."
        ),
        bad='''
def reversed_in_groups(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, 64).flip(-1).reshape(-1)

kernel = MetalKernel(
    "reversed_in_groups", ["x"], ["out"], torch_defn=reversed_in_groups,
    metal_params=[
        MetalParameter("gid", "uint", "thread_position_in_grid"),
        MetalParameter("tid", "uint", "thread_index_in_threadgroup"),
    ],
    src="""
    threadgroup float tile[64];
    tile[tid] = x[gid];
    threadgroup_barrier(mem_flags::mem_none);
    out[gid] = tile[63 - tid];
    """,
)
''',
        good='''
def reversed_in_groups(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, 64).flip(-1).reshape(-1)

kernel = MetalKernel(
    "reversed_in_groups", ["x"], ["out"], torch_defn=reversed_in_groups,
    metal_params=[
        MetalParameter("gid", "uint", "thread_position_in_grid"),
        MetalParameter("tid", "uint", "thread_index_in_threadgroup"),
    ],
    src="""
    threadgroup float tile[64];
    tile[tid] = x[gid];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[gid] = tile[63 - tid];
    """,
)
''',
        fix=(
            "Give the barrier the flag of the memory: `mem_flags::mem_threadgroup`, "
            "`mem_flags::mem_device`, or both."
        ),
        find=_find,
    ),
)
