"""Results against references: the same bits, or so many units in the last place of the exact value."""

from __future__ import annotations

import torch


def unlike(expected: torch.Tensor) -> torch.Tensor:
    """Return a dense tensor that differs from the expected one in every element: what no thread wrote shows."""
    if expected.dtype == torch.bool:
        return (~expected).contiguous()
    if expected.dtype.is_floating_point or expected.dtype.is_complex:
        return torch.where(expected.isnan(), 77, float("nan")).to(expected.dtype).contiguous()
    return torch.where(expected == 77, 78, 77).to(expected.dtype).contiguous()


def assert_same(actual: torch.Tensor, expected: torch.Tensor, of: object = "") -> None:
    """Assert that two tensors are equal; a NaN equals every NaN."""
    torch.testing.assert_close(
        actual, expected, rtol=0, atol=0, equal_nan=True, msg=lambda text: f"{of}: {text}"
    )


def assert_ulps(actual: torch.Tensor, exact: torch.Tensor, ulps: float, of: object = "") -> None:
    """Assert that a result is within so many units in the last place of a value that is given in double.

    Infinities, NaNs and zeros have to be what the exact value rounds to.
    """
    expected = exact.to(actual.dtype)
    exceptional = ~expected.isfinite() | (expected == 0)
    assert_same(actual[exceptional], expected[exceptional], of)
    kind = torch.finfo(actual.dtype)
    regular = exact[~exceptional]
    exponent = regular.abs().log2().floor()
    unit = torch.exp2(exponent).clamp(min=kind.smallest_normal) * kind.eps
    errors = (actual[~exceptional].double() - regular).abs() / unit
    # a NaN compares false
    assert bool((errors <= ulps).all()), (of, float(errors.max()))
