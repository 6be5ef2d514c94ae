"""Small damage to MSL, as slips and bad merges do it: tokens lost, doubled, exchanged, replaced."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from metalwright.msl.tokens import Token, tokenize

KEYWORDS = (
    "device constant thread threadgroup kernel const volatile static constexpr inline struct class enum union template "
    "typename using namespace if else for while do switch case default break continue return auto void bool char uchar "
    "short ushort int uint long ulong half bfloat float float2 float3 float4 half4 uint2 uint3 int4 tensor dextents metal "
    "true false sizeof decltype operator this virtual double goto new delete asm extern atomic_uint threadgroup_barrier "
    "simd_sum simd_shuffle max select as_type fast precise __mw_barrier __builtin_trap INFINITY unsigned signed"
).split()
MARKS = (
    *tuple("{}[]()<>;:,.?~!+-*/%^&|=#@\\'\""),
    "::",
    "->",
    "<<",
    ">>",
    "&&",
    "||",
    "++",
    "--",
    "+=",
    "[[",
    "]]",
)
NUMBERS = (
    "0 1 2 3 7 31 32 33 1024 65536 2147483647 4294967295 18446744073709551615 99999999999999999999 0x7fffffff 1.0 0.5h "
    "1e30 1e-40 1.5bf 0x1p-149f 1.e 3.h 08 0b2 1'000 1u 2ul 1.0f 0.0 100000000 -1"
).split()
ODD = (
    "é",
    "\0",
    "\t",
    "\r",
    "\\\n",
    "/*",
    "//",
    "#define X",
    "#if 1",
    '"',
    "'",
    "??/",
    "\u200b",
    'R"(',
    "[[kernel]]",
)
PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}


def pieces(text: str) -> list[str]:
    """Return a source as tokens and what is between them; joined, they are the source."""
    return [token.text for token in tokenize(text)]


def _solid(text: str) -> list[int]:
    tokens: Sequence[Token] = tokenize(text)
    return [i for i, token in enumerate(tokens) if token.kind not in ("space", "newline", "comment")]


@st.composite
def mutants(draw: st.DrawFn, text: str) -> str:
    """A source with one to four pieces of damage."""
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 2, 3, 4)))):
        text = draw(_one_change(text))
    return text


@st.composite
def _one_change(draw: st.DrawFn, text: str) -> str:
    parts = pieces(text)
    places = _solid(text)
    if not places:
        return text
    at = draw(st.sampled_from(places))
    other = draw(st.sampled_from(places))
    kind = draw(
        st.sampled_from(
            ("delete", "double", "swap", "keyword", "mark", "number", "copy", "bracket", "cut", "odd")
        )
    )
    if kind == "delete":
        parts[at] = ""
    elif kind == "double":
        parts[at] += " " + parts[at]
    elif kind == "swap":
        parts[at], parts[other] = parts[other], parts[at]
    elif kind == "copy":
        parts[at] = parts[other]
    elif kind == "keyword":
        words = [i for i in places if parts[i].isidentifier()] or places
        parts[draw(st.sampled_from(words))] = draw(st.sampled_from(KEYWORDS))
    elif kind == "mark":
        parts[at] = draw(st.sampled_from(MARKS))
    elif kind == "number":
        numbers = [i for i in places if parts[i][0].isdigit()] or places
        parts[draw(st.sampled_from(numbers))] = draw(st.sampled_from(NUMBERS))
    elif kind == "bracket":
        opening = draw(st.sampled_from(tuple(PAIRS)))
        first, last = sorted((at, other))
        parts[first] = f"{opening}{parts[first]}"
        parts[last] = f"{parts[last]}{PAIRS[opening]}"
    elif kind == "cut":
        first, last = sorted((at, other))
        del parts[first : min(last, first + draw(st.integers(1, 12)))]
    else:
        parts[at] += draw(st.sampled_from(ODD))
    return "".join(parts)
