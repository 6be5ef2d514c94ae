"""DivMod, the operator with two results, in every form; exact, since the numbers are whole."""

from __future__ import annotations

import pytest
import torch
from arrays import TYPES, ints, longs, up
from compare import assert_same, unlike
from units import Unit

BEFORE = ("utils.h", "binary_ops.h")
UNITS = {
    "int": "ss sv vs vv g_nd1 g_nd2 g_nd3 g",
    "half": "sv2 vs2 vv2 vv g_nd3 g",
    "float": "vv g_nd2",
    "uint8_t": "vv vs2",
}


def operands(kind: str, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return whole numbers of both signs, none of the divisors 0."""
    generator = torch.Generator().manual_seed(sum(shape))
    low = 1 if kind == "uint8_t" else -60
    a = torch.randint(low, 60, shape, generator=generator)
    b = torch.randint(low, 9, shape, generator=generator)
    return a.to(TYPES[kind]), torch.where(b == 0, 7, b).to(TYPES[kind])


def unit_of(kind: str) -> Unit:
    forms = UNITS[kind].split()
    per = {"g": ", 4"}
    kernels = tuple((f, f"binary_{f}", f"{kind}, {kind}, DivMod{per.get(f, '')}") for f in forms)
    return Unit("binary_two.h", BEFORE, kernels)


def check(bench, kind: str, form: str, pair, of_kernel: tuple, rest: tuple = (), **launch) -> None:
    """Launch a form on a pair of buffers that the kernel is to see as ``of_kernel``."""
    left, right = of_kernel
    expected = torch.div(left, right, rounding_mode="floor"), torch.remainder(left, right)
    quotient, remainder = unlike(expected[0]), unlike(expected[1])
    bench.run(unit_of(kind), form, *pair, quotient, remainder, *rest, **launch)
    assert_same(quotient, expected[0], (form, "quotient"))
    assert_same(remainder, expected[1], (form, "remainder"))


@pytest.mark.parametrize("kind", list(UNITS))
def test_lines(bench, kind: str) -> None:
    forms = [form for form in UNITS[kind].split() if not form.startswith("g")]
    per = max(1, 8 // TYPES[kind].itemsize)
    for form in forms:
        for size in (1, 7, 66):
            a, b = operands(kind, size)
            pair = (a[:1].clone() if form[0] == "s" else a, b[:1].clone() if form[1] == "s" else b)
            if form == "ss":
                check(bench, kind, form, pair, pair, threads=1, group=1)
                continue
            threads = up(size, per)
            launch = {"threads": threads, "group": 32}
            if form.endswith("2"):
                # two rows of threads, more than there is work for
                launch = {"threads": (up(threads, 2), 2), "group": (8, 1)}
            seen = tuple(one.expand(size) for one in pair)
            check(bench, kind, form, pair, seen, (size,), **launch)


@pytest.mark.parametrize("kind", ["int", "half", "float"])
def test_strided(bench, kind: str) -> None:
    a, b = operands(kind, 3, 5, 6)
    b = b.reshape(6, 5, 3)
    turned = b.permute(2, 1, 0)
    views = {
        "g_nd1": (a[0, 0], turned[0, 0]),
        "g_nd2": (a[0], turned[0]),
        "g_nd3": (a, turned),
        "g": (a, turned),
    }
    for form in UNITS[kind].split():
        if form not in views:
            continue
        left, right = views[form]
        strides = longs(left.stride()), longs(right.stride())
        threads = tuple(left.shape[::-1])
        rest = strides
        if form == "g":
            threads = (up(threads[0], 4), *threads[1:])
            rest = (ints(left.shape), *strides, left.dim())
        group = (2, *(1 for _ in threads[1:]))
        check(bench, kind, form, (a, b), (left, right), rest, threads=threads, group=group)
