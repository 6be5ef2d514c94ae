"""``metalwright run FILE.metal:KERNEL``: one dispatch of a kernel on arguments from the command line."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from metalwright.cli import results, shader_args, shader_options
from metalwright.cli.loading import TargetError
from metalwright.cli.output import console
from metalwright.cli.progress import waiting
from metalwright.errors import ArgumentError

Arguments = Annotated[list[str] | None, typer.Option("--arg", help=shader_args.HELP)]
Threads = Annotated[
    str | None, typer.Option("--threads", help="Threads per grid, such as 1000 or 64,48; of a .metal file.")
]
Group = Annotated[
    str | None,
    typer.Option("--group", help="Threads per threadgroup, such as 256 or 16,16; of a .metal file."),
]
Memory = Annotated[
    list[int] | None,
    typer.Option(
        "--threadgroup-memory", min=0, help="Bytes of each threadgroup argument, by its index; repeatable."
    ),
]


@dataclass(frozen=True)
class Dispatch:
    """What the command line says of one dispatch, as it was written."""

    arguments: list[str] | None
    threads: str | None
    group: str | None
    memory: list[int] | None
    include: list[Path] | None
    define: list[str] | None
    constant: list[str] | None
    recursion: int | None

    @property
    def given(self) -> bool:
        """Whether any of it was used."""
        return any(value is not None for value in vars(self).values())


def run(
    path: Path, name: str | None, dispatch: Dispatch, math: str | None, checked: bool, everything: bool
) -> None:
    """Compile the file, run the kernel once, and show every tensor that it changed."""
    import torch

    from metalwright.authoring import shader

    with waiting(f"compiling {path.name}"):
        library = shader.compile_shader(
            path,
            include_dirs=dispatch.include or (),
            defines=shader_options.defines(dispatch.define),
            constants=shader_options.constants(dispatch.constant),
            math_mode=math or "safe",
            checked=checked,
            recursion=dispatch.recursion or 0,
        )
    kernel = _choose(path, library, name)
    arguments = [shader_args.parse(text) for text in dispatch.arguments or ()]
    before = [value.clone() if isinstance(value, torch.Tensor) else None for value in arguments]
    began = time.perf_counter()
    with results.collecting_log() as logged, waiting(f"running {kernel.name}"):
        kernel(
            *arguments,
            threads=_size("--threads", dispatch.threads),
            group_size=_size("--group", dispatch.group),
            threadgroup_memory=dispatch.memory or (),
        )
    screen = console()
    screen.print(f"{kernel.name}: {results.milliseconds(time.perf_counter() - began)}")
    for line in logged:
        screen.print(f"  {line}")
    changed = {
        _label(kernel, index): value
        for index, (value, old) in enumerate(zip(arguments, before, strict=True))
        if old is not None and not _same_bytes(value, old)
    }
    if not changed:
        screen.print("  no argument was changed")
    results.show(screen, list(changed), list(changed.values()), everything)


def _choose(path: Path, library: Any, name: str | None) -> Any:
    names = list(library)
    if name is None and len(names) == 1:
        return library[names[0]]
    listed = ", ".join(names) or "none"
    if name is None:
        raise TargetError(f"{path}: name the kernel to run, as FILE.metal:KERNEL; its kernels: {listed}")
    if name not in names:
        raise TargetError(f"{path} has no kernel {name!r}; its kernels: {listed}")
    return library[name]


def _label(kernel: Any, index: int) -> str:
    """Return the parameter's name for an argument's position, which is its buffer index."""
    found = (p.name for p in kernel.signature.parameters if p.kind == "pointer" and p.index == index)
    return next(found, f"argument {index}")


def _same_bytes(value: Any, old: Any) -> bool:
    import torch

    # by bytes: a NaN is not equal to itself
    return torch.equal(value.flatten().view(torch.uint8), old.flatten().view(torch.uint8))


def _size(option: str, text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.replace("x", ",").split(",")]
    except ValueError:
        raise ArgumentError(
            f"{option}: expected one to three whole numbers, such as 64,48, got {text!r}"
        ) from None
