"""Division of integers: on a GPU nothing stops at a divisor of zero, on a CPU the process dies.

Each division whose divisor is not a literal gets one that is safe: where the divisor is zero, or the quotient does not
fit (the lowest int by -1, which wraps), it divides by 1. Checked mode reports the zero first.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from metalwright.engine.passes import text

_DIVISION = re.compile(
    rf"^\s*(?P<result>{text.NAME}) = (?P<operation>[su](?:div|rem)) (?:exact )?"
    r"(?P<type>i\d+|<\d+ x i\d+>) (?P<operands>[^!]*?)(?:, !dbg !\d+)?$"
)
_LITERAL = re.compile(r"^-?\d+$|^splat \(i\d+ -?\d+\)$")
_LANES = re.compile(r"<(\d+) x (i\d+)>")


def guard_divisions(body: list[str], checked: bool, add_site: Callable[[str | None], int]) -> list[str]:
    """Return the function's lines with every division safe."""
    out: list[str] = []
    for index, line in enumerate(body):
        match = _DIVISION.match(line) if "div " in line or "rem " in line else None
        if match is None:
            out.append(line)
            continue
        dividend, divisor = text.split_arguments(match["operands"])
        if _LITERAL.match(divisor) and divisor != "0" and "-1" not in divisor:
            out.append(line)
            continue
        debug = text.DEBUG.search(line)
        location, suffix = (debug.group(1), debug.group(0)) if debug else (None, "")
        kind, name = match["type"], f"%mw.d{index}"
        lanes = _LANES.match(kind)
        bits, flags = (lanes.group(2), f"<{lanes.group(1)} x i1>") if lanes else (kind, "i1")

        def constant(value: int, lanes: object = lanes, bits: str = bits) -> str:
            return f"splat ({bits} {value})" if lanes else str(value)

        out.append(f"  {name}.zero = icmp eq {kind} {divisor}, {constant(0)}{suffix}")
        bad = f"{name}.zero"
        if checked:
            width = f"i{lanes.group(1)}" if lanes else "i1"
            if lanes:
                out.append(f"  {name}.any = bitcast {flags} {name}.zero to {width}{suffix}")
            flag = f"{name}.any" if lanes else f"{name}.zero"
            out.append(f"  {name}.some = icmp ne {width} {flag}, 0{suffix}")
            out.append(f"  {name}.told = zext i1 {name}.some to i32{suffix}")
            out.append(
                f"  call void @__mw_check_divisor(ptr %2, i32 {name}.told, i32 {add_site(location)}){suffix}"
            )
        if match["operation"].startswith("s"):
            lowest = -(1 << (int(bits[1:]) - 1))
            out.append(f"  {name}.low = icmp eq {kind} {dividend}, {constant(lowest)}{suffix}")
            out.append(f"  {name}.one = icmp eq {kind} {divisor}, {constant(-1)}{suffix}")
            out.append(f"  {name}.wrap = and {flags} {name}.low, {name}.one{suffix}")
            out.append(f"  {name}.bad = or {flags} {name}.zero, {name}.wrap{suffix}")
            bad = f"{name}.bad"
        out.append(f"  {name} = select {flags} {bad}, {kind} {constant(1)}, {kind} {divisor}{suffix}")
        out.append(f"  {match['result']} = {match['operation']} {kind} {dividend}, {name}{suffix}")
    return out
