"""What a report looks like: text, dicts, SARIF, and the rules' pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metalwright.errors import ArgumentError
from metalwright.lint import all_rules, lint, page, rule, sarif
from tests.kernels.breakable import BREAKAGES

ROOT = Path(__file__).parents[2]
BAD = rule("MW104").bad


def test_text(lint_file):
    lines = str(lint_file(BAD)).split("\n")
    assert lines[0] == (
        "reversed_in_groups.src:4:5: error MW104: kernel 'reversed_in_groups': threadgroup_barrier(mem_none) does not "
        "make writes to threadgroup memory visible, and 'tile' is written before it and read after it: it needs "
        "mem_flags::mem_threadgroup"
    )
    assert lines[1:3] == ["        threadgroup_barrier(mem_flags::mem_none);", "        ^"]
    assert lines[-1] == "1 kernel: 1 error (metalwright explain MW104)"


def test_a_report_is_its_verdict(lint_file):
    assert lint_file(rule("MW104").good) and lint_file(rule("MW103").bad)
    assert not lint_file(BAD) and not lint_file(rule("MW201").bad)


def test_the_place_in_python(lint_file):
    (finding,) = lint_file(BAD).findings
    lines = (page.IMPORTS + BAD).split("\n")
    assert finding.python and "mem_none" in lines[finding.python.line - 1]
    assert lines[finding.python.line - 1].index("threadgroup_barrier") + 1 == finding.python.column


def test_sarif_has_what_code_hosts_need(lint_file):
    for one in all_rules():
        log = sarif(lint_file(one.bad), "kernels.py")
        json.dumps(log)
        assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-2.1.0.json")
        (run,) = log["runs"]
        driver = run["tool"]["driver"]
        assert driver["name"] == "metalwright"
        for described in driver["rules"]:
            assert described["shortDescription"]["text"] and described["fullDescription"]["text"]
            assert described["help"]["text"] and described["help"]["markdown"].startswith("# MW")
            assert described["defaultConfiguration"]["level"] in ("error", "warning", "note")
        assert run["results"]
        for result in run["results"]:
            assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == one.id
            assert result["level"] in ("error", "warning", "note") and result["message"]["text"]
            place = result["locations"][0]["physicalLocation"]
            assert place["artifactLocation"]["uri"].endswith(".py")
            assert place["region"]["startLine"] >= 1 and place["region"].get("startColumn", 1) >= 1
            assert all(result["partialFingerprints"].values())


def test_the_page_is_that_of_the_rules():
    assert (ROOT / "docs" / "reference" / "rules.md").read_text() == page.all_pages(), "run: make rules"
    for one in all_rules():
        assert one.bad.strip() in page.all_pages() and one.good.strip() in page.all_pages()


def test_an_unknown_rule_is_named_with_those_there_are():
    with pytest.raises(ArgumentError, match="no rule 'MW999'; the rules are MW001, MW101"):
        rule("MW999")


def test_only_kernels():
    with pytest.raises(ArgumentError, match="expected a MetalKernel or TorchMetalKernel, got int"):
        lint(3)


def test_correct_kernels_have_no_finding():
    subjects = {breakage.subject.name: breakage.subject for breakage in BREAKAGES}
    for subject in subjects.values():
        kernel = subject.build()
        sizes = [s for breakage in BREAKAGES if breakage.subject is subject for s in breakage.sizes]
        kernel.cases = lambda subject=subject, sizes=sizes: [subject.case(*one) for one in sizes]
        assert lint(kernel).findings == ()


@pytest.mark.parametrize("name", ["gated_delta", "llama", "moe", "convnet"])
def test_the_models_have_no_finding(name):
    import importlib

    from metalwright import MetalKernel
    from metalwright.lint import lint_kernels

    module = importlib.import_module(f"tests.models.{name}")
    found = [value for value in vars(module).values() if isinstance(value, MetalKernel)]
    assert lint_kernels(found, path=module.__file__, namespace=vars(module)).findings == ()
