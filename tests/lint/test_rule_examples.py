"""Each rule on its own examples: the bad one breaks it and no other, the good one breaks none."""

import pytest

from metalwright.lint import all_rules

RULES = all_rules()


def test_ids_are_unique_and_in_groups():
    ids = [rule.id for rule in RULES]
    assert len(set(ids)) == len(ids) and all(id_[:3] in ("MW0", "MW1", "MW2", "MW3") for id_ in ids)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_bad_example_breaks_the_rule(rule, lint_file):
    findings = lint_file(rule.bad).findings
    assert {finding.rule for finding in findings} == {rule.id}
    assert rule.severity in {finding.severity for finding in findings}
    for finding in findings:
        assert finding.message.startswith("kernel '") and finding.site and finding.excerpt is not None
        assert finding.python and finding.python.file.endswith(".py")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_good_example_breaks_none(rule, lint_file):
    assert lint_file(rule.good).findings == ()
