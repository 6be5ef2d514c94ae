"""What to do about a message of clang's, where that can be told: added to the sentence."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from metalwright.msl.grammar import PLAIN_TYPES

_INCLUDE = Path(__file__).parent / "include"
_WORD = re.compile(r"[A-Za-z]\w*")
_UNKNOWN = re.compile(
    r"(?:undeclared identifier|unknown type name|no template named|no member named) '(\w+)'(?!\w* in '(?!metal'))"
)
_NO_MATCH = re.compile(r"^no matching (?:function for call to|member function for call to) '(\w+)'$")
_ARITY = re.compile(r"requires (?P<needs>.*?)(?: '\w+')?, but (?P<given>\d+|no) ")
_CONVERSION = re.compile(
    r"no known conversion from '(?P<given>[^']+)' to '(?P<wanted>[^']+)' for (?P<place>\d+)\w\w argument"
)
_CONFLICT = re.compile(r"deduced conflicting types for parameter '\w+' \('([^']+)' vs\. '([^']+)'\)")
_VIABLE = re.compile(r"^no viable conversion from '([a-z]+)([234])' to '([a-z]+)([234])'$")
_SETTER = re.compile(r"^no setter defined for property '(\w+)'$")
_USES_METAL = re.compile(r"\busing\s+namespace\s+metal\b")
_FUNCTION = re.compile(r"\b([a-z]\w*)\(")
_TYPE = re.compile(r"\b(?:struct|class|enum|enum class|using|concept) ([a-z]\w*)")
_CLOSE_ENOUGH = 0.8
_KNOWN: Mapping[str, str] = {
    "std": "the C++ standard library does not exist in Metal; its counterparts are in namespace metal",
    "printf": "write to the log with os_log_default.log(…)",
}


def with_hint(sentence: str, notes: Sequence[str], text: str) -> str:
    """Return a message with what to do about it.

    ``notes`` are clang's notes on it, in Metal's names; ``text`` is the whole program.
    """
    hint = _hint(sentence, notes, text)
    return f"{sentence}: {hint}" if hint else sentence


def _hint(sentence: str, notes: Sequence[str], text: str) -> str:
    if match := _NO_MATCH.match(sentence):
        return _why_no_match(match.group(1), notes)
    if match := _UNKNOWN.search(sentence):
        return _about_name(match.group(1), text)
    if match := _SETTER.match(sentence):
        return f"a component that {match.group(1)!r} names twice cannot be written"
    if (match := _VIABLE.match(sentence)) is not None:
        given, lanes, wanted, wanted_lanes = match.groups()
        if lanes == wanted_lanes:
            return f"Metal converts vectors only where it is asked to, as in {wanted}{lanes}(v)"
        return f"a {given}{lanes} has {lanes} components, a {wanted}{wanted_lanes} has {wanted_lanes}"
    return ""


def _why_no_match(name: str, notes: Sequence[str]) -> str:
    candidates = [note for note in notes if note.startswith("candidate")]
    arities = [match for note in candidates if (match := _ARITY.search(note))]
    if candidates and len(arities) == len(candidates):
        needs = sorted({match["needs"].replace("single argument", "1 argument") for match in arities})
        return f"it takes {' or '.join(needs)}, got {arities[0]['given'].replace('no', '0')}"
    for note in candidates:
        if match := _CONFLICT.search(note):
            return f"the arguments must have one type, got {match.group(1)!r} and {match.group(2)!r}"
    conversions = [match for note in candidates if (match := _CONVERSION.search(note))]
    if len(candidates) == 1 and conversions:
        found = conversions[0]
        return f"argument {found['place']} must be {found['wanted']!r}, got {found['given']!r}"
    if candidates:
        return f"no {name!r} takes arguments of these types; convert them to types that it takes"
    return ""


def _about_name(name: str, text: str) -> str:
    if name in _KNOWN:
        return _KNOWN[name]
    words = _library_words()
    if name in words:
        # where the namespace is open, the name is not unknown for want of it
        qualified = f"it is in namespace metal: write 'metal::{name}', or 'using namespace metal;' first"
        return "" if _USES_METAL.search(text) else qualified
    if name.endswith("f") and name[:-1] in words:
        return f"Metal has {name[:-1]!r} for every type"
    own = {word for word in _WORD.findall(text) if word[:2] != "__"} - {name}
    close = difflib.get_close_matches(name, sorted(words | own), 1, _CLOSE_ENOUGH)
    return f"did you mean {close[0]!r}?" if close else ""


@functools.cache
def _library_words() -> frozenset[str]:
    """Return the names of functions and types in the library's headers."""
    found: set[str] = set(PLAIN_TYPES)
    for path in _INCLUDE.glob("metal_*"):
        text = re.sub(r"//[^\n]*", "", path.read_text("utf-8"))
        found.update(_FUNCTION.findall(text), _TYPE.findall(text))
    return frozenset(word for word in found if len(word) > 2 and "__" not in word)
