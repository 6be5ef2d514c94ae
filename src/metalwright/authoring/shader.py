"""``compile_shader``: whole files of MSL, called as ``torch.mps.compile_shader`` has them called."""

from __future__ import annotations

import dataclasses
import functools
import operator
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from metalwright.authoring import binding, definition, kernel_log
from metalwright.authoring import textures as pixels
from metalwright.engine import KernelSignature, Program, load
from metalwright.errors import ArgumentError, DispatchError, KernelFault
from metalwright.msl import CompileOptions, Library, Section
from metalwright.msl.constants import Value

_THREAD_EXECUTION_WIDTH = 32
_AXES = 3


class ShaderKernel:
    """One kernel of a library, to be called on CPU tensors; it writes into those that it is given.

    Attributes:
        name: The kernel's host name.
        max_threads_per_threadgroup: 1024, or what ``[[max_total_threads_per_threadgroup(n)]]`` says.
        thread_execution_width: Lanes of a simdgroup: 32, as on every Apple GPU.
        static_thread_group_memory_length: Bytes of threadgroup memory of the kernel's own variables.
    """

    thread_execution_width = _THREAD_EXECUTION_WIDTH

    def __init__(self, library: Library, signature: KernelSignature) -> None:
        self.name = signature.name
        self.max_threads_per_threadgroup = signature.max_threads
        self.signature = signature
        self._library = library
        self._lock = threading.Lock()

    @property
    def static_thread_group_memory_length(self) -> int:
        return self._program.threadgroup_bytes

    def __call__(
        self,
        *args: Any,
        threads: int | Sequence[int] | None = None,
        group_size: int | Sequence[int] | None = None,
        arg_casts: str | Mapping[int, str] | None = None,
        error_buf_idx: int | None = None,
        threadgroup_memory: Sequence[int] = (),
        textures: Sequence[torch.Tensor | pixels.Texture | None] = (),
        workers: int | None = None,
    ) -> None:
        """Run the kernel; it has written its results when the call returns.

        Args:
            args: One for each buffer, in the order of the ``[[buffer(n)]]`` indices. A tensor is bound at its own
                offset, whatever its strides; a float is bound as ``float``, an int or bool as ``long``; a list or
                tuple of floats or of ints as an array of such.
            threads: Threads of the grid along x, or along x, y, z; by default as many as the first tensor has
                elements.
            group_size: Threads of a threadgroup, of as many dimensions as ``threads``; by default as many along x
                as the kernel may have.
            arg_casts: The type to bind numbers as, for all or by position: ``"fp16"``, ``"bf16"``, ``"int32"``,
                ``"int16"``, ``"int8"``, ``"uint8"``.
            error_buf_idx: PyTorch's buffer for reported errors; not supported here.
            threadgroup_memory: Bytes of each ``[[threadgroup(n)]]`` argument, in order.
            textures: One for each ``[[texture(n)]]``, in order: a dense tensor of shape ``(height, width)`` or
                ``(height, width, channels)`` for a ``texture2d``, in the float or integer format of its dtype, or a
                :class:`metalwright.Texture`, which has any format; ``None`` is a null texture.
            workers: OS threads to use at most; all by default.

        Raises:
            ArgumentError: An argument is not what the kernel's parameter takes.
            DispatchError: Sizes that no GPU accepts.
            KernelFault: The kernel did something wrong while it ran (in checked mode).
        """
        if error_buf_idx is not None:
            raise ArgumentError(f"kernel {self.name!r}: error_buf_idx is not supported")
        bound = binding.bind(self.signature, args, arg_casts)
        if isinstance(textures, torch.Tensor) or not isinstance(textures, Sequence):
            raise ArgumentError(f"kernel {self.name!r}: textures: expected a list, got {textures!r}")
        images = pixels.bind(self.name, self.signature.parameters, tuple(textures))
        grid = self._grid(args, threads)
        if grid == (0,):
            return
        group = self._group(grid, group_size)
        try:
            report = self._program.launch(
                bound.arguments,
                _three(grid),
                _three(group),
                threadgroup_memory=threadgroup_memory,
                textures=images,
                max_workers=workers,
            )
        except KernelFault as fault:
            kernel_log.emit(self.name, fault.log)
            raise
        kernel_log.emit(self.name, report.log)

    def __repr__(self) -> str:
        return f"<ShaderKernel {describe(self.signature)}>"

    @functools.cached_property
    def _program(self) -> Program:
        with self._lock:
            # a file may have several kernels: messages name the one that ran
            module = self._library.module(self.name)
            return load(dataclasses.replace(module, label=self.name), self.name)

    def _grid(self, args: Sequence[Any], threads: int | Sequence[int] | None) -> tuple[int, ...]:
        if threads is None:
            first = next((value for value in args if isinstance(value, torch.Tensor)), None)
            if first is None:
                raise DispatchError(
                    f"kernel {self.name!r}: threads is needed, since no argument is a tensor to count"
                )
            return (first.numel(),)
        return self._size("threads", threads)

    def _group(self, grid: tuple[int, ...], group_size: int | Sequence[int] | None) -> tuple[int, ...]:
        if group_size is None:
            most = self.max_threads_per_threadgroup
            return (min(grid[0], most),) if len(grid) == 1 else (most, *(1 for _ in grid[1:]))
        group = self._size("group_size", group_size)
        if len(group) != len(grid):
            raise DispatchError(
                f"kernel {self.name!r}: threads {grid} and group_size {group} must have as many dimensions"
            )
        return group

    def _size(self, name: str, value: int | Sequence[int]) -> tuple[int, ...]:
        entries = tuple(value) if isinstance(value, Iterable) else (value,)
        try:
            size = tuple(operator.index(entry) for entry in entries)
        except TypeError:
            raise DispatchError(
                f"kernel {self.name!r}: {name}: expected one to three whole numbers, got {value!r}"
            ) from None
        if not 1 <= len(size) <= _AXES:
            raise DispatchError(f"kernel {self.name!r}: {name} must be one to three numbers, got {value!r}")
        return size


class ShaderLibrary:
    """The kernels of a file as attributes; ``dir()`` lists them, and ``library["name"]`` takes any host name."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._kernels: dict[str, ShaderKernel] = {}

    @property
    def signatures(self) -> tuple[KernelSignature, ...]:
        """What the kernels are called and take."""
        return self._library.kernels

    @property
    def unset_constants(self) -> tuple[str, ...]:
        """The function constants that need a value before a kernel can run."""
        return self._library.unset_constants

    def __getattr__(self, name: str) -> ShaderKernel:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._find(name, AttributeError)

    def __getitem__(self, name: str) -> ShaderKernel:
        return self._find(name, KeyError)

    def __dir__(self) -> list[str]:
        return list(self)

    def __iter__(self) -> Iterator[str]:
        return (kernel.name for kernel in self._library.kernels)

    def __repr__(self) -> str:
        return f"<ShaderLibrary {self._library.label}: {', '.join(self) or 'no kernels'}>"

    def _find(self, name: str, missing: type[Exception]) -> ShaderKernel:
        try:
            signature = self._library.signature(name)
        except KeyError as error:
            raise missing(error.args[0]) from None
        if unset := self._library.unset_constants:
            raise ArgumentError(
                f"{self._library.label!r} has function constants without a value: {', '.join(unset)}; give them to "
                f"compile_shader as constants={{{unset[0]!r}: ...}} (--constant on the command line)"
            )
        return self._kernels.setdefault(name, self._make(self._library, signature))

    def _make(self, library: Library, signature: KernelSignature) -> ShaderKernel:
        return ShaderKernel(library, signature)


def compile_shader(
    source: str | os.PathLike[str],
    *,
    include_dirs: Sequence[str | os.PathLike[str]] = (),
    defines: Mapping[str, object] | None = None,
    constants: Mapping[str | int, Value] | None = None,
    math_mode: str = "safe",
    checked: bool = True,
    recursion: int = 0,
    name: str | None = None,
) -> ShaderLibrary:
    """Compile a file of MSL for this CPU; the counterpart of ``torch.mps.compile_shader``.

    Args:
        source: The MSL itself, or a path: a ``pathlib.Path``, or a string that ends with ``.metal``.
        include_dirs: Folders whose files can be included, searched in order; the folder of a file that is compiled
            comes first, PyTorch's own headers (``c10/metal``) last.
        defines: Macros, as ``-D`` gives them: a name and its value; ``True`` or ``None`` defines it as 1.
        constants: Values of ``[[function_constant(n)]]`` declarations, by name or by number.
        math_mode: ``"safe"`` (what PyTorch compiles with) or ``"fast"``.
        checked: Stop at an access outside a buffer and the like.
        recursion: How many calls of a function that calls itself may be nested; such functions are refused where
            it is 0. Going deeper is a ``KernelFault``.
        name: What messages call the source; by default a file's path, or ``<source>``.

    Raises:
        CompileError: The MSL does not compile; says where.
        UnsupportedFeatureError: It uses what does not run here.
        RefusedSourceError: It reaches outside a kernel.
        ArgumentError: An option is not valid; a folder or file is not there.
    """
    if problem := definition.option_problem(math_mode, checked, recursion):
        raise ArgumentError(f"compile_shader(): {problem}")
    if problem := _mistyped(include_dirs, defines, constants, name):
        raise ArgumentError(f"compile_shader(): {problem}")
    text, label, folders = _read(source)
    for folder in include_dirs:
        path = Path(folder).resolve()
        if not path.is_dir():
            raise ArgumentError(f"compile_shader(): include_dirs: {str(folder)!r} is not a folder")
        folders.append(str(path))
    library = compile_text(
        text,
        name or label,
        folders=folders,
        defines=_defines(defines or {}),
        constants=constants or {},
        math_mode=math_mode,
        checked=checked,
        recursion=recursion,
    )
    return ShaderLibrary(library)


def compile_text(
    text: str,
    label: str,
    *,
    folders: Sequence[str] = (),
    defines: str = "",
    constants: Mapping[str | int, Value] | None = None,
    math_mode: str = "safe",
    checked: bool = True,
    recursion: int = 0,
) -> Library:
    """Compile MSL that messages call ``label``; PyTorch's headers are found after those in ``folders``."""
    roots = (*folders, str(Path(torch.__file__).parent / "include"))
    options = CompileOptions(math_mode, checked, tuple((constants or {}).items()), roots, recursion)
    return Library((Section(defines), Section(text, label)), options, Path(label).name)


def _three(size: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*size, 1, 1)[:_AXES]
    return x, y, z


def describe(signature: KernelSignature) -> str:
    """Return a kernel's name and parameters in one line."""
    parts = []
    for parameter in (p for p in signature.parameters if p.present):
        what = parameter.attribute
        if parameter.index >= 0:
            what = f"{parameter.attribute}({parameter.index})"
        parts.append(f"{parameter.name} [[{what}]]")
    return f"{signature.name}({', '.join(parts)})"


def _read(source: str | os.PathLike[str]) -> tuple[str, str, list[str]]:
    """Return the text, the name that messages give it, and the folder that it is in."""
    if not isinstance(source, (str, os.PathLike)):
        raise ArgumentError(f"compile_shader(): source: expected MSL or a path, got {source!r}")
    if isinstance(source, str) and not ("\n" not in source and source.endswith(".metal")):
        return source, "<source>", []
    path = Path(source)
    try:
        return path.read_text("utf-8"), str(path), [str(path.resolve().parent)]
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"compile_shader(): {str(path)!r} cannot be read: {error}") from error


def _mistyped(include_dirs: object, defines: object, constants: object, name: object) -> str | None:
    """Say which option is of another type than it has to be, or return ``None``."""
    if isinstance(include_dirs, str) or not isinstance(include_dirs, Sequence):
        return f"include_dirs: expected a list of folders, got {include_dirs!r}"
    for folder in include_dirs:
        if not isinstance(folder, (str, os.PathLike)):
            return f"include_dirs: expected folders, got {folder!r}"
    for option, value in (("defines", defines), ("constants", constants)):
        if value is not None and not isinstance(value, Mapping):
            return f"{option}: expected a dict of names and values, got {value!r}"
    for key, value in constants.items() if isinstance(constants, Mapping) else ():
        if isinstance(key, bool) or not isinstance(key, (str, int)):
            return f"constants: expected names or numbers of function constants, got {key!r}"
        numbers = value if isinstance(value, (list, tuple)) else [value]
        if not all(isinstance(number, (bool, int, float)) for number in numbers):
            return f"constants: {key!r}: expected a bool, a number or a list of such, got {value!r}"
    if name is not None and not isinstance(name, str):
        return f"name: expected a string, got {name!r}"
    return None


def _defines(defines: Mapping[str, object]) -> str:
    lines = []
    for name, value in defines.items():
        if not str(name).isidentifier():
            raise ArgumentError(f"compile_shader(): defines: {name!r} is not a name")
        text = "1" if value is None or value is True else "0" if value is False else str(value)
        if "\n" in text:
            raise ArgumentError(f"compile_shader(): defines: the value of {name!r} has more than one line")
        lines.append(f"#define {name} {text}")
    return "\n".join(lines)
