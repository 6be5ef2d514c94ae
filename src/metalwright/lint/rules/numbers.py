"""MW102: tests for NaN and infinity that fast math may remove."""

from __future__ import annotations

from collections.abc import Iterator

from metalwright.lint.flow import alike
from metalwright.lint.rule import Hit, Rule, Severity
from metalwright.lint.subject import Subject

_TESTS = ("isnan", "isinf", "isfinite", "isnormal", "isordered", "isunordered")


def _find(subject: Subject) -> Iterator[Hit]:
    fast = getattr(subject.kernel, "math_mode", "safe") == "fast"
    severity: Severity = "warning" if fast else "note"
    mode = "math_mode='fast'" if fast else "fast math, Metal's default and perhaps the artifact's,"
    for code in subject.codes:
        found = [(call.at, call.text) for call in code.calls(*_TESTS)]
        for node in code.nodes:
            compares = node.kind == "binary" and node.text in ("!=", "==") and alike(*node.parts)
            if compares and node.parts[0].root:
                found.append((node.at, f"comparing {node.parts[0].root!r} with itself"))
        for at, what in sorted(found):
            yield subject.hit(
                code,
                at,
                f"{mode} may assume that no value is NaN or infinite: {what} may be folded to a constant; "
                f"test the "
                "bits, as_type<uint>(…)",
                severity,
            )


RULES = (
    Rule(
        id="MW102",
        title="`isnan` or `isinf` under fast math",
        severity="warning",
        explanation=(
            "Fast math, Metal's default, may assume that there is no NaN and no infinity, so `isnan(x)`, "
            "`isinf(x)` "
            'and `x != x` may be folded to false. A warning in a kernel with `math_mode="fast"`, a note in others: '
            "their tests hold here, and an artifact does not carry the mode."
        ),
        bad='''
def without_nan(x: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isnan(x), 0, x)

kernel = MetalKernel(
    "without_nan", ["x"], ["out"], torch_defn=without_nan, math_mode="fast",
    metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")],
    src="""
    out[gid] = isnan(x[gid]) ? 0.0f : x[gid];
    """,
)
''',
        good='''
def without_nan(x: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isnan(x), 0, x)

kernel = MetalKernel(
    "without_nan", ["x"], ["out"], torch_defn=without_nan, math_mode="fast",
    metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")],
    src="""
    bool nan = (as_type<uint>(x[gid]) & 0x7fffffffu) > 0x7f800000u;
    out[gid] = nan ? 0.0f : x[gid];
    """,
)
''',
        fix="Test the bits, which are integers: no math mode changes what they are.",
        find=_find,
    ),
)
