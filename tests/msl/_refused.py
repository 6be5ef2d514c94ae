"""One mistake in a source, and what is said about it: file, line, column, excerpt and sentence."""

from __future__ import annotations

import pytest

from metalwright.errors import CompileError
from tests.support import whole

FILE = "k.metal"


def refused(text: str, kind: type[CompileError] = CompileError) -> str:
    """Compile a source that has one mistake, at the ``¦``; return what is said about it."""
    before, _, rest = text.partition("¦")
    text = before + rest
    with pytest.raises(CompileError) as caught:
        whole(text)
    assert type(caught.value) is kind, str(caught.value)
    first = caught.value.diagnostics[0]
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    assert first.site is not None, str(caught.value)
    assert (first.site.file, first.site.line, first.site.column) == (FILE, line, column), str(caught.value)
    assert first.excerpt == text.split("\n")[line - 1]
    assert first.message.count("\n") == 0
    assert "__mw" not in str(caught.value)
    return first.message
