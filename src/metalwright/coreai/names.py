"""The names of kernels in artifacts."""

from __future__ import annotations

import re

_SUFFIX = re.compile(r"_[a-z]{8}\Z")


def plain(name: str) -> str:
    """Return a kernel's name as its author wrote it, without the random suffix that Core AI appends."""
    return _SUFFIX.sub("", name)
