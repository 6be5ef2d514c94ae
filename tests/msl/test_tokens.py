"""Tokens: every character is in one of them, and no text takes long to cut up."""

from __future__ import annotations

import time

import pytest

from metalwright.msl.tokens import tokenize


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("int a = 1.5e-3f;", "word space word space mark space number mark"),
        ("a<<=b->c ...", "word mark word mark word space mark"),
        ('u8"a\\"b" \'c\' R"x(")")x"', "string space string space string"),
        ("a // b\n/* c\nd */ e", "word space comment newline comment space word"),
        ('# 1 "a"\n  # 2\nb # c', "directive newline directive newline word space mark space word"),
        ("/* a */ # 1\n", "directive newline"),
        ("/* a", "mark mark space word"),
        ("'a", "other word"),
        ("a\f#", "word space mark"),
        ("é", "other"),
    ],
)
def test_kinds(text: str, kinds: str) -> None:
    tokens = tokenize(text)
    assert " ".join(token.kind for token in tokens) == kinds
    assert "".join(token.text for token in tokens) == text
    assert all(text.startswith(token.text, token.offset) for token in tokens)


def test_kinds_can_be_left_out() -> None:
    tokens = tokenize("int a; // b\n", without={"space", "comment", "newline"})
    assert [(token.text, token.offset) for token in tokens] == [("int", 0), ("a", 4), (";", 5)]


@pytest.mark.parametrize("opening", ["/*", 'R"x(', "/* a */ /*"])
def test_what_is_never_closed_takes_no_time(opening: str) -> None:
    began = time.perf_counter()
    tokens = tokenize(opening + "\n" * 1000)
    assert "".join(token.text for token in tokens) == opening + "\n" * 1000
    # every line break used to double the time: 22 of them took a second
    assert time.perf_counter() - began < 5
