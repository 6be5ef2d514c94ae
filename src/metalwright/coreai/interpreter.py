"""Core AI's own compiler and interpreter, as far as they are used here."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import importlib
import os
import sys
import threading
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from metalwright.errors import ArtifactError

_PROGRAM = "main-universal.odix"
# the interpreter takes a folder for a compiled model by its name
SUFFIX = ".aimodelx"

_EXIT_PATIENCE_SECONDS = 2.0

T = TypeVar("T")


def _bindings(name: str) -> Any:
    """Return a module of Core AI's native bindings; they have no type stubs."""
    return importlib.import_module(f"coreai._compiler._mlir_libs._coreaiIR._bindings.{name}")


def read_module(bytecode: Path) -> Any:
    """Return the module of the IR in a file, in a context of its own. Damaged bytecode may end the process."""
    import coreai.authoring  # noqa: F401 - before the dialects, which import each other
    from coreai.authoring.context import Context

    return _bindings("compiler").load_module_from_bytecode(context=Context()._mlir_context, path=bytecode)


def empty_module() -> Any:
    """Return a new module of the IR."""
    import coreai.authoring  # noqa: F401 - before the dialects, which import each other
    from coreai._compiler.ir import Location, Module
    from coreai.authoring.context import Context

    with Context()._mlir_context, Location.unknown():
        return Module.create()


def copy_module(module: Any) -> Any:
    """Return a copy of a module, which shares the values of constants."""
    return _bindings("mlir").clone_module(module=module)


def write(module: Any, folder: Path) -> None:
    """Compile a module for the interpreter. The module is used up."""
    compiler = _bindings("compiler")
    compiler.compile_to_binary(module=module, output_directory=folder, enable_debug_info=False)
    compiler.serialize_module(module=module, path=folder / _PROGRAM)


_used = False
_lost = False


def _forget() -> None:
    global _lost
    _lost = _used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def check_process() -> None:
    """Refuse to wait for the interpreter in a forked process: its threads stayed behind, and nothing would come.

    Raises:
        ArtifactError: The interpreter was in use when the process was forked.
    """
    global _used
    if _lost:
        raise ArtifactError(
            "this process was forked from one that had loaded an artifact, and Core AI's interpreter does not work in "
            "such; start it with multiprocessing's 'spawn', or load the first artifact in it"
        )
    _used = True


def load(folder: Path) -> Any:
    """Return a compiled model, ``coreai.runtime._AIModel``."""
    check_process()
    from coreai.runtime import _AIModel

    async def read() -> Any:
        return await _AIModel.load(path=folder)

    return run(read())


async def call(
    function: Any, inputs: Mapping[str, Any], state: Mapping[str, Any], where: str, what: str
) -> dict[str, Any]:
    """Call a function of the interpreter's; arrays are ``coreai.runtime._NDArray``.

    Raises:
        ArtifactError: The interpreter cannot run ``what``, which is in ``where``.
    """
    try:
        results = await function(inputs=dict(inputs), state=dict(state))
    except Exception as error:
        raise ArtifactError(f"{where}: Core AI's interpreter cannot run {what}: {error}") from error
    made = dict(results)
    # the interpreter never lets go of the dict that it returns, and so of every array in it (coreai-core 1.0.0b3)
    results.clear()
    return made


class _Loop(threading.local):
    """An event loop for each thread: making one for every call would cost as much as a small function."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def __del__(self) -> None:
        self.loop.close()


_own = _Loop()


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run(work: Coroutine[Any, Any, T]) -> T:
    """Wait for a coroutine, also where this thread has an event loop at work already, as in a notebook."""
    if not _in_a_loop():
        return _own.loop.run_until_complete(work)
    apart = _Apart()
    with ThreadPoolExecutor(1) as other:
        made = other.submit(apart.run, work)
        try:
            return made.result()
        except KeyboardInterrupt:
            # Ctrl-C comes to this thread: hand it on to the one in which the kernel may not end
            apart.interrupt()
            raise


class _Apart:
    """A coroutine in a thread of its own, which can be interrupted from another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = 0
        self._interrupted = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner() as runner:
            with self._lock:
                if self._interrupted:
                    work.close()
                    raise KeyboardInterrupt
                self._thread = threading.get_ident()
            try:
                return runner.run(work)
            finally:
                with self._lock:
                    self._thread = 0

    def interrupt(self) -> None:
        with self._lock:
            self._interrupted = True
            if self._thread:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(KeyboardInterrupt)
                )


def _let_threads_return() -> None:
    """Wait, before Python ends, for the interpreter's threads that still hand a result over.

    Such a thread calls ``call_soon_threadsafe``, gives up Python's lock to wake this thread, and needs the lock once
    more. Python ends threads that ask for it too late, which Swift code does not survive: the process would abort.
    """
    patience = time.monotonic() + _EXIT_PATIENCE_SECONDS
    while any(map(_hands_over, sys._current_frames().values())) and time.monotonic() < patience:
        time.sleep(0.001)


def _hands_over(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != "call_soon_threadsafe":
        frame = frame.f_back
    return frame is not None


atexit.register(_let_threads_return)
