"""Linting files of kernels as a user writes them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from metalwright.cli import loading
from metalwright.lint import LintReport, lint_kernels
from metalwright.lint.page import IMPORTS

_numbers = itertools.count()


@pytest.fixture
def lint_file(tmp_path: Path) -> Callable[[str], LintReport]:
    """Write a file with the imports of the rules' examples, and lint all its kernels."""

    def run(text: str) -> LintReport:
        path = tmp_path / f"kernels{next(_numbers)}.py"
        path.write_text(IMPORTS + text)
        target = loading.parse_target(str(path))
        found = loading.kernels(target)
        return lint_kernels(
            found.values(), path=str(path), namespace=vars(loading.load(target.path)), whole_file=True
        )

    return run


@pytest.fixture
def rules_of(lint_file: Callable[[str], LintReport]) -> Callable[[str], list[str]]:
    """Lint a file and return the ids of the rules that it breaks, each once."""
    return lambda text: sorted({finding.rule for finding in lint_file(text).findings})
