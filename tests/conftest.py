"""What every test shares: a kernel cache of its own, so that no test reads what another run left behind."""

from __future__ import annotations

import os
import tempfile

import pytest

# a worker's results are counted where conftest.py files of subdirectories are not loaded
from tests.bugs.summary import pytest_runtest_logreport, pytest_terminal_summary  # noqa: F401

# set before anything imports metalwright; workers of pytest-xdist inherit it and so share one cache
_cache = (
    tempfile.TemporaryDirectory(prefix="metalwright-tests-")
    if "METALWRIGHT_CACHE_DIR" not in os.environ
    else None
)
if _cache is not None:
    os.environ["METALWRIGHT_CACHE_DIR"] = _cache.name


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the cache when the session that made it ends."""
    if _cache is not None:
        _cache.cleanup()
