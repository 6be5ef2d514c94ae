"""Python files as syntax trees: references, the calls of kernels, and where a kernel's MSL is written."""

from __future__ import annotations

import ast
import functools
import inspect
import io
import linecache
import os
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metalwright.errors import Site

Function = ast.FunctionDef | ast.AsyncFunctionDef


class PythonFile:
    """A file that the user wrote; ``shown`` is its name in messages, relative to the current folder."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        self.lines = text.split("\n")
        self.tree = ast.parse(text)
        self.shown = _shown(path)

    def site(self, node: ast.AST) -> tuple[Site, str]:
        """Return the place of a node and the line that it begins on."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        excerpt = self.lines[line - 1]
        # ast counts bytes
        characters = len(excerpt.encode()[:column].decode("utf-8", "ignore"))
        return Site(self.shown, line, characters + 1), excerpt

    def function(self, code: Any) -> Function | None:
        """Return the definition of a code object in this file."""
        for node in ast.walk(self.tree):
            if isinstance(node, Function) and node.name == code.co_name:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                if first == code.co_firstlineno:
                    return node
        return None

    @functools.cached_property
    def comments(self) -> list[tuple[int, int, str]]:
        """Each comment's line, column (both from 1) and text."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [(t.start[0], t.start[1] + 1, t.string) for t in tokens if t.type == tokenize.COMMENT]

    def literal(self, text: str) -> tuple[int, int] | None:
        """Return the line on which a string's text begins, and on which the literal begins."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and node.value == text and text.strip():
                return node.lineno, node.end_lineno or node.lineno
        return None


@functools.lru_cache(maxsize=64)
def _parsed(path: str, text: str) -> PythonFile | None:
    try:
        return PythonFile(path, text)
    except (SyntaxError, ValueError, tokenize.TokenError):
        return None


def file_of(path: str) -> PythonFile | None:
    """Return a Python file, or the cell of a notebook, by its name; ``None`` where there is no source."""
    linecache.checkcache(path)
    text = "".join(linecache.getlines(path))
    return _parsed(path, text) if text else None


def _shown(path: str) -> str:
    here = Path(path)
    if here.is_absolute() and here.is_relative_to(Path.cwd()):
        return here.relative_to(Path.cwd()).as_posix()
    return path.replace(os.sep, "/")


@dataclass(frozen=True)
class FunctionSource:
    """A function with the file that it stands in."""

    file: PythonFile
    node: Function

    def values_of(self, name: str) -> list[ast.expr]:
        """Return what is assigned to a plain name in it."""
        found: list[ast.expr] = []
        for node in ast.walk(self.node):
            if isinstance(node, ast.Assign):
                found += [node.value for t in node.targets if isinstance(t, ast.Name) and t.id == name]
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                found += [node.value for t in [node.target] if isinstance(t, ast.Name) and t.id == name]
        return found


def source_of(function: Callable[..., Any] | None) -> FunctionSource | None:
    """Return a function's definition; ``None`` for a lambda, a built-in, or one without source."""
    function = inspect.unwrap(function) if function is not None else None
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    file = file_of(code.co_filename)
    node = file.function(code) if file else None
    return FunctionSource(file, node) if file and node else None


@dataclass(frozen=True)
class KernelCall:
    """One place where a kernel is called; ``function`` is the definition around it, if there is one."""

    file: PythonFile
    node: ast.Call
    function: FunctionSource | None
    parents: dict[ast.AST, ast.AST]


def calls_of(kernel: Any, file: PythonFile, namespace: dict[str, Any]) -> Iterator[KernelCall]:
    """Yield the calls of a kernel by a name of its module."""
    names = {name for name, value in namespace.items() if value is kernel}
    parents = {child: node for node in ast.walk(file.tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield KernelCall(file, node, _function_around(node, parents, file), parents)


def _function_around(
    node: ast.AST, parents: dict[ast.AST, ast.AST], file: PythonFile
) -> FunctionSource | None:
    above = parents.get(node)
    while above is not None and not isinstance(above, Function):
        above = parents.get(above)
    return FunctionSource(file, above) if isinstance(above, Function) else None
