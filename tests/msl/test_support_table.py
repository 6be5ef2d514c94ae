"""The generated page of functions says what the headers do."""

from __future__ import annotations

import functools
import re

import support_table
from specification import CHAPTERS, FLOATS, MATH
from support_table import PAGE, Use


@functools.cache
def unsupported() -> dict[Use, str]:
    return support_table.find_unsupported()


def test_the_page_is_what_the_generator_writes() -> None:
    """With the ULPs that the page states: the accuracy test compares these with what it measures."""
    written = support_table.render(unsupported(), support_table.stated())
    assert PAGE.read_text() == written, "run `make table`"


def test_what_is_refused_is_named() -> None:
    """An error says which word of a use it is that does not run."""
    silent = {use.name: sentence for use, sentence in unsupported().items() if not use.is_named_in(sentence)}
    assert not silent


def test_every_math_function_has_its_numbers() -> None:
    stated = support_table.stated()
    assert set(stated) == {(name, kind) for name in MATH.uses for kind in FLOATS}
    assert all(cell == "exact" or 0 < float(cell) <= 0.51 for cell in stated.values())


def test_a_function_that_is_not_there_is_found_out() -> None:
    """The generator's own check: names that do not exist, calls that do not fit and chapters it could not compile."""
    use = {name: Use(MATH, name, "float") for name in MATH.uses}
    chapter = type(MATH)(
        "Test",
        "@ x",
        {
            "sin": "(void)(sin(x));",
            "sine": "(void)(sine(x));",
            "cos": "sampler s => (void)(cos(1.0f));",
            "tan": "(void)(tan(x, x));",
            "exp": "(void)(exp(x));",
        },
        ("float",),
    )
    tried = [Use(chapter, name, "float") for name in chapter.uses]
    failed = {use.name: sentence for use, sentence in support_table.compile_uses(tried).items()}
    assert set(failed) == {"sine", "cos", "tan"}
    assert "'sine'" in failed["sine"] and "'sampler'" in failed["cos"] and "'tan'" in failed["tan"]
    assert not support_table.compile_uses([use["sin"], use["cos"]])


def test_the_lists_of_the_two_reference_pages_agree() -> None:
    """What the page of the supported MSL names as a function is in the table and not refused there."""
    page = (PAGE.parent / "msl.md").read_text().split("## Functions")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+?) \| `([^`]+)` \|$", page, re.MULTILINE)
    assert len(rows) >= 8
    listed = {name for _, names in rows for name in names.split()}
    known = {name for chapter in CHAPTERS for name in chapter.uses}
    beyond = {"nan", "sincospi"}  # in Metal's headers, not in the specification
    assert listed - known == beyond
    refused = {use.name for use in unsupported()}
    assert not listed & refused
