"""The options ``--shape`` and ``--dtype``: cases for kernels that bring none of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from metalwright.errors import ArgumentError

Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", help="Shape of every tensor input, such as 64,48; repeatable."),
]
Dtypes = Annotated[
    list[str] | None,
    typer.Option(
        "--dtype", help="Element type of every tensor input (float, half, bfloat, int, ...); repeatable."
    ),
]


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the extents of ``"64,48"`` or ``"64x48"``.

    Raises:
        ArgumentError: anything else.
    """
    try:
        extents = tuple(int(extent) for extent in text.replace("x", ",").split(","))
    except ValueError:
        extents = ()
    if not extents or min(extents) < 1:
        raise ArgumentError(
            f"--shape: expected positive extents separated by commas, such as 64,48, got {text!r}"
        )
    return extents


def parse_dtype(text: str) -> Any:
    """Return the torch dtype of a name as PyTorch, Metal or Core AI has it.

    Raises:
        ArgumentError: an unknown name; lists the known ones.
    """
    from metalwright.authoring.dtypes import BY_NAME

    row = BY_NAME.get(text.removeprefix("torch."))
    if row is None:
        raise ArgumentError(f"--dtype: unknown type {text!r}; known: {', '.join(BY_NAME)}")
    return row.torch


def cases_for(
    kernel: Any, shapes: Sequence[str] | None, dtypes: Sequence[str] | None, seed: int
) -> list[dict[str, Any]] | None:
    """Return one case for each shape and dtype; ``None`` if no shape was given: the kernel's own cases count.

    Raises:
        ArgumentError: a shape or dtype cannot be read or does not fit the kernel, or ``--dtype`` stands alone.
    """
    if not shapes:
        if dtypes:
            raise ArgumentError("--dtype needs --shape: together they replace the kernel's own cases")
        return None
    from metalwright.authoring import reference
    from metalwright.check import case_for_shape

    return [
        case_for_shape(kernel, reference.of(kernel), parse_shape(shape), parse_dtype(dtype), seed)
        for dtype in dtypes or ["float"]
        for shape in shapes
    ]
