"""Names of functions as they are written, from their linker symbols (the Itanium C++ ABI)."""

from __future__ import annotations

import re

_NAME = re.compile(r"L?(\d+)")
_QUALIFIERS = re.compile(r"N[rVKRO]*")
_SUBSTITUTION = re.compile(r"S[0-9A-Z]*_|S[a-z]")
_UNNAMED = re.compile(r"Ut\d*_")
# what types and template arguments are made of, as far as it takes to find the E that ends a list of them
_PIECE = re.compile(
    r"(?P<name>\d+)|(?P<whole>S[0-9A-Z]*_|T\d*_|Dv\d+_|DF16[_b]|DF\d+_|A\d*_|L[a-z]n?\d*E)"
    r"|(?P<opening>Ul|D[tT]|LZ|L_Z|[NIXJFZ])|(?P<closing>E)|(?P<other>.)"
)
_OPERATORS: dict[str, str] = {
    pair[:2]: pair[3:]
    for pair in "pl:+ mi:- ml:* dv:/ rm:% an:& or:| eo:^ ls:<< rs:>> eq:== ne:!= lt:< gt:> le:<= ge:>= nt:! co:~ "
    "aa:&& oo:|| pp:++ mm:-- ps:+ ng:- de:* ad:& pt:-> cm:, cl:() ix:[] aS:= pL:+= mI:-= mL:*= dV:/= rM:%= aN:&= "
    "oR:|= eO:^= lS:<<= rS:>>=".split()
}


def plain_name(symbol: str) -> str:
    """Return a function's own name, without the namespaces and structs that it is in."""
    if not symbol.startswith("_Z"):
        return symbol
    position = 2
    while symbol.startswith("Z", position):
        # it stands inside another function
        position = _behind_list(symbol, position + 1)
    return _entity(symbol, position) or symbol


def _behind_list(symbol: str, position: int) -> int:
    depth = 1
    while depth and (piece := _PIECE.match(symbol, position)) is not None:
        position = piece.end() + int(piece["name"] or 0)
        depth += (piece["opening"] is not None) - (piece["closing"] is not None)
    return position


def _entity(symbol: str, position: int) -> str:
    nested = _QUALIFIERS.match(symbol, position)
    position = nested.end() if nested else position
    name = ""
    while position < len(symbol) and symbol[position] != "E":
        if (match := _NAME.match(symbol, position)) is not None:
            position = match.end() + int(match[1])
            name = symbol[match.end() : position]
        elif symbol[position] == "I":
            position = _behind_list(symbol, position + 1)
        elif symbol.startswith("Ul", position):
            position = symbol.find("_", _behind_list(symbol, position + 2)) + 1
            name = "lambda"
        elif (match := _SUBSTITUTION.match(symbol, position) or _UNNAMED.match(symbol, position)) is not None:
            position = match.end()
        elif symbol[position] in "CD" and symbol[position + 1 : position + 2].isdigit():
            name = f"~{name}" if symbol[position] == "D" else name
            position += 2
        elif (sign := _OPERATORS.get(symbol[position : position + 2])) is not None:
            # a lambda is called by its operator()
            name = name if name == "lambda" else f"operator{sign}"
            position += 2
        else:
            break
        if not nested:
            break
    return name
