"""MW109: a zero point that is subtracted from every 4-bit weight."""

from __future__ import annotations

from collections.abc import Iterator

from metalwright.lint.expressions import Node
from metalwright.lint.flow import leaves
from metalwright.lint.rule import Hit, Rule
from metalwright.lint.subject import Subject

_ACCUMULATING = ("fma", "dot", "mad")


def _find(subject: Subject) -> Iterator[Hit]:
    body = subject.body
    for node in body.nodes:
        if node.kind != "binary" or node.text != "-" or not any(s.is_loop for s in body.around(node.at)):
            continue
        weight, zero = node.parts
        if not _is_nibble(subject, weight) or body.constant(zero) is not None:
            continue
        # the zero point comes from a tensor: of a symmetric format it is a constant
        if not leaves(subject, zero) & set(subject.inputs) or _is_nibble(subject, zero):
            continue
        if _added_up(subject, node):
            yield subject.hit(
                body,
                node.at,
                f"the zero point is subtracted from each 4-bit weight inside the loop; factor it out: add up "
                f"weight * {_other(subject)} and {_other(subject)} by themselves, and apply "
                "scale * (dot - zero * sum) once",
            )


def _is_nibble(subject: Subject, node: Node, depth: int = 0) -> bool:
    node = node.uncast()
    if node.kind == "binary" and node.text == "&":
        return any(subject.body.constant(part) == 15 for part in node.parts)
    if node.kind == "binary" and node.text == ">>":
        return subject.body.constant(node.parts[1]) == 4
    if node.kind == "conditional":
        return all(_is_nibble(subject, part, depth + 1) for part in node.parts[1:])
    variable = subject.body.variable(node.text, node.at) if node.kind == "name" else None
    if variable is None or variable.value is None or depth > 4:
        return False
    return _is_nibble(subject, variable.value, depth + 1)


def _added_up(subject: Subject, difference: Node) -> bool:
    """Whether a difference is a factor of what a loop adds up, itself or through a variable."""
    body = subject.body
    for expression in body.expressions:
        if any(node is difference for node in expression.walk()):
            if _is_sum(expression):
                return True
            for variable in body.variables:
                if variable.value is expression:
                    return any(_is_sum(e) and variable.name in e.names() for e in body.expressions)
    return False


def _is_sum(expression: Node) -> bool:
    if expression.kind != "assign" or expression.parts[0].kind == "subscript":
        return False
    return expression.text == "+=" or any(
        node.kind == "call" and node.text in _ACCUMULATING for node in expression.walk()
    )


def _other(subject: Subject) -> str:
    return next((name for name in subject.inputs if name in ("x", "X", "A", "a", "input")), "activation")


RULES = (
    Rule(
        id="MW109",
        title="asymmetric int4 without the zero point factored out",
        severity="warning",
        explanation=(
            "Subtracting a zero point from every 4-bit weight costs an operation for each weight in the "
            "loop that is "
            "short of them. The sum over `(q - z) * x` is the sum over `q * x` less `z` times the sum over "
            "`x`, and the "
            "second sum is the same for all rows. (A stock asymmetric int4 layer leaves Core AI's fast "
            "path for the same "
            "reason and is about 4.6 times slower.)"
        ),
        bad='''
def matvec(q: torch.Tensor, x: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    wide = torch.stack([q & 15, q >> 4], -1).flatten(1).float()
    return ((wide - z[:, None]) @ x) * s

kernel = MetalKernel(
    "matvec", ["q", "x", "s", "z"], ["out"], torch_defn=matvec,
    metal_params=[MetalParameter("row", "uint", "thread_position_in_grid")],
    src="""
    float sum = 0.0f, zero = z[row];
    for (int i = 0; i < x.get_extent(0); ++i) {
        uint weight = (uint(q[i / 2, row]) >> (4 * (i & 1))) & 0xF;
        sum += (float(weight) - zero) * x[i];
    }
    out[row] = s[row] * sum;
    """,
)
''',
        good='''
def matvec(q: torch.Tensor, x: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    wide = torch.stack([q & 15, q >> 4], -1).flatten(1).float()
    return ((wide - z[:, None]) @ x) * s

kernel = MetalKernel(
    "matvec", ["q", "x", "s", "z"], ["out"], torch_defn=matvec,
    metal_params=[MetalParameter("row", "uint", "thread_position_in_grid")],
    src="""
    float dot = 0.0f, sum = 0.0f;
    for (int i = 0; i < x.get_extent(0); ++i) {
        uint weight = (uint(q[i / 2, row]) >> (4 * (i & 1))) & 0xF;
        dot += float(weight) * x[i];
        sum += x[i];
    }
    out[row] = s[row] * (dot - z[row] * sum);
    """,
)
''',
        fix="Factor the zero point out: `out = scale * (dot(q, x) - zero * sum(x))`.",
        find=_find,
    ),
)
