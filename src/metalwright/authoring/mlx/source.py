"""The text of a kernel whose body is given as MLX takes it: a signature made from the arguments of one call."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from metalwright.authoring.mlx.element_types import MLXType
from metalwright.authoring.source import open_ending
from metalwright.errors import CompileError, Diagnostic, Site
from metalwright.msl import Section
from metalwright.msl.attributes import SCALAR_ATTRIBUTES, VECTOR_ATTRIBUTES

# MLX: an array of fewer elements lies in the constant address space
_SMALL = 8
_INFO = ("shape", "strides", "ndim")


@dataclass(frozen=True)
class Definition:
    """What a kernel is made of, apart from the arguments of a call."""

    name: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    source: str
    header: str
    atomic_outputs: bool

    def asks(self, name: str, info: str) -> bool:
        """True if the body speaks of ``<name>_shape``, ``<name>_strides`` or ``<name>_ndim``."""
        return f"{name}_{info}" in self.source


@dataclass(frozen=True)
class InputForm:
    """What the signature has to know of an input."""

    dtype: MLXType
    ndim: int
    small: bool

    @classmethod
    def of(cls, dtype: MLXType, shape: Sequence[int], size: int) -> InputForm:
        return cls(dtype, len(shape), size < _SMALL)

    @property
    def suffix(self) -> str:
        how = "s" if self.ndim == 0 else "c" if self.small else ""
        return f"{self.dtype.msl}{how}"


Template = tuple[str, MLXType | int | bool]


def infos(definition: Definition, name: str, form: InputForm) -> tuple[str, ...]:
    """Return which of shape, strides and ndim follow an input in the signature, in that order."""
    return tuple(info for info in _INFO if form.ndim > 0 and definition.asks(name, info))


def entry_name(
    definition: Definition,
    template: Sequence[Template],
    inputs: Sequence[InputForm],
    outputs: Sequence[MLXType],
) -> str:
    """Return the name of the generated function: other types, another function."""
    parts = ["custom_kernel", definition.name]
    parts += [_written(value).replace("-", "m") for _, value in template]
    parts += [form.suffix for form in inputs]
    parts += [dtype.msl for dtype in outputs]
    return "_".join(parts)


def sections(
    definition: Definition,
    template: Sequence[Template],
    inputs: Sequence[InputForm],
    outputs: Sequence[MLXType],
) -> tuple[Section, ...]:
    """Return the program: MLX's utilities, the header, the signature, the body.

    Raises:
        CompileError: the header ends in a comment or directive that would go on into the signature.
    """
    pieces = [Section(utilities())]
    if definition.header:
        _check_header(definition)
        pieces.append(Section(definition.header, f"{definition.name}.header"))
    name = entry_name(definition, template, inputs, outputs)
    before, after = _frame(definition, name, template, inputs, outputs)
    return (*pieces, Section(before), Section(definition.source, f"{definition.name}.source"), Section(after))


def shown(
    definition: Definition,
    template: Sequence[Template],
    inputs: Sequence[InputForm],
    outputs: Sequence[MLXType],
) -> str:
    """Return the generated source as ``verbose`` prints it: all but the utilities."""
    name = entry_name(definition, template, inputs, outputs)
    before, after = _frame(definition, name, template, inputs, outputs)
    header = f"{definition.header}\n" if definition.header else ""
    return f"{header}{before}\n{definition.source}\n{after}"


@functools.cache
def utilities() -> str:
    """Return the text that stands before every kernel."""
    return (Path(__file__).parent / "utils.metal").read_text("utf-8")


def _frame(
    definition: Definition,
    name: str,
    template: Sequence[Template],
    inputs: Sequence[InputForm],
    outputs: Sequence[MLXType],
) -> tuple[str, str]:
    """Return the text before and after the body."""
    parameters: list[str] = []

    def add(declaration: str) -> None:
        parameters.append(f"{declaration} [[buffer({len(parameters)})]]")

    for input_name, form in zip(definition.input_names, inputs, strict=True):
        space = "constant" if form.small else "device"
        add(f"const {space} {form.dtype.msl}{'*' if form.ndim else '&'} {input_name}")
        for info in infos(definition, input_name, form):
            kind = {"shape": "int*", "strides": "int64_t*", "ndim": "int&"}[info]
            add(f"const constant {kind} {input_name}_{info}")
    for output_name, dtype in zip(definition.output_names, outputs, strict=True):
        element = f"atomic<{dtype.msl}>" if definition.atomic_outputs else dtype.msl
        add(f"device {element}* {output_name}")
    parameters += _attributes(definition.source)
    before = f"[[kernel]] void {name}(\n  " + ",\n  ".join(parameters) + ") {"
    if not template:
        return before, "}"
    declared = ", ".join(f"{_kind(value)} {parameter}" for parameter, value in template)
    given = f"{name}<{', '.join(_written(value) for _, value in template)}>"
    instance = f'template [[host_name("{name}")]] [[kernel]] decltype({given}) {given};'
    return f"template <{declared}>\n{before}", f"}}\n{instance}"


def _attributes(source: str) -> list[str]:
    """Return a parameter for each thread attribute that the body names."""
    found = []
    for kind, names in (("uint3", VECTOR_ATTRIBUTES), ("uint", SCALAR_ATTRIBUTES)):
        found += [f"{kind} {name} [[{name}]]" for name in sorted(names) if name in source]
    return found


def _kind(value: MLXType | int | bool) -> str:
    if isinstance(value, MLXType):
        return "typename"
    return "bool" if isinstance(value, bool) else "int"


def _written(value: MLXType | int | bool) -> str:
    if isinstance(value, MLXType):
        return value.msl
    return str(int(value))


def _check_header(definition: Definition) -> None:
    # MLX puts the signature right behind the header, on the same line where that does not end with a newline
    if ending := open_ending(definition.header):
        lines = definition.header.split("\n")
        where = Site(f"{definition.name}.header", len(lines))
        message = (
            f"the header ends inside {ending}, which swallows the kernel's signature; end it with a newline"
        )
        raise CompileError(definition.name, (Diagnostic("error", message, where, lines[-1]),))
