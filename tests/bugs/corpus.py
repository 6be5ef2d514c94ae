"""All kernels and bugs."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from tests.bugs import kernels
from tests.bugs.bug import Bug, Subject

_families: list[ModuleType] = [
    importlib.import_module(f"{kernels.__name__}.{family.name}")
    for family in pkgutil.iter_modules(kernels.__path__)
]

SUBJECTS: tuple[Subject, ...] = tuple(subject for family in _families for subject in family.SUBJECTS)
BUGS: tuple[Bug, ...] = tuple(bug for family in _families for bug in family.BUGS)

# what published kernels had, as issue trackers tell
PUBLIC = frozenset(
    {
        "barrier missing between a reduction's read and the next write",
        "barrier with mem_none",
        "cross-threadgroup read of another group's write in one dispatch",
        "simd_sum taken for a threadgroup sum",
        "stride by group instead of grid",
        "32-bit index overflow on large tensors",
        "strided input treated as dense",
        "output tail not written",
        "write past the output's end for a non-contiguous view",
        "group size above what the kernel allows",
        "fp16 accumulation overflowing",
        "NaN lost in max/min",
    }
)
