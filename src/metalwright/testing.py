"""Checks of kernels as assertions, for tests.

>>> from metalwright.testing import assert_kernel
>>> assert_kernel(kernel)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from metalwright.check import Case, Report, Tolerance, check
from metalwright.check.checking import DEFAULT_TIMEOUT


def assert_kernel(
    kernel: Any,
    cases: Iterable[Mapping[str, Any] | Case] | None = None,
    *,
    seed: int = 0,
    tolerances: Mapping[torch.dtype, Tolerance | tuple[float, float]] | None = None,
    math_mode: str | None = None,
    timeout: float | None = DEFAULT_TIMEOUT,
) -> Report:
    """Check a kernel as :func:`metalwright.check` does, with the same arguments, and insist that it is right.

    Returns:
        The report.

    Raises:
        AssertionError: a case is wrong; the message is the report as text.
        ArgumentError: there are no cases, or they have another form.
    """
    __tracebackhide__ = True  # a failed test ends at its own line
    report = check(kernel, cases, seed=seed, tolerances=tolerances, math_mode=math_mode, timeout=timeout)
    if not report.ok:
        raise AssertionError(str(report))
    return report
