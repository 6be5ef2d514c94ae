"""MW302 and MW303: what a module does to tensors on their way into a kernel and out of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from metalwright.lint.python_source import FunctionSource, KernelCall
from metalwright.lint.rule import Hit, Rule
from metalwright.lint.subject import Subject

_CASTS = frozenset({"float", "half", "bfloat16", "double"})
_FLOAT_TYPES = frozenset({"float", "half", "float16", "float32", "bfloat16", "float64", "double"})
_TRANSPOSED = frozenset({"T", "mT", "H", "mH"})
_TRANSPOSING = frozenset("t transpose permute swapaxes swapdims movedim moveaxis adjoint".split())
# what gives another view of the same data
_VIEWS = frozenset("unsqueeze squeeze detach".split())


def _casts(subject: Subject) -> Iterator[Hit]:
    for call in subject.calls:
        for name, argument in _arguments(subject, call):
            for value in _values(call, argument):
                if _is_cast(value) and _from_outside(call, value):
                    yield _hit(subject, call, value, f"input {name!r} is cast on its way in, {_shown(value)}")
        if (after := _cast_result(call)) is not None:
            yield _hit(subject, call, after, f"a result is cast on its way out, {_shown(after)}")


def _hit(subject: Subject, call: KernelCall, node: ast.AST, what: str) -> Hit:
    site, excerpt = call.file.site(node)
    message = (
        f"kernel {subject.name!r}: {what}: the cast is an operation of its own that writes the whole "
        f"tensor; hand it over "
        "in its own dtype and convert in the kernel"
    )
    return Hit(message, site, excerpt)


def _arguments(subject: Subject, call: KernelCall) -> Iterator[tuple[str, ast.expr]]:
    for name, argument in zip(subject.inputs, call.node.args, strict=False):
        if isinstance(argument, ast.Starred):
            return
        yield name, argument


def _values(call: KernelCall, argument: ast.expr) -> list[ast.expr]:
    """Return an argument, or what its variable was last set to, where that is the one value it has."""
    if isinstance(argument, ast.Name) and call.function is not None:
        values = call.function.values_of(argument.id)
        parameters = [a.arg for a in call.function.node.args.args]
        return values if len(values) == 1 and argument.id not in parameters else []
    return [argument]


def _is_cast(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in _CASTS:
        return not node.args
    if node.func.attr not in ("to", "type"):
        return False
    targets = [*node.args, *(k.value for k in node.keywords if k.arg == "dtype")]
    # .to(x.dtype) may be no cast at all
    return any(
        isinstance(t, ast.Attribute)
        and isinstance(t.value, ast.Name)
        and t.value.id == "torch"
        and t.attr in _FLOAT_TYPES
        for t in targets
    )


def _from_outside(call: KernelCall, node: ast.AST) -> bool:
    """Whether a value comes from the function's own arguments: data made on the spot costs nothing in a "
    "model."""
    return call.function is not None and _root(call.function, node) is not None


def _root(function: FunctionSource, node: ast.AST, depth: int = 0) -> str | None:
    arguments = function.node.args
    parameters = {a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            if part.id in parameters:
                return part.id
            if depth < 6:
                for value in function.values_of(part.id):
                    if (found := _root(function, value, depth + 1)) is not None:
                        return found
    return None


def _cast_result(call: KernelCall) -> ast.expr | None:
    """Return the cast of what a call gives, at once or through its variable."""
    if call.function is None or not (call.node.args and _from_outside(call, call.node)):
        return None
    names: set[str] = set()
    parent = call.parents.get(call.node)
    if (
        isinstance(parent, ast.Assign)
        and len(parent.targets) == 1
        and isinstance(parent.targets[0], ast.Name)
    ):
        name = parent.targets[0].id
        names = {name} if len(call.function.values_of(name)) == 1 else set()
    for node in ast.walk(call.function.node):
        if isinstance(node, ast.Call) and _is_cast(node) and isinstance(node.func, ast.Attribute):
            of = node.func.value
            if of is call.node or (isinstance(of, ast.Name) and of.id in names):
                return node
    return None


def _transposed(subject: Subject) -> Iterator[Hit]:
    for call in subject.calls:
        for name, argument in _arguments(subject, call):
            for value in _values(call, argument):
                if _is_transposed(value) and _from_outside(call, value):
                    site, excerpt = call.file.site(value)
                    message = (
                        f"kernel {subject.name!r}: input {name!r} is a transposed view, {_shown(value)}: a "
                        f"kernel's edges "
                        "must be dense, with innermost stride 1; hand over the original and swap the "
                        "indices in the kernel"
                    )
                    yield Hit(message, site, excerpt)


def _is_transposed(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _TRANSPOSED
    if isinstance(node, ast.Subscript):
        return _is_transposed(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _VIEWS:
            return _is_transposed(node.func.value)
        return node.func.attr in _TRANSPOSING
    return False


def _shown(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else text[:57] + "..."


_MODULE = '''
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

kernel = MetalKernel(
    "doubled", ["x"], ["out"], torch_defn=doubled, template_dtypes={"x": "TYPE"},
    metal_params=[MetalParameter("gid", "uint2", "thread_position_in_grid")],
    src="""
    out[gid.x, gid.y] = TYPE(float(x[gid.x, gid.y]) * 2.0f);
    """,
)

class Doubled(torch.nn.Module):
    def forward(self, state: torch.Tensor) -> torch.Tensor:
        rows, columns = state.shape
        return CALL
'''
_SIZES = (
    "threads_per_grid=(columns, rows, 1),\n                      threads_per_thread_group=(32, 8, 1), "
    "result_shapes=[[rows, columns]])"
)
_OTHER_SIZES = (
    "threads_per_grid=(rows, columns, 1),\n                      threads_per_thread_group=(32, 8, 1), "
    "result_shapes=[[columns, rows]])"
)

RULES = (
    Rule(
        id="MW302",
        title="a cast on a kernel's edge",
        severity="warning",
        explanation=(
            "A kernel is a barrier to fusion: `kernel(state.float()).half()` writes and reads the whole "
            "tensor twice more, "
            "in the wide dtype. Casts to integer types, as of indices, are not reported."
        ),
        bad=_MODULE.replace("CALL", f"kernel(state.float(), {_SIZES}.half()"),
        good=_MODULE.replace("CALL", f"kernel(state, {_SIZES}"),
        fix=(
            "Give the tensor in its own dtype, with `template_dtypes` for several, and accumulate in float "
            "in the kernel."
        ),
        find=_casts,
    ),
    Rule(
        id="MW303",
        title="a transposed tensor on a kernel's edge",
        severity="error",
        explanation=(
            "Every tensor on a kernel's edge must be dense with innermost stride 1. A view that comes from "
            "a transpose "
            "stops the program on the device. `.contiguous()` makes a copy and is not reported."
        ),
        bad=_MODULE.replace("CALL", f"kernel(state.T, {_OTHER_SIZES}"),
        good=_MODULE.replace("CALL", f"kernel(state, {_SIZES}"),
        fix="Absorb the transpose in the kernel's indexing: read `x[row, column]` for `x[column, row]`.",
        find=_transposed,
    ),
)
