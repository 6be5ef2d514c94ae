"""Points of curves and their derivatives, against constructions that know nothing of the headers' polynomials."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support import launch, whole

N = 33
Points = np.ndarray  # control points, one a row
DTYPES = {"float": np.float32, "half": np.float16}


def bezier(points: Points, t: float) -> Points:
    """Return the point that de Casteljau's repeated interpolation ends at."""
    while len(points) > 1:
        points = points[:-1] * (1 - t) + points[1:] * t
    return points[0]


def bspline(points: Points, t: float) -> Points:
    """Return the point of a uniform spline, by Cox and de Boor's recursion over the knots -degree … degree + 1."""
    degree = len(points) - 1

    def basis(i: int, k: int) -> float:
        start = i - degree
        if k == 0:
            return float(start <= t < start + 1)
        return ((t - start) * basis(i, k - 1) + (start + k + 1 - t) * basis(i + 1, k - 1)) / k

    return sum(points[i] * basis(i, degree) for i in range(degree + 1))


def hermite(points: Points, t: float) -> Points:
    """Return the point of the one cubic with these values and slopes at 0 and 1."""
    conditions = np.array([[1, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0], [0, 1, 2, 3]], float)
    return t ** np.arange(4) @ np.linalg.solve(conditions, points)


def catmull_rom(points: Points, t: float) -> Points:
    """Return the point between the middle two; the slopes there are half the way between their neighbours."""
    before, start, end, after = points
    return hermite(np.array([start, end, (end - before) / 2, (after - start) / 2]), t)


CURVES: dict[str, tuple[Callable[[Points, float], Points], tuple[int, ...]]] = {
    "bezier": (bezier, (3, 4)),
    "bspline": (bspline, (3, 4)),
    "hermite": (hermite, (4,)),
    "catmull_rom": (catmull_rom, (4,)),
}


def derived(curve: Callable[[Points, float], Points], points: Points, order: int, t: np.ndarray) -> Points:
    """Return a curve's derivative at each t: of the polynomial through as many of its points as fix it."""
    degree = len(points) - 1
    places = np.linspace(0, 0.9, degree + 1)
    through = np.polynomial.polynomial.polyfit(places, np.array([curve(points, p) for p in places]), degree)
    return np.polynomial.polynomial.polyval(t, np.polynomial.polynomial.polyder(through, order)).T


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("lanes", [1, 3, 4])
@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize(
    ("name", "count"), [(name, count) for name, (_, counts) in CURVES.items() for count in counts]
)
def test_points_and_derivatives(name: str, count: int, kind: str, lanes: int, checked: bool) -> None:
    curve = CURVES[name][0]
    random = np.random.default_rng(2)
    t = np.linspace(0, 0.99, N).astype(DTYPES[kind])
    points = random.uniform(-2, 2, (count, lanes)).astype(DTYPES[kind])
    vector = f"{kind}{lanes if lanes > 1 else ''}"
    read = ", ".join(
        f"{vector}({', '.join(f'ps[{i * lanes + lane}]' for lane in range(lanes))})" for i in range(count)
    )
    calls = [f"{name}{what}(ts[i], {read})" for what in ("", "_derivative", "_second_derivative")]
    stores = "\n".join(
        f"  {{ const {vector} r = {call}; "
        + " ".join(
            f"outs[({k} * {N} + i) * {lanes} + {lane}] = r{f'[{lane}]' if lanes > 1 else ''};"
            for lane in range(lanes)
        )
        + " }"
        for k, call in enumerate(calls)
    )
    program = whole(
        f"kernel void k(device const {kind}* ts, device const {kind}* ps, device {kind}* outs, "
        f"uint i [[thread_position_in_grid]]) {{\n{stores}\n}}",
        checked=checked,
    )
    outs = np.full((3, N, lanes), np.nan, DTYPES[kind])
    launch(program, {"ts": t, "ps": points}, {"outs": outs}, N, N)
    exact_t, exact_points = t.astype(np.float64), points.astype(np.float64)
    for order, got in enumerate(outs):
        if order == 0:
            expected = np.array([curve(exact_points, at) for at in exact_t])
        else:
            expected = derived(curve, exact_points, order, exact_t)
        tolerance = 2e-5 if kind == "float" else 2**-11 * np.abs(expected).max() + 2e-5
        np.testing.assert_allclose(got.astype(np.float64), expected, rtol=0, atol=tolerance)
