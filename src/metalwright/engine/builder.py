"""The process that LLVM's passes and code generator run in.

LLVM checks itself with assertions, and one that fails ends its process. A kernel that finds such a place must cost
an exception, not the user's session: kernels are built by a child, which is started for the first kernel that is
not in the cache, serves this process as long as it lives, and is replaced when it dies.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from metalwright import children
from metalwright.engine.types import Build, Module
from metalwright.errors import MetalwrightError, ToolchainError

_ASSERTION = re.compile(r"Assertion `(?P<what>.*?)' failed|LLVM ERROR: (?P<error>.*)", re.DOTALL)
_QUOTED_CHARACTERS = 300
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class _Child:
    process: subprocess.Popen[bytes]
    messages: IO[bytes]

    def ask(self, step: str, arguments: tuple[Any, ...]) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        pickle.dump((step, arguments), self.process.stdin)
        self.process.stdin.flush()
        return pickle.load(self.process.stdout)

    def last_words(self) -> str:
        """Return what the child, which is dead, said why."""
        status = self.process.wait()
        self.messages.seek(0)
        text = self.messages.read().decode("utf-8", "replace")
        match = _ASSERTION.search(text)
        said = (match["what"] or match["error"]) if match else text
        return " ".join(said.split())[-_QUOTED_CHARACTERS:] or f"it ended with status {status}"


_lock = threading.Lock()
_child: _Child | None = None


def _forget() -> None:
    """Leave the child to the parent: one pipe cannot serve two processes, and a lock may be held by no thread now."""
    global _lock, _child
    _lock, _child = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _is_there() -> bool:
    return _child is not None and _child.process.poll() is None


def expect() -> None:
    """Start the child where it is not there: a kernel is about to come, and clang has to be waited for anyway."""
    global _child
    # another thread that holds the lock starts it, or has it at work
    if not _lock.acquire(blocking=False):
        return
    try:
        if not _is_there():
            # what is wrong is said when the kernel comes
            with contextlib.suppress(ToolchainError):
                _child = _start()
    finally:
        _lock.release()


def end() -> None:
    """End the child where there is one, and wait for it; the next kernel gets another."""
    global _child
    with _lock:
        if _child is not None:
            assert _child.process.stdin is not None
            _child.process.stdin.close()
            _child.process.wait()
            _child = None


def generate(module: Module, symbol: str) -> Build:
    """Return the machine code of a kernel, made by the child.

    Raises:
        ToolchainError: LLVM stopped on this kernel, or its process cannot be started.
    """
    return _ask(module.label, "generate", module, symbol)


def inline(ir: str, label: str) -> str:
    """Return the IR with the calls of its own functions inlined by the child.

    Raises:
        ToolchainError: LLVM stopped on this kernel, or its process cannot be started.
    """
    return _ask(label, "inline", ir, label)


def _ask(label: str, step: str, *arguments: Any) -> Any:
    global _child
    with _lock:
        if not _is_there():
            _child = _start()
        assert _child is not None
        try:
            reply = _child.ask(step, arguments)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            dead, _child = _child, None
            dead.process.kill()
            raise ToolchainError(
                f"kernel {label!r}: LLVM cannot make machine code of it: {dead.last_words()}; this is a "
                "mistake in LLVM or in Metalwright, not in the kernel"
            ) from error
        except BaseException:
            # interrupted while it waited: the answer would be taken for that to the next question
            _child.process.kill()
            _child = None
            raise
    if isinstance(reply, Exception):
        raise reply
    return reply


def _start() -> _Child:
    messages = tempfile.TemporaryFile()  # noqa: SIM115 - read when the child has died
    try:
        process = subprocess.Popen(
            children.command(__name__, "serve"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            start_new_session=True,  # Ctrl-C is for the user's process alone
        )
    except OSError as error:
        raise ToolchainError(
            f"the process that LLVM runs in cannot be started with {sys.executable!r}: {error}"
        ) from error
    return _Child(process, messages)


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, also in the middle of a kernel that nobody waits for."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def serve() -> None:
    """Build kernels for the parent until it closes the pipe; what the child runs."""
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # a stray print must not end up among the answers
    from metalwright.engine.codegen import generate as here
    from metalwright.engine.codegen import runtime_text
    from metalwright.engine.inlining import inlined

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    steps: dict[str, Callable[..., Any]] = {"generate": here, "inline": inlined}
    # the first kernel needs it, and may still be with clang
    with contextlib.suppress(MetalwrightError):
        runtime_text()
    while True:
        try:
            step, arguments = pickle.load(questions)
        except EOFError:
            return
        reply: Any
        try:
            reply = steps[step](*arguments)
        except MetalwrightError as error:
            reply = error
        except Exception as error:
            reply = ToolchainError(f"LLVM's process, {step}: {type(error).__name__}: {error}")
        pickle.dump(reply, answers)
        answers.flush()
