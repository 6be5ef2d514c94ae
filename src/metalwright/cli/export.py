"""``metalwright export``: a module that uses kernels, as a Core AI artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metalwright.cli import loading, shapes
from metalwright.cli.output import console, readable_size
from metalwright.cli.progress import waiting


def export(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py:MODULE", help="An nn.Module of a file, or its class.")
    ],
    output: Annotated[
        Path, typer.Argument(metavar="OUT.aimodel", help="Where to write; replaced if it is there.")
    ],
    shape: shapes.Shapes = None,
    dtype: shapes.Dtypes = None,
    static: Annotated[bool, typer.Option("--static", help="Ignore the module's dynamic_shapes.")] = False,
) -> None:
    """Export a module to an .aimodel through Core AI's converter, with the MSL of its kernels embedded.

    The example inputs are the module's example_args (a tuple), or one tensor for each --shape, in order, of the
    type --dtype. Its dynamic_shapes, if it has them, are those of torch.export.
    """
    where = loading.parse_target(target)
    module = loading.module(where)
    arguments = _arguments(where, module, shape, dtype)
    dynamic = None if static else getattr(module, "dynamic_shapes", None)
    from metalwright import coreai

    with waiting("exporting"), loading.user_code(where.path):
        written = coreai.export(module, arguments, output, dynamic_shapes=dynamic)
    size = sum(file.stat().st_size for file in Path(written).rglob("*") if file.is_file())
    kind = "static shapes" if dynamic is None else "dynamic shapes"
    console().print(f"wrote {written} ({readable_size(size)}, {kind})")


def _arguments(
    where: loading.Target, module: Any, shape: list[str] | None, dtype: list[str] | None
) -> tuple[Any, ...]:
    if not shape:
        if dtype:
            raise typer.BadParameter("--dtype needs --shape", param_hint="--dtype")
        return loading.example_args(where, module)
    import torch

    types = [shapes.parse_dtype(name) for name in dtype or ["float"]]
    if len(types) not in (1, len(shape)):
        raise typer.BadParameter("give --dtype once, or once for each --shape", param_hint="--dtype")
    types = types * len(shape) if len(types) == 1 else types
    return tuple(
        torch.ones(shapes.parse_shape(text), dtype=kind) for text, kind in zip(shape, types, strict=True)
    )
