"""A pytest plugin: tests that were written for a Mac run here, their Metal kernels on the CPU.

``pytest -p metalwright.pytest_plugin --metal=cpu`` emulates for the whole session what needs a Mac. With
``--metal-unskip``, tests that skip themselves for want of macOS or Metal run too: what their reason says decides.
``--metal-check`` is in a plugin of its own, which this one brings along.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
import unittest
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import _pytest.outcomes
import pytest

from metalwright.authoring import registry
from metalwright.coreai import emulate
from metalwright.errors import MetalwrightError

pytest_plugins = ["metalwright.pytest_kernels"]

# on a Mac too, a call of a TorchMetalKernel runs its reference, and tests compare an artifact's results with it
_AS_ON_A_MAC = {"coreai_torch"}
_PLATFORM = re.compile(
    r"\b(macos\w*|macs?\b(?! address)|macbook\w*|os ?x|darwin|(?<!bare[ -])metal\d?|apple|(?<!cuda )mps)\b",
    re.IGNORECASE,
)
# reasons that a Mac would not take away: a defect, something put off, or a test that is not for a Mac
_OTHER = re.compile(
    r"\b(bugs?|buggy|broken|breaks?|crash\w*|flak[ey]\w*|fail\w*|hangs?|deadlock\w*|wrong|incorrect\w*|regress\w*"
    r"|slow|todo|fixme|disabled?|re-?enabled?|until|once|deprecated|removed)\b"
    r"|(\bnot (supported|implemented|available|run)|\bunsupported|\bunavailable) (on|by|in|for) "
    r"(the )?(macos|macs?|os ?x|darwin|apple|mps|metal)\b",
    re.IGNORECASE,
)
# in a condition, the name stands inside others: `torch.backends.mps.is_available()`, `has_metal`
_IN_CONDITION = re.compile(r"darwin|macos|metal|apple|(?<![a-z])mps(?![a-z])", re.IGNORECASE)
_UNSKIPPED = "_metalwright_unskipped"
_WORKER = "metalwright_unskipped"
# whose frames say nothing to the author of a kernel
_RUNTIMES = re.compile(r"(metalwright|coreai)(\.|$)")


def for_want_of_a_mac(reason: object) -> bool:
    """True if a reason to skip speaks of macOS, Metal, Apple or MPS, and of nothing that a Mac would not change."""
    return isinstance(reason, str) and bool(_PLATFORM.search(reason)) and not _OTHER.search(reason)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("metalwright", "Metal kernels")
    group.addoption("--metal", choices=("cpu",), help="Run Metal kernels on the CPU, in all tests.")
    group.addoption(
        "--metal-unchecked",
        action="store_true",
        help="Do not stop kernels at accesses outside their buffers, nor at barriers that not all threads meet.",
    )
    group.addoption(
        "--metal-unskip",
        action="store_true",
        help="Run tests that skip themselves because this is no Mac, or has no Metal: their reason says so.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    # conftests and test modules may make arrays, and skip, when they are imported
    _begin(early_config, early_config.known_args_namespace)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    _begin(config, config.option)  # where a conftest names the plugin, it comes too late for the hook above


_session = pytest.StashKey["_Session"]()


def _begin(config: pytest.Config, options: Any) -> None:
    if _session in config.stash:
        return
    if options.metal is None:
        for option in ("metal_unchecked", "metal_unskip"):
            if getattr(options, option):
                raise pytest.UsageError(f"--{option.replace('_', '-')} needs --metal=cpu")
        return
    config.stash[_session] = session = _Session(options.metal_unchecked, options.metal_unskip)
    config.add_cleanup(session.stack.close)
    session.stack.enter_context(emulate(*session.emulated, checked=not options.metal_unchecked))
    if session.unskip is not None:
        session.stack.enter_context(session.unskip)


class _Session:
    """What holds while the tests run."""

    def __init__(self, unchecked: bool, unskip: bool) -> None:
        self.emulated = [target.name for target in registry.choose(()) if target.name not in _AS_ON_A_MAC]
        self.unchecked = unchecked
        self.unskip = Unskip() if unskip else None
        self.stack = ExitStack()


class Unskip:
    """Takes away skips for want of a Mac, and counts the tests that would have been skipped."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self._skipped: set[str] = set()
        self._modules: dict[Path, str] = {}
        self._fixtures: dict[tuple[Any, int], str] = {}
        self._setting_up: list[tuple[Any, int]] = []
        self._item: pytest.Item | None = None
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Unskip:
        skip = self._skipping(pytest.skip)
        self._patch.setattr(pytest, "skip", skip)
        self._patch.setattr(_pytest.outcomes, "skip", skip)
        # unittest's skipIf and skipUnless call the first of these
        decorator = _skip_decorator(unittest.skip)
        self._patch.setattr(unittest.case, "skip", decorator)
        self._patch.setattr(unittest, "skip", decorator)
        self._patch.setattr(unittest.TestCase, "skipTest", self._skip_test(unittest.TestCase.skipTest))
        return self

    def __exit__(self, *error: object) -> None:
        self._patch.undo()

    def count(self, item: pytest.Item, reason: str) -> None:
        """Count a test, once, unless it is skipped for another reason after all."""
        if item.nodeid not in self._skipped:
            self.reasons.setdefault(item.nodeid, reason)

    def still_skipped(self, item: pytest.Item) -> None:
        """Note a test that another reason skips."""
        self._skipped.add(item.nodeid)
        self.reasons.pop(item.nodeid, None)

    @contextmanager
    def running(self, item: pytest.Item) -> Iterator[None]:
        """Note the test that runs."""
        self._item = item
        if reason := self._modules.get(item.path):
            self.count(item, reason)
        for owner in (getattr(item, "cls", None), getattr(item, "obj", None)):
            if reason := getattr(owner, _UNSKIPPED, None):
                self.count(item, reason)
        try:
            yield
        finally:
            self._item = None
            indices = getattr(getattr(item, "callspec", None), "indices", {})
            known = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
            for name, definitions in known.items():
                # a fixture of a wider scope calls skip() once, for all tests that use it
                if reason := self._fixtures.get((definitions[-1], indices.get(name, 0))):
                    self.count(item, reason)

    @contextmanager
    def fixture(self, definition: Any, parameter: int) -> Iterator[None]:
        """Note the fixture that is set up."""
        self._setting_up.append((definition, parameter))
        try:
            yield
        finally:
            self._setting_up.pop()

    def _called(self, reason: str) -> None:
        self._fixtures.update(dict.fromkeys(self._setting_up, reason))
        if self._item is not None:
            self.count(self._item, reason)
            return
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        if frame is not None:
            self._modules[Path(frame.f_code.co_filename)] = reason

    def _skipping(self, original: Any) -> Any:
        @functools.wraps(original)
        def skip(reason: Any = "", *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True  # the skip is reported where it was called
            if not for_want_of_a_mac(reason):
                return original(reason, *args, **kwargs)
            self._called(reason)
            return None

        skip.Exception = original.Exception  # type: ignore[attr-defined]
        return skip

    def _skip_test(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def skip_test(case: unittest.TestCase, reason: Any) -> Any:
            __tracebackhide__ = True
            if not for_want_of_a_mac(reason):
                return original(case, reason)
            self._called(reason)
            return None

        return skip_test


def _skip_decorator(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def skip(reason: Any) -> Any:
        if not for_want_of_a_mac(reason):
            return original(reason)

        def leave(test: Any) -> Any:
            setattr(test, _UNSKIPPED, reason)
            return test

        return leave

    return skip


def _judged(item: pytest.Item, mark: pytest.Mark) -> str:
    """Return why a mark would skip this test, if that is for want of a Mac, and an empty text otherwise."""
    reason = mark.kwargs.get("reason") or ""
    if mark.name == "skip":
        reason = mark.args[0] if mark.args else reason
        return reason if for_want_of_a_mac(reason) else ""
    if mark.name != "skipif":
        return ""
    conditions = mark.args if "condition" not in mark.kwargs else (mark.kwargs["condition"],)
    met = [condition for condition in conditions if _met(item, condition)]
    if conditions and not met:
        return ""
    if for_want_of_a_mac(reason):
        return reason
    spoken = bool(met) and all(isinstance(one, str) and _IN_CONDITION.search(one) for one in met)
    return (reason or f"condition: {met[0]}") if spoken and not _OTHER.search(reason) else ""


def _met(item: pytest.Item, condition: Any) -> bool:
    """Evaluate a condition as pytest does. One that cannot be is left for pytest to report."""
    try:
        if not isinstance(condition, str):
            return bool(condition)
        names = {"os": os, "sys": sys, "platform": platform, "config": item.config}
        for given in reversed(item.ihook.pytest_markeval_namespace(config=item.config)):
            names.update(given)
        names.update(getattr(getattr(item, "obj", None), "__globals__", {}))
        return bool(eval(condition, names))
    except Exception:
        return False


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    session = item.config.stash.get(_session, None)
    if session is None or session.unskip is None:
        return (yield)
    with session.unskip.running(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[Any]:
    session = item.config.stash.get(_session, None)
    if session is None or session.unskip is None:
        return (yield)
    # pytest looks at the marks in this hook; afterwards they are back, for other plugins to see
    kept: list[tuple[Any, list[pytest.Mark], list[pytest.Mark]]] = []
    for node in item.listchain():
        left: list[pytest.Mark] = []
        for mark in node.own_markers:
            if reason := _judged(item, mark):
                session.unskip.count(item, reason)
            else:
                left.append(mark)
        kept.append((node, node.own_markers, left))
        node.own_markers = left.copy()
    try:
        return (yield)
    finally:
        for node, marks, left in kept:
            # fixtures add marks too
            added = [mark for mark in node.own_markers if not any(mark is one for one in left)]
            node.own_markers = marks + added


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[Any]:
    session = item.config.stash.get(_session, None)
    if session is None:
        return (yield)
    # the traceback of our own errors ends at the test's line: the message has the kernel's
    if call.excinfo is not None and _is_ours(call.excinfo):
        for entry in call.excinfo.traceback:
            if _RUNTIMES.match(entry.frame.f_globals.get("__name__", "")):
                entry.frame.f_globals.setdefault("__tracebackhide__", _is_ours)
    report = yield
    skipped = report.skipped and not hasattr(report, "wasxfail")  # an xfail is reported as a skip too
    if skipped and session.unskip is not None:
        session.unskip.still_skipped(item)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    session = request.config.stash.get(_session, None)
    if session is None or session.unskip is None:
        return (yield)
    with session.unskip.fixture(fixturedef, getattr(request, "param_index", 0)):
        return (yield)


def _is_ours(error: pytest.ExceptionInfo[BaseException]) -> bool:
    return isinstance(error.value, MetalwrightError)


def pytest_report_header(config: pytest.Config) -> list[str]:
    session = config.stash.get(_session, None)
    if session is None:
        return []
    how = "unchecked" if session.unchecked else "checked"
    lines = [f"metalwright: Metal kernels of {', '.join(session.emulated)} run on the CPU, {how}"]
    if session.unskip is not None:
        lines.append("metalwright: tests that skip themselves for want of macOS or Metal are run")
    return lines


def pytest_sessionfinish(session: pytest.Session) -> None:
    ours = session.config.stash.get(_session, None)
    sent = getattr(session.config, "workeroutput", None)
    if ours is not None and ours.unskip is not None and sent is not None:
        sent[_WORKER] = ours.unskip.reasons


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over what a worker of pytest-xdist has counted."""
    ours = node.config.stash.get(_session, None)
    if ours is not None and ours.unskip is not None:
        ours.unskip.reasons.update(getattr(node, "workeroutput", {}).get(_WORKER, {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    session = config.stash.get(_session, None)
    if session is None or session.unskip is None:
        return
    reasons = Counter(session.unskip.reasons.values())
    terminalreporter.section("metalwright")
    terminalreporter.line(f"{reasons.total()} un-skipped: would have been skipped for want of macOS or Metal")
    for reason, number in reasons.most_common():
        terminalreporter.line(f"  [{number}] {reason}")
