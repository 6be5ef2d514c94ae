"""A kernel with everything that rules ask about it; nothing of it is executed but its ``cases``."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coreai_torch import TorchMetalKernel

from metalwright.authoring import dtypes, reference
from metalwright.authoring.dtypes import ElementType
from metalwright.check.cases import cases_of
from metalwright.check.inputs import Random
from metalwright.errors import Site
from metalwright.lint import python_source
from metalwright.lint.expressions import Node
from metalwright.lint.msl import Code
from metalwright.lint.python_source import FunctionSource, KernelCall, PythonFile
from metalwright.lint.rule import Hit, Severity

# of types that Core AI's table has under another name
_SPELLINGS = {
    "unsigned": "uint",
    "char": "int8_t",
    "uchar": "uint8_t",
    "short": "int16_t",
    "ushort": "uint16_t",
    "long": "int64_t",
    "ulong": "uint64_t",
    "int32_t": "int",
    "uint32_t": "uint",
}


@dataclass(frozen=True)
class Launch:
    """What a case says without its data: shapes and dtypes in PyTorch's order, scalars, sizes."""

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, ElementType]
    scalars: Mapping[str, Any]
    grid: tuple[int, ...]
    group: tuple[int, ...]

    @property
    def threads(self) -> int:
        """Threads in a whole threadgroup."""
        return math.prod(self.group)

    def extent(self, name: str, dimension: int) -> int | None:
        """Return what ``name.get_extent(dimension)`` gives: Metal counts dimensions from the other end."""
        shape = self.shapes.get(name)
        return shape[-1 - dimension] if shape is not None and 0 <= dimension < len(shape) else None


class Subject:
    """A kernel as rules see it."""

    def __init__(
        self,
        kernel: TorchMetalKernel,
        file: PythonFile | None = None,
        namespace: Mapping[str, Any] | None = None,
    ) -> None:
        self.kernel = kernel
        self.name: str = kernel.name
        self.inputs: list[str] = list(kernel.input_names)
        self.results: list[str] = list(kernel.result_names)
        templates: dict[str, str] = dict(kernel.dtype_templates or {})
        self.templates = templates
        types = frozenset(word + lanes for word in templates.values() for lanes in ("", "2", "3", "4"))
        self.helpers = Code(f"{self.name}.helper_src", kernel.helpers or "", types)
        constants = self.helpers.constants | {
            v.name: value
            for v in self.helpers.variables
            if v.space == "constant" and (value := self.helpers.constant(v.value)) is not None
        }
        self.body = Code(f"{self.name}.src", kernel.src, types, constants)
        self.codes = (self.helpers, self.body)
        self.function = reference.of(kernel)
        self.reference = python_source.source_of(self.function)
        unwrapped: Any = getattr(self.function, "__globals__", {})
        self.file = file or (self.reference.file if self.reference else None)
        self.namespace = dict(namespace if namespace is not None else unwrapped)
        self.attributes: dict[str, str] = {p.name: p.attr for p in kernel.metal_parameters}

    # Launches -------------------------------------------------------------------------------------------------

    @functools.cached_property
    def launches(self) -> tuple[Launch, ...]:
        """The kernel's cases; empty where it has none. No tensor is drawn."""
        if getattr(self.kernel, "cases", None) is None:
            return ()
        found: list[Launch] = []
        for case in cases_of(self.kernel, None):
            shapes: dict[str, tuple[int, ...]] = {}
            types: dict[str, ElementType] = {}
            scalars: dict[str, Any] = {}
            for name, value in zip(self.inputs, case.inputs, strict=True):
                if isinstance(value, Random) or hasattr(value, "shape"):
                    shapes[name] = tuple(value.shape)
                    if (row := dtypes.find(value.dtype)) is not None:
                        types[name] = dtypes.on_device(row)
                else:
                    scalars[name] = value
            shapes |= dict(zip(self.results, case.result_shapes, strict=False))
            grid, group = (
                tuple(int(n) for n in (*sizes, 1, 1)[:3])
                for sizes in (case.threads_per_grid, case.threads_per_thread_group)
            )
            found.append(Launch(case.name, shapes, types, scalars, grid, group))
        return tuple(found)

    @functools.cached_property
    def cases_source(self) -> FunctionSource | None:
        """Where the cases are written, if they come from a function."""
        cases: Any = getattr(self.kernel, "cases", None)
        return python_source.source_of(cases) if callable(cases) else None

    # Names ----------------------------------------------------------------------------------------------------

    def attribute(self, node: Node) -> str:
        """Return the thread attribute that ``gid`` or ``gid.x`` stands for, with its component: ``"…_in_grid.x"``.

        A name that is declared in the body hides a parameter; ``""`` where it is none.
        """
        node = node.uncast()
        component = "x"
        if node.kind == "member" and node.text in ("x", "y", "z"):
            component, node = node.text, node.parts[0]
        if node.kind != "name":
            return ""
        variable = self.body.variable(node.text, node.at)
        if variable is not None:
            # uint row = gid.y;
            alone = variable.kind == "value" and not self.body.assignments(variable.name)
            return self.attribute(variable.value) if alone and variable.value and component == "x" else ""
        attribute = self.attributes.get(node.text)
        return f"{attribute}.{component}" if attribute else ""

    def is_parameter(self, name: str, at: int) -> bool:
        """Whether a name of the body means an input or a result."""
        return name in (*self.inputs, *self.results) and self.body.variable(name, at) is None

    def size_of(self, type_word: str) -> int | None:
        """Return the bytes of a type: of a placeholder, the most that a case gives it."""
        lanes = 1
        if type_word and type_word[-1] in "234" and not type_word.endswith("_t"):
            lanes = 4 if type_word[-1] in "34" else 2
            type_word = type_word[:-1]
        type_word = type_word.removeprefix("atomic_")
        type_word = _SPELLINGS.get(type_word, type_word)
        for name, placeholder in self.templates.items():
            if placeholder == type_word:
                sizes = [one.types[name].size for one in self.launches if name in one.types]
                return max(sizes) * lanes if sizes else None
        row = {row.msl: row for row in dtypes.ELEMENT_TYPES}.get(type_word)
        return row.size * lanes if row else None

    # Hits -----------------------------------------------------------------------------------------------------

    def hit(self, code: Code, at: int, message: str, severity: Severity | None = None) -> Hit:
        """Return a hit at a token of the MSL."""
        site, excerpt = code.place(at)
        return Hit(f"kernel {self.name!r}: {message}", site, excerpt, severity)

    def launch_hit(self, message: str, severity: Severity | None = None) -> Hit:
        """Return a hit at the kernel's cases."""
        if self.cases_source is not None:
            site, excerpt = self.cases_source.file.site(self.cases_source.node)
        else:
            site, excerpt = self.definition or (None, None)
        return Hit(f"kernel {self.name!r}: {message}", site, excerpt, severity)

    @functools.cached_property
    def definition(self) -> tuple[Site, str] | None:
        """The line of Python that the kernel's MSL, or else its reference, begins on."""
        where = self.file.literal(self.kernel.src) if self.file else None
        if self.file and where:
            return Site(self.file.shown, where[0]), self.file.lines[where[0] - 1]
        return self.reference.file.site(self.reference.node) if self.reference else None

    @property
    def calls(self) -> list[KernelCall]:
        """Where the kernel is called by name in its file."""
        return list(python_source.calls_of(self.kernel, self.file, self.namespace)) if self.file else []

    def python_place(self, site: Site | None) -> Site | None:
        """Return the place in the Python file of a line of the MSL, where the MSL stands there as it is."""
        if site is None or self.file is None:
            return None
        code = next((code for code in self.codes if code.file == site.file), None)
        if code is None:
            return site
        where = self.file.literal(code.written)
        if where is None:
            return self.definition[0] if self.definition else None
        line = where[0] + site.line - 1
        written = code.lines[site.line - 1].rstrip()
        if line <= len(self.file.lines) and written and written in self.file.lines[line - 1]:
            begin = self.file.lines[line - 1].index(written)
            return Site(self.file.shown, line, begin + site.column)
        return Site(self.file.shown, where[0])
