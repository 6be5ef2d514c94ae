"""``metalwright run``: execute kernels, or a module that uses them, and show what comes out."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Console

from metalwright.cli import loading, results, run_artifact, run_shader, shader_options, shapes
from metalwright.cli.output import console
from metalwright.cli.progress import waiting
from metalwright.errors import ArgumentError

_INPUT = "give its inputs with --input NAME=FILE"


def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py[:NAME] or FILE.metal[:KERNEL] or X.aimodel[:FUNCTION]",
            help="A kernel or nn.Module, or every kernel of a file; a kernel of a .metal file; an artifact.",
        ),
    ],
    shape: shapes.Shapes = None,
    dtype: shapes.Dtypes = None,
    case: Annotated[
        str | None, typer.Option(help="Name or number (from 1) of one case; all by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of generated inputs.", min=0)] = 0,
    math: Annotated[str | None, typer.Option(help="safe or fast; the kernel's own by default.")] = None,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Run without the checks, faster.")] = False,
    everything: Annotated[bool, typer.Option("--all-values", help="Print results in full.")] = False,
    arg: run_shader.Arguments = None,
    threads: run_shader.Threads = None,
    group: run_shader.Group = None,
    threadgroup_memory: run_shader.Memory = None,
    include: shader_options.Includes = None,
    define: shader_options.Defines = None,
    constant: shader_options.Constants = None,
    recursion: shader_options.Recursion = None,
    inputs: run_artifact.Inputs = None,
    output: run_artifact.Outputs = None,
    checked: run_artifact.Checked = False,
    trace: run_artifact.Traced = False,
    dump: run_artifact.DumpTo = None,
) -> None:
    """Execute the MSL and print results, times and what the kernel logs, without judging them.

    A kernel runs on its own cases, or on inputs from --shape and --dtype. An nn.Module runs on its example_args;
    every Metal kernel it calls executes its MSL, also one written for a Mac with coreai_torch. A kernel of a
    .metal file runs once, on the buffers given with --arg. An .aimodel runs as it ships, its embedded MSL included,
    on the inputs given with --input; there, --shape 7,64 or --shape NAME=7,64 is the size of random inputs.
    """
    shipped = run_artifact.Options(inputs, output, checked, trace, dump)
    dispatch = run_shader.Dispatch(
        arg, threads, group, threadgroup_memory, include, define, constant, recursion
    )
    if artifact := loading.parse_artifact(target):
        if dispatch.given or dtype or case:
            raise ArgumentError(
                f"{artifact.path.name}: an artifact takes no --arg, --dtype, --case and the like: {_INPUT}"
            )
        run_artifact.run(artifact, shipped, shape, seed, math, not unchecked, everything)
        return
    if shipped.given:
        raise ArgumentError("--input, --output, --checked, --trace and --dump are for .aimodel artifacts")
    where = loading.parse_target(target, (".py", ".metal"))
    if where.path.suffix == ".metal":
        if shape or dtype or case:
            raise ArgumentError(f"{where.path.name}: a .metal file has no cases: give its buffers with --arg")
        run_shader.run(where.path, where.name, dispatch, math, not unchecked, everything)
        return
    if dispatch.given:
        raise ArgumentError(
            "--arg, --threads, --group, --threadgroup-memory, -I, -D, --constant and --recursion are for .metal files"
        )
    screen = console()
    found = loading.objects(where)
    for value in found.values():
        if loading.is_module(value):
            _run_module(screen, where, value, math, unchecked, everything)
            continue
        with loading.user_code(where.path):
            chosen = _choose(value, shapes.cases_for(value, shape, dtype, seed), case)
            for one in chosen:
                _run_case(screen, value, one, seed, math, unchecked, everything)


def _choose(kernel: Any, given: Any, case: str | None) -> list[Any]:
    from metalwright.check import cases_of

    found = list(cases_of(kernel, given))
    if case is None:
        return found
    chosen = [one for number, one in enumerate(found, start=1) if case in (one.name, str(number))]
    if not chosen:
        raise ArgumentError(
            f"kernel {kernel.name!r} has no case {case!r}; it has {', '.join(one.name for one in found)}"
        )
    return chosen


def _run_case(
    screen: Console, kernel: Any, case: Any, seed: int, math: str | None, unchecked: bool, everything: bool
) -> None:
    from metalwright.authoring.run import execute

    inputs = case.draw("normal", seed, kernel.input_names)

    def launch() -> Any:
        return execute(
            kernel, inputs, case.threads_per_grid, case.threads_per_thread_group, case.result_shapes,
            math_mode=math, checked=False if unchecked else None, group_name="threads_per_thread_group",
        )  # fmt: skip

    began = time.perf_counter()
    with waiting(f"running {kernel.name}"):
        launch()
        first = time.perf_counter() - began
        began = time.perf_counter()
        execution = launch()
    again = time.perf_counter() - began
    screen.print(
        f"{kernel.name}, {case.name}: grid {case.threads_per_grid}, threadgroup {case.threads_per_thread_group}, "
        f"first launch {results.milliseconds(first)}, second {results.milliseconds(again)}"
    )
    for line in execution.report.log:
        screen.print(f"  {line.level}: {kernel.name}, thread {line.thread}: {line.text}")
    results.show(screen, kernel.result_names, execution.results, everything)


def _run_module(
    screen: Console, where: loading.Target, module: Any, math: str | None, unchecked: bool, everything: bool
) -> None:
    import torch

    from metalwright.authoring import emulate

    arguments = loading.example_args(where, module)
    began = time.perf_counter()
    emulated = emulate(checked=not unchecked, math_mode=math or "safe")
    with (
        waiting("running"), loading.user_code(where.path), torch.no_grad(), emulated,
        results.collecting_log() as logged,
    ):  # fmt: skip
        given = module.eval()(*arguments)
    screen.print(f"{type(module).__name__}: {results.milliseconds(time.perf_counter() - began)}")
    for line in logged:
        screen.print(f"  {line}")
    given = given if isinstance(given, (list, tuple)) else (given,)
    results.show(screen, [f"result {i}" for i in range(len(given))], given, everything)
