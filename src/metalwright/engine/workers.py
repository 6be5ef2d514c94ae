"""The OS threads that run threadgroups, and the memory that each brings: stacks, fibers, threadgroup memory."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from metalwright.engine import abi

_PAGE = mmap.PAGESIZE
# room in a stack besides a kernel's own variables: spilled registers, the engine's frames, the stacks' colouring
_STACK_RESERVE_BYTES = 64 * 1024


class WorkerMemory:
    """Memory for one worker, for threadgroups of up to ``threads`` threads."""

    def __init__(self, threads: int, stack_bytes: int, arena_bytes: int) -> None:
        self.threads, self.stack_bytes, self.arena_bytes = threads, stack_bytes, arena_bytes
        self._blocks: list[mmap.mmap] = []
        self.struct = abi.WorkerStruct(
            arena=self._allocate(arena_bytes),
            arena_bytes=arena_bytes,
            # touched by watched kernels alone: memory that nobody touches costs nothing
            arena_shadow=self._allocate(shadow_bytes(arena_bytes)),
            stacks=self._allocate(threads * stack_bytes),
            stack_bytes=stack_bytes,
            fibers=self._allocate(threads * abi.FIBER_BYTES),
            scheduler_stack=self._allocate(abi.SCHEDULER_BYTES),
        )

    def fits(self, threads: int, stack_bytes: int, arena_bytes: int) -> bool:
        """Whether this memory serves such a launch; the stacks' distance must be the same or larger."""
        return self.threads >= threads and self.stack_bytes >= stack_bytes and self.arena_bytes >= arena_bytes

    def _allocate(self, size: int) -> int:
        if size == 0:
            return 0
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        block = mmap.mmap(-1, -(-size // _PAGE) * _PAGE, flags=flags)
        self._blocks.append(block)
        return ctypes.addressof(ctypes.c_char.from_buffer(block))


def shadow_bytes(nbytes: int) -> int:
    """Return the size of what is known of the accesses to this many bytes."""
    return -(-nbytes // abi.WORD_BYTES) * abi.SHADOW_BYTES


def stack_bytes(frame_bytes: int) -> int:
    """Return the size of a stack for a kernel whose frame takes this much."""
    return -(-(2 * frame_bytes + _STACK_RESERVE_BYTES) // _PAGE) * _PAGE


_idle = threading.local()


@contextmanager
def borrowed(threads: int, stack: int, arena: int) -> Iterator[abi.WorkerStruct]:
    """Lend the calling OS thread memory for a launch; the last piece is kept for the next launch."""
    memory: WorkerMemory | None = getattr(_idle, "memory", None)
    _idle.memory = None  # a launch inside a launch (from a signal's handler) must not get the same memory
    if memory is None or not memory.fits(threads, stack, arena):
        memory = WorkerMemory(threads, stack, max(arena, _PAGE))
    struct = abi.WorkerStruct.from_buffer_copy(memory.struct)
    struct.arena_bytes = arena
    try:
        yield struct
    finally:
        _idle.memory = memory


@functools.cache
def _pool(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=processors(), thread_name_prefix="metalwright")


def pool() -> ThreadPoolExecutor:
    """Return the pool of OS threads; a forked child gets a new one, since threads do not survive a fork."""
    return _pool(os.getpid())


@functools.cache
def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
