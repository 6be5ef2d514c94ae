"""Lowers the Metal dialect to plain C++, token by token, on text that is already preprocessed.

Address spaces are erased (``constant`` becomes ``const``), attributes are recorded and removed, and variables in the
``threadgroup`` address space become references to memory that the engine lays out. No line moves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from metalwright.msl import constants, overloads, rules, space_words, swizzles
from metalwright.msl.attributes import (
    NUMBERED,
    OTHER_ATTRIBUTES,
    STANDARD_ATTRIBUTES,
    TEXTURE_TYPES,
    THREAD_ATTRIBUTES,
)
from metalwright.msl.edits import Edits
from metalwright.msl.grammar import TokenText
from metalwright.msl.refused import NOT_IN_METAL, REFUSED, UNSUPPORTED
from metalwright.msl.tokens import Token, tokenize

_ADDRESS_SPACES = frozenset({"device", "constant", "thread", "threadgroup"})
_BUFFER_SPACES = frozenset({"device", "constant"})
_QUALIFIERS = frozenset({"const", "constexpr", "static", "volatile", "inline"})
# attributes of GNU form that change what a type is; all others go
_KEPT_GNU = frozenset({"aligned", "packed"})
_DEDUCING = frozenset({"auto", "template", "decltype", "?"})
_BETWEEN_TOKENS = frozenset({"space", "newline", "comment", "directive"})
_BEFORE_A_STATEMENT = frozenset(["", ";", "{", "}", ")", ":", "static", "else"])
_FLOATING = re.compile(
    r"(?P<value>(?:0[xX][\da-fA-F']*\.?[\da-fA-F']*[pP][+-]?\d+|(?:\d[\d']*)?\.[\d']+(?:[eE][+-]?\d+)?"
    r"|\d[\d']*\.?(?:[eE][+-]?\d+)|\d[\d']*\.|\d[\d']*(?=[hH]$|bf$|BF$)))(?P<suffix>|[fF]|[hH]|bf|BF)$"
)
_LONG_DOUBLE = re.compile(
    r"(0[xX][\da-fA-F'.]+[pP][+-]?\d+|\d[\d']*[eE][+-]?\d+|[\d']*\.[\d']*(?:[eE][+-]?\d+)?)[lL]$"
)
_STRING = re.compile(r'"([^"]*)"')
# the headers of some libraries ask for what Metal keeps for its own: derived classes, for one
_INTERNALS = re.compile(r"^\s*#\s*pragma\s+METAL\s+internals\s*:\s*enable\b", re.MULTILINE)
# of the compiler's builtin functions, those that only compute: numbers in, a number out
_KEPT_BUILTINS = frozenset(
    "__builtin_expect __builtin_assume __builtin_unreachable __builtin_clz __builtin_ctz __builtin_popcount".split()
)


@dataclass(frozen=True)
class KernelParameter:
    """A parameter as written: its name, address space (or ``""``) and attribute (``("buffer", "0")`` …).

    ``condition`` is the constant of ``[[function_constant(condition)]]``: where it is false, there is no such buffer.
    ``offset`` is where the attribute's value stands, or the parameter's name where it has none.
    """

    name: str
    address_space: str
    attribute: tuple[str, str]
    offset: int
    condition: str
    condition_offset: int


@dataclass(frozen=True)
class _TemplateParameter:
    name: str
    default: str  # or ""
    is_type: bool


@dataclass(frozen=True)
class KernelDeclaration:
    """A kernel that can be launched: its host name, the C++ expression of the function, its parameters.

    ``namespace`` is where the kernel is written, or ``""``: what its attributes name is looked for there first.
    """

    host_name: str
    expression: str
    namespace: str
    parameters: tuple[KernelParameter, ...]
    max_threads: int | None


@dataclass(frozen=True)
class Lowered:
    """Plain C++ with the kernels found in it, or what is wrong with the MSL."""

    text: str
    uninstantiated: str  # the text without the explicit instantiations of kernels
    kernels: tuple[KernelDeclaration, ...]
    threadgroup_variables: tuple[tuple[str, int], ...]  # name and offset; the index is the engine's id
    unset_constants: tuple[str, ...]  # function constants that the source relies on and nobody gave a value
    errors: tuple[tuple[int, str, bool], ...]  # offset, sentence, whether the source is refused
    # where the source takes pointers into several address spaces: what has to be known to check them all
    places: space_words.Places | None
    edits: tuple[Edits, Edits]  # that made the text, and the one without instantiations


def _text(literals: str) -> str:
    """Return what string literals that stand side by side say together."""
    return "".join(_STRING.findall(literals))


class _Lowering:
    def __init__(
        self,
        text: str,
        given: Mapping[str | int, constants.Value],
        places: space_words.Places | None = None,
    ) -> None:
        self.text = text
        self.given = given
        # with places, the words for address spaces stay: the text is for metalwright/spaces.h
        self.places = places
        self.spaces: set[str] = set()  # those that the source names
        self.arrays: set[str] = set()  # those that it names for more than references
        self.points = False  # whether it has a pointer or a reference besides the kernels' parameters
        self.kernel_bodies: set[int] = set()  # offsets of the braces that open them
        self.constants: dict[str, bool] = {}  # each function constant, and whether it has a value
        self.constant_names: dict[str, str] = {}  # how C++ names them from outside their namespaces
        self.asked: set[str] = set()  # those that is_function_constant_defined looks at
        self.source = TokenText(tokenize(text, without=_BETWEEN_TOKENS))
        self.edits = Edits()
        self.errors: list[tuple[int, str, bool]] = []
        self.kernels: list[KernelDeclaration] = []
        # for each kernel that is a template, its parameters and those of the template with their default values
        # kernels that are templates: their parameters, those of the template, and their namespace
        self.templates: dict[
            str, tuple[tuple[KernelParameter, ...], tuple[_TemplateParameter, ...], str]
        ] = {}
        self.scopes: list[str] = []  # for each open brace, the namespace that it belongs to, or ""
        self.variables: list[tuple[str, int]] = []
        self.instantiations: list[tuple[int, int]] = []  # offsets of those that make kernels
        # the rules of Metal hold for the source as it is written
        self.written = self.source
        if places is None:
            self.drop_overloads()
        else:
            places.mark(self.edits)
        for start, end, new in swizzles.edits(self.tokens, self.source.brackets):
            self.edits.replace(start, end, new)

    # -- small steps over tokens ------------------------------------------------------------------------------

    @property
    def tokens(self) -> Sequence[Token]:
        return self.source.tokens

    def word(self, index: int) -> str:
        return self.source.text(index)

    def is_word(self, index: int) -> bool:
        return self.source.is_word(index)

    def is_attribute(self, index: int) -> bool:
        return self.word(index) == "[" and self.word(index + 1) == "["

    def end(self, index: int) -> int:
        token = self.tokens[index]
        return token.offset + len(token.text)

    def blank(self, first: int, last: int) -> None:
        self.edits.blank(self.text, self.tokens[first].offset, self.end(last))

    def error(self, index: int, sentence: str, *, refused: bool = False) -> None:
        index = min(index, len(self.tokens) - 1)
        self.errors.append((self.tokens[index].offset, sentence, refused))

    def closing(self, index: int) -> int:
        """Return the index of the bracket that closes the one at ``index`` (the last token if none does)."""
        return min(self.source.closing(index), len(self.tokens) - 1)

    def drop_overloads(self) -> None:
        """Leave out the functions that are duplicates once address spaces are erased."""
        found = overloads.find(self.tokens, self.source.brackets)
        for brace in set(found.made_in_threadgroup):
            end = self.end(brace)
            self.edits.replace(end, end, " using __mw_made_in_threadgroup = void;")
        for index, name in found.differing:
            self.error(
                index,
                f"overloads of {name!r} that differ in address spaces alone and have different bodies are not "
                "supported: every address space is the same memory here",
            )
        gone: set[int] = set()
        for first, last in found.dropped:
            self.blank(first, last)
            gone.update(range(first, last + 1))
        for index in set(found.erased) - gone:
            self.blank(index, index)
            gone.add(index)
        if gone:
            self.source = TokenText([token for index, token in enumerate(self.tokens) if index not in gone])

    # -- the walk ---------------------------------------------------------------------------------------------

    def run(self) -> Lowered:
        index = 0
        while index < len(self.tokens):
            index = self.step(index)
        places = self.check_rules() if self.places is None else None
        unset = tuple(
            name for name, is_set in self.constants.items() if not is_set and name not in self.asked
        )
        outline = self.edits.without(self.text, self.instantiations)
        return Lowered(
            self.edits.apply(self.text),
            outline.apply(self.text),
            tuple(self.kernels),
            tuple(self.variables),
            unset,
            tuple(sorted(self.errors)),
            places if self.mixes_spaces() else None,
            (self.edits, outline),
        )

    def mixes_spaces(self) -> bool:
        """Whether pointers into different address spaces may meet where only the compiler sees it."""
        if self.points:
            return bool(self.spaces - {"thread"})
        # without a pointer that is written down, its type has to come from another one
        deduced = any(token.text in _DEDUCING for token in self.tokens)
        return deduced and len(self.arrays - {"thread"}) > 1

    def check_rules(self) -> space_words.Places:
        internals = _INTERNALS.search(self.text) is not None
        tokens = self.written.tokens
        bodies = frozenset(i for i, token in enumerate(tokens) if token.offset in self.kernel_bodies)
        checked = rules.check(self.written, bodies, internals)
        for index, sentence in checked.mistakes:
            self.errors.append((tokens[min(index, len(tokens) - 1)].offset, sentence, False))
        return space_words.places(self.written, checked.thread_objects, checked.casts)

    def step(self, index: int) -> int:
        token = self.tokens[index]
        if self.is_attribute(index):
            return self.attribute_list(index)
        if token.text == "{":
            self.scopes.append(self.namespace_before(index))
        elif token.text == "}" and self.scopes:
            self.scopes.pop()
        if token.text == "<=>":
            self.error(index, "'<=>' does not exist in Metal: it is C++17")
        if token.kind == "number":
            self.literal(index)
        if token.kind != "word":
            return index + 1
        if token.text == "template" and self.word(index + 1) != "<":
            return self.instantiation(index)
        if token.text == "kernel" and self.starts_declaration(index):
            self.inline(index)
            return self.kernel(index + 1, {})
        if token.text in _ADDRESS_SPACES:
            return self.address_space(index)
        if token.text in ("__attribute__", "__attribute"):
            return self.gnu_attribute(index)
        if token.text == "is_function_constant_defined" and self.word(index + 1) == "(":
            return self.constant_question(index)
        self.check_word(index)
        return index + 1

    def namespace_before(self, brace: int) -> str:
        names: list[str] = []
        i = brace - 1
        while i >= 0 and (self.is_word(i) or self.word(i) == "::"):
            if self.word(i) == "namespace":
                return "".join(reversed(names))
            names.append(self.word(i))
            i -= 1
        return ""

    def starts_declaration(self, index: int) -> bool:
        return self.word(index - 1) in ("", ";", "}", "{", ">", "]", "template", "static", "inline", ")")

    def check_word(self, index: int) -> None:
        text = self.word(index)
        if self.word(index - 1) in (".", "->"):
            return
        if text in REFUSED:
            self.error(index, REFUSED[text], refused=True)
        elif text == "extern" and index + 1 < len(self.tokens) and self.tokens[index + 1].kind == "string":
            self.error(
                index, 'extern "C" is refused: a kernel has no functions outside its source', refused=True
            )
        elif text.startswith(("__mw", "__MW")):
            self.error(
                index, f"{text!r} is refused: names that begin with __mw are Metalwright's own", refused=True
            )
        elif text.startswith("__builtin_") and text not in _KEPT_BUILTINS:
            self.error(
                index,
                f"{text!r} is refused: the compiler's builtin functions are not part of Metal",
                refused=True,
            )
        elif text in ("__declspec", "_Pragma", "__pragma"):
            self.error(index, f"{text!r} is refused: it is not part of Metal", refused=True)
        elif text in NOT_IN_METAL and not (text == "delete" and self.word(index - 1) == "="):
            self.error(index, NOT_IN_METAL[text])
        elif text == "long" and self.word(index + 1) == "long":
            unsigned = self.word(index - 1) == "unsigned"
            self.error(index - unsigned, "'long long' does not exist in Metal: use long, which has 64 bits")
        elif text in ("vertex", "fragment") and self.starts_declaration(index) and self.is_word(index + 1):
            self.error(index, UNSUPPORTED[text])

    def literal(self, index: int) -> None:
        """A floating literal without a suffix is a float in Metal; ``h`` and ``bf`` make a half and a bfloat."""
        match = _FLOATING.match(self.word(index))
        if match is None:
            if (long_double := _LONG_DOUBLE.match(self.word(index))) is not None:
                self.error(index, f"'long double' does not exist in Metal: write {long_double.group(1)}")
            return
        suffix = match["suffix"].lower()
        if suffix == "":
            self.edits.replace(self.end(index), self.end(index), "f")
        elif suffix in ("h", "bf"):
            kind = "half" if suffix == "h" else "bfloat"
            self.edits.replace(self.tokens[index].offset, self.end(index), f"{kind}({match['value']})")

    # -- attributes -------------------------------------------------------------------------------------------

    def parse_attributes(self, index: int) -> tuple[int, dict[str, str]]:
        """Read ``[[a, b(c)]]`` at ``index``; return the index of its last bracket and the attributes."""
        last = self.closing(index)
        found: dict[str, str] = {}
        i = index + 2
        while i < last - 1:
            if not self.is_word(i):
                i += 1
                continue
            name = self.word(i)
            while self.word(i + 1) == "::":
                name += "::" + self.word(i + 2)
                i += 2
            value = ""
            if self.word(i + 1) == "(":
                close = self.closing(i + 1)
                value = self.text[self.end(i + 1) : self.tokens[close].offset].strip()
                i = close
            found[name] = value
            i += 1
        return last, found

    def attribute_list(self, index: int) -> int:
        """Attributes that stand before a declaration or a statement: one list, or several in a row."""
        lists: list[tuple[int, int, dict[str, str]]] = []
        following = index
        while self.is_attribute(following):
            last, found = self.parse_attributes(following)
            lists.append((following, last, found))
            following = last + 1
        attributes: dict[str, str] = {}
        for first, last, found in lists:
            attributes |= found
            self.check_attributes(first, found)
            if "function_constant" in found:
                self.function_constant(first, last, found["function_constant"])
        if "function_constant" in attributes:
            return following
        kernel = self.word(following) == "kernel" and attributes.keys() & OTHER_ATTRIBUTES
        if kernel or "kernel" in attributes:
            for first, last, _ in lists:
                self.blank(first, last)
            if self.word(following) == "kernel":
                self.inline(following)
                following += 1
            return self.kernel(following, attributes)
        for first, last, found in lists:
            if not set(found) <= STANDARD_ATTRIBUTES:
                self.blank(first, last)
        return following

    def check_attributes(self, index: int, found: dict[str, str]) -> None:
        for stage in ("vertex", "fragment", "mesh", "object", "visible", "stitchable", "intersection"):
            if stage in found:
                self.error(
                    index,
                    UNSUPPORTED.get(stage, f"[[{stage}]] is not supported: Metalwright runs compute kernels"),
                )

    def function_constant(self, first: int, last: int, number: str) -> None:
        """``constant T name [[function_constant(n)]];``: it gets the value that it was given, by name or number."""
        name = self.word(first - 1)
        opening = first - 1
        while opening > 0 and self.word(opening) != "constant":
            opening -= 1
        kind = "".join(self.word(i) for i in range(opening + 1, first - 1) if self.word(i) not in _QUALIFIERS)
        if not self.is_word(first - 1) or self.scopes_are_functions() or not kind:
            self.error(
                first, "[[function_constant(n)]] belongs to a declaration 'constant T name' outside functions"
            )
            return
        if self.word(last + 1) in ("=", "{"):
            self.error(
                last + 1,
                f"function constant {name!r} cannot have an initial value: who runs a kernel gives it one",
            )
        key = name if name in self.given else int(number) if number.isdigit() else number
        self.constants[name] = key in self.given
        self.constant_names[name] = self.qualified(name)
        self.blank(first, last)
        initial = "{}"
        if key in self.given:
            try:
                initial = constants.initializer(kind, self.given[key])
            except ValueError as error:
                self.error(first - 1, f"function constant {name!r}: {error}")
        end = self.end(first - 1)
        self.edits.replace(end, end, f" = {initial}")

    def scopes_are_functions(self) -> bool:
        return any(not scope for scope in self.scopes)

    def constant_question(self, index: int) -> int:
        """``is_function_constant_defined(name)`` is known now."""
        last = self.closing(index + 1)
        name = self.word(index + 2)
        if name not in self.constants:
            self.error(index + 2, f"{name!r} is no function constant that is declared above")
            return last + 1
        self.asked.add(name)
        start = self.tokens[index].offset
        self.blank(index, last)
        self.edits.replace(start, start, "true" if self.constants[name] else "false")
        return last + 1

    def gnu_attribute(self, index: int) -> int:
        if self.word(index + 1) != "(":
            return index + 1
        last = self.closing(index + 1)
        names = {self.word(i) for i in range(index + 2, last) if self.is_word(i)}
        if not names & _KEPT_GNU:
            self.blank(index, last)
        return last + 1

    # -- kernels ----------------------------------------------------------------------------------------------

    def kernel(self, index: int, attributes: dict[str, str]) -> int:
        """A kernel's definition or declaration; ``index`` is where its return type begins."""
        opening = index
        while opening < len(self.tokens) and self.word(opening) not in ("(", ";", "{"):
            if self.is_attribute(opening):
                last, more = self.parse_attributes(opening)
                attributes = attributes | more
                self.blank(opening, last)
                opening = last
            opening += 1
        name = self.word(opening - 1)
        if self.word(opening) != "(" or not self.is_word(opening - 1):
            return index
        if self.scopes_are_functions():
            self.error(opening - 1, f"kernel {name!r} must stand outside functions and structs")
        if "void" not in [self.word(i) for i in range(index, opening - 1)]:
            self.error(opening - 1, f"kernel {name!r} must return void")
        closing = self.closing(opening)
        after = closing + 1
        while self.is_attribute(after):
            last, more = self.parse_attributes(after)
            attributes = attributes | more
            self.blank(after, last)
            after = last + 1
        if self.word(after) == "{":
            self.kernel_bodies.add(self.tokens[after].offset)
        # a declaration may leave the attributes to the definition that follows
        parameters = self.parameters(opening, closing, attributed=self.word(after) == "{")
        self.lower_inside(opening + 1, closing)
        if parameters is None:
            return after
        if self.word(index - 1) == ">" or self.is_template(index):
            self.templates[name] = parameters, self.template_parameters(index), self.namespace()
        elif self.word(after) == "{":
            self.add_kernel(
                opening - 1,
                _text(attributes.get("host_name", "")) or name,
                self.qualified(name),
                self.namespace(),
                parameters,
                attributes,
            )
        return after

    def inline(self, index: int) -> None:
        """The word ``kernel``: no code is made for the function but where it is called."""
        self.edits.replace(self.tokens[index].offset, self.end(index), "inline")

    def is_template(self, index: int) -> bool:
        """Whether a declaration's return type at ``index`` follows ``template <…>`` and attributes."""
        i = index - 1
        while i >= 0 and self.word(i) in ("kernel", "]", "static", "inline"):
            if self.word(i) == "]":
                while i >= 0 and not self.is_attribute(i):
                    i -= 1
            i -= 1
        return self.word(i) == ">"

    def template_parameters(self, index: int) -> tuple[_TemplateParameter, ...]:
        """Return the template parameters before a kernel's return type."""
        close = index - 1
        while close > 0 and self.word(close) != ">":
            close -= 1
        opened = (i for i in range(close, -1, -1) if self.word(i) == "<" and self.word(i - 1) == "template")
        opening = next(opened, close)
        found: list[_TemplateParameter] = []
        for first, last in self.source.split(opening + 1, close):
            value = next((i for i in range(first, last) if self.word(i) == "="), last)
            default = self.text[self.end(value) : self.end(last - 1)] if value < last else ""
            is_type = self.word(first) in ("typename", "class", "template")
            found.append(_TemplateParameter(self.word(value - 1), default.strip(), is_type))
        return tuple(found)

    def instantiated(self, name: str, angle: int, close: int) -> tuple[KernelParameter, ...] | None:
        """Return the parameters of a kernel with its template arguments in the values of their attributes."""
        if name not in self.templates:
            return None
        parameters, names, _ = self.templates[name]
        given = [
            self.text[self.tokens[first].offset : self.end(last - 1)]
            for first, last in self.source.split(angle + 1, close)
        ]
        values: dict[str, str] = {}

        def filled(written: str) -> str:
            return "".join(values.get(token.text, token.text) for token in tokenize(written))

        for position, one in enumerate(names):
            argument = given[position] if position < len(given) else filled(one.default)
            if argument:
                values[one.name] = argument if one.is_type else f"({argument})"
        return tuple(
            replace(one, attribute=(one.attribute[0], filled(one.attribute[1]))) for one in parameters
        )

    def instantiation(self, index: int) -> int:
        """``template [[host_name("x")]] [[kernel]] void f<float>(…);`` or ``… decltype(f<float>) f<float>;``"""
        attributes: dict[str, str] = {}
        i = index + 1
        while self.is_attribute(i) or self.word(i) == "kernel":
            last = i
            if self.is_attribute(i):
                last, more = self.parse_attributes(i)
                attributes |= more
            else:
                attributes["kernel"] = ""
            self.blank(i, last)
            i = last + 1
        if "kernel" not in attributes and "host_name" not in attributes:
            return i
        stop = i
        while stop < len(self.tokens) and self.word(stop) != ";":
            stop = self.closing(stop) + 1 if self.word(stop) in ("(", "{") else stop + 1
        first = i + 1  # the return type is one word, or decltype(…)
        if self.word(i) == "decltype":
            first = self.closing(i + 1) + 1
        angle = first
        while angle < stop and self.word(angle) != "<":
            angle += 1
        close = self.source.closing_angle(angle)
        if close < 0:
            return i
        name = self.word(angle - 1)
        expression = self.text[self.tokens[first].offset : self.end(close)]
        parameters = self.instantiated(name, angle, close)
        if self.word(close + 1) == "(":
            closing = self.closing(close + 1)
            if parameters is None:
                parameters = self.parameters(close + 1, closing)
            self.lower_inside(close + 2, closing)
        if parameters is not None:
            namespace = self.templates[name][2] if name in self.templates else self.namespace()
            self.instantiations.append(
                (self.tokens[index].offset, self.tokens[min(stop, len(self.tokens) - 1)].offset)
            )
            self.add_kernel(
                angle - 1,
                _text(attributes.get("host_name", "")) or name,
                self.qualified(expression),
                namespace,
                parameters,
                attributes,
            )
        return stop

    def add_kernel(
        self,
        index: int,
        host_name: str,
        expression: str,
        namespace: str,
        parameters: tuple[KernelParameter, ...],
        attributes: dict[str, str],
    ) -> None:
        limit = attributes.get("max_total_threads_per_threadgroup", "")
        most = int(limit) if limit.isdigit() else None
        if any(kernel.host_name == host_name for kernel in self.kernels):
            self.error(
                index,
                f"there are two kernels called {host_name!r}: give this one another name, or a [[host_name]]",
            )
        self.kernels.append(KernelDeclaration(host_name, expression, namespace, parameters, most))

    def qualified(self, expression: str) -> str:
        """Return the expression from outside: a kernel ``min`` is the user's where namespace ``metal`` is open too."""
        written = " ".join(expression.split())
        if written.startswith("::"):
            return written
        namespace = self.namespace()
        return f"::{namespace}::{written}" if namespace else f"::{written}"

    def namespace(self) -> str:
        return "::".join(scope for scope in self.scopes if scope)

    def parameters(
        self, opening: int, closing: int, *, attributed: bool = True
    ) -> tuple[KernelParameter, ...] | None:
        """Return a kernel's parameters; None where one has no attribute, and need not be ``attributed``."""
        found: list[KernelParameter] = []
        pieces = self.source.split(opening + 1, closing)
        taken: dict[str, set[int]] = {name: set() for name in NUMBERED}
        for first, last in pieces:
            for name, value in self.attributes_in(first, last).items():
                if name in NUMBERED and value.isdigit():
                    taken[name].add(int(value))
        for first, last in pieces:
            attributes = self.attributes_in(first, last)
            named = next((i for i in range(first, last) if self.is_attribute(i)), last) - 1
            spaces = [self.word(i) for i in range(first, last) if self.word(i) in _ADDRESS_SPACES]
            space = spaces[0] if spaces else ""
            texture = not space and any(self.word(i) in TEXTURE_TYPES for i in range(first, named))
            if not (attributes or space in _BUFFER_SPACES or texture or attributed):
                return None
            attribute = self.parameter_attribute(named, "texture" if texture else space, attributes, taken)
            if attribute is not None:
                condition = attributes.get("function_constant", "")
                condition = self.constant_names.get(condition, condition)
                offset = self.tokens[named].offset
                found.append(
                    KernelParameter(
                        self.word(named),
                        space,
                        attribute,
                        self.value_offset(first, last, attribute[0]) or offset,
                        condition,
                        self.value_offset(first, last, "function_constant") or offset,
                    )
                )
        return tuple(found)

    def value_offset(self, first: int, last: int, attribute: str) -> int:
        """Return where the value of a parameter's attribute stands, or 0."""
        for i in range(first, last - 2):
            if self.word(i) == attribute and self.word(i - 1) in ("[", ",") and self.word(i + 1) == "(":
                return self.tokens[i + 2].offset
        return 0

    def parameter_attribute(
        self, index: int, space: str, attributes: dict[str, str], taken: dict[str, set[int]]
    ) -> tuple[str, str] | None:
        for name, value in attributes.items():
            if name in NUMBERED and not value:
                self.error(
                    index, f"[[{name}]] of parameter {self.word(index)!r} needs a number: [[{name}(0)]]"
                )
                return None
            if name in NUMBERED:
                return name, value
            if name in THREAD_ATTRIBUTES:
                return name, ""
            if name == "function_constant":
                continue
            if name in ("sampler", "stage_in", "payload"):
                self.error(
                    index, f"[[{name}]] is not supported: Metalwright does not run such parameters yet"
                )
                return None
            if name not in STANDARD_ATTRIBUTES:
                known = ", ".join(["buffer(n)", "threadgroup(n)", "texture(n)", *sorted(THREAD_ATTRIBUTES)])
                self.error(
                    index,
                    f"unknown attribute [[{name}]] on parameter {self.word(index)!r}; known are: {known}",
                )
                return None
        if space in _BUFFER_SPACES or space == "texture":
            # Metal numbers the buffers and the textures that have no attribute, in order
            kind = "texture" if space == "texture" else "buffer"
            number = next(i for i in range(len(taken[kind]) + 1) if i not in taken[kind])
            taken[kind].add(number)
            return kind, str(number)
        self.error(
            index, f"parameter {self.word(index)!r} of a kernel needs an attribute such as [[buffer(0)]]"
        )
        return None

    def attributes_in(self, first: int, last: int) -> dict[str, str]:
        found: dict[str, str] = {}
        i = first
        while i < last:
            if self.is_attribute(i):
                i, more = self.parse_attributes(i)
                found |= more
            i += 1
        return found

    def lower_inside(self, first: int, last: int) -> None:
        """Lower the parameters of a kernel: their attributes are already read."""
        i = first
        while i < last:
            if self.is_attribute(i):
                end, found = self.parse_attributes(i)
                if not set(found) <= STANDARD_ATTRIBUTES:
                    self.blank(i, end)
                i = end + 1
            elif self.word(i) in _ADDRESS_SPACES:
                self.erase(i)
                i += 1
            else:
                self.check_word(i)
                i += 1

    # -- address spaces ---------------------------------------------------------------------------------------

    def erase(self, index: int) -> None:
        token = self.tokens[index]
        self.spaces.add(token.text)
        if not space_words.refers(self.source, index):
            self.arrays.add(token.text)
        if self.places is not None and space_words.belongs_to_a_type(self.source, index):
            if token.text == "constant":
                self.edits.replace(token.offset, token.offset, "const ")
        elif token.text == "constant":
            self.edits.replace(token.offset, self.end(index), "const   ")
        else:
            self.blank(index, index)

    def address_space(self, index: int) -> int:
        if self.word(index) == "threadgroup" and self.word(index - 1) in _BEFORE_A_STATEMENT:
            after = self.threadgroup_variables(index)
            if after is not None:
                self.spaces.add("threadgroup")
                self.arrays.add("threadgroup")
                return after
        self.erase(index)
        self.points = self.points or space_words.points(self.source, index)
        return index + 1

    def threadgroup_variables(self, index: int) -> int | None:
        """``threadgroup T a[N], b;``: each becomes a reference to the engine's memory. None where this is not one."""
        first = index + 1
        i = first
        while self.word(i) in ("const", "volatile", "struct", "class", "typename"):
            i += 1
        while self.is_word(i) or self.word(i) == "::":
            if self.word(i + 1) == "<":
                close = self.source.closing_angle(i + 1)
                if close < 0:
                    return None
                i = close
            # the type ends where a word is followed by a name
            if (
                self.word(i) != "::"
                and self.word(i + 1) != "::"
                and (self.is_word(i + 1) and not self.continues_type(i))
            ):
                i += 1
                break
            i += 1
        if not self.is_word(i):
            return None
        if i == first:
            return None
        if not self.scopes_are_functions():
            self.error(index, "a threadgroup variable can only stand in a kernel's body")
        for word in range(first, i):
            self.check_word(word)
        type_text = " ".join(self.text[self.tokens[first].offset : self.tokens[i].offset].split())
        if self.places is None:
            self.blank(index, index)
        while True:
            if not self.is_word(i):
                return None
            name = i
            dimensions = i + 1
            while self.word(dimensions) == "[":
                dimensions = self.closing(dimensions) + 1
            shape = self.text[self.end(name) : self.end(dimensions - 1)] if dimensions > name + 1 else ""
            if self.word(dimensions) in ("=", "{", "("):
                self.error(
                    name, f"threadgroup variable {self.word(name)!r} cannot have an initial value in Metal"
                )
                return dimensions
            reference = f"(&{self.word(name)}){shape}" if shape else f"&{self.word(name)}"
            memory = "threadgroup_variable" if self.places is None else "spaces::threadgroup_variable"
            new = f"{reference} = __mw::{memory}<{type_text}{shape}>({len(self.variables)})"
            self.variables.append((self.word(name), self.tokens[name].offset))
            start, end = self.tokens[name].offset, self.end(dimensions - 1)
            self.edits.replace(
                start, end, " ".join(new.split("\n")) + "\n" * self.text.count("\n", start, end)
            )
            if self.word(dimensions) != ",":
                return dimensions
            i = dimensions + 1

    def continues_type(self, index: int) -> bool:
        return self.word(index) in ("unsigned", "signed", "const", "volatile") or self.word(index + 1) in (
            "const",
            "volatile",
        )


def lower(text: str, given: Mapping[str | int, constants.Value] | None = None) -> Lowered:
    """Return preprocessed MSL as C++ for clang, with the kernels that it declares.

    ``given`` holds values of function constants, by name or by number.
    """
    return _Lowering(text, given or {}).run()


def lower_with_spaces(
    text: str, given: Mapping[str | int, constants.Value] | None, places: space_words.Places
) -> Lowered:
    """Return the same text with its address spaces left in it, for ``metalwright/spaces.h``."""
    return _Lowering(text, given or {}, places).run()
