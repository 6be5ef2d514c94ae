"""``metalwright inspect``: what is in an artifact."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from metalwright.cli.output import console, show_json, show_table


def inspect(
    path: Annotated[Path, typer.Argument(metavar="X.aimodel", help="A Core AI artifact.")],
    source: Annotated[bool, typer.Option("--source", help="Print each kernel's complete MSL.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show an artifact's functions, and each kernel's operands, parameters and launch sizes."""
    from metalwright import coreai

    artifact = coreai.inspect(path)
    if as_json:
        show_json({**dataclasses.asdict(artifact), "path": str(artifact.path)})
        return
    if source:
        _show_sources(artifact)
        return
    show_artifact(console(), artifact)


def show_artifact(screen: Console, artifact: Any) -> None:
    """Print an artifact's functions and kernels."""
    for function in artifact.functions:
        inputs, outputs = _tensors(function.inputs), _tensors(function.outputs)
        screen.print(f"function {function.name}({inputs}) -> {outputs}")
        if function.states:
            screen.print(f"  states {_tensors(function.states)}")
    for kernel in artifact.kernels:
        screen.print()
        screen.print(f"kernel {kernel.name}, in function {kernel.function}")
        screen.print(f"  threads per grid         {_size(kernel.threads_per_grid)}")
        screen.print(f"  threads per threadgroup  {_size(kernel.threads_per_threadgroup)}")
        screen.print(f"  MSL                      {len(kernel.source.strip().splitlines())} lines")
        rows = [("input", o.name, o.dtype, _shape(o.shape)) for o in kernel.operands]
        rows += [("result", o.name, o.dtype, _shape(o.shape)) for o in kernel.results]
        show_table(screen, ("  ", "name", "type", "shape"), [("  " + row[0], *row[1:]) for row in rows])
        rows = [("  " + p.name, p.type, p.attribute) for p in kernel.parameters]
        show_table(screen, ("  parameter", "MSL type", "attribute"), rows)
    if not artifact.kernels:
        screen.print("no Metal kernels")


def _show_sources(artifact: Any) -> None:
    # two launches of one kernel embed the same text twice
    for name, text in dict.fromkeys((kernel.name, kernel.source) for kernel in artifact.kernels):
        sys.stdout.write(f"// kernel {name}\n{text.strip()}\n\n")


def _tensors(tensors: Iterable[Any]) -> str:
    return ", ".join(f"{tensor.name}: {tensor.dtype}{_shape(tensor.shape)}" for tensor in tensors)


def _shape(shape: Iterable[Any]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _size(size: Any) -> str:
    return size if isinstance(size, str) else " x ".join(map(str, size))
