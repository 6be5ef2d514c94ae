"""Last look at the IR: a kernel may call the engine and nothing else outside itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

from metalwright.engine.passes.sites import DebugLocations
from metalwright.errors import CompileError, Diagnostic, RefusedSourceError, Site, UnsupportedFeatureError
from metalwright.msl.symbols import plain_name

_DECLARED = re.compile(r'^declare\b.*?@([-\w.$]+|"[^"]*")\(', re.MULTILINE)
_DEFINED = re.compile(r'^define\b.*?@([-\w.$]+|"[^"]*")\(', re.MULTILINE)
_VARIABLE = re.compile(r'^@([-\w.$]+|"[^"]*") = (?:[\w()]+ )*?(global|constant)\b', re.MULTILINE)
_CONSTANT = re.compile(r"^@([-\w.$]+) = [^\n]*?\b(?:global|constant) ([^\n]*@[^\n]*)$", re.MULTILINE)
_EXTERNAL = re.compile(r'^@([-\w.$]+|"[^"]*") = (?:[\w()]+ )*?(?:external|extern_weak)\b', re.MULTILINE)
_ASSEMBLY = re.compile(r"^module asm\b|^[^;\n]*\bcall\b[^\n\"]*\basm\b", re.MULTILINE)
# a call whose callee is a value, or a number, instead of a function's name
_INDIRECT_CALL = re.compile(
    r"^.*\bcall\b[^@\n]*(?:%[-\w.]+|\bnull|\bundef|\bpoison|\bto ptr\))\(.*$", re.MULTILINE
)
_SIZED_AT_RUN_TIME = re.compile(r"^.* = alloca [^\n]*, i(?:32|64) %.*$", re.MULTILINE)
_DEBUG = re.compile(r"!dbg !(\d+)")
_REFERENCE = re.compile(r"@([-\w.$]+)")
# what C++ asks of an object that lives as long as the program, when it has a destructor
_AT_EXIT = "__cxa_atexit"
# functions of a GPU's runtime that the engine has; the front-end keeps user code from declaring such names
_ENGINE = "__mw_"


def verify(label: str, ir: str, entries: tuple[str, ...], user: Mapping[str, str]) -> None:
    """Raise where the program needs what a kernel cannot have.

    Raises:
        RefusedSourceError: a function outside the program is called.
        UnsupportedFeatureError: pointers to functions, arrays sized at run time.
        CompileError: a program-scope variable that can be written, or that needs code to start.
    """
    for name in _DECLARED.findall(ir):
        name = name.strip('"')
        if name == _AT_EXIT:
            sentence = "a program-scope variable needs code to end: its value must be a constant"
            raise _error(CompileError, label, sentence, name, user)
        if not name.startswith(("llvm.", _ENGINE)):
            sentence = (
                "function {!r} is declared but not defined: a kernel has no functions outside its source"
            )
            raise _error(RefusedSourceError, label, sentence, name, user)
    for name, kind in _VARIABLE.findall(ir):
        name = name.strip('"')
        if name.startswith("llvm.global"):
            sentence = "a program-scope variable needs code to start: its value must be a constant"
            raise _error(CompileError, label, sentence, name, user)
        if kind == "global":
            sentence = (
                "variable {!r} outlives a thread and can be written: it must be in the constant address space"
            )
            raise _error(CompileError, label, sentence, name, user)
    if _ASSEMBLY.search(ir):
        raise RefusedSourceError(label, (Diagnostic("error", "inline assembly is refused"),))
    if (outside := _EXTERNAL.search(ir)) is not None:
        sentence = "variable {!r} is declared but not defined: a kernel has no variables outside its source"
        raise _error(RefusedSourceError, label, sentence, outside.group(1).strip('"'), user)
    for name in calls_left(ir, entries):
        sentence = "function {!r} is used through a pointer: kernels cannot do that"
        raise _error(UnsupportedFeatureError, label, sentence, name, user)
    for entry in entries:
        body = _body(ir, entry)
        for pattern, sentence in (
            (_INDIRECT_CALL, "a function is called through a pointer: kernels cannot do that"),
            (
                _SIZED_AT_RUN_TIME,
                "the size of an array must be a constant: Metal has no arrays sized at run time",
            ),
        ):
            if match := pattern.search(body):
                site, excerpt = _place(match.group(), ir, user)
                raise UnsupportedFeatureError(label, (Diagnostic("error", sentence, site, excerpt),))


def calls_left(ir: str, entries: tuple[str, ...]) -> list[str]:
    """Return the functions of the program that the kernels still refer to, instead of having them inlined."""
    defined = {name.strip('"') for name in _DEFINED.findall(ir)}
    held = {
        name: [function for function in _REFERENCE.findall(value) if function in defined]
        for name, value in _CONSTANT.findall(ir)
    }
    found: list[str] = []
    for entry in entries:
        for name in _REFERENCE.findall(_body(ir, entry)):
            found += [name] if name in defined else held.get(name, [])
    return found


def _body(ir: str, entry: str) -> str:
    start = ir.index(f"@{entry}(")
    return ir[start : ir.index("\n}", start)].partition("\n")[2]


def _place(line: str, ir: str, user: Mapping[str, str]) -> tuple[Site | None, str | None]:
    """Return where an instruction comes from, as far as the IR tells."""
    debug = _DEBUG.search(line)
    site = DebugLocations(ir.splitlines(), user).resolve(debug.group(1)) if debug else None
    if site is None:
        return None, None
    return site, user[site.file].split("\n")[site.line - 1]


def _error(
    kind: type[CompileError], label: str, sentence: str, symbol: str, user: Mapping[str, str]
) -> CompileError:
    name = plain_name(symbol)
    site, excerpt = first_mention(name, user)
    return kind(label, (Diagnostic("error", sentence.format(name), site, excerpt),))


def first_mention(name: str, user: Mapping[str, str]) -> tuple[Site | None, str | None]:
    for file, text in user.items():
        for number, line in enumerate(text.split("\n"), 1):
            if match := re.search(rf"\b{re.escape(name)}\b", line):
                return Site(file, number, match.start() + 1), line
    return None, None
