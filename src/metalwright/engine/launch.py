"""Launches a kernel over a grid of threads."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import replace

from metalwright.engine import abi, faults, limits, log, workers
from metalwright.engine.build import build
from metalwright.engine.frames import largest_frame
from metalwright.engine.jit import LoadedCode, load_code
from metalwright.engine.types import (
    Argument,
    Buffer,
    Build,
    KernelSignature,
    LaunchReport,
    Module,
    Scalar,
    Seen,
    Texture,
)
from metalwright.engine.watching import Watch
from metalwright.errors import ArgumentError, KernelFault, KernelTimeout

# fewer threads than this are done before another OS thread has woken up; a fiber costs ten times a plain thread
_THREADS_WORTH_A_WORKER = 16_384
_FIBERS_WORTH_A_WORKER = 4_096
_ARGUMENT_ALIGNMENT = 16  # of [[threadgroup(n)]] arguments, as the runtime lays them out
_CHUNKS_PER_WORKER = 16
_BUFFER_KINDS = ("tensor", "pointer", "reference")
_LOG_BYTES = 1 << 20
_NULL_TEXTURE = Texture("null texture", 0, (0, 0, 0), 0, abi.PIXEL_COMPONENTS[0], 0, False)


class Program:
    """One compiled kernel, loaded and ready to launch; safe to launch from several OS threads at once."""

    def __init__(self, module: Module, signature: KernelSignature, made: Build) -> None:
        self.module = module
        self.signature = signature
        self._build = made
        self._code: LoadedCode = load_code(made)
        frame = largest_frame(made.machine_code)
        self._stack_bytes = workers.stack_bytes(max(frame, self._code.private_bytes))
        self._buffers = {p.index: p.name for p in signature.parameters if p.kind in _BUFFER_KINDS}
        self._slots = max(self._buffers, default=-1) + 1
        self._logs = "__mw_log" in module.text
        limits.check_memory(module, made.threadgroup_sizes, self._code.private_bytes)

    @property
    def threadgroup_bytes(self) -> int:
        """The threadgroup memory of the kernel's own variables, in bytes."""
        return self._build.arena_bytes

    def launch(
        self,
        arguments: Sequence[Argument | None],
        threads_per_grid: tuple[int, int, int],
        threads_per_threadgroup: tuple[int, int, int],
        *,
        threadgroup_memory: Sequence[int] = (),
        textures: Sequence[Texture | None] = (),
        max_workers: int | None = None,
        reverse: bool = False,
        timeout: float | None = None,
    ) -> LaunchReport:
        """Run the kernel and return when every thread has ended.

        Args:
            arguments: for each index from 0 to the highest what is at ``[[buffer(i)]]``; ``None`` where the kernel
                has no such buffer.
            threads_per_grid: threads in each dimension, as in Metal's ``dispatchThreads``; threadgroups at the
                grid's edge may be partial.
            threads_per_threadgroup: threads of a threadgroup in each dimension, at most 1024 in all.
            threadgroup_memory: sizes in bytes of the ``[[threadgroup(n)]]`` arguments.
            textures: for each index what is at ``[[texture(i)]]``; ``None`` for a null texture.
            max_workers: OS threads to use at most; ``None``: as many as there are processors. Threadgroups of one
                worker run in order.
            reverse: run threadgroups, and the threads inside each, from last to first.
            timeout: seconds after which a checked kernel is stopped.

        Raises:
            DispatchError: sizes that a GPU does not accept.
            ArgumentError: the arguments are not those of the kernel.
            KernelFault: the kernel was caught doing something wrong (checked mode only).
        """
        label = self.module.label
        grid = limits.check_size(label, "threads_per_grid", threads_per_grid)
        group = limits.check_size(label, "threads_per_threadgroup", threads_per_threadgroup)
        limits.check_threadgroup(label, group, self.signature.max_threads)
        most_workers = limits.check_workers(label, max_workers) or workers.processors()
        threadgroup_memory = limits.threadgroup_sizes(label, threadgroup_memory)
        arena = limits.arena_bytes(label, self._build.arena_bytes, threadgroup_memory)
        if len(arguments) != self._slots:
            names = ", ".join(name for _, name in sorted(self._buffers.items()))
            raise ArgumentError(
                f"kernel {label!r} takes {self._slots} arguments ({names}), got {len(arguments)}"
            )
        for index, name in self._buffers.items():
            if arguments[index] is None:
                raise ArgumentError(f"kernel {label!r}: no argument for {name!r} [[buffer({index})]]")
        for parameter in self.signature.parameters:
            if parameter.kind == "texture" and parameter.index >= len(textures):
                raise ArgumentError(
                    f"kernel {label!r}: no texture for {parameter.name!r} [[texture({parameter.index})]]"
                )
            if parameter.kind == "threadgroup" and parameter.index >= len(threadgroup_memory):
                raise ArgumentError(
                    f"kernel {label!r}: parameter {parameter.name!r} [[threadgroup({parameter.index})]] has no size "
                    "in threadgroup_memory"
                )

        groups = tuple(-(-size // step) for size, step in zip(grid, group, strict=True))
        total = groups[0] * groups[1] * groups[2]
        threads = grid[0] * grid[1] * grid[2]
        if textures:
            arguments = _with_textures(label, arguments, textures)
        frame = _Frame(arguments)
        watch = Watch(self.module, frame.buffers, arguments) if self.module.watched else None
        launch = abi.LaunchStruct(
            buffers=ctypes.addressof(frame.buffers),
            buffer_count=len(arguments),
            reverse=reverse,
            grid_size=grid,
            group_size=group,
            groups=groups,
            group_total=total,
            threadgroup_count=len(threadgroup_memory),
        )
        sizes = (ctypes.c_uint32 * len(threadgroup_memory))(*threadgroup_memory)
        launch.threadgroup_bytes = ctypes.addressof(sizes)
        lines = ctypes.create_string_buffer(_LOG_BYTES) if self._logs else None
        if lines is not None:
            launch.log, launch.log_bytes = ctypes.addressof(lines), _LOG_BYTES
        worth = _FIBERS_WORTH_A_WORKER if self._build.uses_fibers else _THREADS_WORTH_A_WORKER
        # the observers' notes are one worker's
        count = 1 if watch else min(most_workers, total, max(1, threads // worth))
        launch.group_chunk = max(1, total // (count * _CHUNKS_PER_WORKER)) if count > 1 else total
        if watch is not None:
            watch.enter(launch)
        per_group = min(group[0], grid[0]) * min(group[1], grid[1]) * min(group[2], grid[2])
        deadline = None if timeout is None else time.monotonic() + timeout
        run = functools.partial(self._run, launch, per_group, arena, deadline)
        began = time.perf_counter()
        if count == 1:
            run()
        else:
            _run_on_pool(run, count, launch)
        seconds = time.perf_counter() - began

        written = log.read(lines.raw[: min(launch.log_used, _LOG_BYTES)]) if lines is not None else ()
        if launch.fault_taken:
            fault = self._fault(launch.fault, arguments, timeout)
            fault.log = written
            raise fault
        seen = self._seen(watch, launch, arguments, threadgroup_memory) if watch is not None else ()
        return LaunchReport(threads, count, seconds, written, seen)

    def _seen(
        self,
        watch: Watch,
        launch: abi.LaunchStruct,
        arguments: Sequence[Argument | None],
        threadgroup_memory: Sequence[int],
    ) -> tuple[Seen, ...]:
        names = {p.index: p.name for p in self.signature.parameters if p.kind == "threadgroup"}
        places = []
        end = self._build.arena_bytes
        for index, size in enumerate(threadgroup_memory):
            start = -(-end // _ARGUMENT_ALIGNMENT) * _ARGUMENT_ALIGNMENT
            places.append((names.get(index, ""), start, size))
            end = start + size
        return watch.seen(launch, self._build, self.module, arguments, places)

    def _run(self, launch: abi.LaunchStruct, threads: int, arena: int, deadline: float | None) -> None:
        with workers.borrowed(threads if self._build.uses_fibers else 0, self._stack_bytes, arena) as worker:
            # a checked kernel comes back every few milliseconds: Ctrl-C arrives here, between two instructions of
            # Python, and the kernel's stacks are left where they stand
            while self._code.run(ctypes.byref(launch), ctypes.byref(worker)):
                if deadline is not None and time.monotonic() > deadline:
                    launch.stop = 1

    def _fault(
        self, fault: abi.FaultStruct, arguments: Sequence[Argument | None], timeout: float | None
    ) -> KernelFault:
        if fault.kind == abi.FAULT_STOPPED:
            # between two threadgroups no place in the MSL is running
            site = self._build.sites[fault.site] if fault.site < len(self._build.sites) else None
            message = f"stopped after {timeout} s: a loop does not end, or the kernel needs more time"
            return KernelTimeout(
                message,
                kernel=self.module.label,
                site=site,
                excerpt=self.module.excerpt(site),
                thread=tuple(fault.position),
            )
        return faults.explain(fault, self.module, self.signature, self._build.sites, arguments)


class _Frame:
    """The arguments as the kernel reads them, kept alive for the launch."""

    def __init__(self, arguments: Sequence[Argument | None]) -> None:
        self.buffers = (abi.BufferStruct * max(len(arguments), 1))()
        self._keep: list[object] = []
        for struct, argument in zip(self.buffers, arguments, strict=False):
            if argument is None:
                continue
            if isinstance(argument, Scalar):
                data = ctypes.create_string_buffer(argument.data, len(argument.data))
                struct.data, struct.bytes = ctypes.addressof(data), len(argument.data)
                self._keep.append(data)
                continue
            sizes = _described(argument) if isinstance(argument, Texture) else argument.extents
            extents = (ctypes.c_int32 * max(len(sizes), 1))(*sizes)
            self._keep.append(extents)
            struct.data, struct.bytes = argument.address, argument.nbytes
            struct.extents, struct.rank = ctypes.addressof(extents), len(sizes)
            struct.writable = argument.writable
            if isinstance(argument, Buffer):
                struct.written = argument.written


def _with_textures(
    label: str, arguments: Sequence[Argument | None], textures: Sequence[Texture | None]
) -> list[Argument | None]:
    free = abi.FIRST_TEXTURE - len(arguments)
    if free < 0:
        raise ArgumentError(
            f"kernel {label!r} has a [[buffer(n)]] past {abi.FIRST_TEXTURE - 1}, and textures"
        )
    return [*arguments, *[None] * free, *(_NULL_TEXTURE if t is None else t for t in textures)]


def _described(texture: Texture) -> tuple[int, ...]:
    """Return what the header <metal_texture> reads as a texture's extents."""
    return (*texture.size, texture.channels, abi.PIXEL_COMPONENTS.index(texture.component))


def _run_on_pool(run: Callable[[], None], count: int, launch: abi.LaunchStruct) -> None:
    futures = [workers.pool().submit(run) for _ in range(count)]
    try:
        wait(futures)
    except BaseException:
        launch.stop = 1  # Ctrl-C: the kernel still writes to the arguments until its workers have seen this
        wait(futures)
        raise
    for future in futures:
        future.result()


def load(module: Module, kernel: str | None = None, *, watched: bool = False) -> Program:
    """Return a kernel of a compiled program, ready to launch; compiled at most once.

    Args:
        module: the program.
        watched: observe the accesses to shared memory as well; the program has to be checked.
        kernel: the kernel's host name; may be left out where the program has just one.

    Raises:
        KeyError: the program has no such kernel.
        DispatchError: the kernel's threadgroup or private memory is larger than a GPU allows.
    """
    if kernel is None and len(module.kernels) == 1:
        kernel = module.kernels[0].name
    signature = module.kernel(kernel or "")
    if watched:
        module = replace(module, watched=True)
    return Program(module, signature, build(module, signature.symbol))
