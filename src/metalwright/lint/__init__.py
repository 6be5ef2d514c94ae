"""Known pitfalls of Metal kernels, found without running them.

>>> from metalwright.lint import lint
>>> report = lint(kernel)  # doctest: +SKIP
>>> report.ok  # doctest: +SKIP
True
"""

from metalwright.lint.linting import lint, lint_kernels
from metalwright.lint.registry import all_rules, rule
from metalwright.lint.report import LintReport
from metalwright.lint.rule import LintFinding, Rule
from metalwright.lint.sarif import sarif

__all__ = ["LintFinding", "LintReport", "Rule", "all_rules", "lint", "lint_kernels", "rule", "sarif"]
