"""The generated MSL of a kernel, exactly as Core AI embeds it and, in pieces, as it is executed here.

The text always comes from the parent class's ``template_kernel_src``; this module only finds the user's own parts
in it, so that the compiler's messages can speak of the user's lines.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coreai.authoring.metal import TensorMeta
from coreai_torch import TorchMetalKernel

from metalwright.authoring import dtypes
from metalwright.authoring.dtypes import ElementType
from metalwright.errors import CompileError, Diagnostic, Site
from metalwright.msl import Section

# Core AI appends eight random letters to a kernel's name; ours are fixed, so that equal kernels are equal text.
_SUFFIX = "metalwri"
# Private-use characters: they stand for the user's text while the parent class generates what is around it.
_SRC_MARK, _HELPER_MARK = "\ue0f1\ue0f1", "\ue0f2\ue0f2"


@dataclass(frozen=True)
class Parameter:
    """The dtype and rank of an input or a result, which is all that the generated text depends on."""

    dtype: ElementType
    rank: int


def entry_name(kernel: TorchMetalKernel) -> str:
    """Return the name of the kernel's function in the generated MSL."""
    return f"{kernel.name}_{_SUFFIX}"


def complete(
    kernel: TorchMetalKernel,
    inputs: Sequence[Parameter],
    results: Sequence[Parameter],
    scalars: Mapping[str, Any],
) -> str:
    """Return the MSL as Core AI embeds it, with the scalars' values as literals in the body."""
    clone = copy.copy(kernel)
    if scalars:
        clone.src = kernel._inject_scalar_locals(kernel.src, dict(scalars))
    return clone.template_kernel_src(entry_name(kernel), *_metas(kernel, inputs, results))


def sections(
    kernel: TorchMetalKernel, inputs: Sequence[Parameter], results: Sequence[Parameter]
) -> tuple[Section, ...]:
    """Return the MSL to execute, in pieces. Scalars are locals as in :func:`complete`, but take their values from
    the kernel's parameters, so that one compiled kernel serves every value.

    Raises :class:`CompileError` for a body that the generated text around it would break.
    """
    metas = _metas(kernel, inputs, results)
    opening, closing = _scalar_block(kernel)
    frame = _generate(kernel, metas, src=opening + _SRC_MARK + closing, helpers=_HELPER_MARK)
    before, _, rest = frame.partition(_HELPER_MARK)
    signature, _, after = rest.partition(_SRC_MARK)
    helpers = _between(_generate(kernel, metas, src=_SRC_MARK, helpers=kernel.helpers), before)
    body_frame = _generate(kernel, metas, src=_SRC_MARK + kernel.src + _SRC_MARK, helpers="")
    body = body_frame.split(_SRC_MARK)[1]
    if not opening:
        _check_open_ended(kernel)
    pieces = [Section(before, None)]
    if kernel.helpers:
        pieces.append(Section(helpers, f"{kernel.name}.helper_src", original=kernel.helpers))
    pieces += [
        Section(signature, None),
        Section(body, f"{kernel.name}.src", original=kernel.src),
        Section(after, None),
    ]
    return tuple(pieces)


def _generate(kernel: TorchMetalKernel, metas: tuple[list[TensorMeta], list[TensorMeta]], *, src: str,
              helpers: str) -> str:  # fmt: skip
    clone = copy.copy(kernel)
    clone.src, clone.helpers = src, helpers
    return clone.template_kernel_src(entry_name(kernel), *metas)


def _between(text: str, before: str) -> str:
    """Return the helpers: what lies between the known beginning and the last line, which is the kernel's."""
    return text[len(before) : text.rindex("\n", 0, text.index(_SRC_MARK))]


def _metas(
    kernel: TorchMetalKernel, inputs: Sequence[Parameter], results: Sequence[Parameter]
) -> tuple[list[TensorMeta], list[TensorMeta]]:
    scalars = kernel._scalar_input_types
    given = [
        TensorMeta(name, p.rank, (dtypes.SCALAR_TYPES[scalars[name]] if name in scalars else p.dtype).msl)
        for name, p in zip(kernel.input_names, inputs, strict=True)
    ]
    made = [
        TensorMeta(name, p.rank, p.dtype.msl) for name, p in zip(kernel.result_names, results, strict=True)
    ]
    return given, made


def _scalar_block(kernel: TorchMetalKernel) -> tuple[str, str]:
    """Return the text before and after the body that makes each scalar a local variable, as Core AI does.

    The value goes through a second name, because ``float a = a;`` would initialise the local from itself.
    """
    scalars = kernel._scalar_input_types
    if not scalars:
        return "", ""
    kinds = {name: dtypes.SCALAR_TYPES[kind].msl for name, kind in scalars.items()}
    values = "\n".join(f"const {msl} metalwright_value_{name} = {name};" for name, msl in kinds.items())
    locals_ = "\n".join(f"{msl} {name} = metalwright_value_{name};" for name, msl in kinds.items())
    return "{\n" + values + "\n{\n" + locals_ + "\n", "\n}}"


# Without scalars, Core AI writes the body between braces on one line: `{ src }`. A directive at its beginning is
# then no directive, and a comment or directive that is not ended takes the closing brace with it.
_TOKENS = re.compile(
    r"""(?P<line>//(?:\\\n|[^\n])*) | (?P<block>/\*.*?(?:\*/|\Z)) | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'""",
    re.VERBOSE | re.DOTALL,
)


def _check_open_ended(kernel: TorchMetalKernel) -> None:
    src = kernel.src
    lines = src.split("\n")
    if lines[0].lstrip().startswith("#"):
        _refuse(kernel, 1, lines[0], "a directive on the first line of src does not begin a line of the generated "
                                     "MSL; begin src with a newline")  # fmt: skip
    ending = open_ending(src)
    if ending:
        _refuse(kernel, len(lines), lines[-1], f"src ends inside {ending}, which swallows the brace that closes the "
                                               f"kernel; end src with a newline")  # fmt: skip


def open_ending(text: str) -> str | None:
    """Return what a text ends inside of, and what follows it on the same line then belongs to; ``None``: nothing."""
    ending: str | None = None
    for token in _TOKENS.finditer(text):
        if token.end() == len(text) and token["line"]:
            ending = "a comment"
        if token["block"] and not token["block"].endswith("*/"):
            ending = "an unfinished comment"
    if text.split("\n")[-1].lstrip().startswith("#"):
        ending = "a directive"
    return ending


def _refuse(kernel: TorchMetalKernel, line: int, excerpt: str, message: str) -> None:
    raise CompileError(
        kernel.name, (Diagnostic("error", message, Site(f"{kernel.name}.src", line), excerpt),)
    )
