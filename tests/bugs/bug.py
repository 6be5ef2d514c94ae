"""A correct kernel, a bug planted in it, and what ``check`` must say about each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

import metalwright
from metalwright import MetalKernel, MetalParameter
from metalwright.check import Report

Case = dict[str, Any]
Sizes = tuple[int, ...]

# the barrier of nearly every kernel here, and what people write in its place
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
BARRIER_NONE = "threadgroup_barrier(mem_flags::mem_none);"
BARRIER_DEVICE = "threadgroup_barrier(mem_flags::mem_device);"
BARRIER_SIMDGROUP = "simdgroup_barrier(mem_flags::mem_threadgroup);"

# findings whose message names the place in the MSL
_SITED = ("race", "uninitialised", "fault")
_SECONDS = 20.0

_PARAMETERS = {
    "gid": ("uint", "thread_position_in_grid"),
    "at": ("uint2", "thread_position_in_grid"),
    "row": ("uint", "threadgroup_position_in_grid"),
    "tile": ("uint2", "threadgroup_position_in_grid"),
    "local": ("uint2", "thread_position_in_threadgroup"),
    "tid": ("uint", "thread_index_in_threadgroup"),
    "lane": ("uint", "thread_index_in_simdgroup"),
    "simdgroup": ("uint", "simdgroup_index_in_threadgroup"),
    "threads": ("uint", "threads_per_threadgroup"),
    "grid": ("uint", "threads_per_grid"),
}


@dataclass(frozen=True)
class Subject:
    """A correct kernel.

    ``case(dtype, *sizes)`` makes one case; it runs with each of ``sizes`` and ``dtypes``. ``threads`` names the
    kernel's thread attributes, by the names that all kernels here use for them.
    """

    name: str
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    threads: str
    src: str
    reference: Callable[..., Any]
    case: Callable[..., Case]
    sizes: tuple[Sizes, ...]
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    templates: Mapping[str, str] = field(default_factory=dict)

    def build(self, src: str | None = None) -> MetalKernel:
        """Return the kernel, with another body if one is given."""
        return MetalKernel(
            f"bugs_{self.name}",
            input_names=list(self.inputs),
            result_names=list(self.results),
            src=self.src if src is None else src,
            torch_defn=self.reference,
            metal_params=[MetalParameter(name, *_PARAMETERS[name]) for name in self.threads.split()],
            template_dtypes=dict(self.templates),
        )

    def cases(self, dtype: torch.dtype) -> Iterator[Case]:
        """Yield the case of each size."""
        return (self.named_case(dtype, sizes) for sizes in self.sizes)

    def named_case(self, dtype: torch.dtype, sizes: Sizes) -> Case:
        # generated values depend on the name: a bug's case has those of the correct kernel's
        name = "x".join(map(str, sizes))
        return {"name": f"{str(dtype).removeprefix('torch.')} {name}", **self.case(dtype, *sizes)}


@dataclass(frozen=True)
class Bug:
    """One small edit of a correct kernel, or of its launch sizes, and what must be found.

    Args:
        subject: the correct kernel.
        name: says what was done, unique among the subject's bugs.
        kind: the kind of mistake.
        finds: the kind of finding that must be there.
        old: text that occurs once in the subject's source; ``new`` stands in its place.
        sizes: of the one case that shows it.
        at: text on the line that the finding must point at, in the edited source: its first occurrence, or that
            after a ``>>``, as in ``"second loop >> sum +="``. Where it is empty, the place of the edit.
        launch: sizes of the launch in place of the case's own.
        dtype: of the case; the subject's first by default.
        public: the kind of bug, as found in published kernels, that this one is an example of.
        seconds: the launch's budget.
        missing: why ``check`` does not find it yet.
    """

    subject: Subject
    name: str
    kind: str
    finds: str
    old: str
    new: str
    sizes: Sizes
    at: str = ""
    launch: Mapping[str, Any] = field(default_factory=dict)
    dtype: torch.dtype | None = None
    public: str | None = None
    seconds: float = _SECONDS
    missing: str | None = None

    @property
    def id(self) -> str:
        return f"{self.subject.name}-{self.name}".replace(" ", "-")

    def source(self) -> str:
        """Return the source with the bug in it."""
        if not self.old:
            assert self.launch, f"{self.id}: changes nothing"
            return self.subject.src
        count = self.subject.src.count(self.old)
        assert count == 1, f"{self.id}: {self.old!r} occurs {count} times, not once"
        assert self.old != self.new
        return self.subject.src.replace(self.old, self.new)

    def line(self) -> int | None:
        """Return the line of the edited source where the finding must point; ``None``: it has no place there."""
        if self.finds not in _SITED:
            return None
        source = self.source()
        place = self.subject.src.index(self.old) if not self.at else 0
        for text in filter(None, self.at.split(" >> ")):
            place = source.index(text, place)
        return source.count("\n", 0, place) + 1

    def check(self) -> Report:
        """Check the kernel with the bug in it."""
        case = self.subject.named_case(self.dtype or self.subject.dtypes[0], self.sizes)
        kernel = self.subject.build(self.source())
        return metalwright.check(kernel, [{**case, **self.launch}], timeout=self.seconds)

    def is_among(self, report: Report) -> bool:
        """Whether a finding of the right kind points at the right line."""
        right = [f for case in report.cases for f in case.findings if f.kind == self.finds]
        line = self.line()
        if line is None:
            return bool(right)
        # of a race, either place
        sites = [
            site for finding in right for site in (finding.site, *(other.site for other in finding.related))
        ]
        if any(site is not None and site.line == line for site in sites):
            return True
        # of barriers that are not met together, the message names the other
        return any(f"bugs_{self.subject.name}.src:{line}:" in finding.message for finding in right)


def launch(grid: Sizes, group: Sizes, *shapes: list[int]) -> Case:
    """Return the part of a case that says how large everything is."""
    return {
        "threads_per_grid": (*grid, 1, 1)[:3],
        "threads_per_thread_group": (*group, 1, 1)[:3],
        "result_shapes": list(shapes),
    }


def up(size: int, tile: int) -> int:
    """Return the next multiple of a tile."""
    return -(-size // tile) * tile
