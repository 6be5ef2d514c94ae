"""What Metal asks of a kernel's parameters, said at the parameter itself."""

from __future__ import annotations

from metalwright.msl.attributes import SCALAR_ATTRIBUTES, THREAD_ATTRIBUTES
from metalwright.msl.grammar import PLAIN_TYPES, Declarator, TokenText, declarator, type_name

_MOST = {"buffer": 31, "threadgroup": 31, "texture": 128}
_BUFFER_SPACES = frozenset({"device", "constant"})
_INDEX_TYPES = frozenset({"ushort", "uint", "uint16_t", "uint32_t", "unsigned"})
_POSITION_TYPES = _INDEX_TYPES | {f"{name}{n}" for name in ("ushort", "uint") for n in (2, 3)}


def kernel_parameters(source: TokenText, opening: int) -> list[tuple[int, str]]:
    """Return the mistakes in the parameters between a kernel's parentheses, by the index of a token."""
    found: list[tuple[int, str]] = []
    taken: dict[tuple[str, int], str] = {}
    for first, last in source.split(opening + 1, source.closing(opening)):
        type_ = type_name(source, first)
        one = declarator(source, type_, type_.after) if type_ else None
        attribute = _attribute(source, first, last)
        if one is None or attribute is None or one.index >= last:
            continue
        at, name, number = attribute
        if name in THREAD_ATTRIBUTES:
            found += _thread_attribute(one, at, name)
        if name not in _MOST:
            continue
        if name != "texture":
            found += _storage(one, name)
        if number is None:
            continue
        if number >= _MOST[name]:
            found.append(
                (at, f"[[{name}({number})]] is out of range: Metal has {name}s 0 to {_MOST[name] - 1}")
            )
        # [[buffer(0), function_constant(a)]] and [[buffer(0), function_constant(b)]]: the constants decide
        if any(source.text(i) == "function_constant" for i in range(at, last)):
            continue
        other = taken.setdefault((name, number), one.name)
        if other != one.name:
            found.append(
                (at, f"[[{name}({number})]] is already taken by {other!r}: give {one.name!r} another index")
            )
    return found


def _attribute(source: TokenText, first: int, last: int) -> tuple[int, str, int | None] | None:
    """Return the attribute of a parameter: the index of its name, the name, and its number where that is a literal."""
    for i in range(first, last - 2):
        if source.text(i) == "[" and source.text(i + 1) == "[" and source.is_word(i + 2):
            number = source.text(i + 4) if source.text(i + 3) == "(" and source.text(i + 5) == ")" else ""
            return i + 2, source.text(i + 2), int(number) if number.isdecimal() else None
    return None


def _thread_attribute(one: Declarator, at: int, name: str) -> list[tuple[int, str]]:
    if one.kind in ("pointer", "reference"):
        return [(one.index, f"[[{name}]] is passed by value: write '{one.type_word} {one.name}'")]
    if one.kind != "value" or one.type_word not in PLAIN_TYPES:
        return []
    if name in SCALAR_ATTRIBUTES and one.type_word not in _INDEX_TYPES:
        return [(at, f"[[{name}]] is a ushort or a uint, not a {one.type_word}: write 'uint {one.name}'")]
    if one.type_word not in _POSITION_TYPES:
        return [
            (
                at,
                f"[[{name}]] is a ushort or a uint, or a vector of two or three components of these, not a "
                f"{one.type_word}",
            )
        ]
    return []


def _storage(one: Declarator, name: str) -> list[tuple[int, str]]:
    written = f"{one.type_word}& {one.name}"
    if one.kind == "value" and one.type_word in PLAIN_TYPES and name == "buffer":
        sentence = "a parameter with [[buffer(n)]] must be a pointer, a reference or a tensor"
        return [(one.index, f"{sentence}: write 'constant {written}'")]
    if one.kind not in ("pointer", "reference") or not one.space:
        return []
    if name == "buffer" and one.space not in _BUFFER_SPACES:
        return [
            (one.index, f"a buffer is in device or constant memory, and {one.name!r} in {one.space} memory")
        ]
    if name == "threadgroup" and one.space != "threadgroup":
        return [
            (
                one.index,
                f"[[threadgroup(n)]] is threadgroup memory, and {one.name!r} is in {one.space} memory",
            )
        ]
    return []
