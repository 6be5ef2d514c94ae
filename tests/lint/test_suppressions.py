"""Comments that silence rules."""

from metalwright.lint import rule

BARRIERS = rule("MW104").bad
BARRIER = "    threadgroup_barrier(mem_flags::mem_none);"
NUMBERS = rule("MW301").bad


def test_on_the_line_and_on_the_line_above(rules_of):
    assert rules_of(BARRIERS.replace(BARRIER, BARRIER + " // metalwright: ignore MW104")) == []
    assert rules_of(BARRIERS.replace(BARRIER, "    // metalwright: ignore MW104, MW101\n" + BARRIER)) == [
        "MW001"
    ]
    assert rules_of(BARRIERS.replace(BARRIER, "    /* metalwright: ignore MW104 */\n" + BARRIER)) == []


def test_further_up_it_silences_nothing(rules_of):
    further = BARRIERS.replace(BARRIER, "    // metalwright: ignore MW104\n\n" + BARRIER)
    assert rules_of(further) == ["MW001", "MW104"]


def test_in_python(rules_of):
    line = "    return torch.stack"
    assert rules_of(NUMBERS.replace(line, "    # metalwright: ignore MW301\n" + line)) == []
    assert rules_of(NUMBERS + "\n# metalwright: ignore MW301, MW999\n") == ["MW001", "MW301"]


def test_an_unused_one_is_a_note_with_its_place(lint_file):
    report = lint_file(rule("MW001").bad)
    (finding,) = report.findings
    assert report.ok and finding.severity == "note"
    assert finding.message == (
        "kernel 'doubled': rule MW104 is broken neither on this line nor on the next: remove it from the comment"
    )
    assert str(finding.site) == "doubled.src:2:5"


def test_an_unknown_rule(lint_file):
    report = lint_file(rule("MW001").bad.replace("MW104", "MW987"))
    assert "rule MW987 does not exist" in report.findings[0].message
