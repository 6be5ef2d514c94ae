"""Applies the rules to kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from coreai_torch import TorchMetalKernel

from metalwright.errors import ArgumentError
from metalwright.lint import python_source, suppress
from metalwright.lint.registry import all_rules
from metalwright.lint.report import LintReport
from metalwright.lint.rule import Hit, LintFinding, Rule
from metalwright.lint.rules.suppressions import UNUSED
from metalwright.lint.subject import Subject
from metalwright.lint.suppress import Suppression

_ORDER = ("error", "warning", "note")


def lint(*kernels: Any, rules: Iterable[Rule] | None = None) -> LintReport:
    """Look for known pitfalls in kernels without running them.

    Args:
        kernels: ``MetalKernel`` or plain ``TorchMetalKernel``. Of their own code only ``cases`` is called, and no
            generated input is drawn.
        rules: all of :func:`metalwright.lint.all_rules` by default.

    Returns:
        A report, true if nothing worse than a note was found.

    Raises:
        ArgumentError: one of them is no kernel, or its cases are not cases.
    """
    return lint_kernels(kernels, rules=rules)


def lint_kernels(
    kernels: Iterable[Any],
    *,
    path: str | None = None,
    namespace: Mapping[str, Any] | None = None,
    whole_file: bool = False,
    rules: Iterable[Rule] | None = None,
) -> LintReport:
    """Apply the rules to kernels of one file.

    ``namespace`` holds the names of the file ``path``, in which calls of the kernels are looked for (by default the
    file of each one's reference); with ``whole_file`` its comments that silence nothing are reported.
    """
    chosen = all_rules() if rules is None else tuple(rules)
    file = python_source.file_of(path) if path else None
    in_files = {file.shown: list(suppress.in_python(file))} if file else {}
    findings: list[LintFinding] = []
    names: list[str] = []
    without_cases: list[str] = []
    for kernel in kernels:
        if not isinstance(kernel, TorchMetalKernel):
            raise ArgumentError(
                f"lint: expected a MetalKernel or TorchMetalKernel, got {type(kernel).__name__}"
            )
        subject = Subject(kernel, file, namespace)
        names.append(subject.name)
        if not subject.launches:
            without_cases.append(subject.name)
        in_msl = [one for code in subject.codes for one in suppress.in_msl(code)]
        if subject.reference:
            own = subject.reference.file
            in_files.setdefault(own.shown, list(suppress.in_python(own)))
        known = [*in_msl, *(one for some in in_files.values() for one in some)]
        for rule in chosen:
            findings += _kept(subject, rule, rule.find(subject), known)
        findings += _unused(subject.name, subject, in_msl)
    if whole_file and file:
        findings += _unused(", ".join(names), None, in_files[file.shown])
    ordered = sorted(findings, key=lambda one: (names.index(one.kernel) if one.kernel in names else len(names),
                                                _ORDER.index(one.severity)))  # fmt: skip
    return LintReport(tuple(names), tuple(ordered), tuple(without_cases))


def _kept(
    subject: Subject, rule: Rule, hits: Iterable[Hit], suppressions: list[Suppression]
) -> Iterable[LintFinding]:
    for hit in dict.fromkeys(hits):
        silencing = [one for one in suppressions if one.covers(rule.id, hit.site)]
        for one in silencing:
            one.used.add(rule.id)
        if not silencing:
            severity = hit.severity or rule.severity
            where = subject.python_place(hit.site)
            yield LintFinding(rule.id, severity, subject.name, hit.message, hit.site, hit.excerpt, where)


def _unused(kernel: str, subject: Subject | None, suppressions: list[Suppression]) -> Iterable[LintFinding]:
    known = {rule.id for rule in all_rules()}
    for one in suppressions:
        for id_ in one.ids:
            if id_ in one.used or UNUSED.id in one.ids:
                continue
            why = "is broken neither on this line nor on the next" if id_ in known else "does not exist"
            where = subject.python_place(one.site) if subject else one.site
            message = f"kernel {kernel!r}: rule {id_} {why}: remove it from the comment"
            yield LintFinding(UNUSED.id, UNUSED.severity, kernel, message, one.site, one.excerpt, where)
