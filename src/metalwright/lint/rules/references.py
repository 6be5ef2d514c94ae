"""MW301 and MW304: what the PyTorch reference does."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

import torch

from metalwright.lint.python_source import FunctionSource
from metalwright.lint.rule import Hit, Rule
from metalwright.lint.subject import Subject

_NUMBERS = frozenset({"int", "float", "bool"})
_VALUES = frozenset({"item", "tolist", "numpy"})
# what of a tensor is known without its data
_KNOWN = frozenset(
    "shape size ndim dim numel nelement dtype device stride element_size is_floating_point is_complex layout "
    "is_contiguous itemsize nbytes requires_grad is_signed".split()
)
_PRODUCTS = frozenset("matmul mm bmm einsum baddbmm addmm addbmm mv inner tensordot linear".split())
_FUSED = "scaled_dot_product_attention"


def _values(subject: Subject) -> Iterator[Hit]:
    source = subject.reference
    if source is None:
        return
    tensors = _tensors(subject, source)
    for node in ast.walk(source.node):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in _NUMBERS and len(node.args) == 1:
            name, value = _tensor_in(node.args[0], tensors), f"{called.id}({ast.unparse(node.args[0])})"
        elif isinstance(called, ast.Attribute) and called.attr in _VALUES and not node.args:
            name, value = _tensor_in(called.value, tensors), ast.unparse(node)
        else:
            continue
        if name:
            site, excerpt = source.file.site(node)
            message = (
                f"kernel {subject.name!r}: the reference asks for a value of {name!r}, {value}: export "
                f"traces it "
                "without data and fails; say it with tensors, such as torch.index_select(W, 0, idx)"
            )
            yield Hit(message, site, excerpt)


def _tensors(subject: Subject, source: FunctionSource) -> set[str]:
    """Return the parameters that are tensors, and the variables that are computed from them."""
    try:
        signature = inspect.signature(subject.function, eval_str=True)
    except (NameError, ValueError):
        return set()
    found = {name for name, one in signature.parameters.items() if one.annotation is torch.Tensor}
    before = -1
    while before != len(found):
        before = len(found)
        for node in ast.walk(source.node):
            targets: list[ast.expr] = []
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, (ast.For, ast.comprehension)):
                targets = [node.target]
            value = getattr(node, "value", None) or getattr(node, "iter", None)
            if targets and isinstance(value, ast.expr) and _tensor_in(value, found):
                found |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return found


def _tensor_in(node: ast.expr, tensors: set[str]) -> str:
    """Return the tensor whose values an expression depends on; ``""`` where it is about shapes, or about "
    "none."""
    if isinstance(node, ast.Attribute):
        return "" if node.attr in _KNOWN else _tensor_in(node.value, tensors)
    if isinstance(node, ast.Name):
        return node.id if node.id in tensors else ""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in (
            "len",
            "isinstance",
            "type",
            "range",
            *_NUMBERS,
        ):
            return ""
        if isinstance(node.func, ast.Attribute) and node.func.attr in _VALUES:
            return ""
    if isinstance(node, (ast.Lambda, ast.Compare)) and any(
        isinstance(o, (ast.Is, ast.IsNot)) for o in getattr(node, "ops", ())
    ):
        return ""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and (name := _tensor_in(child, tensors)):
            return name
    return ""


def _attention(subject: Subject) -> Iterator[Hit]:
    source = subject.reference
    if source is None:
        return
    for node in ast.walk(source.node):
        what = ""
        if isinstance(node, ast.Call) and _called(node) == _FUSED:
            what = "is attention"
        elif isinstance(node, ast.Call) and _called(node) == "softmax" and _is_between_products(source, node):
            what = "is attention, a softmax between two products"
        if what:
            site, excerpt = source.file.site(node)
            message = (
                f"kernel {subject.name!r}: its reference {what}: Core AI has a fused one; call "
                f"torch.nn.functional.{_FUSED} in the model instead of a kernel"
            )
            yield Hit(message, site, excerpt)
            return


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _has_product(source: FunctionSource, node: ast.AST, depth: int = 0) -> bool:
    """Whether a value comes out of a matrix product, followed through variables."""
    for part in ast.walk(node):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.MatMult):
            return True
        if isinstance(part, ast.Call) and _called(part) in _PRODUCTS:
            return True
        values = source.values_of(part.id) if isinstance(part, ast.Name) and depth < 6 else []
        if any(_has_product(source, value, depth + 1) for value in values):
            return True
    return False


def _is_between_products(source: FunctionSource, softmax: ast.Call) -> bool:
    method = isinstance(softmax.func, ast.Attribute) and not (
        isinstance(softmax.func.value, ast.Name) and softmax.func.value.id in ("torch", "F", "functional")
    )
    given = (
        softmax.func.value
        if method and isinstance(softmax.func, ast.Attribute)
        else next(iter(softmax.args), None)
    )
    if given is None or not _has_product(source, given):
        return False
    names: set[str] = set()
    before = -1
    while before != len(names):
        before = len(names)
        for node in ast.walk(source.node):
            if isinstance(node, ast.Assign) and _mentions(node.value, softmax, names):
                names |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    for node in ast.walk(source.node):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            operands: list[ast.expr] = [node.left, node.right]
        elif isinstance(node, ast.Call) and _called(node) in _PRODUCTS:
            inside = isinstance(node.func, ast.Attribute)
            operands = [
                *node.args,
                *([node.func.value] if inside and isinstance(node.func, ast.Attribute) else []),
            ]
        else:
            continue
        if any(_mentions(operand, softmax, names) for operand in operands):
            return True
    return False


def _mentions(node: ast.AST, softmax: ast.Call, names: set[str]) -> bool:
    return any(
        part is softmax or (isinstance(part, ast.Name) and part.id in names) for part in ast.walk(node)
    )


_GATHER = '''
def gather(W: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    return REFERENCE

kernel = MetalKernel(
    "gather", ["W", "idx"], ["out"], torch_defn=gather,
    metal_params=[MetalParameter("gid", "uint2", "thread_position_in_grid")],
    src="""
    out[gid.x, gid.y] = W[gid.x, idx[gid.y]];
    """,
)
'''

RULES = (
    Rule(
        id="MW301",
        title="a reference that asks for a value: `int(idx[i])`",
        severity="error",
        explanation=(
            "Export traces the reference with tensors that have shapes and no data. `int(idx[i])`, "
            "`idx.item()` and "
            "`idx.tolist()` ask for data and end the export. Shapes are fine: `int(x.shape[0])`."
        ),
        bad=_GATHER.replace("REFERENCE", "torch.stack([W[int(idx[i])] for i in range(idx.shape[0])])"),
        good=_GATHER.replace("REFERENCE", "torch.index_select(W, 0, idx)"),
        fix=(
            "Say it with operations on tensors: `torch.index_select(W, 0, idx)`, `torch.gather`, "
            "`torch.where`."
        ),
        find=_values,
    ),
    Rule(
        id="MW304",
        title="hand-written attention",
        severity="warning",
        explanation=(
            "Core AI has a fast built-in attention. A kernel for it is slower in most cases, and a barrier "
            "to the fusion "
            "of what is around it."
        ),
        bad='''
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    weights = torch.softmax(q @ k.T / q.shape[-1] ** 0.5, -1)
    return weights @ v

kernel = MetalKernel(
    "attention", ["q", "k", "v"], ["out"], torch_defn=attention,
    metal_params=[MetalParameter("row", "uint", "thread_position_in_grid")],
    src="""
    float total = 0.0f;
    for (int j = 0; j < k.get_extent(1); ++j) {
        float score = 0.0f;
        for (int i = 0; i < q.get_extent(0); ++i) score += q[i, row] * k[i, j];
        float weight = exp(score * rsqrt(float(q.get_extent(0))));
        total += weight;
        for (int i = 0; i < v.get_extent(0); ++i) out[i, row] = (j ? out[i, row] : 0.0f) + weight * v[i, j];
    }
    for (int i = 0; i < v.get_extent(0); ++i) out[i, row] /= total;
    """,
)
''',
        good='''
def logits(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.T, -1)

kernel = MetalKernel(
    "logits", ["q", "k"], ["out"], torch_defn=logits,
    metal_params=[MetalParameter("row", "uint", "thread_position_in_grid")],
    src="""
    float total = 0.0f;
    for (int j = 0; j < k.get_extent(1); ++j) {
        float score = 0.0f;
        for (int i = 0; i < q.get_extent(0); ++i) score += q[i, row] * k[i, j];
        out[j, row] = exp(score);
        total += out[j, row];
    }
    for (int j = 0; j < k.get_extent(1); ++j) out[j, row] /= total;
    """,
)
''',
        fix=(
            "Call `torch.nn.functional.scaled_dot_product_attention` in the model, and write kernels for "
            "what is around "
            "it. (The example below is no attention: one product and a softmax.)"
        ),
        find=_attention,
    ),
)
