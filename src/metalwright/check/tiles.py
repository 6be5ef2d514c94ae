"""The tile and threadgroup sizes of a kernel: where its results change from one path to another."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from metalwright.msl.tokens import Token, tokenize

_LEAST, _MOST = 4, 1024  # a threadgroup has at most 1024 threads, and what is below 4 is an index
_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|[0-9]+)[uUlL]*")
_SIMDGROUP = 32
_SIZES_OF_INTEREST = 4


def tile_sizes(kernel: Any, threadgroups: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Return the sizes that a kernel's work is cut into, the surest first: at most a few.

    They are the threadgroups' extents and their products, 32 where the MSL speaks of simdgroups, and integers in
    the MSL that look like tile sizes: extents of arrays, and powers of two.
    """
    sizes: dict[int, None] = {}
    for group in threadgroups:
        for size in (*group, math.prod(group)):
            if _LEAST <= size <= _MOST:
                sizes[size] = None
    tokens = _tokens(kernel)
    if any(token.text.startswith(("simd", "quad")) for token in tokens if token.kind == "word"):
        sizes[_SIMDGROUP] = None
    counted = Counter(_literals(tokens))
    sizes |= dict.fromkeys(size for size, _ in counted.most_common())
    return tuple(sizes)[:_SIZES_OF_INTEREST]


def _tokens(kernel: Any) -> list[Token]:
    text = f"{kernel.helpers or ''}\n{kernel.src or ''}"
    unseen = {"space", "newline", "comment", "string"}
    tokens: list[Token] = []
    for token in tokenize(text, without=unseen):
        if token.kind == "directive":
            # the MSL is not preprocessed here: #define TILE 16 is a directive as a whole
            tokens += tokenize(token.text.replace("#", " "), without=unseen)
        else:
            tokens.append(token)
    return tokens


def _literals(tokens: Sequence[Token]) -> Iterator[int]:
    for before, token in zip((None, *tokens), tokens, strict=False):
        whole = _INTEGER.fullmatch(token.text) if token.kind == "number" else None
        if whole is None:
            continue
        size = int(whole[1], 16 if whole[1][:2] in ("0x", "0X") else 10)
        an_extent = before is not None and before.text == "["
        if _LEAST <= size <= _MOST and (an_extent or size.bit_count() == 1):
            yield size
