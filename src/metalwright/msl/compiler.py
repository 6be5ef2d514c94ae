"""MSL text in, LLVM IR and signatures out: preprocess, lower, compile, verify; kept in the disk cache."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from metalwright import toolchain
from metalwright.columns import original_column
from metalwright.engine import KernelSignature, Module, Parameter, ThreadgroupVariable, builder, cache, target
from metalwright.errors import (
    CompileError,
    Diagnostic,
    RefusedSourceError,
    Site,
    ToolchainError,
    UnsupportedFeatureError,
)
from metalwright.msl import (
    arithmetic,
    callees,
    constants,
    diagnostics,
    headers,
    inlined_size,
    recursion,
    repairs,
    signature,
    space_types,
    static_values,
)
from metalwright.msl.dialect import KernelDeclaration, Lowered, lower, lower_with_spaces
from metalwright.msl.inlining import inline_all
from metalwright.msl.program import LineMap, Section, join, sources
from metalwright.msl.verify import calls_left, verify
from metalwright.toolchain import ClangResult

_MATH = {
    # IEEE: each operation rounds once, in the order that the source says
    "safe": ["-ffp-contract=off"],
    # what Metal does unless told otherwise: reorder and contract
    # yet an infinity that a kernel writes down, as every running maximum does, keeps its meaning on a GPU
    "fast": ["-ffast-math", "-ffp-contract=fast", "-fno-finite-math-only"],
}
_LANGUAGE = (
    "-std=c++23 -ffreestanding -nostdinc -nostdlib -fno-exceptions -fno-rtti -fdeclspec -fsigned-char "
    "-fno-threadsafe-statics -fno-strict-aliasing -fwrapv -fno-math-errno -Xclang -ffloat16-excess-precision=none "
    "-Xclang -fbfloat16-excess-precision=none "
    "-fno-color-diagnostics -fno-caret-diagnostics -fno-diagnostics-fixit-info -fno-spell-checking -fno-elide-type -w -ferror-limit=20 "
    "-ftemplate-depth=256 -fconstexpr-steps=1000000"
).split()
_CHECKED = (
    # the checks go in before anything is optimised: what is undefined is what they are there to see
    *("-O0", "-Xclang", "-disable-O0-optnone", "-ftrivial-auto-var-init=pattern"),
    # the pattern is written out element by element, which for a huge array takes minutes
    "-ftrivial-auto-var-init-max-size=1048576",
    # names of files stay whole: clang would cut off what they share with the folder it is started in
    *("-gline-tables-only", "-fdebug-compilation-dir=."),
)
# calls that come last stay calls: a function that calls itself is found by them
_OPTIMISED = ("-O2", "-fno-optimize-sibling-calls")
_IR = ("-S", "-emit-llvm")
_AS_WRITTEN = (*_IR, "-Xclang", "-disable-llvm-passes")
# what user code asks in `#if`; the other macros of Metal's headers are for the compiler (metalwright/macros.h)
_VERSION = (
    "-D__METAL__=1 -D__METAL_VERSION__=400 -D__METAL_MACOS__=1 -D__HAVE_BFLOAT__=1 -D__HAVE_SIMDGROUP_MATRIX__=1 "
    "-D__HAVE_INT4B_FORMAT_TYPE__=1 -D__HAVE_TENSOR__=1 -D__HAVE_TENSOR_MULTIPLANE__=1 "
    "-D__HAVE_METAL_FP4_E2M1_FORMAT_TYPE__=1 -D__HAVE_METAL_FP8_E4M3_FORMAT_TYPE__=1"
).split()
_FAST_MATH = ["-D__FAST_MATH__=1"]
# Metal's headers beside those under include/: what is in them that runs here needs no header
_OTHER_HEADERS = (
    "assert command_buffer config extended_vector graphics imageblocks initializer_list interpolate iterator "
    "mesh numeric packed_vector quadgroup raytracing utility "
    "visible_function_table"
).split()
_HEADERS = [path.name for path in headers.INCLUDE.glob("metal_*")] + [
    f"metal_{name}" for name in _OTHER_HEADERS
]
_INCLUDE_LINE = re.compile(
    rf"^[ \t]*#[ \t]*include[ \t]*<(?:{'|'.join(_HEADERS)}|simd/simd\.h|MetalPerformancePrimitives/\w+\.h)>[ \t]*$",
    re.MULTILINE,
)
_TENSOR_OPERATION = re.compile(
    r"\b(?:matmul2d|convolution2d|cooperative_tensor|execution_(?:thread|simdgroup)|reduc(?:e|tion)_|tensor_ops\s*::)"
)
_NEEDS_PREPROCESSOR = re.compile(r"^(?!# \d+ \").*(?:#|%:|_Pragma|\?\?|\\\s*$)", re.MULTILINE)
# characters that end a line, or stand for a space, for clang and not for us
_ODD_SPACES = str.maketrans({"\v": " ", "\f": " ", "\r": "\n"})
# everything else that a pragma can do is no business of a kernel
_KEPT_PRAGMA = re.compile(
    r"#\s*pragma\s+(?:unroll|nounroll|clang\s+loop|STDC\s+FP_CONTRACT|METAL\s+internals)\b"
)
_PRAGMA = re.compile(r"^[ \t]*(?:#|%:)\s*pragma\b.*$", re.MULTILINE)
# what metalwright/intrinsics.h says of a type, and what is written there for a variable in threadgroup memory
_INITIAL_VALUE = "threadgroup variable cannot have an initial value"
_VARIABLE = re.compile(r"threadgroup_variable<.*?>\((\d+)\)")
_MARKED = re.compile(r'^# \d+ "((?:[^"\\]|\\.)*)"', re.MULTILINE)
_PRAGMA_OPERATOR = re.compile(r"\b_Pragma\b|\b__pragma\b")


@dataclass(frozen=True)
class CompileOptions:
    """How to compile.

    ``math_mode`` is ``"safe"`` or ``"fast"``; ``checked`` keeps what the checks need; ``constants`` are values of
    function constants by name or number; files in ``include_folders`` can be included; up to ``recursion`` calls of
    a function that calls itself may be nested. ``watched`` looks for arithmetic that gives anything; what is watched
    is ``checked``.
    """

    math_mode: str = "safe"
    checked: bool = True
    constants: tuple[tuple[str | int, constants.Value], ...] = ()
    include_folders: tuple[str, ...] = ()
    recursion: int = 0
    watched: bool = False


_MOST_SHOWN = 12
FEW = 8  # kernels that are compiled together


class Part(Enum):
    """What of a program is compiled; an outline has its kernels' signatures and none of their code."""

    ALL = "all"
    OUTLINE = "outline"
    FEW_OR_OUTLINE = "few or outline"


def compile_msl(sections: tuple[Section, ...], options: CompileOptions, label: str) -> Module:
    """Compile a program.

    Args:
        sections: its text, in order.
        options: math mode and checks.
        label: the kernel's name, for messages.

    Raises:
        CompileError: the MSL is not valid; says where, in the user's own lines.
        UnsupportedFeatureError: it uses a feature that Metalwright does not run.
        RefusedSourceError: it reaches outside a kernel.
        ToolchainError: clang is missing.
    """
    return compile_source(prepare(sections, options, label))


@dataclass(frozen=True)
class Source:
    """A program's text before it is lowered, the user's files by name, and how it is compiled."""

    text: str
    user: dict[str, str]
    options: CompileOptions
    label: str

    @functools.cached_property
    def preprocessed(self) -> str:
        # with folders to include from, it was done to know what the program is
        if self.options.include_folders:
            return self.text
        return _preprocess(self.text, self.user, self.options, self.label)

    @functools.cached_property
    def lines(self) -> LineMap:
        return LineMap(self.preprocessed)

    @functools.cached_property
    def lowered(self) -> Lowered:
        lowered = lower(self.preprocessed, dict(self.options.constants))
        if lowered.errors:
            raise _lowering_failure(self.label, self.preprocessed, self.lines, lowered.errors, self.user)
        return lowered

    @functools.cached_property
    def lowered_with_spaces(self) -> Lowered | None:
        places = self.lowered.places
        return places and lower_with_spaces(self.preprocessed, dict(self.options.constants), places)

    def elsewhere(
        self,
        compiled: LineMap,
        message: diagnostics.Message,
        place: diagnostics.Message | None,
        sentence: str,
    ) -> Diagnostic | None:
        """Return what clang says of an attribute's value or a threadgroup variable's type, at the place of these."""
        if message.file == signature.VALUES:
            return self.diagnose(message.line - 1, sentence)
        if place is None or not sentence.startswith(_INITIAL_VALUE):
            return None
        # the variable is one of those on the line: the first whose memory is asked for at the place, or behind it
        written = _VARIABLE.search(compiled.content(place.file, place.line), place.column - 1)
        if written is None:
            return None
        name, offset = self.lowered.threadgroup_variables[int(written[1])]
        return self.diagnose(offset, sentence.replace("variable", f"variable {name!r}", 1))

    def diagnose(self, offset: int, sentence: str) -> Diagnostic:
        """Return a mistake at an offset of the preprocessed text as one in the user's own."""
        return _users_diagnostic(self.preprocessed, offset, sentence, self.lines, self.user)


def prepare(sections: tuple[Section, ...], options: CompileOptions, label: str) -> Source:
    """Return a program that is ready to be compiled."""
    if options.math_mode not in _MATH:
        raise ValueError(f"math_mode must be 'safe' or 'fast', got {options.math_mode!r}")
    user = sources(sections)
    text = join(sections)
    _check_text(text, label)
    if options.include_folders:
        # what the included files hold is part of the program
        text = _preprocess(text, user, options, label)
    return Source(text, user, options, label)


def compile_source(source: Source, part: Part | str = Part.ALL) -> Module:
    """Compile all of a program, a part, or the one kernel with this host name."""
    what = part.value if isinstance(part, Part) else f"kernel {part}"
    options, user, label = source.options, source.user, source.label
    name = cache.key(
        "msl", _identity(), source.text, json.dumps(user), label, json.dumps(asdict(options)), what
    )
    stored = cache.fetch(name)
    if stored is not None:
        # a file of the right name and the wrong content is a miss
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return _unpack(stored, user, options.checked, label)
    builder.expect()
    module = _compile(source, part)
    cache.store(name, _pack(module))
    return module


def _compile(source: Source, part: Part | str) -> Module:
    lowered, options, user, label = source.lowered, source.options, source.user, source.label
    if part is Part.FEW_OR_OUTLINE:
        part = Part.ALL if len(lowered.kernels) <= FEW else Part.OUTLINE
    text = lowered.text if part is Part.ALL else lowered.uninstantiated
    kernels = lowered.kernels
    if not isinstance(part, Part):
        kernels = tuple(kernel for kernel in kernels if kernel.host_name == part)[:1]
    launched = () if part is Part.OUTLINE else kernels
    language = [*_LANGUAGE, *_MATH[options.math_mode]]
    level = _CHECKED if options.checked else _OPTIMISED
    if options.watched:
        level = (*level, *arithmetic.OPTIONS)
    unrepaired: str | None = text
    while unrepaired is not None:
        text = unrepaired
        whole = _whole(text, launched, kernels)
        done = _clang([*level, *language], _AS_WRITTEN, whole)
        unrepaired = None if done.ok else repairs.repair(text, done.messages, user.keys())
    if not done.ok:
        lines = LineMap(text)
        raise diagnostics.failure(
            label, done.messages, lines, user, functools.partial(source.elsewhere, lines)
        )
    _check_address_spaces(source, part, launched)
    ir = made = arithmetic.as_engine_calls(done.output.decode())
    entries = tuple(signature.ENTRY.format(i) for i in range(len(launched)))
    hosts = dict(zip(entries, (kernel.host_name for kernel in launched), strict=True))
    inlined_size.check(label, ir, hosts, user)
    # what is checked the engine inlines: clang would copy every function with each of its variables in memory
    if not options.checked:
        ir = _optimised(ir)
    static_values.check(label, ir, user)
    if options.checked or calls_left(ir, entries):
        ir = inline_all(ir, label)
    recursive: tuple[str, ...] = ()
    if calls_left(ir, entries):
        # where it is refused, the message needs to know the line
        lines_known = _OPTIMISED if options.recursion else _CHECKED
        written = (
            made if options.checked else _clang([*lines_known, *language], _AS_WRITTEN, whole).output.decode()
        )
        allowed = recursion.allow(label, written, entries, options.recursion, LineMap(text), user)
        if allowed is not None:
            ir = inline_all(allowed.ir, label, () if options.checked else _OPTIMISED)
            recursive = allowed.functions
    before = ""
    while calls_left(ir, entries) and ir != before:
        before, ir = ir, callees.told(ir)
        inlined_size.check(label, ir, hosts, user)
        ir = inline_all(ir, label)
    ir = callees.without_unused_constants(ir)
    verify(label, ir, entries, user)
    lines = source.lines
    return Module(
        ir,
        signature.read(ir, kernels, source.diagnose),
        options.checked,
        label,
        user,
        tuple(
            ThreadgroupVariable(name, _users_site(source.preprocessed, offset, lines, user))
            for name, offset in lowered.threadgroup_variables
        ),
        _changed_lines(LineMap(text), user) if options.checked else {},
        lowered.unset_constants,
        recursive,
    )


def _check_address_spaces(source: Source, part: Part | str, launched: tuple[KernelDeclaration, ...]) -> None:
    """Raise where a pointer changes its address space on a way that only the compiler can follow."""
    spaced = source.lowered_with_spaces
    if spaced is None:
        return
    text, edits = (
        (spaced.text, spaced.edits[0]) if part is Part.ALL else (spaced.uninstantiated, spaced.edits[1])
    )
    framed = _whole(f"{space_types.BEGIN}\n{text}\n{space_types.END}", launched, ())
    done = _clang([*_LANGUAGE, *space_types.TARGET], space_types.READ_ONLY, framed)
    mistakes = [] if done.ok else space_types.mistakes(done.messages, text, source.user.keys())
    found: list[Diagnostic] = []
    for mistake in mistakes:
        diagnostic = source.diagnose(edits.origin(mistake.offset), mistake.sentence)
        if diagnostic.site is not None and diagnostic not in found:
            found.append(diagnostic)
    if found:
        raise CompileError(source.label, tuple(found[:_MOST_SHOWN]))


def _clang(options: Sequence[str], output: Sequence[str], text: str) -> ClangResult:
    """Run clang over plain C++ that came from MSL."""
    return headers.clang(options, output, text, _TENSOR_OPERATION.search(text) is not None, _identity())


def _optimised(ir: str) -> str:
    """Return what clang makes of the IR that it first wrote."""
    done = toolchain.clang(["-x", "ir", *_OPTIMISED, "-ffreestanding", "-w", *_IR, "-o", "-"], ir.encode())
    if not done.ok:
        raise ToolchainError(f"clang does not read the IR that it wrote: {done.messages[:300]}")
    return done.output.decode()


def _whole(text: str, launched: tuple[KernelDeclaration, ...], kernels: tuple[KernelDeclaration, ...]) -> str:
    """Return a program's plain C++ with the kernels' entries behind it."""
    return "\n".join(
        [
            text,
            f'# 1 "{signature.ENTRIES}"',
            signature.entries(launched),
            signature.descriptions(kernels),
        ]
    )


def _changed_lines(lines: LineMap, user: dict[str, str]) -> dict[tuple[str, int], str]:
    """Return the user's lines as the compiler sees them, where that is not as they were written."""
    changed = {}
    for file, text in user.items():
        for number, written in enumerate(text.split("\n"), 1):
            compiled = lines.content(file, number)
            if compiled != written:
                changed[file, number] = compiled
    return changed


def _check_text(text: str, label: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        sentence = f"the source has a character that is no text: {text[error.start : error.start + 1]!r}"
        raise CompileError(label, (Diagnostic("error", sentence),)) from None


def _preprocess(text: str, user: dict[str, str], options: CompileOptions, label: str) -> str:
    """Return the text without directives, and add the files that it includes to ``user``."""
    # Metal's own headers are always there: most kernels then need no preprocessor, which costs a process
    text = _INCLUDE_LINE.sub("", text.replace("\r\n", "\n").translate(_ODD_SPACES))
    if _NEEDS_PREPROCESSOR.search(text) is None:
        return text
    # a pragma is obeyed while the preprocessor runs, and clang has some that make it crash
    if (operator := _PRAGMA_OPERATOR.search(text)) is not None:
        error = (operator.start(), f"{operator.group()!r} is refused: it is not part of Metal", True)
        raise _lowering_failure(label, text, LineMap(text), (error,), user)
    text = _without_pragmas(text)
    folders = options.include_folders
    macros = [*_VERSION, *(_FAST_MATH if options.math_mode == "fast" else [])]
    done = toolchain.clang(
        ["-x", "c++", *_LANGUAGE, *macros, *headers.confined("stubs", folders), "-E", "-o", "-"],
        text.encode(),
    )
    if not done.ok:
        raise diagnostics.failure(label, _real_names(done.messages, folders), LineMap(text), user)
    output = _real_names(done.output.decode(), folders)
    for name in dict.fromkeys(_MARKED.findall(output)):
        # a #line directive may name any file
        path = Path(name).resolve()
        if name not in user and path.is_file() and any(path.is_relative_to(folder) for folder in folders):
            user[name] = path.read_text("utf-8", "replace")
    return _without_pragmas(output)


def _real_names(text: str, folders: tuple[str, ...]) -> str:
    """Return clang's output with the names that included files have outside its view."""
    for index, folder in enumerate(folders):
        text = text.replace(f"{headers.ROOT}/user{index}/", f"{folder}/")
    return text


def _without_pragmas(text: str) -> str:
    return _PRAGMA.sub(lambda match: match.group() if _KEPT_PRAGMA.search(match.group()) else "", text)


def _lowering_failure(
    label: str, text: str, lines: LineMap, errors: tuple[tuple[int, str, bool], ...], user: dict[str, str]
) -> CompileError:
    found = [_users_diagnostic(text, offset, sentence, lines, user) for offset, sentence, _ in errors]
    kind: type[CompileError] = CompileError
    if any(refused for _, _, refused in errors):
        kind = RefusedSourceError
    elif any("not supported" in sentence for _, sentence, _ in errors):
        kind = UnsupportedFeatureError
    return kind(label, tuple(found))


def _users_diagnostic(
    text: str, offset: int, sentence: str, lines: LineMap, user: dict[str, str]
) -> Diagnostic:
    site = _users_site(text, offset, lines, user)
    excerpt = user[site.file].split("\n")[site.line - 1] if site else None
    return Diagnostic("error", sentence, site, excerpt)


def _users_site(text: str, offset: int, lines: LineMap, user: dict[str, str]) -> Site | None:
    """Return the place of an offset in the user's own files as they were written."""
    site = lines.site(text, offset)
    written = user.get(site.file, "").split("\n")
    if site.file not in user or not 0 < site.line <= len(written):
        return None
    column = original_column(lines.content(site.file, site.line), written[site.line - 1], site.column)
    return Site(site.file, site.line, column)


@functools.cache
def _identity() -> str:
    """Return a text that changes with the compiler, the headers, this package's own lowering and its inlining."""
    files = sorted(
        path for path in Path(__file__).parent.rglob("*") if path.is_file() and path.suffix != ".pyc"
    )
    return "\n".join([target.identity(), cache.key(*(path.read_bytes() for path in files))])


def _pack(module: Module) -> bytes:
    facts = {
        "text": module.text,
        "kernels": [asdict(kernel) for kernel in module.kernels],
        "threadgroup_variables": [asdict(variable) for variable in module.threadgroup_variables],
        "compiled_lines": [[*place, line] for place, line in module.compiled_lines.items()],
        "unset_constants": module.unset_constants,
        "recursive": module.recursive_functions,
    }
    return json.dumps(facts).encode()


def _unpack(data: bytes, user: dict[str, str], checked: bool, label: str) -> Module:
    facts = json.loads(data)
    kernels = tuple(
        KernelSignature(**{**kernel, "parameters": tuple(Parameter(**p) for p in kernel["parameters"])})
        for kernel in facts["kernels"]
    )
    compiled_lines = {(file, number): line for file, number, line in facts["compiled_lines"]}
    variables = tuple(
        ThreadgroupVariable(variable["name"], Site(**variable["site"]) if variable["site"] else None)
        for variable in facts["threadgroup_variables"]
    )
    unset, recursive = tuple(facts["unset_constants"]), tuple(facts["recursive"])
    return Module(facts["text"], kernels, checked, label, user, variables, compiled_lines, unset, recursive)
