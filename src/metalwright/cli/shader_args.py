"""The option ``--arg``: the buffers of a kernel in a ``.metal`` file, as words on the command line."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from metalwright.cli import tensors
from metalwright.errors import ArgumentError

HELP = (
    "One buffer, in the order of buffer indices; repeatable. A number, a list of numbers (1,2,3), a file (.npy, .pt, "
    ".safetensors), or a tensor: TYPE[SHAPE]=CONTENT, where CONTENT is a number, arange, or random[:SEED]; "
    "float[4,8]=0."
)
_TENSOR = re.compile(r"(?P<type>[\w.]+)\[(?P<shape>[\d,x ]*)\](?:=(?P<content>.*))?$")


def parse(text: str) -> Any:
    """Return the tensor, number or list of numbers that an ``--arg`` stands for.

    Raises:
        ArgumentError: it is none of them; says what is expected.
    """
    if match := _TENSOR.match(text):
        return _tensor(text, match["type"], match["shape"], match["content"] or "0")
    if text.endswith(tensors.SUFFIXES):
        return tensors.read(f"--arg {text}", Path(text))
    values = [_number(text, part) for part in text.split(",")]
    return values if len(values) > 1 else values[0]


def _number(text: str, part: str) -> int | float:
    for kind in (lambda value: int(value, 0), float):
        try:
            return kind(part.strip())
        except ValueError:
            continue
    raise ArgumentError(f"--arg {text}: expected {HELP[HELP.index('A number') :]}")


def _tensor(text: str, dtype_name: str, shape: str, content: str) -> Any:
    import torch

    from metalwright.cli.shapes import parse_dtype, parse_shape

    dtype = parse_dtype(dtype_name)
    extents = parse_shape(shape) if shape.strip() else ()
    word, _, seed = content.partition(":")
    # numbers that are counted or drawn are 64 bits wide before they have their type
    _check_memory(text, extents, torch.int64 if word in ("arange", "random") else dtype)
    if word == "arange":
        return torch.arange(math.prod(extents)).reshape(extents).to(dtype)
    if word == "random":
        return tensors.draw(extents, dtype, int(_number(text, seed or "0")))
    value = _number(text, content)
    if not dtype.is_floating_point and isinstance(value, float):
        raise ArgumentError(f"--arg {text}: {content} is not a whole number")
    try:
        return torch.full(extents, value, dtype=dtype)
    except RuntimeError as error:
        raise ArgumentError(f"--arg {text}: {content} is not a {dtype_name}") from error


def _check_memory(text: str, extents: tuple[int, ...], dtype: Any) -> None:
    import torch

    try:
        torch.empty(extents, dtype=dtype)
    except (RuntimeError, TypeError, OverflowError) as error:
        raise ArgumentError(
            f"--arg {text}: a tensor of {math.prod(extents)} elements is too large for this machine"
        ) from error
