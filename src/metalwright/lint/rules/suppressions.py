"""MW0xx: about the linter's own comments."""

from __future__ import annotations

from collections.abc import Iterator

from metalwright.lint.rule import Hit, Rule
from metalwright.lint.subject import Subject


def _find(_: Subject) -> Iterator[Hit]:
    # known only after every other rule was applied: metalwright.lint.linting
    yield from ()


UNUSED = Rule(
    id="MW001",
    title="a suppression that silences nothing",
    severity="note",
    explanation=(
        "A comment names a rule that is not broken on its line or on the line below, or a rule that does "
        "not exist. "
        "It would hide a mistake that somebody makes there later."
    ),
    bad='''
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

kernel = MetalKernel(
    "doubled", ["x"], ["out"], torch_defn=doubled,
    metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")],
    src="""
    // metalwright: ignore MW104
    out[gid] = x[gid] * 2;
    """,
)
''',
    good='''
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

kernel = MetalKernel(
    "doubled", ["x"], ["out"], torch_defn=doubled,
    metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")],
    src="""
    out[gid] = x[gid] * 2;
    """,
)
''',
    fix="Remove the comment, or the one id of it.",
    find=_find,
)

RULES = (UNUSED,)
