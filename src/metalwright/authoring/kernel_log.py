"""What kernels write with ``os_log``, as records of Python's ``logging``."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from metalwright.engine import LogLine

LOGGER = logging.getLogger("metalwright.kernel")
# os_log's "default" lies between its "info" and its "error", and is what a plain os_log_default.log(...) writes;
# it is no warning
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "default": logging.INFO,
    "error": logging.ERROR,
    "fault": logging.CRITICAL,
}


def emit(kernel: str, lines: Sequence[LogLine]) -> None:
    """Pass the lines of one launch on; a record has ``kernel`` and ``position`` (of the thread) too."""
    for line in lines:
        level = LEVELS[line.level]
        if LOGGER.isEnabledFor(level):
            text = f"{kernel}, thread {line.thread}: {line.text}"
            LOGGER.log(level, "%s", text, extra={"kernel": kernel, "position": line.thread})
