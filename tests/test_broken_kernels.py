"""A kernel broken in each of ten ways is reported as wrong by ``check``, and the same kernel unbroken is not."""

from __future__ import annotations

import pytest

import metalwright
from tests.kernels.breakable import BREAKAGES, Breakage

EACH_SIZE = [
    pytest.param(breakage, size, id=f"{breakage.name}-{'x'.join(map(str, size))}".replace(" ", "-"))
    for breakage in BREAKAGES
    for size in breakage.sizes
]


def test_ten_ways_at_three_sizes() -> None:
    named = {
        "wrong index",
        "missing tail",
        "swapped coordinates",
        "missing barrier",
        "off-by-one bound",
        "wrong accumulation type",
        "unwritten output",
        "wrong scale",
        "transposed output",
        "float for half constant",
    }
    assert named <= {breakage.name for breakage in BREAKAGES}
    assert all(len(set(breakage.sizes)) == 3 for breakage in BREAKAGES)


@pytest.mark.parametrize(("breakage", "size"), EACH_SIZE)
def test_broken_kernel_is_reported(breakage: Breakage, size: tuple[int, ...]) -> None:
    kernel = breakage.subject.build(breakage.broken_src())
    report = metalwright.check(kernel, [breakage.subject.case(*size)])
    assert not report.ok, f"{breakage.name} at {size} was not seen:\n{report}"


@pytest.mark.parametrize(("breakage", "size"), EACH_SIZE)
def test_unbroken_kernel_passes(breakage: Breakage, size: tuple[int, ...]) -> None:
    report = metalwright.check(breakage.subject.build(), [breakage.subject.case(*size)])
    assert report.ok, str(report)
