"""``--dump``: what each kernel of an artifact read and wrote, as ``.npy`` files in the order of the launches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from metalwright.errors import ArgumentError

_CHARACTERS = 48
_OTHERS = re.compile(r"[^A-Za-z0-9_]+")


class Dump:
    """Writes ``0001-KERNEL-in0-NAME.npy`` and so on into a folder that is empty or not there yet."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise ArgumentError(f"--dump {folder}: the folder is not empty")
        except OSError as error:
            raise ArgumentError(f"--dump {folder}: {error}") from error
        self._folder = folder
        self.launches = 0

    def __call__(self, step: Any) -> None:
        """Write the arrays of a kernel; parts that Core AI interprets are left out."""
        from metalwright.coreai.execute import KernelRun
        from metalwright.coreai.names import plain

        if not isinstance(step, KernelRun):
            return
        self.launches += 1
        front = f"{self.launches:04}-{safe(plain(step.kernel.name))}"
        named = [(f"in{i}", name) for i, name in enumerate(step.kernel.inputs)]
        named += [(f"out{i}", name) for i, name in enumerate(step.kernel.results)]
        arrays = (*step.operands, *step.results)
        for (place, name), values in zip(named, arrays, strict=True):
            _save(self._folder / f"{front}-{place}-{safe(name)}.npy", values)


def safe(name: str) -> str:
    """Return a name as part of a file's name: letters, digits and ``_`` only, and not long."""
    return _OTHERS.sub("_", name)[:_CHARACTERS] or "_"


def _save(path: Path, values: Any) -> None:
    import ml_dtypes
    import numpy as np

    # NumPy's format has no bfloat16; every bfloat16 is a float32
    wide = values.astype(np.float32) if values.dtype == ml_dtypes.bfloat16 else values
    try:
        np.save(path, wide)
    except OSError as error:
        raise ArgumentError(f"--dump {path}: cannot be written: {error}") from error
