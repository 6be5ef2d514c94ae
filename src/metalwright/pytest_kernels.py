"""The part of the pytest plugin that makes a test of each case of each kernel in a test module.

``pytest -p metalwright.pytest_plugin --metal-check``, or ``metal_check = true`` in the configuration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from coreai_torch import TorchMetalKernel

from metalwright.check import Case, cases_of
from metalwright.check.origin import origin_of
from metalwright.errors import MetalwrightError
from metalwright.testing import assert_kernel


def pytest_addoption(parser: pytest.Parser) -> None:
    help = "Check the kernels in test modules that have cases, beside the modules' tests."
    parser.getgroup("metalwright").addoption("--metal-check", action="store_true", help=help)
    parser.addini("metal_check", help, type="bool", default=False)


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> pytest.Collector | None:
    wanted = collector.config.getoption("metal_check") or collector.config.getini("metal_check")
    if not wanted or not isinstance(collector, pytest.Module) or not isinstance(obj, TorchMetalKernel):
        return None
    if getattr(obj, "cases", None) is None:
        return None
    # one kernel under two names is one kernel
    first = next(known for known, value in vars(collector.obj).items() if value is obj)
    return KernelCollector.from_parent(collector, name=name, kernel=obj) if name == first else None


class KernelCollector(pytest.Collector):
    """A kernel of a test module; its cases are the tests."""

    def __init__(self, *, kernel: TorchMetalKernel, **node: Any) -> None:
        super().__init__(**node)
        self.kernel = kernel

    def collect(self) -> Iterator[pytest.Item]:
        taken: Counter[str] = Counter()
        for case in cases_of(self.kernel, None):
            taken[case.name] += 1
            again = f" #{taken[case.name]}" if taken[case.name] > 1 else ""
            yield KernelCase.from_parent(self, name=f"{case.name}{again}", case=case)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
        ours = isinstance(excinfo.value, MetalwrightError)
        return str(excinfo.value) if ours else super().repr_failure(excinfo)


class KernelCase(pytest.Item):
    """One case of a kernel, in all its variants."""

    parent: KernelCollector

    def __init__(self, *, case: Case, **node: Any) -> None:
        super().__init__(**node)
        self.case = case

    def runtest(self) -> None:
        assert_kernel(self.parent.kernel, [self.case])

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        # the report says it all, and no line of a traceback is the user's
        told = isinstance(excinfo.value, (AssertionError, MetalwrightError))
        return str(excinfo.value) if told else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        origin = origin_of(self.parent.kernel)
        inside = origin is not None and origin.line and str(self.path) == origin.file
        return self.path, origin.line - 1 if origin and inside else None, f"{self.parent.name}: {self.name}"
