"""The macros of the Metal standard library: names that user code cannot give to anything else."""

from __future__ import annotations

import functools
import re
from pathlib import Path

_HEADER = Path(__file__).parent / "include" / "metalwright" / "macros.h"
_DEFINED = re.compile(r"^#\s*define\s+(\w+)", re.MULTILINE)


@functools.cache
def macro_names() -> frozenset[str]:
    """Return the names that the library's header defines as macros (``INFINITY``, ``M_PI_F`` …)."""
    return frozenset(_DEFINED.findall(_HEADER.read_text()))
