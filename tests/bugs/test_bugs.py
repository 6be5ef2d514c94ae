"""``check`` finds every planted bug and says where it is, and is silent on every correct kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import metalwright
from tests.bugs import summary
from tests.bugs.bug import Bug, Subject
from tests.bugs.corpus import BUGS, PUBLIC, SUBJECTS

SEEDS = 2

EACH_BUG = [
    pytest.param(bug, id=bug.id, marks=[pytest.mark.xfail(reason=bug.missing)] if bug.missing else [])
    for bug in BUGS
]
EACH_CORRECT = [
    pytest.param(subject, dtype, id=f"{subject.name}-{str(dtype).removeprefix('torch.')}")
    for subject in SUBJECTS
    for dtype in subject.dtypes
]


def test_the_corpus_is_large_enough() -> None:
    assert len(SUBJECTS) >= 15
    assert len(BUGS) >= 120
    assert len({bug.kind for bug in BUGS}) >= 20
    assert len({bug.id for bug in BUGS}) == len(BUGS)
    assert {bug.subject.name for bug in BUGS} == {subject.name for subject in SUBJECTS}


def test_each_public_bug_is_there() -> None:
    assert {bug.public for bug in BUGS} - {None} == PUBLIC


@pytest.mark.parametrize("bug", EACH_BUG)
def test_bug_is_found(bug: Bug, record_property: Callable[[str, object], None]) -> None:
    record_property(summary.PLANTED, bug.kind)
    report = bug.check()
    assert not report.ok, f"{bug.id} was not seen:\n{bug.source()}"
    assert bug.is_among(report), f"{bug.id}: no {bug.finds} at line {bug.line()} in\n{report}"
    record_property(summary.FOUND, bug.kind)


@pytest.mark.parametrize(("subject", "dtype"), EACH_CORRECT)
def test_correct_kernel_has_no_finding(
    subject: Subject, dtype: torch.dtype, record_property: Callable[[str, object], None]
) -> None:
    kernel = subject.build()
    wrong = []
    for seed in range(SEEDS):
        report = metalwright.check(kernel, subject.cases(dtype), seed=seed)
        record_property(summary.RUNS, len(report.cases))
        record_property(summary.FINDINGS, sum(len(case.findings) for case in report.cases))
        if not report.ok:
            wrong.append(str(report))
    assert not wrong, "\n".join(wrong)
