"""``metalwright source``: the complete MSL that Core AI embeds for a kernel."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from metalwright.cli import loading, shapes


def source(
    target: Annotated[str, typer.Argument(metavar="FILE.py:KERNEL", help="A kernel of a file.")],
    shape: shapes.Shapes = None,
    dtype: shapes.Dtypes = None,
) -> None:
    """Print the complete generated MSL of a kernel.

    The text depends on the inputs' dtypes, ranks and scalar values: those of the kernel's first case, or of
    --dtype and --shape (its number of extents counts).
    """
    from metalwright.authoring import preview

    where = loading.parse_target(target)
    kernel = loading.kernel(where)
    if len(shape or ()) > 1 or len(dtype or ()) > 1:
        raise typer.BadParameter("give --shape and --dtype at most once: one text is printed")
    dtypes = shapes.parse_dtype(dtype[0]) if dtype else None
    ranks = len(shapes.parse_shape(shape[0])) if shape else None
    with loading.user_code(where.path):
        text = preview.generate(kernel, (), dtypes, ranks, None)
    sys.stdout.write(text.strip("\n") + "\n")
