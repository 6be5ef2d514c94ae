"""Names of functions in messages, from symbols as compilers write them (by the Itanium C++ ABI)."""

from __future__ import annotations

import pytest

from metalwright.msl.symbols import plain_name


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("system", "system"),
        ("_Z1fi", "f"),
        ("_ZL1fi", "f"),
        ("_ZN1N1fEv", "f"),
        ("_ZN2ns1fIiEET_S1_", "f"),
        ("_ZNK1A4walkEi", "walk"),
        ("_ZN1AIiE4walkEi", "walk"),
        ("_ZN1AIN1B1CELi3ES1_E4walkEi", "walk"),
        ("_ZN1AIDv4_fDF16_E4walkEv", "walk"),
        ("_ZNK1AplEi", "operator+"),
        ("_Zpl1AS_", "operator+"),
        ("_ZN1AC2Ei", "A"),
        ("_ZN1AD2Ev", "~A"),
        ("_ZZ1kPiRKijENKUlT_iE_clIS3_EEiS2_i", "lambda"),
        ("_ZZ1kPiENK1L4walkEi", "walk"),
        ("_ZN12_GLOBAL__N_11fEi", "f"),
    ],
)
def test_plain_names(symbol: str, name: str) -> None:
    assert plain_name(symbol) == name
