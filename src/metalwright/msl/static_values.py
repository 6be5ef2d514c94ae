"""Values of program-scope variables: they must be known when a program is compiled."""

from __future__ import annotations

import re
from collections.abc import Mapping

from metalwright.errors import CompileError, Diagnostic, Site
from metalwright.msl.symbols import plain_name

_AT_START = re.compile(
    r"^define internal void @__cxx_global_var_init[^\n]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL
)
_VARIABLE = re.compile(r"^@([-\w.$]+) = [^\n]*?\bglobal\b", re.MULTILINE)
_MENTIONED = re.compile(r"@([-\w.$]+)")


def check(label: str, ir: str, user: Mapping[str, str]) -> None:
    """Raise CompileError where a program-scope variable gets its value from code that runs."""
    variables = set(_VARIABLE.findall(ir))
    for body in _AT_START.findall(ir):
        mentioned = (symbol for symbol in _MENTIONED.findall(body) if symbol in variables)
        symbol = next((symbol for symbol in mentioned if not symbol.startswith("_ZGV")), None)
        if symbol is None:
            continue
        name = plain_name(symbol)
        site, excerpt = _declaration(name, user)
        unknown = f"the value of program-scope variable {name!r} is not known when the program is compiled"
        sentence = f"{unknown}: it must be a constant"
        raise CompileError(label, (Diagnostic("error", sentence, site, excerpt),))


def _declaration(name: str, user: Mapping[str, str]) -> tuple[Site | None, str | None]:
    pattern = re.compile(rf"\b{re.escape(name)}\b(?=[ \t]*(?:\[[^\]\n]*\][ \t]*)*[={{(;])")
    for file, text in user.items():
        for number, line in enumerate(text.split("\n"), 1):
            if (match := pattern.search(line)) is not None:
                return Site(file, number, match.start() + 1), line
    return None, None
