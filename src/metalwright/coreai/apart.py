"""Reading an artifact in a process of its own: Core AI's reader ends the process on bytecode that it does not know."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from metalwright import children
from metalwright.coreai import files
from metalwright.errors import ArtifactError, MetalwrightError

_ERROR = "error: "
_QUOTED_CHARACTERS = 300


def call(path: Path, module: str, request: Any) -> Any:
    """Return what the ``main`` of a module answers to a request about an artifact, in another process.

    Raises:
        ArtifactError: What it raised, or that its process ended; it begins with the path.
    """
    with tempfile.TemporaryFile() as messages:
        child = subprocess.run(
            children.command(module, "main"),
            input=pickle.dumps(request),
            stdout=subprocess.PIPE,
            stderr=messages,
            check=False,
        )
        messages.seek(0)
        said = " ".join(messages.read().decode("utf-8", "replace").split())
        # what comes after its error is its end, told by other parts
        said = said[max(said.find(_ERROR), 0) :][:_QUOTED_CHARACTERS]
    try:
        made = pickle.loads(child.stdout)
    except (EOFError, pickle.UnpicklingError):
        made = ArtifactError(f"Core AI's reader stopped on it with status {child.returncode}: {said}")
    if isinstance(made, MetalwrightError):
        made.args = (f"{path}: {made}{_versions(path)}",)
        raise made
    return made


def answer(work: Callable[[Any], Any]) -> None:
    """Do the work that :func:`call` asks this process for, and reply with what comes of it."""
    request = pickle.load(sys.stdin.buffer)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the interpreter's own messages are no answers
    made: Any
    try:
        made = work(request)
    except MetalwrightError as error:
        made = error
    except Exception as error:
        made = ArtifactError(f"Core AI cannot read it: {type(error).__name__}: {error}")
    pickle.dump(made, answers)
    answers.flush()


def _versions(path: Path) -> str:
    """Say so where another version of Core AI has written an artifact that this one cannot read."""
    producer, own = files.producer_of(path), f"coreai-core {installed()}"
    if producer == own:
        return ""
    return f"; it was written by {producer or 'an unknown program'}, and {own} is installed: another version is needed"


@functools.cache
def installed() -> str:
    """Return the version of Core AI that is installed."""
    return importlib.metadata.version("coreai-core")
