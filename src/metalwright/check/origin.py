"""Where a kernel stands in Python: the file, its name there, and the lines of its MSL."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metalwright.authoring.reference import of as reference_of
from metalwright.errors import Site


@dataclass(frozen=True)
class Origin:
    """A kernel's Python file, its name in that module, and the line of its definition (0: unknown)."""

    file: str
    name: str
    line: int = 0


def origin_of(kernel: Any) -> Origin | None:
    """Return where a kernel is defined; ``None`` if it is not in the module of its reference, or that is no file."""
    scope = getattr(inspect.unwrap(reference_of(kernel)), "__globals__", {})
    name = next((name for name, value in scope.items() if value is kernel), None)
    file = scope.get("__file__")
    if name is None or not isinstance(file, str):
        return None
    return Origin(file, name, _definition(_tree(file), name, kernel.name))


def line_of(kernel: Any, site: Site, excerpt: str | None) -> int | None:
    """Return the line of the kernel's Python file at which a line of its MSL stands; ``None`` if none can be told.

    The text is looked for in the string that is the kernel's ``src`` or ``helper_src``, then anywhere in the file if it
    is there only once.
    """
    origin = origin_of(kernel)
    if origin is None:
        return None
    texts = {f"{kernel.name}.src": kernel.src, f"{kernel.name}.helper_src": kernel.helpers}
    text = texts.get(site.file)
    if not text:
        return None
    listed = text.splitlines()
    wanted = listed[site.line - 1] if 0 < site.line <= len(listed) else excerpt or ""
    file = _lines(origin.file)
    for node in _strings(_tree(origin.file), text):
        # right in a string of several lines; joined and escaped ones are searched
        exact = node.lineno + site.line - 1
        end = node.end_lineno or node.lineno
        if exact <= end and wanted in file[exact - 1]:
            return exact
        inside = [line for line in range(node.lineno, end + 1) if wanted.strip() in file[line - 1]]
        if len(inside) == 1:
            return inside[0]
    same = [number for number, line in enumerate(file, start=1) if line.strip() == wanted.strip()]
    return same[0] if len(same) == 1 and wanted.strip() else None


def _definition(tree: ast.Module, name: str, kernel: str) -> int:
    """Return the line that assigns the name, else the first call that has the kernel's name as an argument."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            if any(isinstance(value, ast.Constant) and value.value == kernel for value in given):
                return node.lineno
    return 0


def _strings(tree: ast.Module, text: str) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        # a text may have been dedented or stripped on its way into the kernel
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and _bare(node.value) == _bare(text)
        ):
            yield node


def _bare(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _tree(file: str) -> ast.Module:
    return _parsed("\n".join(_lines(file)))


@functools.lru_cache(maxsize=8)
def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module([], [])
