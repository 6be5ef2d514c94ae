"""Every rule: those in ``RULES`` of each module of :mod:`metalwright.lint.rules`."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from metalwright.errors import ArgumentError
from metalwright.lint import rules
from metalwright.lint.rule import Rule


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Return all rules in the order of their ids."""
    found: list[Rule] = []
    for module in pkgutil.iter_modules(rules.__path__):
        found += importlib.import_module(f"{rules.__name__}.{module.name}").RULES
    return tuple(sorted(found, key=lambda rule: rule.id))


def rule(id_: str) -> Rule:
    """Return the rule with an id.

    Raises:
        ArgumentError: there is none; lists those that there are.
    """
    for one in all_rules():
        if one.id == id_.upper():
            return one
    raise ArgumentError(f"no rule {id_!r}; the rules are {', '.join(one.id for one in all_rules())}")
