"""The page of a rule, and the page of all of them: ``python -m metalwright.lint.page FILE`` writes that one."""

from __future__ import annotations

import sys
from pathlib import Path

from metalwright.lint.registry import all_rules
from metalwright.lint.rule import Rule

IMPORTS = """import torch
from coreai_torch import TorchMetalKernel
from metalwright import MetalKernel, MetalParameter
from metalwright.check import random
"""

_GROUPS = {
    "MW0": "The comments",
    "MW1": "The MSL",
    "MW2": "Launch sizes and cases",
    "MW3": "The PyTorch reference and module",
}
_HEAD = """# Rules

What [`metalwright lint`](cli.md#lint) looks for, without running a kernel. `metalwright explain MW101` prints a rule's
part of this page. A rule is silent where it is not sure.

A comment silences a rule on its own line and on the line below: `// metalwright: ignore MW101` in MSL,
`# metalwright: ignore MW301, MW302` in Python. One that silences nothing is reported.

Rules about shapes and launch sizes go by the kernel's `cases`; no input of these is drawn. Each example below is
complete with these imports:

```python
{imports}```
"""


def group(rule: Rule) -> str:
    """Return the heading that a rule stands under."""
    return _GROUPS[rule.id[:3]]


def markdown(rule: Rule, level: int = 1) -> str:
    """Return the page of a rule."""
    return "\n".join(
        [
            f"{'#' * level} {rule.id}: {rule.title}",
            "",
            f"*{rule.severity.capitalize()}.* {rule.explanation}",
            "",
            "```python",
            rule.bad.strip("\n"),
            "```",
            "",
            f"**Instead:** {rule.fix}",
            "",
            "```python",
            rule.good.strip("\n"),
            "```",
            "",
        ]
    )


def all_pages() -> str:
    """Return the page of all rules: ``docs/reference/rules.md``."""
    parts = [_HEAD.format(imports=IMPORTS)]
    heading = ""
    for rule in all_rules():
        if group(rule) != heading:
            heading = group(rule)
            parts.append(f"## {heading}\n")
        parts.append(markdown(rule, 3))
    return "\n".join(parts)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(all_pages(), encoding="utf-8")
