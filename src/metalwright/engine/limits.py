"""What every Apple GPU refuses: sizes of grids, threadgroups and their memory.

The limits are those of Apple's "Metal Feature Set Tables": 1024 threads a threadgroup, 32 KiB of threadgroup memory.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from metalwright.engine.types import Module
from metalwright.errors import ArgumentError, DispatchError, excerpt_lines

MAX_THREADS_PER_THREADGROUP = 1024
MAX_THREADGROUP_BYTES = 32 * 1024
_GPU_HAS = f"an Apple GPU has {MAX_THREADGROUP_BYTES} (32 KiB) for a threadgroup"
MAX_GRID_SIZE = 2**32 - 1
# not a limit of Metal: private memory past this is a mistake, and every thread needs its own
MAX_PRIVATE_BYTES = 1024 * 1024
# not a limit of Metal either: the loader has 32 bits for how far code is from what it reads
MAX_CONSTANT_BYTES = 64 * 1024 * 1024
_AXES = 3


def check_size(kernel: str, name: str, size: Sequence[int]) -> tuple[int, int, int]:
    """Return a launch size as three ints.

    Raises:
        DispatchError: it is not three positive whole numbers below 2**32.
    """
    try:
        values = tuple(operator.index(value) for value in size)
    except TypeError:
        raise DispatchError(f"kernel {kernel!r}: {name} must be three whole numbers, got {size!r}") from None
    if len(values) != _AXES:
        raise DispatchError(
            f"kernel {kernel!r}: {name} must be three whole numbers, got {len(values)}: {size!r}"
        )
    for axis, value in zip("xyz", values, strict=True):
        if not 1 <= value <= MAX_GRID_SIZE:
            raise DispatchError(
                f"kernel {kernel!r}: {name} must be from 1 to {MAX_GRID_SIZE} in each dimension, got {axis} = {value} "
                f"in {tuple(values)!r}"
            )
    return values  # type: ignore[return-value]


def check_threadgroup(kernel: str, size: tuple[int, int, int], most: int) -> None:
    """Raise DispatchError where a threadgroup has more threads than the GPU, or the kernel itself, allows."""
    threads = size[0] * size[1] * size[2]
    if threads > MAX_THREADS_PER_THREADGROUP:
        raise DispatchError(
            f"kernel {kernel!r}: threads_per_threadgroup {size} is {threads} threads; a threadgroup has at most "
            f"{MAX_THREADS_PER_THREADGROUP}"
        )
    if threads > most:
        raise DispatchError(
            f"kernel {kernel!r}: threads_per_threadgroup {size} is {threads} threads; the kernel declares "
            f"[[max_total_threads_per_threadgroup({most})]]"
        )


def check_memory(module: Module, threadgroup_sizes: Sequence[int], private_bytes: int) -> None:
    """Raise DispatchError where a kernel's own variables need more memory than there is; shows the largest."""
    total = sum(threadgroup_sizes)
    if total > MAX_THREADGROUP_BYTES:
        by_size = sorted(
            zip(threadgroup_sizes, module.threadgroup_variables, strict=True), key=lambda v: -v[0]
        )
        listed = ", ".join(f"{variable.name} {size}" for size, variable in by_size if size)
        site = by_size[0][1].site
        where = f"{site}: " if site else ""
        message = f"kernel {module.label!r}: {where}it needs {total} bytes of threadgroup memory ({listed}); {_GPU_HAS}"
        raise DispatchError("\n".join([message, *excerpt_lines(site, module.excerpt(site))]))
    if private_bytes > MAX_PRIVATE_BYTES:
        raise DispatchError(
            f"kernel {module.label!r}: its private variables take {private_bytes} bytes a thread; "
            f"at most {MAX_PRIVATE_BYTES} run here"
        )


def check_constants(kernel: str, size: int) -> None:
    """Raise DispatchError where the program-scope constants of a kernel are too large to be loaded."""
    if size > MAX_CONSTANT_BYTES:
        raise DispatchError(
            f"kernel {kernel!r}: its program-scope constants take {size} bytes; at most {MAX_CONSTANT_BYTES} run here: "
            "pass them in a buffer"
        )


def check_workers(kernel: str, workers: object) -> int | None:
    """Return how many OS threads to use at most, or None for as many as there are processors.

    Raises:
        ArgumentError: it is neither None nor a positive whole number.
    """
    if workers is None:
        return None
    try:
        count = 0 if isinstance(workers, bool) else operator.index(workers)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if count < 1:
        raise ArgumentError(
            f"kernel {kernel!r}: workers: expected a positive whole number or None, got {workers!r}"
        )
    return count


def threadgroup_sizes(kernel: str, sizes: object) -> tuple[int, ...]:
    """Return the sizes of the threadgroup arguments as ints. Raises ArgumentError for what are no whole numbers."""
    try:
        return tuple(operator.index(size) for size in sizes)  # type: ignore[attr-defined]
    except TypeError:
        raise ArgumentError(
            f"kernel {kernel!r}: threadgroup_memory: expected a list of sizes in bytes, whole numbers, got {sizes!r}"
        ) from None


def arena_bytes(kernel: str, own: int, arguments: Sequence[int]) -> int:
    """Return the threadgroup memory of a launch in bytes: the kernel's own variables and the arguments.

    Raises:
        DispatchError: it is more than 32 KiB, or a size is not positive.
    """
    total = own
    for index, size in enumerate(arguments):
        if size <= 0:
            raise DispatchError(
                f"kernel {kernel!r}: [[threadgroup({index})]] needs a positive size, got {size}"
            )
        total = -(-total // 16) * 16 + size
    if total > MAX_THREADGROUP_BYTES:
        raise DispatchError(
            f"kernel {kernel!r}: its variables ({own} bytes) and threadgroup_memory {list(arguments)} need {total} "
            f"bytes of threadgroup memory; {_GPU_HAS}"
        )
    return total
