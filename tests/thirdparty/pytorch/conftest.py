"""What the tests of PyTorch's headers share."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def ran(score: Callable[..., None]) -> Callable[..., None]:
    """Return a function that notes a kernel or function of a header as run: its header, name and instantiation."""

    def note(header: str, name: str, detail: str = "") -> None:
        score("PyTorch", header, name, "ran", detail)

    return note
