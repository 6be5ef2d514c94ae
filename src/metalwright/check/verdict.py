"""What the data means: findings, each with a kind and a sentence."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from metalwright.check.data import Element, Index, ResultData
from metalwright.check.tolerance import EXACT
from metalwright.errors import CompileError, KernelFault, MetalwrightError, Related, Site


@dataclass(frozen=True)
class Finding:
    """One reason why a case is wrong.

    ``kind`` is ``"value"`` (elements outside the tolerance), ``"not-finite"`` (an infinity or NaN that is not the
    reference's), ``"unwritten"``, ``"order"`` (results depend on the order of threads), ``"race"`` (two threads use
    the same bytes with nothing between that orders them), ``"uninitialised"`` (a thread reads what none has written),
    ``"number"`` (arithmetic that may give anything on a GPU), ``"fault"`` (the kernel did something that it may not),
    ``"compile"``, ``"refused"`` (the case's arguments) or ``"reference"`` (the reference raised). ``result`` names the
    result, where there is one.

    ``site`` is the place in the MSL that the finding is about and ``excerpt`` the line there, where they are known;
    ``message`` names the site, and does not repeat the line. ``related`` are further places, in the order to read
    them. ``pattern`` is the name of the error's shape where it has one: a name of
    :class:`metalwright.check.pattern.Pattern`.
    """

    kind: str
    message: str
    result: str | None = None
    site: Site | None = None
    excerpt: str | None = None
    related: tuple[Related, ...] = ()
    pattern: str | None = None


def finding_of(error: MetalwrightError) -> Finding:
    """Return what an error says about the kernel that raised it."""
    if isinstance(error, KernelFault):
        return Finding("fault", error.summary, site=error.site, excerpt=error.excerpt)
    if isinstance(error, CompileError) and error.diagnostics:
        first, *others = error.diagnostics
        where = f"{first.site}: " if first.site else ""
        return Finding(
            "compile",
            f"kernel {error.kernel!r} does not compile\n{where}{first.severity}: {first.message}",
            site=first.site,
            excerpt=first.excerpt,
            related=tuple(Related(f"{d.severity}: {d.message}", d.site, d.excerpt) for d in others),
        )
    return Finding("compile" if isinstance(error, CompileError) else "refused", str(error))


def findings(results: Iterable[ResultData]) -> tuple[Finding, ...]:
    """Return everything that is wrong with these results; nothing for results that are right."""
    return tuple(finding for result in results for finding in _of_result(result))


def _of_result(result: ResultData) -> Iterable[Finding]:
    different = result.wrong - result.not_finite
    worst = result.worst
    pattern = result.pattern.name if result.pattern is not None else None
    shape = f"\n{result.pattern.sentence}" if result.pattern is not None else ""
    if different:
        bound = " by more than the tolerance" if result.tolerance != EXACT else ""
        at = f"; {_worst(worst, result.dtype)}" if worst is not None and not math.isnan(worst.error) else ""
        text = f"{different} of {result.elements} elements differ from the reference{bound}{at}"
        yield Finding("value", text + shape, result.name, pattern=pattern)
    if result.not_finite:
        at = f"; {_worst(worst, result.dtype)}" if worst is not None and math.isnan(worst.error) else ""
        text = f"{result.not_finite} of {result.elements} elements are infinite or NaN where the reference is not, "
        yield Finding("not-finite", f"{text}or the other way round{at}", result.name)
    missing = result.unwritten
    if missing is not None:
        first = ", ".join(show_index(index) for index in missing.first)
        more = ", ..." if missing.count > len(missing.first) else ""
        text = f"{missing.count} of {result.elements} elements were never written: {first}{more}"
        # with wrong elements beside them, the shape is told there
        told = bool(different)
        yield Finding(
            "unwritten", text + ("" if told else shape), result.name, pattern=None if told else pattern
        )
    order = result.order
    if order is not None and order.beyond:
        text = (
            f"{order.beyond} of {result.elements} elements depend on the order in which the threads run, as where a "
            f"barrier is missing; at {show_index(order.index)}: {show(order.forward, result.dtype)} forward, "
            f"{show(order.reverse, result.dtype)} in reverse"
        )
        yield Finding("order", text, result.name)


def _worst(worst: Element, dtype: str) -> str:
    text = f"worst at {show_index(worst.index)}: got {show(worst.got, dtype)}, expected {show(worst.expected, dtype)}"
    if math.isnan(worst.error):
        return text
    allowed = f", allowed {worst.allowed:.3g}" if worst.allowed else ""
    return f"{text}, off by {worst.error:.3g}{allowed}"


def show_index(index: Index) -> str:
    """Return an index as it is written in PyTorch."""
    return "[" + ", ".join(map(str, index)) + "]"


_DIGITS = {"float32": 9, "float16": 5, "bfloat16": 4}


def show(value: float | bool, dtype: str) -> str:
    """Return a value with as many digits as its dtype distinguishes."""
    if isinstance(value, float):
        return f"{value:.{_DIGITS.get(dtype, 9)}g}"
    return str(value)
