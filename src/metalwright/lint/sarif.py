"""A report as SARIF 2.1.0, the format in which code hosts take the findings of tools."""

from __future__ import annotations

import hashlib
from typing import Any

from metalwright import __version__
from metalwright.lint import page
from metalwright.lint.registry import all_rules
from metalwright.lint.report import LintReport
from metalwright.lint.rule import LintFinding, Rule

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: LintReport, path: str) -> dict[str, Any]:
    """Return a report as a SARIF log; a finding without a place is one of the file at ``path``."""
    rules = all_rules()
    positions = {rule.id: position for position, rule in enumerate(rules)}
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "metalwright",
                        "semanticVersion": __version__,
                        "rules": [_rule(rule) for rule in rules],
                    }
                },
                # where MSL stands in a Python file, columns count characters as Python does
                "columnKind": "unicodeCodePoints",
                "results": [_result(one, positions[one.rule], path) for one in report.findings],
            }
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.title.replace("`", "").split()),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.explanation},
        "help": {"text": f"{rule.explanation}\n\n{rule.fix}", "markdown": page.markdown(rule)},
        "defaultConfiguration": {"level": rule.severity},
        "properties": {"tags": [page.group(rule)]},
    }


def _result(finding: LintFinding, position: int, path: str) -> dict[str, Any]:
    place = finding.python or finding.site
    region: dict[str, Any] = {"startLine": place.line if place else 1}
    if place and place.column:
        region["startColumn"] = place.column
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": place.file if place else path, "uriBaseId": "%SRCROOT%"},
            "region": region,
        }
    }
    if finding.site:
        location["logicalLocations"] = [{"fullyQualifiedName": str(finding.site), "kind": "function"}]
    # lines move: what stays is the rule, the kernel and the line's own text
    same = "\0".join((finding.rule, finding.kernel, finding.excerpt or finding.message))
    return {
        "ruleId": finding.rule,
        "ruleIndex": position,
        "level": finding.severity,
        "message": {"text": finding.message},
        "locations": [location],
        "partialFingerprints": {"metalwright/v1": hashlib.sha256(same.encode()).hexdigest()[:32]},
    }
