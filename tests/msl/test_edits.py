"""Replacements in a text, and the way back to where a piece of the new text comes from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from metalwright.msl.edits import Edits


@given(st.data())
def test_what_is_kept_is_found_where_it_was(data: st.DataObject) -> None:
    # every character is told from the others; what is put in is made of none of them
    text = "".join(map(chr, range(0x4E00, 0x4E00 + data.draw(st.integers(0, 30)))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), unique=True, max_size=8)))
    edits = Edits()
    for start, end in zip(cuts[::2], cuts[1::2], strict=False):
        edits.replace(start, end, data.draw(st.text("abc", max_size=5)))
    new = edits.apply(text)
    for offset, character in enumerate(new):
        if character in text:
            assert text[edits.origin(offset)] == character
        else:
            assert edits.origin(offset) in cuts[::2]
