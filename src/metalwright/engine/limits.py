"""What every Apple GPU refuses: sizes of grids, threadgroups and their memory.

The limits are those of Apple's "Metal Feature Set Tables": 1024 threads a threadgroup, 32 KiB of threadgroup memory.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from metalwright.errors import DispatchError

MAX_THREADS_PER_THREADGROUP = 1024
MAX_THREADGROUP_BYTES = 32 * 1024
MAX_GRID_SIZE = 2**32 - 1
# not a limit of Metal: private memory past this is a mistake, and every thread needs its own
MAX_PRIVATE_BYTES = 1024 * 1024
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


def check_memory(kernel: str, threadgroup_bytes: int, private_bytes: int, names: Sequence[str]) -> None:
    """Raise DispatchError where a kernel's variables (in threadgroup memory: ``names``) need more than there is."""
    arena_bytes(kernel, threadgroup_bytes, (), names)
    if private_bytes > MAX_PRIVATE_BYTES:
        raise DispatchError(
            f"kernel {kernel!r}: its private variables take {private_bytes} bytes a thread; "
            f"at most {MAX_PRIVATE_BYTES} run here"
        )


def arena_bytes(kernel: str, own: int, arguments: Sequence[int], names: Sequence[str] = ()) -> int:
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
            f"kernel {kernel!r}: it needs {total} bytes of threadgroup memory ({', '.join(names) or 'arguments'}); "
            f"an Apple GPU has {MAX_THREADGROUP_BYTES} (32 KiB) for a threadgroup"
        )
    return total
