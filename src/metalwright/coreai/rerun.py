"""A kernel's launch, repeated from the last thread to the first: what depends on the order is a race."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metalwright.coreai.execute import KernelRun

# threadgroups that run beside each other would have an order of their own each time
_WORKERS = 1


@dataclass(frozen=True)
class ResultProblem:
    """Elements of a kernel's result that no GPU is bound to produce.

    ``different`` is the number of elements that came out otherwise in reverse order, ``first_different`` the index
    of the first of them; the same for ``unwritten``, the elements that no thread wrote.
    """

    result: str
    elements: int
    different: int
    first_different: tuple[int, ...] | None
    unwritten: int
    first_unwritten: tuple[int, ...] | None


def problems(run: KernelRun) -> list[ResultProblem]:
    """Launch a checked kernel once more with threadgroups and threads in reverse order; compare bit by bit.

    Raises:
        KernelFault: It was caught doing something wrong, which it did not do in order.
    """
    again = [np.empty_like(values) for values in run.results]
    shadows = [np.zeros(values.nbytes, np.uint8) for values in run.results]
    run.kernel.launch(
        run.operands,
        again,
        run.threads_per_grid,
        run.threads_per_threadgroup,
        reverse=True,
        written=shadows,
        workers=_WORKERS,
    )
    found = []
    for name, first, second, shadow in zip(run.kernel.results, run.results, again, shadows, strict=True):
        unwritten = ~_by_element(shadow, first).all(axis=1)
        pair = _by_element(first, first), _by_element(second, first)
        different = np.any(np.not_equal(*pair), axis=1) & ~unwritten
        if different.any() or unwritten.any():
            found.append(
                ResultProblem(
                    name, first.size,
                    int(different.sum()), _first(different, first.shape),
                    int(unwritten.sum()), _first(unwritten, first.shape),
                )
            )  # fmt: skip
    return found


def _by_element(values: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return the bytes of an array, one row for each element of ``like``."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).reshape(like.size, like.itemsize)


def _first(mask: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if not mask.any():
        return None
    return tuple(int(index) for index in np.unravel_index(int(mask.argmax()), shape))
