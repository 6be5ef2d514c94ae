"""``metalwright verify``: an artifact against the PyTorch module it was made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from metalwright.cli import loading, tensors
from metalwright.cli.output import console, show_table
from metalwright.cli.progress import track, waiting

if TYPE_CHECKING:
    from metalwright.coreai.verify import Verification


def verify(
    target: Annotated[
        str, typer.Argument(metavar="X.aimodel[:FUNCTION]", help="An artifact; its main function by default.")
    ],
    against: Annotated[
        str, typer.Option(metavar="FILE.py:MODULE", help="The nn.Module (or its class) that it was made of.")
    ],
    seed: Annotated[int, typer.Option(help="Seed of generated inputs.", min=0)] = 0,
    runs: Annotated[int, typer.Option(help="How many runs, each with a seed of its own.", min=1)] = 1,
    rtol: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Largest error of floats, relative to the largest expected element; 1e-3 by default, 1e-2 for "
            "float16 and 5e-2 for bfloat16.",
        ),
    ] = None,
    math: Annotated[str, typer.Option(help="safe or fast.")] = "safe",
) -> None:
    """Run an artifact beside its PyTorch module, and each of its kernels beside its reference.

    The inputs have the shapes and types of the module's example_args and are drawn from the seed; whole numbers lie
    between the smallest and the largest of the example. The first kernel that disagrees is named. Exit code 1 if
    an output or a kernel is wrong.
    """
    artifact = loading.parse_artifact(target)
    if artifact is None:
        raise loading.TargetError(f"{target}: expected X.aimodel[:FUNCTION]")
    where = loading.parse_target(against)
    module = loading.module(where)
    example = loading.example_args(where, module)
    from metalwright import coreai
    from metalwright.coreai.verify import verify as verify_once

    with waiting(f"loading {artifact.path.name}"):
        model = coreai.load(artifact.path, math_mode=math)
    function = loading.function_of(artifact, list(model.functions))
    seeds = range(seed, seed + runs)
    with loading.user_code(where.path):
        done = [
            verify_once(model, function, module, _drawn(example, one), rtol=rtol)
            for one in track(seeds, f"verifying {function}", runs)
        ]
    screen = console()
    for one, verification in zip(seeds, done, strict=True):
        if one > seeds[0]:
            screen.print()
        _show(screen, one, verification)
    if not all(verification.ok for verification in done):
        raise typer.Exit(1)


def _drawn(example: Sequence[Any], seed: int) -> Any:
    """Return inputs like the example, with other values."""
    import torch
    from torch.utils import _pytree as pytree

    from metalwright.check.inputs import seed_for

    leaves, structure = pytree.tree_flatten(tuple(example))
    drawn = [
        _like(leaf, seed_for(seed, place)) if isinstance(leaf, torch.Tensor) else leaf
        for place, leaf in enumerate(leaves)
    ]
    return pytree.tree_unflatten(drawn, structure)


def _like(example: Any, seed: int) -> Any:
    import torch

    if example.dtype.is_floating_point or example.dtype is torch.bool or not example.numel():
        return tensors.draw(tuple(example.shape), example.dtype, seed)
    generator = torch.Generator().manual_seed(seed)
    wide = example.to(torch.int64)
    low, high = int(wide.min()), int(wide.max())
    return torch.randint(low, high + 1, example.shape, generator=generator).to(example.dtype)


def _show(screen: Console, seed: int, verification: Verification) -> None:
    rows = [
        (one.what, _number(one.error), _number(one.bound), _verdict(one.ok)) for one in verification.outputs
    ]
    for launch in verification.launches:
        where = f"launch {launch.number}, kernel {launch.kernel}"
        if launch.fault:
            rows.append((where, "-", "-", _verdict(False)))
        elif launch.problem:
            rows.append((where, "-", "-", "not compared"))
        rows += [
            (f"{where}, {one.what}", _number(one.error), _number(one.bound), _verdict(one.ok))
            for one in launch.results
        ]
    screen.print(f"seed {seed}")
    show_table(screen, ("what", "error", "at most", "verdict"), rows)
    for launch in verification.launches:
        if launch.problem and not launch.fault:
            screen.print(f"launch {launch.number}, kernel {launch.kernel} was not compared: {launch.problem}")
    first = verification.first_wrong
    if first is not None:
        screen.print(
            f"the first kernel that disagrees with its reference: {first.kernel}, launch {first.number}"
        )
        if first.problem:
            screen.print(first.problem)
    elif not verification.ok:
        screen.print(
            "no kernel that was compared disagrees with its reference: what differs is in the other operations, their "
            "constants, or a kernel that was not compared"
        )


def _number(value: float) -> str:
    return f"{value:.2g}"


def _verdict(ok: bool) -> str:
    return "ok" if ok else "wrong"
