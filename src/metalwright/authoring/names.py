"""Which names may stand in generated MSL."""

from __future__ import annotations

import keyword
import re

from metalwright.msl.macros import macro_names

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

_CPP_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class compl
concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete
do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
requires return short signed sizeof static static_assert static_cast struct switch template this thread_local throw
true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
""".split()

# Address spaces and function qualifiers of MSL, and names that the generated signature itself needs.
_MSL_WORDS = """
kernel vertex fragment mesh object device constant thread threadgroup threadgroup_imageblock ray_data object_data
visible intersection metal mpp tensor tensor_handle
""".split()

_SCALARS = "bool char uchar short ushort int uint long ulong half bfloat float".split()
_SIZED = "int8_t uint8_t int16_t uint16_t int32_t uint32_t int64_t uint64_t size_t ptrdiff_t".split()
_VECTORS = [f"{scalar}{lanes}" for scalar in _SCALARS for lanes in (2, 3, 4)]

RESERVED: frozenset[str] = frozenset([*_CPP_KEYWORDS, *_MSL_WORDS, *_SCALARS, *_SIZED, *_VECTORS])


def parameter_problem(name: object) -> str | None:
    """Say what keeps ``name`` from being a parameter in MSL, or return ``None`` if nothing does."""
    if not isinstance(name, str):
        return f"expected a string, got {name!r}"
    if not _IDENTIFIER.match(name):
        return f"expected a C++ identifier, got {name!r}"
    if name in RESERVED:
        return f"{name!r} is a keyword or a type in MSL"
    if name in macro_names():
        return f"{name!r} is a macro of the Metal standard library"
    if name.startswith("__"):
        return f"{name!r} starts with two underscores, which C++ reserves for the compiler"
    return None


def kernel_problem(name: object) -> str | None:
    """Say what keeps ``name`` from naming a kernel, or return ``None`` if nothing does.

    Core AI appends a suffix before the name reaches MSL, so an MSL keyword is allowed here; the name is also
    that of a PyTorch operator, so a Python keyword is not.
    """
    if not isinstance(name, str) or not name.strip():
        return f"expected a non-empty string, got {name!r}"
    if not _IDENTIFIER.match(name):
        return f"expected a C++ identifier, got {name!r}"
    if keyword.iskeyword(name):
        return f"{name!r} is a Python keyword and cannot name a PyTorch operator"
    if name in macro_names():
        return f"{name!r} is a macro of the Metal standard library"
    if name.startswith("__"):
        return f"{name!r} starts with two underscores, which C++ reserves for the compiler"
    return None
