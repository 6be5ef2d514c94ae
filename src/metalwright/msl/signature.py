"""Reads from the IR what the kernels' parameters are, after every template has been instantiated."""

from __future__ import annotations

import re
from collections.abc import Callable

from metalwright.engine import KernelSignature, Parameter
from metalwright.errors import CompileError, Diagnostic
from metalwright.msl.attributes import NUMBERED, TEXTURE_TYPES
from metalwright.msl.dialect import KernelDeclaration, KernelParameter

Diagnose = Callable[[int, str], Diagnostic]  # of an offset of the preprocessed text
# what stands for files where clang speaks of text that nobody wrote
ENTRIES = "<kernels>"
VALUES = "<values of attributes>"  # its lines are offsets of the preprocessed text, and one

ENTRY = "__mw_entry_{0}"
DESCRIBE = "__mw_signature_{0}"

# metalwright/entry.h counts the same way
_KINDS = ("tensor", "pointer", "reference", "threadgroup", "attribute", "texture")
_ACCESSES = ("sample", "read", "write", "read_write")
_ELEMENTS = (
    "struct",
    "i1",
    "si8",
    "ui8",
    "si16",
    "ui16",
    "si32",
    "ui32",
    "si64",
    "ui64",
    "f16",
    "bf16",
    "f32",
)
_INDEX = re.compile(r"call void @__mw_describe_index\(i32 noundef (-?\d+), i32 noundef (-?\d+)\)")
_CALL = re.compile(r"call void @__mw_describe\((.*?)\)")
_ABSENT = re.compile(r"call void @__mw_describe_absent\(i32 noundef (\d+)\)")
_COUNTS = {"buffer": 31, "threadgroup": 31, "texture": 128, "sampler": 16}
_MOST_THREADS = 1024


def entries(kernels: tuple[KernelDeclaration, ...]) -> str:
    """Return the C++ that makes each kernel callable by the engine."""
    return "\n".join(
        _beside(
            kernel,
            f"void {ENTRY.format(index)}(const __mw::thread& t, void*, void*) "
            f"{{ __mw::kernel<{_tags(kernel)}>::call<&{kernel.expression}>(t); }}",
        )
        for index, kernel in enumerate(kernels)
    )


def descriptions(kernels: tuple[KernelDeclaration, ...]) -> str:
    """Return the C++ that describes each kernel's parameters: all templates are checked, no code is made of it."""
    return "\n".join(
        _beside(
            kernel,
            f"void {DESCRIBE.format(index)}() "
            f"{{ __mw::kernel<{_tags(kernel)}>::describe<&{kernel.expression}>(); }}",
        )
        for index, kernel in enumerate(kernels)
    )


def _beside(kernel: KernelDeclaration, function: str) -> str:
    """Return a function of C in the kernel's namespace."""
    function = f'extern "C" {function}'
    return f"namespace {kernel.namespace} {{ {function} }}" if kernel.namespace else function


def _tags(kernel: KernelDeclaration) -> str:
    return ", ".join(_tag(parameter) for parameter in kernel.parameters)


def _tag(parameter: KernelParameter) -> str:
    """Return the C++ type that stands for a parameter's attribute (``metalwright/entry.h``)."""
    kind, value = parameter.attribute
    if kind not in NUMBERED:
        return f"__mw::attribute<__mw::position::{kind}>"
    if not value.isdigit():
        value = _placed(value, parameter.offset)
    tag = f"__mw::{kind}_at<{value}>"
    if not parameter.condition or kind != "buffer":
        return tag
    constant = "true" if parameter.address_space == "constant" else "false"
    return f"__mw::only_if<({_placed(parameter.condition, parameter.condition_offset)}), {tag}, {constant}>"


def _placed(expression: str, offset: int) -> str:
    """What the compiler says of an expression is found again by the line that it is told the expression is on."""
    return f'\n# {offset + 1} "{VALUES}"\n{" ".join(expression.split())}\n# 1 "{ENTRIES}"\n'


def read(ir: str, kernels: tuple[KernelDeclaration, ...], diagnose: Diagnose) -> tuple[KernelSignature, ...]:
    """Return the signatures of a module's kernels."""
    return tuple(_read_one(ir, index, kernel, diagnose) for index, kernel in enumerate(kernels))


def _read_one(ir: str, index: int, kernel: KernelDeclaration, diagnose: Diagnose) -> KernelSignature:
    start = ir.index(f"@{DESCRIBE.format(index)}(")
    body = ir[start : ir.index("\n}", start)]
    indices = {int(position): int(number) for position, number in _INDEX.findall(body)}
    absent = {int(position) for position in _ABSENT.findall(body)}
    taken: dict[tuple[str, int], str] = {}
    for position, number in indices.items():
        parameter = kernel.parameters[position]
        attribute = parameter.attribute[0]
        if attribute not in NUMBERED or position in absent:
            continue
        sentence = ""
        # buffers that depend on a constant may share a number: no choice of constants need have both
        other = parameter.name
        if not parameter.condition:
            other = taken.setdefault((attribute, number), parameter.name)
        if not 0 <= number < _COUNTS[attribute]:
            last = _COUNTS[attribute] - 1
            sentence = f"[[{attribute}({number})]] is out of range: Metal has {attribute}s 0 to {last}"
        elif other != parameter.name:
            sentence = f"[[{attribute}({number})]] is already taken by {other!r}: give {parameter.name!r} another index"
        if sentence:
            raise CompileError(kernel.host_name, (diagnose(parameter.offset, sentence),))
    parameters = []
    for call in _CALL.findall(body):
        position, kind, element, size, lanes, rank = (
            int(part.rsplit(" ", 1)[-1]) for part in call.split(",")
        )
        written = kernel.parameters[position]
        attribute = written.attribute[0]
        if _KINDS[kind] == "texture":
            parameters.append(
                Parameter(
                    name=written.name,
                    kind="texture",
                    index=indices[position],
                    element=_ELEMENTS[element],
                    attribute=attribute,
                    texture=TEXTURE_TYPES[rank],
                    access=_ACCESSES[size],
                )
            )
            continue
        parameters.append(
            Parameter(
                name=written.name,
                kind=_KINDS[kind],
                index=indices[position] if attribute in NUMBERED else -1,
                element=_ELEMENTS[element],
                element_bytes=size,
                lanes=lanes,
                rank=rank,
                address_space=written.address_space or ("device" if _KINDS[kind] == "tensor" else ""),
                attribute=attribute,
                present=position not in absent,
            )
        )
    _check_taken(kernel.host_name, parameters)
    limit = min(kernel.max_threads or _MOST_THREADS, _MOST_THREADS)
    return KernelSignature(kernel.host_name, ENTRY.format(index), tuple(parameters), limit)


def _check_taken(kernel: str, parameters: list[Parameter]) -> None:
    """Two buffers may have one index where no specialisation has both."""
    taken: dict[int, str] = {}
    for parameter in parameters:
        if parameter.attribute == "buffer" and parameter.present:
            other = taken.setdefault(parameter.index, parameter.name)
            if other != parameter.name:
                both = f"both {other!r} and {parameter.name!r}"
                sentence = f"[[buffer({parameter.index})]] is {both} with these constants"
                raise CompileError(kernel, (Diagnostic("error", sentence),))
