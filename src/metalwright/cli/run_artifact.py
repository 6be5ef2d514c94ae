"""``metalwright run X.aimodel``: the artifact that ships, its kernels included."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from metalwright.cli import artifact_inputs, loading, results, tensors
from metalwright.cli.dump import Dump
from metalwright.cli.loading import Target
from metalwright.cli.output import console, show_error
from metalwright.cli.progress import waiting
from metalwright.cli.trace import Trace
from metalwright.errors import ArgumentError, KernelFault

Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=VALUE",
        help="An input or a state of an .aimodel: a .npy, .pt or .safetensors file, or random[:SEED]; repeatable. "
        "Inputs that are not given are random, states are zeros.",
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        metavar="NAME=FILE",
        help="Where to write an output, or a state as it is afterwards (.npy, .pt, .safetensors); repeatable.",
    ),
]
Checked = Annotated[
    bool,
    typer.Option(
        "--checked",
        help="Of an .aimodel: run each kernel twice, the second time in reverse, and report races and elements that "
        "no thread wrote.",
    ),
]
Traced = Annotated[
    bool, typer.Option("--trace", help="Of an .aimodel: list each part and each kernel in order.")
]
DumpTo = Annotated[
    Path | None,
    typer.Option("--dump", metavar="DIR", help="Of an .aimodel: write what each kernel read and wrote."),
]


@dataclass(frozen=True)
class Options:
    """What the command line says that only artifacts take."""

    inputs: list[str] | None
    outputs: list[str] | None
    checked: bool
    trace: bool
    dump: Path | None

    @property
    def given(self) -> bool:
        """Whether any of it was used."""
        return any(vars(self).values())


def run(
    target: Target, options: Options, sizes: list[str] | None, seed: int, math: str | None, bounds: bool,
    everything: bool,
) -> None:  # fmt: skip
    """Run a function once and show its outputs; exit code 1 if ``--checked`` finds something."""
    from metalwright import coreai

    if options.checked and not bounds:
        raise ArgumentError("--checked and --unchecked exclude each other")
    screen = console()
    load = coreai.load  # imports PyTorch and Core AI, which is not the artifact's time
    began = time.perf_counter()
    with waiting(f"loading {target.path.name}"):
        model = load(target.path, checked=bounds, math_mode=math or "safe")
    loaded = time.perf_counter() - began
    function = model.functions[loading.function_of(target, list(model.functions))]
    outputs = _destinations(function, options.outputs)
    given = artifact_inputs.gather(function, options.inputs, sizes, seed)
    model.reset(given.states)
    for line in artifact_inputs.shown(given.drawn):
        screen.print(line)
    trace, dump, reruns = Trace(), Dump(options.dump) if options.dump else None, _Reruns()
    observers = [*([trace] if options.trace else []), *([dump] if dump else [])]
    began = time.perf_counter()
    with waiting(f"running {function.name}"), results.collecting_log() as logged:
        if options.checked:
            observers.append(reruns.quiet(logged))
        try:
            made = model.run(function.name, given.inputs, observer=_all(observers))
        except KernelFault as fault:
            if options.trace:
                trace.show(screen)
            if not options.checked:
                raise
            reruns.show(screen, whole=False)
            show_error(fault)
            raise typer.Exit(1) from None
    screen.print(
        f"{function.name}: loaded in {results.milliseconds(loaded)}, "
        f"ran in {results.milliseconds(time.perf_counter() - began)}"
    )
    for line in logged:
        screen.print(f"  {line}")
    results.show(screen, list(made), list(made.values()), everything)
    if options.trace:
        trace.show(screen)
    if dump:
        screen.print(f"wrote what {_count(dump.launches, 'launch')} read and wrote to {options.dump}")
    for path, names in outputs.items():
        values = {name: made[name] if name in made else model.state(name) for name in names}
        tensors.write(f"--output {names[0]}={path}", path, values)
    if options.checked and reruns.show(screen):
        raise typer.Exit(1)


def _destinations(function: Any, given: list[str] | None) -> dict[Path, list[str]]:
    """Return the files to write, each with the names of what goes into it."""
    known = [info.name for info in (*function.outputs, *function.states)]
    files: dict[Path, list[str]] = {}
    for name, text in artifact_inputs.named("--output", given).items():
        if name not in known:
            raise ArgumentError(
                f"--output {name}: function {function.name!r} has no such output; it has {', '.join(known)}"
            )
        path = Path(text)
        if path.suffix not in tensors.SUFFIXES:
            raise ArgumentError(
                f"--output {name}={text}: expected a file that ends in {', '.join(tensors.SUFFIXES)}"
            )
        if not path.parent.is_dir():
            raise ArgumentError(f"--output {name}={text}: there is no folder {path.parent}")
        names = files.setdefault(path, [])
        names.append(name)
        if len(names) > 1 and path.suffix != ".safetensors":
            raise ArgumentError(
                f"--output {name}={text}: the file is also for {names[0]}; only .safetensors holds several"
            )
    return files


def _all(observers: list[Callable[[Any], None]]) -> Callable[[Any], None] | None:
    def observer(step: Any) -> None:
        for one in observers:
            one(step)

    return observer if observers else None


class _Reruns:
    """Launches each kernel a second time, and keeps what came out differently."""

    def __init__(self) -> None:
        self._launches = 0
        self._found: list[tuple[int, str, Any]] = []

    def quiet(self, logged: list[str]) -> Callable[[Any], None]:
        """Return the observer; what kernels log the second time is dropped from ``logged``."""
        from metalwright.coreai import rerun
        from metalwright.coreai.execute import KernelRun
        from metalwright.coreai.names import plain

        def observer(step: Any) -> None:
            if isinstance(step, KernelRun):
                self._launches += 1
                lines = len(logged)
                problems = rerun.problems(step)
                del logged[lines:]
                self._found += [(self._launches, plain(step.kernel.name), problem) for problem in problems]

        return observer

    def show(self, screen: Console, whole: bool = True) -> bool:
        """Print the findings, or that a ``whole`` run had none; return whether there are any."""
        for launch, kernel, problem in self._found:
            where = f"launch {launch}, kernel {kernel}: result {problem.result}"
            if problem.different:
                screen.print(
                    f"{where}: {problem.different} of {_count(problem.elements, 'element')} came out differently with "
                    f"the threads in reverse order (a race), the first at {list(problem.first_different)}"
                )
            if problem.unwritten:
                screen.print(
                    f"{where}: no thread wrote {problem.unwritten} of {_count(problem.elements, 'element')}, the first "
                    f"at {list(problem.first_unwritten)}"
                )
        if whole and not self._found:
            launches = _count(self._launches, "launch")
            screen.print(f"checked: {launches}, no race and no element that was not written")
        return bool(self._found)


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}{'es' if noun.endswith('ch') else 's'}"
