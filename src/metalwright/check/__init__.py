"""Checking kernels against their PyTorch reference.

>>> import metalwright
>>> report = metalwright.check(kernel)  # doctest: +SKIP
>>> report.ok  # doctest: +SKIP
True

The package is called like a function: ``metalwright.check(kernel)`` and ``metalwright.check.check(kernel)`` are
the same, and the rest of this package is at hand as ``metalwright.check.random`` and so on.
"""

import sys
import types
from typing import TYPE_CHECKING

from metalwright.check.cases import Case, case_for_shape, cases_of
from metalwright.check.checking import check, check_cases, report_of
from metalwright.check.data import Element, InputData, OrderDifference, ResultData, Unwritten
from metalwright.check.inputs import Random, random
from metalwright.check.report import CaseReport, Report
from metalwright.check.tolerance import DEFAULTS, Tolerance
from metalwright.check.verdict import Finding

__all__ = [
    "DEFAULTS",
    "Case",
    "CaseReport",
    "Element",
    "Finding",
    "InputData",
    "OrderDifference",
    "Random",
    "Report",
    "ResultData",
    "Tolerance",
    "Unwritten",
    "case_for_shape",
    "cases_of",
    "check",
    "check_cases",
    "random",
    "report_of",
]


class _CallablePackage(types.ModuleType):
    """``metalwright.check`` is both this package and the function that people call."""

    __call__ = staticmethod(check)


if not TYPE_CHECKING:
    sys.modules[__name__].__class__ = _CallablePackage
