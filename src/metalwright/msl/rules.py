"""What Metal's compiler refuses and a C++ compiler that knows no address spaces takes.

A walk over the tokens that knows where functions and blocks begin and which names are declared in them. It says
nothing where it is not sure: a valid kernel must never be refused, a mistake may be left to be found on a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metalwright.msl.grammar import (
    PLAIN_TYPES,
    Declarator,
    Function,
    TokenText,
    declarator,
    lambda_body,
    parameters,
    type_name,
)
from metalwright.msl.kernel_rules import kernel_parameters
from metalwright.msl.pointers import bare_pointers
from metalwright.msl.spaces import NO_CONVERSION, cast_target, points_to, refers_to, unary_operand
from metalwright.msl.tokens import Token

Mistake = tuple[int, str]  # index of a token, sentence

_TYPE_HEADS = frozenset({"struct", "class", "union"})
_CONTROL = frozenset({"if", "for", "while", "switch", "catch"})
_STATEMENT_WORDS = frozenset({"else", "do", "case", "default", "return"})
# an & behind one of these is no operator between two values
_BEFORE_AN_OPERAND = frozenset("( , = { ; ? : + - * / % < > ! & | ^ && || == != <= >= += -= ) }".split())
_CASTS = frozenset({"reinterpret_cast", "static_cast", "const_cast"})
# functions of the library have overloads for every address space: what a user adds to them does not decide a call
_LIBRARY_PREFIXES = ("atomic_", "simd", "quad_")
_LIBRARY_NAMES = frozenset({"frexp", "modf", "sincos", "fract", "swap", "max", "min"})
_FAR = 100  # tokens of template arguments that are looked back over
_DEEPEST = 100  # nested brackets; past that, clang says what it thinks of the source


@dataclass(frozen=True)
class Checked:
    """The mistakes in a source, by the index of a token, and what else the walk over it has seen.

    ``thread_objects`` are expressions that name an object of the thread where its address is taken, ``casts`` those
    that are cast to a pointer in a named address space: indices of the first token and of the one behind the last.
    """

    mistakes: list[Mistake]
    thread_objects: tuple[tuple[int, int], ...] = ()
    casts: tuple[tuple[str, int, int], ...] = ()


def check(source: TokenText, kernel_bodies: frozenset[int], internals: bool) -> Checked:
    """Return the mistakes in a source.

    Args:
        source: the tokens without spaces, comments and directives.
        kernel_bodies: the indices of the braces that open kernels.
        internals: whether the source asks for what Metal keeps for its own headers (``#pragma METAL internals``).
    """
    if _deepest(source.tokens) > _DEEPEST:
        return Checked([])
    walk = _Walk(source, kernel_bodies, internals)
    walk.declarations(0, len(source), "namespace")
    walk.check_calls()
    mistakes = walk.mistakes + bare_pointers(walk.source, walk.types - walk.template_names)
    return Checked(mistakes, tuple(walk.thread_objects), tuple(walk.casts))


def _deepest(tokens: Sequence[Token]) -> int:
    depth = deepest = 0
    for token in tokens:
        if token.text in ("(", "[", "{"):
            depth += 1
            deepest = max(deepest, depth)
        elif token.text in (")", "]", "}"):
            depth = max(depth - 1, 0)
    return deepest


class _Walk:
    def __init__(self, source: TokenText, kernel_bodies: frozenset[int], internals: bool) -> None:
        self.source = source
        self.kernel_bodies = kernel_bodies
        self.internals = internals
        self.mistakes: list[Mistake] = []
        self.scopes: list[dict[str, Declarator | None]] = [{}]
        self.functions: dict[str, list[Function]] = {}
        self.methods: set[str] = set()
        self.types: set[str] = set()
        self.template_names: set[str] = set()
        self.in_struct = 0
        # calls, to be looked at when every function is known: name, its token, the arguments' spaces
        self.calls: list[tuple[int, list[tuple[int, str, str]]]] = []
        self.in_kernel = False
        self.lambda_bodies: set[int] = set()  # the braces that open them
        self.result_space = ""
        self.thread_objects: list[tuple[int, int]] = []
        self.casts: list[tuple[str, int, int]] = []

    def lookup(self, name: str) -> Declarator | None:
        scopes = self.scopes[1:] if self.in_struct else self.scopes
        for scope in reversed(scopes):
            if name in scope:
                return scope[name]
        return None

    def mistake(self, index: int, sentence: str) -> None:
        self.mistakes.append((index, sentence))

    # -- outside functions ------------------------------------------------------------------------------------

    def declarations(self, first: int, last: int, where: str) -> None:
        """Walk over the declarations of a namespace or of a struct."""
        i = first
        while i < last:
            i = max(self.declaration(i, last, where), i + 1)

    def declaration(self, start: int, last: int, where: str) -> int:
        """Look at one declaration; return the index after it."""
        source = self.source
        i = source.after_attributes(start)
        is_template = False
        while source.text(i) == "template" and source.text(i + 1) == "<":
            close = source.closing_angle(i + 1)
            if close < 0:
                return i + 1
            self.note_template_names(i + 2, close)
            is_template = True
            i = source.after_attributes(close + 1)
        if source.text(i) in (";", "public", "private", "protected", ":"):
            return i + 1
        head = source.text(i)
        if head == "namespace":
            opening = self.find(i, last, "{;=")
            if source.text(opening) == "{":
                self.declarations(opening + 1, min(source.closing(opening), last), "namespace")
                return source.closing(opening) + 1
            return self.find(i, last, ";") + 1
        if head == "enum":
            self.note_enum(i)
        if head in ("using", "typedef", "static_assert", "template", "friend", "extern", "enum"):
            return self.statement_end(i, last)
        return self.entity(start, i, last, where, is_template)

    def entity(self, start: int, i: int, last: int, where: str, is_template: bool) -> int:
        """A struct, a function or a variable."""
        source = self.source
        stop, opening_parenthesis, has_value = self.head_end(i, last)
        text = source.text(stop)
        words = [source.text(k) for k in range(i, min(stop, i + 4))]
        if text == "{" and opening_parenthesis < 0 and any(word in _TYPE_HEADS for word in words):
            self.struct(i, stop, where)
            after = source.closing(stop) + 1
            return self.find(after, last, ";") + 1 if source.text(after) != ";" else after + 1
        if opening_parenthesis >= 0 and not has_value:
            return self.function(i, opening_parenthesis, stop, last, where)
        if where == "namespace":
            self.program_variable(i, last, is_template)
        elif where == "struct":
            self.member(i)
        return self.statement_end(i, last)

    def head_end(self, i: int, last: int) -> tuple[int, int, bool]:
        """Return where a declaration's head ends (``{``, ``;``), its first parenthesis, whether a value comes first."""
        source = self.source
        parenthesis = -1
        has_value = False
        while i < last:
            text = source.text(i)
            if text in (";", "{", "}"):
                break
            if text == "=" and parenthesis < 0 and source.text(i - 1) != "operator":
                has_value = True
            if text == "(" and parenthesis < 0 and not has_value and source.text(i - 1) != "coherent":
                if source.text(i - 1) == "operator":
                    i = source.closing(i) + 1  # operator()
                    continue
                if source.is_word(i - 1) or source.text(i - 2) == "operator" or source.text(i - 1) == ">":
                    parenthesis = i
            if text == "<" and source.text(i - 1) != "operator":
                close = source.closing_angle(i)
                i = close + 1 if close >= 0 else i + 1
            elif text in ("(", "["):
                i = source.closing(i) + 1
            else:
                i += 1
        return i, parenthesis, has_value

    def struct(self, i: int, opening: int, where: str) -> None:
        source = self.source
        name = i + 1
        while name < opening and not source.is_word(name):
            name = source.after_attributes(name) if source.text(name) == "[" else name + 1
        if source.is_word(name):
            self.types.add(source.text(name))
        colon = next((k for k in range(name, opening) if source.text(k) == ":"), -1)
        if colon >= 0 and not self.internals:
            self.mistake(colon, "derived classes do not exist in Metal: make the base a member")
        closing = min(source.closing(opening), len(source))
        self.in_struct += 1
        self.scopes.append({})
        self.declarations(opening + 1, closing, "struct")
        self.scopes.pop()
        self.in_struct -= 1

    def note_enum(self, i: int) -> None:
        name = i + 1 + (self.source.text(i + 1) in ("class", "struct"))
        if self.source.is_word(name):
            self.types.add(self.source.text(name))

    def note_template_names(self, first: int, last: int) -> None:
        for i in range(first, last):
            if self.source.is_word(i):
                self.template_names.add(self.source.text(i))

    def function(self, i: int, opening: int, stop: int, last: int, where: str) -> int:
        source = self.source
        name = opening - 1
        closing = source.closing(opening)
        if closing >= last:
            return last
        body = self.body_after(closing, stop, last)
        found, required, variadic = parameters(source, opening)
        plain_name = source.is_word(name) and source.text(name - 1) not in ("::", "~", "operator")
        if plain_name:
            self.declare_function(i, name, found, required, variadic, body, where)
        for first, end in source.split(opening + 1, closing):
            self.check_deduced(first, end)
        if body < 0:
            return self.statement_end(closing, last)
        type_ = type_name(source, i)
        pointer = type_ is not None and source.text(type_.after) == "*" and type_.after + 1 == name
        self.function_body(body, found, opening, type_.space if type_ and pointer else "")
        return source.closing(body) + 1

    def check_deduced(self, first: int, end: int) -> None:
        """``void f(auto v)`` is a template of C++20."""
        for i in range(first, end):
            if self.source.text(i) == "auto":
                self.mistake(i, "a parameter cannot be 'auto' in Metal, which is C++17: write a template")
            elif self.source.text(i) in ("=", "<", "("):
                return

    def declare_function(
        self,
        i: int,
        name: int,
        found: tuple[Declarator | None, ...],
        required: int,
        variadic: bool,
        body: int,
        where: str,
    ) -> None:
        source = self.source
        text = source.text(name)
        if where == "struct":
            self.methods.add(text)
            return
        kernel = body in self.kernel_bodies
        if kernel:
            self.mistakes += kernel_parameters(source, name + 1)
        if text == "main" and not kernel:
            self.mistake(name, "a function cannot be called 'main' in Metal")
        self.functions.setdefault(text, []).append(
            Function(text, name, found, required, "", kernel, variadic or source.text(i) == "template")
        )

    def body_after(self, closing: int, stop: int, last: int) -> int:
        """Return the index of a function's ``{`` after its parameters, or -1 where it has no body."""
        source = self.source
        i = closing + 1
        initialisers = False
        while i < last:
            text = source.text(i)
            if text in (";", "=", "}"):
                return -1
            if text == ":" and not initialisers:
                initialisers = True
            elif text == "{":
                # y{b} in a list of initialisers: the body comes after the last of them
                if not (initialisers and source.is_word(i - 1)):
                    return i
                i = source.closing(i)
            elif text in ("(", "["):
                i = source.closing(i)
            i += 1
        return -1

    def program_variable(self, i: int, last: int, is_template: bool) -> None:
        source = self.source
        type_ = type_name(source, i)
        one = declarator(source, type_, type_.after) if type_ else None
        if type_ is None or one is None or source.text(one.after) not in ("=", ";", "{", ","):
            return
        self.scopes[-1][one.name] = one if one.kind in ("array", "value") and one.space else None
        if is_template or one.kind not in ("array", "value") or one.space == "constant":
            return
        if one.space == "threadgroup":
            return  # said where it is lowered
        if one.space or type_.word in PLAIN_TYPES or type_.word in self.types:
            self.mistake(
                one.index,
                f"program-scope variable {one.name!r} must be in the constant address space: write "
                f"'constant {type_.word} {one.name}'",
            )

    def member(self, i: int) -> None:
        type_ = type_name(self.source, i)
        one = declarator(self.source, type_, type_.after) if type_ else None
        if one is None or one.kind not in ("value", "array") or one.space not in ("device", "threadgroup"):
            return
        if self.source.text(one.after) in ("=", ";", "{", ",", ":"):
            what = f"member {one.name!r} cannot be in {one.space} memory"
            self.mistake(
                one.index, f"{what}: it lies where its struct does, write '{one.type_word} {one.name}'"
            )

    def find(self, i: int, last: int, characters: str) -> int:
        """Return the index of the first of some marks outside brackets."""
        source = self.source
        while i < last and source.text(i) not in characters:
            i = source.closing(i) + 1 if source.text(i) in ("(", "[", "{") else i + 1
        return min(i, last)

    def statement_end(self, i: int, last: int) -> int:
        return self.find(i, last, ";") + 1

    # -- inside functions -------------------------------------------------------------------------------------

    def function_body(
        self, brace: int, found: tuple[Declarator | None, ...], opening: int, result_space: str
    ) -> None:
        source = self.source
        scope: dict[str, Declarator | None] = {}
        for (first, last), one in zip(self.parameter_pieces(opening), found, strict=False):
            if one is not None:
                scope[one.name] = one
            else:
                # not understood: every word of it may be the name
                scope |= {source.text(k): None for k in range(first, last) if source.is_word(k)}
        outer = self.in_kernel, self.result_space
        self.in_kernel = brace in self.kernel_bodies
        self.result_space = result_space
        self.scopes.append(scope)
        self.block(brace + 1, min(source.closing(brace), len(source)))
        self.scopes.pop()
        self.in_kernel, self.result_space = outer

    def parameter_pieces(self, opening: int) -> list[tuple[int, int]]:
        source = self.source
        pieces = source.split(opening + 1, source.closing(opening))
        return [p for p in pieces if [source.text(k) for k in range(*p)] != ["void"]]

    def block(self, first: int, last: int) -> None:
        """Walk over statements: blocks open scopes, declarations fill them, expressions are looked at."""
        source = self.source
        self.scopes.append({})
        at_start = True
        i = first
        while i < last:
            text = source.text(i)
            if at_start and source.is_word(i) and text not in _CONTROL and text not in _STATEMENT_WORDS:
                at_start = False
                after = self.local(i, last)
                if after > i:
                    i = after
                    continue
            if text == "{":
                close = min(source.closing(i), last)
                outer = self.in_kernel
                self.in_kernel = outer and i not in self.lambda_bodies
                self.block(i + 1, close)
                self.in_kernel = outer
                i = close + 1
                at_start = True
                continue
            if text == "for" and source.text(i + 1) == "(":
                i = self.for_loop(i, last)
                at_start = True
                continue
            if text == "return":
                self.check_return(i, last)
            self.expression_token(i, last, at_start)
            at_start = text in (";", "}", "else", "do", ":") or (text == ")" and self.closes_control(i))
            i += 1
        self.scopes.pop()

    def closes_control(self, index: int) -> bool:
        opening = self.source.opening.get(index, -1)
        before = self.source.text(opening - 1)
        return before in _CONTROL or (before == "constexpr" and self.source.text(opening - 2) == "if")

    def for_loop(self, i: int, last: int) -> int:
        """``for (declaration; …) statement``: the declaration's scope is the statement."""
        source = self.source
        close = source.closing(i + 1)
        if close >= last:
            return i + 2
        after = close + 1
        end = source.closing(after) + 1 if source.text(after) == "{" else self.statement_end(after, last)
        self.scopes.append({})
        inner = i + 2
        stepped = self.local(inner, close)
        self.block_expressions(stepped if stepped > inner else inner, close)
        if source.text(after) == "for":
            end = self.for_loop(after, last) if source.text(after + 1) == "(" else end
        else:
            self.block(after, min(end, last))
        self.scopes.pop()
        return min(end, last)

    def block_expressions(self, first: int, last: int) -> None:
        for k in range(first, last):
            self.expression_token(k, last, False)

    def local(self, i: int, last: int) -> int:
        """Look at a statement that may be a declaration; return the index after its first name, or ``i``."""
        source = self.source
        text = source.text(i)
        if text in _TYPE_HEADS or text in ("enum", "using", "typedef", "namespace", "static_assert"):
            opening = self.find(i, last, "{;=")
            if source.text(opening) == "{" and text in _TYPE_HEADS:
                self.struct(i, opening, "function")
                return min(source.closing(opening) + 1, last)
            if text in _TYPE_HEADS:
                return i
            return self.statement_end(i, last)
        type_ = type_name(source, i)
        if type_ is None:
            return i
        one = declarator(source, type_, type_.after)
        if one is None or source.text(one.after) not in ("=", ";", ",", "{", "(", ":", ")"):
            self.shadow_odd_names(type_.after, last)
            return i
        self.scopes[-1][one.name] = one if one.kind else None
        self.check_local(one, i)
        if source.text(one.after) == "=" and one.kind == "pointer":
            self.check_value(one, one.after + 1, self.value_end(one.after + 1, last), "set to")
        if source.text(one.after) == "=" and one.kind == "reference" and one.space and not one.const:
            self.check_reference(one, one.after + 1, self.value_end(one.after + 1, last))
        if source.text(one.after) == ",":
            self.more_names(one, last)
        return one.after

    def more_names(self, one: Declarator, last: int) -> None:
        """The names after the first of a declaration: each has marks of its own, so they only hide what is outside."""
        source = self.source
        i = one.after
        end = self.find(i, last, ";")
        for first, stop in source.split(i, end):
            for k in range(first, stop):
                if source.is_word(k):
                    self.scopes[-1].setdefault(source.text(k), None)
                    break

    def shadow_odd_names(self, i: int, last: int) -> None:
        """``T (&a)[4]``, ``T (*f)(…)``, ``auto& [a, b]``: names in forms that are not followed hide those outside."""
        source = self.source
        if source.text(i) == "(" and source.text(i + 1) in ("&", "*") and source.text(i + 3) == ")":
            if source.text(i + 4) in ("[", "("):
                self.scopes[-1][source.text(i + 2)] = None
            return
        while source.text(i) in ("&", "&&"):
            i += 1
        if source.text(i) == "[":
            for k in range(i, min(source.closing(i), last)):
                if source.is_word(k):
                    self.scopes[-1][source.text(k)] = None

    def value_end(self, i: int, last: int) -> int:
        return self.find(i, last, ";,:?")

    def check_local(self, one: Declarator, start: int) -> None:
        source = self.source
        if one.kind in ("value", "array"):
            if one.space == "threadgroup" and not self.in_kernel:
                self.mistake(
                    one.index,
                    f"threadgroup variable {one.name!r} can only be declared in a kernel's body: pass a threadgroup "
                    f"pointer to this function",
                )
            if one.space == "device":
                self.mistake(
                    one.index,
                    f"a variable in a function cannot be in device memory: write '{one.type_word} {one.name}'",
                )
        if "static" in one.specifiers and one.space != "constant" and "constexpr" not in one.specifiers:
            at = next(k for k in range(start, one.index) if source.text(k) == "static")
            self.mistake(
                at,
                f"a variable in a function cannot be static in Metal: {one.name!r} lives as long as its thread",
            )

    def check_value(self, target: Declarator, first: int, last: int, verb: str) -> None:
        space = points_to(self.source, first, last, self.lookup)
        if target.space and space and space != target.space:
            self.mistake(
                first,
                f"{target.name!r} is a {target.space} pointer and cannot be {verb} a {space} pointer: {NO_CONVERSION}",
            )

    def check_reference(self, target: Declarator, first: int, last: int) -> None:
        space = refers_to(self.source, first, last, self.lookup)
        if space and space != target.space:
            self.mistake(
                first,
                f"{target.name!r} is a {target.space} reference and cannot be bound to {space} memory: {NO_CONVERSION}",
            )

    def check_return(self, i: int, last: int) -> None:
        if not self.result_space:
            return
        end = self.find(i + 1, last, ";")
        space = points_to(self.source, i + 1, end, self.lookup)
        if space and space != self.result_space:
            self.mistake(
                i + 1,
                f"the function returns a {self.result_space} pointer and this is a {space} pointer: {NO_CONVERSION}",
            )

    def expression_token(self, i: int, last: int, at_start: bool) -> None:
        """What begins at one token of an expression: an assignment, a cast, a call, a lambda."""
        source = self.source
        text = source.text(i)
        if text == "[":
            self.lambda_bodies.add(lambda_body(source, i))
        if source.is_word(i) and (end := self.thread_object(i)):
            self.thread_objects.append((i, end))
        if text == "=" and source.is_word(i - 1) and source.text(i - 2) in (";", "{", "}", ")", "else"):
            target = self.lookup(source.text(i - 1))
            if target is not None and target.kind == "pointer":
                self.check_value(target, i + 1, self.value_end(i + 1, last), "set to")
        elif text == "(":
            close = source.closing(i)
            if (space := cast_target(source, i + 1, close)) and not source.is_word(i - 1):
                end = unary_operand(source, close + 1)
                self.casts.append((space, close + 1, end))
                self.check_cast(space, close + 1, min(end, last))
            elif source.text(i - 1) == "]":
                self.lambda_parameters(i)
            elif source.is_word(i - 1) and source.text(i - 2) not in (".", "->", "::"):
                self.note_call(i - 1, i)
        elif text in _CASTS and source.text(i + 1) == "<":
            close = source.closing_angle(i + 1)
            if close >= 0 and source.text(close + 1) == "(" and (space := cast_target(source, i + 2, close)):
                self.check_cast(space, close + 2, source.closing(close + 1))
        elif text == "<" and source.is_word(i - 1) and source.text(i - 2) not in (".", "->", "::"):
            close = source.closing_angle(i)
            if close >= 0 and source.text(close + 1) == "(":
                self.note_call(i - 1, close + 1)

    def thread_object(self, i: int) -> int:
        """Return the index behind an object of the thread whose address is taken at ``i``, or 0.

        ``&v``, ``&v[2]``, arrays, which become pointers, and what a function may take by reference.
        """
        source = self.source
        before = source.text(i - 1)
        if before in (".", "->", "::") or source.text(i + 1) in ("(", ".", "->", "::", "<"):
            return 0
        known = self.lookup(source.text(i))
        if known is None or known.index >= i or known.space not in ("", "thread"):
            return 0
        if known.kind == "array" and source.text(i + 1) != "[":
            # [a] and [&a] of a lambda take no address
            return i + 1 if "[" not in (before, source.text(i - 2)) else 0
        if self.is_argument(i) and known.kind == "value" and "constexpr" not in known.specifiers:
            return i + 1
        if before != "&" or not (source.text(i - 2) in _BEFORE_AN_OPERAND or source.text(i - 2) == "return"):
            return 0
        if known.kind == "array":
            end = i + 1
            while source.text(end) == "[":
                end = source.closing(end) + 1
            return 0 if source.text(end) in ("(", ".", "->") else end
        return i + 1 if known.kind == "value" and source.text(i + 1) != "[" else 0

    def is_argument(self, i: int) -> bool:
        """Whether the word at ``i`` is all of an argument of one of the source's own functions."""
        source = self.source
        if source.text(i - 1) not in ("(", ",") or source.text(i + 1) not in (",", ")"):
            return False
        k = i - 1
        while k >= 0 and source.text(k) not in ("(", "[", "{", ";"):
            k = source.opening.get(k, k) - 1
        if source.text(k) != "(":
            return False
        name = k - 1
        if source.text(name) == ">":
            # f<T>(v)
            opened = (o for o in range(name - 1, max(name - _FAR, 0), -1) if source.text(o) == "<")
            name = next((o for o in opened if source.closing_angle(o) == name), 0) - 1
        return source.text(name) in self.functions or source.text(name) in self.methods

    def check_cast(self, space: str, first: int, last: int) -> None:
        given = points_to(self.source, first, last, self.lookup)
        if given and given != space:
            self.mistake(first, f"a {given} pointer cannot be cast to a {space} pointer: {NO_CONVERSION}")

    def lambda_parameters(self, opening: int) -> None:
        """The parameters of a lambda hide names outside; they stay hidden to the end of the block, to be safe."""
        source = self.source
        close = source.closing(opening)
        if source.text(close + 1) in ("{", "->", "mutable", "constexpr"):
            for k in range(opening + 1, min(close, len(source))):
                if source.is_word(k):
                    self.scopes[-1][source.text(k)] = None

    # -- calls ------------------------------------------------------------------------------------------------

    def note_call(self, name: int, opening: int) -> None:
        source = self.source
        text = source.text(name)
        if text not in self.functions or self.lookup(text) is not None:
            return
        close = source.closing(opening)
        arguments = [
            (first, points_to(source, first, last, self.lookup), refers_to(source, first, last, self.lookup))
            for first, last in source.split(opening + 1, close)
        ]
        self.calls.append((name, arguments))

    def check_calls(self) -> None:
        for name, arguments in self.calls:
            text = self.source.text(name)
            functions = self.functions[text]
            if text in self.methods or text in _LIBRARY_NAMES or text.startswith(_LIBRARY_PREFIXES):
                continue
            if all(function.kernel for function in functions):
                self.mistake(
                    name, f"{text!r} is a kernel and cannot be called: move what both need to a function"
                )
                continue
            misfits = [self.misfit(function, arguments) for function in functions]
            if all(misfits):
                self.mistakes.append(misfits[0])  # type: ignore[arg-type]

    def misfit(self, function: Function, arguments: list[tuple[int, str, str]]) -> Mistake | None:
        """Return the first argument in another address space than its parameter, or None if the call may fit."""
        if function.variadic or not function.required <= len(arguments) <= len(function.parameters):
            return None
        for position, ((index, points, refers), parameter) in enumerate(
            zip(arguments, function.parameters, strict=False), 1
        ):
            if parameter is None or not parameter.space:
                continue
            if parameter.kind == "pointer" and points and points != parameter.space:
                what = f"a {parameter.space} pointer and got a {points} pointer"
            elif (
                parameter.kind == "reference" and not parameter.const and refers not in ("", parameter.space)
            ):
                what = f"a {parameter.space} reference and got {refers} memory"
            else:
                continue
            return index, f"argument {position} of {function.name!r} must be {what}: {NO_CONVERSION}"
        return None
