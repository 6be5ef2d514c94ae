"""Formats of ``os_log`` where Python's ``%`` and C's ``printf`` differ."""

from __future__ import annotations

import math

import pytest

from metalwright.engine.log import format_line


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("%u", [-1], "4294967295"),
        ("%d", [4294967295], "-1"),
        ("%x", [-1], "ffffffff"),
        ("%hhu %hd", [-1, 65535], "255 -1"),
        ("%lu", [-1], "18446744073709551615"),
        ("%ld", [1 << 63], "-9223372036854775808"),
        ("%c", [65 + 256], "A"),
        ("%d %d", [1], "1 %d"),
        ("%d%%", [5], "5%"),
    ],
)
def test_integers_have_the_width_that_the_format_says(text: str, values: list, expected: str) -> None:
    assert format_line(text, values) == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
@pytest.mark.parametrize("conversion", "diouxXcp")
def test_a_float_where_an_integer_belongs_raises_nothing(conversion: str, value: float) -> None:
    assert format_line(f"[%{conversion}]", [value]).startswith("[")
