"""Writes `docs/reference/functions.md`: for each function of the specification whether it runs, and how exactly.

Nothing of it is kept by hand but the list of functions: whether one is supported is found out by compiling a use of
it through the front-end, and the ULPs are measured by the accuracy test's own code. `make table` rewrites the page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ulp_table
from specification import CHAPTERS, FLOATS, MATH, Chapter

from metalwright.errors import CompileError
from metalwright.msl import CompileOptions, Section, compile_msl

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "functions.md"
FILE = "uses.metal"
PRELUDE = """#include <metal_stdlib>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
"""
Ulps = Mapping[tuple[str, str], str]  # by function and format, as the page states them

_NOT_RUN = re.compile(r"^'[^']+' is not supported: Metalwright does not run (.*) yet$")
_MISSING = re.compile(
    r"undeclared identifier|no (?:member|type|template) named|unknown type name|no matching|expected"
)
# results that a test compares bit for bit with the right one: no number to measure
_EXACT = frozenset(
    "ceil fabs abs floor rint round trunc copysign fmax max fmin min fmod fmax3 max3 fmin3 min3 fmedian3 median3 "
    "frexp ilogb modf nextafter".split()
)
_ROUNDED_ONCE = frozenset({"fract", "ldexp"})
_MADE_OF = {"sincos": ("sin", "cos")}  # bit for bit what these give
_OTHER_NAMES = {"abs": "fabs", "max": "fmax", "min": "fmin", "max3": "fmax3", "min3": "fmin3"}


@dataclass(frozen=True)
class Use:
    """A function of a chapter, used with one type (or `""`), on one line of MSL."""

    chapter: Chapter
    name: str
    type: str

    def line(self, number: int) -> str:
        own, bar, body = self.chapter.uses[self.name].partition(" => ")
        parameters, body = (own, body) if bar else (self.chapter.parameters, own)
        return f"void use{number}({parameters}) {{ {body} }}".replace("@", self.type)

    def is_named_in(self, sentence: str) -> bool:
        """Whether an error speaks of something that this use is made of."""
        quoted = {word for name in re.findall(r"'([^']*)'", sentence) for word in re.findall(r"\w+", name)}
        return bool(quoted & set(re.findall(r"\w+", self.line(0))))


def uses() -> list[Use]:
    """Return every use that is tried."""
    return [Use(c, name, kind) for c in CHAPTERS for name in c.uses for kind in c.types or ("",)]


def compile_uses(tried: list[Use]) -> dict[Use, str]:
    """Return, for each use that does not compile, what the front-end says of it."""
    failed: dict[Use, str] = {}
    left = list(tried)
    while left:
        text = "\n".join(use.line(number) for number, use in enumerate(left))
        try:
            compile_msl((Section(PRELUDE), Section(text, FILE)), CompileOptions(), "uses")
        except CompileError as error:
            found: dict[Use, str] = {}
            for diagnostic in error.diagnostics:
                if diagnostic.site is None or diagnostic.site.file != FILE:
                    raise
                found.setdefault(left[diagnostic.site.line - 1], diagnostic.message)
            failed |= found
            left = [use for use in left if use not in found]
        else:
            break
    return failed


def find_unsupported() -> dict[Use, str]:
    """Return the uses of the whole table that do not compile, chapter by chapter."""
    failed: dict[Use, str] = {}
    for chapter in CHAPTERS:
        failed |= compile_uses([use for use in uses() if use.chapter is chapter])
    return failed


def measure() -> Ulps:
    """Return the worst ULPs of the math functions as cells of the page, rounded up."""
    import test_math_accuracy as accuracy

    worst = {
        (f.name, fmt.name): accuracy.worst(f, fmt)
        for f in accuracy.ROUNDED_FUNCTIONS
        for fmt in accuracy.FORMATS
    }
    cells: dict[tuple[str, str], str] = {}
    for name in MATH.uses:
        for kind in FLOATS:
            if name in _EXACT:
                cells[name, kind] = "exact"
            elif name in _ROUNDED_ONCE:
                cells[name, kind] = "0.500"
            else:
                ulps = max(worst[part, kind] for part in _MADE_OF.get(name, (name,)))
                cells[name, kind] = f"{math.ceil(ulps * 1000) / 1000:.3f}"
    return cells


def stated() -> Ulps:
    """Return what the page says."""
    cells: dict[tuple[str, str], str] = {}
    section = PAGE.read_text().split(f"## {MATH.title}\n")[1].split("\n## ")[0]
    for line in section.splitlines():
        if match := re.match(r"\| `([^`]+)` \|(.*)\|$", line):
            row = [cell.strip() for cell in match[2].split("|")]
            cells |= {
                (match[1], kind): cell for kind, cell in zip(FLOATS, (row[0], row[2], row[4]), strict=True)
            }
    return cells


def stated_ulps(name: str, kind: str) -> float:
    """Return the page's bound for a math function as a number."""
    cell = stated()[name, kind]
    return 0.0 if cell == "exact" else float(cell)


def _allowed(name: str, table: Mapping[str, ulp_table.Bound]) -> str:
    match table.get(_OTHER_NAMES.get(name, name)):
        case ulp_table.Ulp(0):
            return "exact"
        case ulp_table.Ulp(ulps):
            return f"{ulps:g}"
        case _:
            return "not stated"


def reason(sentence: str) -> str:
    """Return why a use does not compile, in few words."""
    if match := _NOT_RUN.match(sentence):
        return f"Metalwright does not run {match[1]} yet"
    return "the library does not have it yet" if _MISSING.search(sentence) else sentence


def _row(chapter: Chapter, name: str, failed: Mapping[Use, str], ulps: Ulps) -> list[str]:
    kinds = chapter.types or ("",)
    missing = {kind: failed[use] for kind in kinds if (use := Use(chapter, name, kind)) in failed}
    why = {reason(sentence) for sentence in missing.values()}
    because = "; ".join(sorted(why))
    if chapter is MATH:
        cells = ["not supported" if kind in missing else ulps[name, kind] for kind in kinds]
        precise, half = _allowed(name, ulp_table.PRECISE), _allowed(name, ulp_table.HALF)
        return [cells[0], precise, cells[1], half, *cells[2:]] + ([because] if because else [])
    cells = ["no" if kind in missing else "yes" for kind in kinds]
    if len(set(cells)) == 1:
        return ["supported" if not missing else f"not supported: {because}"]
    some = ", ".join(kind for kind in kinds if kind not in missing)
    return [f"supported for {some}; for the others not: {because}"]


def render(failed: Mapping[Use, str], ulps: Ulps) -> str:
    """Return the page."""
    total = sum(len(chapter.uses) for chapter in CHAPTERS)
    unsupported = {(use.chapter.title, use.name) for use in failed}
    parts = [
        f"""# Functions

Every function that the Metal Shading Language specification gives to kernels, by chapter. Of {total},
{total - len(unsupported)} run for every type that is tried; what does not run is refused when a kernel is compiled.

This page is generated (`make table`): a function is supported if a use of it compiles, and a test compares the page
with the headers. What the functions compute is tested against NumPy, PyTorch and mpmath; no GPU was asked.
"""
    ]
    for chapter in CHAPTERS:
        parts.append(f"\n## {chapter.title}\n\n")
        if chapter is MATH:
            parts.append(
                "The worst error in units in the last place (ULP), judged with mpmath at 240 bits over every value of\n"
                "`half` and `bfloat`, over every binade of `float` and at critical points; functions of two or three\n"
                "arguments over combinations of special values and random ones. *Exact* means bit for bit. *Allowed* is what\n"
                "the specification asks without fast math; the same functions stand for `fast::`, whose bounds hold too.\n"
                "For `bfloat` the specification states none.\n\n"
                "| function | float | allowed | half | allowed | bfloat |\n|---|---|---|---|---|---|\n"
            )
        else:
            tried = f"Tried for {', '.join(f'`{kind}`' for kind in chapter.types)}." if chapter.types else ""
            if intro := f"{tried} {chapter.note}".strip():
                parts.append(f"{intro}\n\n")
            parts.append("| function | status |\n|---|---|\n")
        for name in sorted(chapter.uses):
            parts.append(f"| `{name}` | {' | '.join(_row(chapter, name, failed, ulps))} |\n")
    return "".join(parts)


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(render(find_unsupported(), measure()))
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
