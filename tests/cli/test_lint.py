"""``metalwright lint`` and ``metalwright explain``."""

import json
from pathlib import Path

import pytest

from metalwright.lint import all_rules

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
STRAY = """
stray = make("stray", "threadgroup float t[8]; t[gid % 8] = x[gid]; threadgroup_barrier(mem_flags::mem_none); out[gid] = t[0];")
"""


def test_a_clean_file(command, kernels):
    done = command("lint", kernels())
    assert done.code == 0 and done.out == "1 kernel: nothing found\n"


def test_an_error(command, kernels):
    path = kernels(STRAY)
    done = command("lint", path)
    assert done.code == 1
    assert done.out.startswith("stray.src:1:46: error MW104: kernel 'stray': threadgroup_barrier(mem_none)")
    assert "stray: has no cases: rules about launch sizes and shapes had nothing to go by" in done.out
    assert command("lint", f"{path}:good").code == 0


def test_json(command, kernels):
    done = command("lint", kernels(STRAY), "--json")
    plain = json.loads(done.out)
    assert done.code == 1 and plain["ok"] is False and plain["kernels"] == ["good", "stray"]
    (finding,) = plain["findings"]
    assert finding["rule"] == "MW104" and finding["site"] == {"file": "stray.src", "line": 1, "column": 46}


def test_sarif(command, kernels, tmp_path):
    path = tmp_path / "found.sarif"
    assert command("lint", kernels(STRAY), "--sarif", path).code == 1
    (result,) = json.loads(path.read_text())["runs"][0]["results"]
    assert result["ruleId"] == "MW104" and result["level"] == "error"


def test_what_cannot_be_linted(command, kernels, tmp_path):
    assert command("lint", tmp_path / "missing.py").code == 2
    done = command("lint", kernels("\ngood.cases = lambda: [{}]\n"))
    assert done.code == 2 and "case 1 lacks 'inputs'" in done.err


def test_cases_that_raise(command, kernels):
    done = command("lint", kernels("\ngood.cases = lambda: 1 / 0\n"))
    assert done.code == 2 and "ZeroDivisionError" in done.err


def test_a_sarif_file_that_cannot_be_written(command, kernels, tmp_path):
    done = command("lint", kernels(), "--sarif", tmp_path / "no" / "folder")
    assert done.code == 2 and "cannot write" in done.err


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_clean(path, command):
    done = command("lint", path, "--json")
    found = [finding["rule"] for finding in json.loads(done.out)["findings"]]
    # softmax takes any axis of any rank: its index is an array by design
    assert done.code == 0 and found == (["MW103"] if path.stem == "softmax" else [])


def test_explain(command):
    done = command("explain", "mw104")
    assert done.code == 0 and done.out.startswith("# MW104: a barrier without the flag")
    assert "**Instead:**" in done.out and "```python" in done.out
    listed = command("explain")
    assert all(rule.id in listed.out and rule.title in listed.out for rule in all_rules())
    done = command("explain", "MW999")
    assert done.code == 2 and "no rule 'MW999'" in done.err
