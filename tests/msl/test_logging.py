"""os_log: what a kernel writes, formatted as C's printf does, with its level and its thread."""

from __future__ import annotations

import numpy as np
import pytest

from metalwright.engine import LogLine
from metalwright.errors import CompileError
from tests.support import launch, whole


def lines(src: str, size: int = 1, group: int = 1, checked: bool = True) -> tuple[LogLine, ...]:
    text = (
        f"kernel void k(device float* out, uint3 at [[thread_position_in_grid]]) {{ uint i = at.x;\n{src}\n}}"
    )
    return launch(whole(text, checked=checked), {}, {"out": np.zeros(8, np.float32)}, size, group).log


# Python's % agrees with printf on all of these
FORMATS = [
    ("plain", "", ()),
    ("%d", "-5", (-5,)),
    ("%i", "7", (7,)),
    ("%u", "4294967295u", (4294967295,)),
    ("%x", "255", (255,)),
    ("%#X", "255", (255,)),
    ("%o", "8", (8,)),
    ("%c%c", "'o', 'k'", (111, 107)),
    ("%f", "1.5", (1.5,)),
    ("%.2f|%8.3f|%-8.1f|", "1.239, 2.5, 3.25", (1.2389999628067017, 2.5, 3.25)),
    ("%e", "12345.0", (12345.0,)),
    ("%g %G", "0.0001, 1e20", (9.999999747378752e-05, 1.0000000200408773e20)),
    ("%05d|%+d|% d|%-5d|", "42, 42, 42, 42", (42, 42, 42, 42)),
    ("%ld %lu", "-9000000000l, 9000000000ul", (-9000000000, 9000000000)),
    ("%hd %hhd", "short(-3), char(-4)", (-3, -4)),
    ("100%%", "", ()),
    ("%d%% of %s", "50", None),
    ("%f %f", "1.5h, bfloat(2.5)", (1.5, 2.5)),
    ("%d %d", "true, false", (1, 0)),
]


@pytest.mark.parametrize("checked", [True, False])
def test_formats(checked: bool) -> None:
    calls = "\n".join(
        f'os_log_default.log("{text}"{", " if arguments else ""}{arguments});'
        for text, arguments, _ in FORMATS
    )
    written = lines(calls, checked=checked)
    assert len(written) == len(FORMATS)
    for line, (text, _, values) in zip(written, FORMATS, strict=True):
        if values is None:
            assert line.text == "50% of %s"  # a conversion without a value stays as it is written
            continue
        python = text.replace("%hhd", "%d").replace("%hd", "%d").replace("%ld", "%d").replace("%lu", "%d")
        expected = python.replace("#X", "#X") % values if values else text.replace("%%", "%")
        assert line.text == expected, text


def test_infinities_and_nan() -> None:
    assert [line.text for line in lines('os_log_default.log("%f %f %f", INFINITY, -INFINITY, NAN);')] == [
        "inf -inf nan"
    ]


def test_levels() -> None:
    calls = "\n".join(
        f'os_log_default.log_{level}("{level}");' for level in ("debug", "info", "error", "fault")
    )
    calls += '\nos_log_default.log("default");\nos_log_default.log_with_type(log_type_error, "typed %d", 3);'
    calls += '\nos_log mine("subsystem", "category");\nmine.log_info("mine");'
    assert [(line.level, line.text) for line in lines(calls)] == [
        ("debug", "debug"),
        ("info", "info"),
        ("error", "error"),
        ("fault", "fault"),
        ("default", "default"),
        ("error", "typed 3"),
        ("info", "mine"),
    ]


def test_each_thread_that_logs_is_known() -> None:
    written = lines('if (at.x == at.y) os_log_default.log("%u", at.x + 10 * at.z);', (3, 3, 2), (2, 2, 1))  # type: ignore[arg-type]
    assert sorted((line.thread, line.text) for line in written) == sorted(
        ((n, n, z), str(n + 10 * z)) for n in range(3) for z in range(2)
    )


def test_lines_of_one_worker_are_in_order() -> None:
    written = lines('for (int r = 0; r < 3; r++) os_log_default.log("%u %d", i, r);', 5, 2)
    assert [line.text for line in written] == [f"{i} {r}" for i in range(5) for r in range(3)]


@pytest.mark.parametrize("checked", [True, False])
def test_floods_are_cut_and_not_torn(checked: bool) -> None:
    written = lines('os_log_default.log("line of thread %u, with some more text", i);', 100_000, 64, checked)
    assert 1000 < len(written) <= 100_000
    for line in written:
        assert line.text == f"line of thread {line.thread[0]}, with some more text"
    assert len({line.thread for line in written}) == len(written)


def test_a_kernel_that_logs_nothing_has_an_empty_log() -> None:
    assert lines("out[0] = 1;") == ()


def test_text_outside_ascii() -> None:
    assert [line.text for line in lines('os_log_default.log("é 漢 %d", 1);')] == ["é 漢 1"]


def test_what_is_no_number_is_an_error() -> None:
    with pytest.raises(CompileError, match="a kernel logs numbers"):
        lines('os_log_default.log("%f", float2(1));')
