"""Running a kernel's cases beside its reference."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from coreai_torch import TorchMetalKernel

from metalwright.authoring.reference import of as reference_of
from metalwright.authoring.run import Execution, execute
from metalwright.check import condition, partial, reference, shrink, snippet
from metalwright.check.cases import Case, cases_of
from metalwright.check.data import InputData, ResultData, compare
from metalwright.check.edges import edge_cases
from metalwright.check.family import family_of
from metalwright.check.inputs import SPECIAL_VARIANTS, seed_for
from metalwright.check.observed import findings_of
from metalwright.check.origin import origin_of
from metalwright.check.pattern import Errors, Pattern, recognise
from metalwright.check.report import CaseReport, Report
from metalwright.check.simple import Value
from metalwright.check.tiles import tile_sizes
from metalwright.check.tolerance import EXACT, Tolerance, tolerances_by_dtype
from metalwright.check.verdict import Finding, finding_of, findings
from metalwright.errors import ArgumentError, MetalwrightError, ToolchainError

DEFAULT_TIMEOUT = 60.0
# threadgroups that run beside each other would add floats in an order of their own: the same seed, the same report
_WORKERS = 1
# of shapes that the check chose itself; more of them say nothing new
_WRONG_EDGES_AT_MOST = 5


@dataclass(frozen=True)
class _Settings:
    """What all cases of a check have in common."""

    tolerances: Mapping[torch.dtype, Tolerance]
    math_mode: str
    seed: int
    timeout: float | None


def check(
    kernel: Any,
    cases: Iterable[Mapping[str, Any] | Case] | None = None,
    *,
    seed: int = 0,
    tolerances: Mapping[torch.dtype, Tolerance | tuple[float, float]] | None = None,
    math_mode: str | None = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    edges: bool = False,
) -> Report:
    """Run a kernel's MSL on each case and compare its results with the PyTorch reference.

    The kernel runs in checked mode, once with the threads of each threadgroup in order and once in reverse; the
    reference is evaluated in float64 where it allows that. A case is wrong if an element is outside its
    tolerance, is infinite or NaN where the reference is not, was never written, or depends on the order of the
    threads; or if the kernel does not compile, does something forbidden, or cannot be launched this way.

    Args:
        kernel: a ``MetalKernel`` or a plain ``TorchMetalKernel``.
        cases: dicts with ``inputs`` (tensors, scalars, or ``metalwright.check.random(shape, dtype)``),
            ``threads_per_grid``, ``threads_per_thread_group``, ``result_shapes`` and optionally ``name``; or
            :class:`~metalwright.check.Case` objects, as ``metalwright.check.cases_of`` gives them.
            ``kernel.cases`` by default. A case with generated inputs runs three times: with normal values, with
            extreme ones (zeros, tiny, large) among them, and with infinities and NaN (not if ``math_mode`` is
            ``"fast"``).
        seed: where generated inputs come from.
        tolerances: ``{dtype: (rtol, atol)}`` in place of the defaults of :mod:`metalwright.check.tolerance`.
        math_mode: ``"safe"`` or ``"fast"``; the kernel's own by default.
        timeout: seconds after which a launch that does not end is stopped; ``None``: never.
        edges: also check shapes at which kernels break: extents of 1, primes, and one below, at and above each
            tile and threadgroup size that is found in the cases and the MSL; and values that cancel in a sum. How
            such a shape is launched says ``kernel.case_for``, a function of the extents that returns a case; a
            kernel that works element by element needs none. A wrong case of such a shape is shrunk to the
            smallest extents and simplest values (``CaseReport.reproduce``).

    Returns:
        A report, true if every case is right.

    Raises:
        ArgumentError: there are no cases, or they are not dicts of that form.
        ToolchainError: no kernel can be run at all.
    """
    done = check_cases(
        kernel, cases, seed=seed, tolerances=tolerances, math_mode=math_mode, timeout=timeout, edges=edges
    )
    return report_of(kernel, done, seed=seed, math_mode=math_mode)


def report_of(
    kernel: Any, cases: Iterable[CaseReport], *, seed: int = 0, math_mode: str | None = None
) -> Report:
    """Put the outcomes of :func:`check_cases` into a report."""
    done = tuple(cases)
    return Report(kernel.name, _math_mode(kernel, math_mode), seed, done, origin_of(kernel))


def check_cases(
    kernel: Any,
    cases: Iterable[Mapping[str, Any] | Case] | None = None,
    *,
    seed: int = 0,
    tolerances: Mapping[torch.dtype, Tolerance | tuple[float, float]] | None = None,
    math_mode: str | None = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    edges: bool = False,
) -> Iterator[CaseReport]:
    """Yield the outcome of each case of :func:`check` as soon as it is known."""
    if not isinstance(kernel, TorchMetalKernel):
        raise ArgumentError(f"check: expected a MetalKernel or TorchMetalKernel, got {type(kernel).__name__}")
    mode = _math_mode(kernel, math_mode)
    settings = _Settings(tolerances_by_dtype(tolerances), mode, seed, timeout)
    # fast math may assume that there are no infinities and NaN: with them, nothing is wrong
    finite = mode == "fast"
    shrunk: set[str] = set()
    wrong_edges = 0
    for case in _all_cases(kernel, cases, edges):
        if wrong_edges >= _WRONG_EDGES_AT_MOST:
            return
        for variant in case.variants(finite, adversarial=edges):
            inputs = case.draw(variant, seed, kernel.input_names)
            outcome = _check_case(kernel, case, variant, inputs, settings)
            kind = outcome.findings[0].kind if outcome.findings else None
            if kind is not None and kind not in shrunk:
                # the first of each kind: the others are most often the same mistake
                outcome = _reproducible(kernel, case, outcome, settings)
                shrunk |= {kind} if outcome.smallest else set()
            elif kind is not None:
                outcome = replace(outcome, reproduce=_program(kernel, case, variant, settings))
            wrong_edges += case.family is not None and kind is not None
            yield outcome


def _all_cases(kernel: Any, given: Iterable[Mapping[str, Any] | Case] | None, edges: bool) -> Iterator[Case]:
    if not edges:
        return cases_of(kernel, given)
    known = list(cases_of(kernel, given))
    # known before anything runs: that no other shape can be launched is to be said at once
    family = family_of(kernel, known)
    return itertools.chain(known, edge_cases(family, known))


def _reproducible(kernel: Any, case: Case, outcome: CaseReport, settings: _Settings) -> CaseReport:
    """Add the program that shows a wrong case again: the smallest of its kind, where other extents can be tried."""
    # a case that takes seconds, as one that never ends, cannot be run again and again
    finite = outcome.variant not in SPECIAL_VARIANTS
    if case.family is not None and outcome.seconds < shrink.SECONDS / 4:
        found = shrink.smallest(
            case,
            outcome.variant,
            outcome.findings[0].kind,
            lambda smaller, inputs: [
                finding.kind
                for finding in _judge(kernel, smaller, inputs, settings, finite, explain=False)[1]
            ],
            settings.seed,
            kernel.input_names,
        )
        if found is not None:
            text = _text(kernel, found.case, found.inputs, settings)
            return replace(outcome, reproduce=text, smallest=found.describe())
    return replace(outcome, reproduce=_program(kernel, case, outcome.variant, settings))


def _program(kernel: Any, case: Case, variant: str, settings: _Settings) -> str | None:
    inputs = shrink.inputs_of(case, variant, settings.seed, kernel.input_names)
    return _text(kernel, case, inputs, settings)


def _text(kernel: Any, case: Case, inputs: Sequence[Value], settings: _Settings) -> str | None:
    options = {"seed": settings.seed, "math_mode": settings.math_mode, "timeout": settings.timeout}
    return snippet.program(kernel, case, inputs, settings.tolerances, **options)


def _math_mode(kernel: Any, given: str | None) -> str:
    mode = getattr(kernel, "math_mode", "safe") if given is None else given
    if mode not in ("safe", "fast"):
        raise ArgumentError(f"kernel {kernel.name!r}: math_mode: expected 'safe' or 'fast', got {mode!r}")
    return mode


def _check_case(
    kernel: Any, case: Case, variant: str, inputs: tuple[Any, ...], settings: _Settings
) -> CaseReport:
    began = time.perf_counter()
    # generated inputs go to the ends of their range, and beyond
    results, wrong = _judge(kernel, case, inputs, settings, variant not in SPECIAL_VARIANTS)
    return CaseReport(
        name=case.name,
        variant=variant,
        inputs=tuple(map(_describe, kernel.input_names, inputs)),
        threads_per_grid=case.threads_per_grid,
        threads_per_thread_group=case.threads_per_thread_group,
        result_shapes=case.result_shapes,
        results=results,
        findings=wrong,
        seconds=time.perf_counter() - began,
    )


def _judge(
    kernel: Any,
    case: Case,
    inputs: tuple[Any, ...],
    settings: _Settings,
    finite: bool,
    explain: bool = True,
) -> tuple[tuple[ResultData, ...], tuple[Finding, ...]]:
    try:
        forward = _execute(kernel, case, inputs, settings, reverse=False)
        backward = _execute(kernel, case, inputs, settings, reverse=True)
    except ToolchainError:
        raise
    except MetalwrightError as error:
        return (), (finding_of(error),)
    try:
        expected = reference.evaluate(reference_of(kernel), inputs)
    except Exception as error:
        # the reference is the user's code: whatever it raises is this case's outcome
        return (), (Finding("reference", f"the reference raised {type(error).__name__}: {error}"),)
    explainer = functools.partial(_explain, kernel, case, expected) if explain else _unexplained
    results = _compare(kernel, forward, backward, expected, settings, explainer)
    seen = findings_of(forward.report.seen, backward.report.seen, numbers=finite)
    return results, (*seen, *findings(results))


def _execute(
    kernel: Any,
    case: Case,
    inputs: Sequence[Any],
    settings: _Settings,
    *,
    reverse: bool,
) -> Execution:
    return execute(
        kernel,
        inputs,
        case.threads_per_grid,
        case.threads_per_thread_group,
        case.result_shapes,
        math_mode=settings.math_mode,
        checked=True,
        workers=_WORKERS,
        reverse=reverse,
        track_written=True,
        timeout=settings.timeout,
        watched=True,
        group_name="threads_per_thread_group",
    )


def _compare(
    kernel: Any,
    forward: Execution,
    backward: Execution,
    expected: reference.Expected,
    settings: _Settings,
    explain: Callable[[int, Errors], Pattern | None],
) -> tuple[ResultData, ...]:
    assert forward.written is not None and backward.written is not None  # track_written was asked for

    @functools.cache
    def conditions() -> tuple[condition.Condition | None, ...]:
        # for all results at once, and only if one of them needs it: it evaluates the reference several times
        seed = seed_for(settings.seed, kernel.name, "condition")
        dtypes = [result.dtype for result in expected.own]
        return condition.measure(reference_of(kernel), expected.wide_inputs, expected.wide, seed, dtypes)

    return tuple(
        compare(
            name,
            got=forward.results[i],
            reverse=backward.results[i],
            # an element that only one of the orders writes is not reliably written
            written=forward.written[i] & backward.written[i],
            own=expected.own[i],
            wide=expected.wide[i],
            tolerance=settings.tolerances.get(expected.own[i].dtype, EXACT),
            condition=lambda i=i: conditions()[i],
            explain=functools.partial(explain, i),
        )
        for i, name in enumerate(kernel.result_names)
    )


def _explain(
    kernel: Any, case: Case, expected: reference.Expected, result: int, errors: Errors
) -> Pattern | None:
    """Name the shape of an error."""
    group = case.threads_per_thread_group
    found = recognise(replace(errors, tiles=tile_sizes(kernel, [group])))
    if found is not None:
        return found
    return partial.first_simdgroup_only(
        errors, reference_of(kernel), expected.wide_inputs, result, math.prod(group)
    )


def _unexplained(result: int, errors: Errors) -> Pattern | None:
    return None


def _describe(name: str, value: Any) -> InputData:
    if isinstance(value, torch.Tensor):
        return InputData(name, str(value.dtype).removeprefix("torch."), tuple(value.shape))
    return InputData(name, type(value).__name__, (), value)
