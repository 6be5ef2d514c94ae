"""``metalwright explain``: what a rule of ``metalwright lint`` is about."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from metalwright.cli.output import console, show_table


def explain(
    rules: Annotated[
        list[str] | None, typer.Argument(metavar="[MWnnn]...", help="Rules; all are listed if none is given.")
    ] = None,
) -> None:
    """Explain rules of `metalwright lint`: why, an example, and what to write instead."""
    from metalwright.lint import all_rules, page, rule

    screen = console()
    if not rules:
        show_table(
            screen,
            ("rule", "severity", "what it finds"),
            [(one.id, one.severity, one.title) for one in all_rules()],
        )
        return
    pages = "\n".join(page.markdown(rule(id_.strip(","))) for id_ in rules)
    if screen.is_terminal:
        from rich.markdown import Markdown

        screen.print(Markdown(pages), soft_wrap=False)
    else:
        sys.stdout.write(pages)
