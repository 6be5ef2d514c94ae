"""How large a program is with everything inlined, found before it is.

A function is copied for every call of it. Where each of a few functions calls the next several times, the copies
multiply: five calls a level are two million copies after nine levels. So they are counted on the calls that the
functions have, without making them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from metalwright.engine.passes import text
from metalwright.errors import Diagnostic, UnsupportedFeatureError
from metalwright.msl.verify import first_mention, plain_name

# of one function, before anything is optimised: several times what the largest kernels of MLX have (its FFTs,
# 212,000), and what LLVM still makes within a minute or two
MOST_INSTRUCTIONS = 600_000
_CALL = re.compile(r'\bcall\b[^@\n]*?@([-\w.$]+|"[^"]*")\(')


def check(
    label: str, ir: str, kernels: Mapping[str, str], user: Mapping[str, str], most: int = MOST_INSTRUCTIONS
) -> None:
    """Raise where inlining would make a function larger than any kernel is.

    Args:
        label: the program's name, for messages.
        ir: the program as clang first writes it.
        kernels: the kernels' host names, by the functions that they start with.
        user: the user's files.
        most: how many instructions a function may have.

    Raises:
        UnsupportedFeatureError: a function and all that it calls are more than ``most``.
    """
    calls, own = _calls(ir)
    sizes = inlined_sizes(calls, own)
    # those that are called come first: the first that is too large is the one that makes the others so
    name = next((name for name, size in sizes.items() if size > most), None)
    if name is None:
        return
    caller = next((host for entry, host in kernels.items() if name in _reached(entry, calls)), None)
    site, excerpt = first_mention(plain_name(name), user)
    who = f"kernel {caller!r}" if name in kernels else f"function {plain_name(name)!r}"
    where = f" (in kernel {caller!r})" if caller is not None and name not in kernels else ""
    sentence = (
        f"{who}{where} has {sizes[name]} instructions with the functions that it calls in their place, more than "
        f"{most}: each call is a copy, and their numbers multiply; call them in a loop, or fewer times"
    )
    raise UnsupportedFeatureError(label, (Diagnostic("error", sentence, site, excerpt),))


def inlined_sizes(calls: Mapping[str, Sequence[str]], own: Mapping[str, int]) -> dict[str, int]:
    """Return the instructions of each function with its calls inlined, callees before those who call them.

    A call that leads back to a function that is being counted adds nothing: it stays a call.
    """
    sizes: dict[str, int] = {}
    for start in calls:
        waiting, open_functions = [start], set[str]()
        while waiting:
            name = waiting[-1]
            if name in sizes:
                waiting.pop()
                continue
            new = [] if name in open_functions else [c for c in dict.fromkeys(calls[name]) if c not in sizes]
            open_functions.add(name)
            if inner := [callee for callee in new if callee not in open_functions]:
                waiting += inner
                continue
            waiting.pop()
            sizes[name] = own[name] + sum(sizes.get(callee, 0) for callee in calls[name])
    return sizes


def _calls(ir: str) -> tuple[dict[str, list[str]], dict[str, int]]:
    lines = ir.splitlines()
    functions = {function.name: function for function in text.functions(lines)}
    calls: dict[str, list[str]] = {name: [] for name in functions}
    for name, function in functions.items():
        for line in lines[function.first + 1 : function.last]:
            match = _CALL.search(line) if "call" in line else None
            if match and (callee := match[1].strip('"')) in functions:
                calls[name].append(callee)
    return calls, {name: function.last - function.first for name, function in functions.items()}


def _reached(start: str, calls: Mapping[str, Sequence[str]]) -> set[str]:
    found, waiting = {start}, [start]
    while waiting:
        new = set(calls.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found
