"""MW103 and MW106: private arrays that are not registers, and the size of threadgroup memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

from metalwright.lint.expressions import Node
from metalwright.lint.msl import Code, Variable
from metalwright.lint.rule import Hit, Rule
from metalwright.lint.subject import Subject

THREADGROUP_LIMIT = 32 * 1024
_NEAR = 28 * 1024


def _private_arrays(subject: Subject) -> Iterator[Hit]:
    for code in subject.codes:
        for variable in code.variables:
            array = variable.kind == "array" or (variable.kind == "value" and variable.type_word == "array")
            if not array or variable.space not in ("", "thread") or variable.const:
                continue
            runtime = _runtime_access(code, variable)
            if runtime is not None:
                at, name = runtime
                yield subject.hit(
                    code,
                    at,
                    f"the private array {variable.name!r} is indexed with {name!r}, which is known only at "
                    f"run time: "
                    "it lives in memory, not in registers",
                )


def _runtime_access(code: Code, variable: Variable) -> tuple[int, str] | None:
    """Return where an array is indexed with something that unrolling does not make a constant."""
    if all(code.constant(extent) == 1 for extent in variable.dimensions) and variable.dimensions:
        return None
    for access in code.accesses(variable.name):
        if not variable.index < access.at < variable.end:
            continue
        for index in access.indices:
            for node in index.walk():
                if node.kind == "subscript" or (node.kind == "name" and not _is_static(code, node)):
                    return access.at, node.root if node.kind == "subscript" else node.text
    return None


def _is_static(code: Code, node: Node, depth: int = 0) -> bool:
    variable = code.variable(node.text, node.at)
    if variable is None:
        # a macro or a template's parameter; a thread's position is one of the kernel's parameters
        return node.text.isupper() or node.text in code.constants
    if code.constant(node) is not None or depth > 8:
        return True
    for loop in code.around(node.at):
        if loop.kind == "for" and variable in loop.variables and len(loop.expressions) == 3:
            test = loop.expressions[1]
            ends = test is not None and test.kind == "binary" and _static(code, test.parts[1], depth + 1)
            starts = variable.value is None or _static(code, variable.value, depth + 1)
            return ends and starts
    # uint half = i / 2, of the variable of an unrolled loop
    if variable.value is not None and not code.assignments(variable.name) and variable.kind == "value":
        return _static(code, variable.value, depth + 1)
    return False


def _static(code: Code, node: Node, depth: int) -> bool:
    simple = all(n.kind in ("number", "name", "binary", "unary", "cast", "member") for n in node.walk())
    if any(n.kind == "call" and n.text == "get_rank" for n in node.walk()):
        return True
    return simple and all(_is_static(code, n, depth) for n in node.walk() if n.kind == "name")


def _threadgroup_memory(subject: Subject) -> Iterator[Hit]:
    arrays: list[tuple[Code, Variable, int]] = []
    for code in subject.codes:
        for variable in code.variables:
            if variable.space != "threadgroup" or variable.kind not in ("array", "value"):
                continue
            extents = [code.constant(extent) for extent in variable.dimensions]
            size = subject.size_of(variable.type_word)
            if size is not None and all(extent is not None for extent in extents):
                arrays.append((code, variable, size * math.prod(extent or 0 for extent in extents)))
    total = sum(size for _, _, size in arrays)
    if total <= _NEAR:
        return
    code, variable, _ = max(arrays, key=lambda one: one[2])
    listed = ", ".join(f"{one.name} {size}" for _, one, size in arrays)
    if total > THREADGROUP_LIMIT:
        message = f"{total} bytes of threadgroup memory ({listed}); a threadgroup has {THREADGROUP_LIMIT}"
        yield subject.hit(code, variable.index, message)
    else:
        message = (
            f"{total} of the {THREADGROUP_LIMIT} bytes of threadgroup memory are taken ({listed}): a "
            f"larger tile or "
            "dtype does not fit, and one threadgroup at a time runs on a core"
        )
        yield subject.hit(code, variable.index, message, "note")


RULES = (
    Rule(
        id="MW103",
        title="a private array indexed at run time",
        severity="note",
        explanation=(
            "An array of a thread becomes registers only if every index is known after loops with constant "
            "bounds are "
            "unrolled. Otherwise all of it lives in memory, and each access costs as much as one to a "
            "buffer. The "
            "kernel is right, and slower than it looks."
        ),
        bad='''
def last_of_four(x: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
    return torch.gather(x, 1, which[:, None].long())[:, 0]

kernel = MetalKernel(
    "last_of_four", ["x", "which"], ["out"], torch_defn=last_of_four,
    metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")],
    src="""
    float row[4];
    for (uint i = 0; i < 4; ++i) row[i] = x[i, gid];
    uint chosen = which[gid];
    out[gid] = row[chosen];
    """,
)
''',
        good='''
def last_of_four(x: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
    return torch.gather(x, 1, which[:, None].long())[:, 0]

kernel = MetalKernel(
    "last_of_four", ["x", "which"], ["out"], torch_defn=last_of_four,
    metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")],
    src="""
    float row[4], found = 0.0f;
    for (uint i = 0; i < 4; ++i) row[i] = x[i, gid];
    uint chosen = which[gid];
    for (uint i = 0; i < 4; ++i) found = i == chosen ? row[i] : found;
    out[gid] = found;
    """,
)
''',
        fix=(
            "Index with constants and the variables of loops with constant bounds; choose with a select; "
            "or read the buffer."
        ),
        find=_private_arrays,
    ),
    Rule(
        id="MW106",
        title="threadgroup memory at or over its 32 KiB",
        severity="error",
        explanation=(
            "A threadgroup has 32 KiB of memory, of which the arrays of the body and the helpers all take "
            "their part. "
            "More is an error when the kernel is launched; a note says that more than 28 KiB are taken, "
            "for the largest "
            "dtype of the cases."
        ),
        bad='''
def same(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

kernel = MetalKernel(
    "same", ["x"], ["out"], torch_defn=same,
    metal_params=[
        MetalParameter("gid", "uint", "thread_position_in_grid"),
        MetalParameter("tid", "uint", "thread_index_in_threadgroup"),
    ],
    src="""
    threadgroup float tile[2][64][65];
    tile[0][0][tid] = x[gid];
    out[gid] = tile[0][0][tid];
    """,
)
''',
        good='''
def same(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

kernel = MetalKernel(
    "same", ["x"], ["out"], torch_defn=same,
    metal_params=[
        MetalParameter("gid", "uint", "thread_position_in_grid"),
        MetalParameter("tid", "uint", "thread_index_in_threadgroup"),
    ],
    src="""
    threadgroup float tile[2][32][33];
    tile[0][0][tid] = x[gid];
    out[gid] = tile[0][0][tid];
    """,
)
''',
        fix=(
            "Use smaller tiles, keep them in half where that is exact enough, or use one array again after "
            "a barrier."
        ),
        find=_threadgroup_memory,
    ),
)
