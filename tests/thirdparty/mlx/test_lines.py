"""binary, ternary, copy and arange, over lines of every length and over strided arrays."""

from __future__ import annotations

import pytest
import torch
from units import UTILS, Unit

TYPES = {"float": torch.float32, "half": torch.float16, "bfloat16_t": torch.bfloat16, "int": torch.int32}
PER_THREAD = {"float": 2, "half": 4, "bfloat16_t": 4, "int": 2}
SIZES = (1, 7, 64, 129)


def values(kind: str, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    if kind == "int":
        return torch.randint(-50, 50, shape, generator=generator, dtype=torch.int32)
    return (torch.rand(*shape, generator=generator) * 4 - 2).to(TYPES[kind])


BINARY = {"Maximum": torch.maximum, "Less": torch.lt}
COMPARE = {"Less"}


@pytest.mark.parametrize("kind", ["bfloat16_t", "int"])
def test_binary(bench, kind: str) -> None:
    hosts = []
    for op in BINARY:
        result = "bool" if op in COMPARE else kind
        hosts += [
            (f"{form}_{op}", f"binary_{form}", f"{kind}, {result}, {op}") for form in ("ss", "sv", "vs", "vv")
        ]
    hosts += [(form, f"binary_{form}", f"{kind}, {kind}, Subtract") for form in
              ("sv2", "vs2", "vv2", "g_nd1", "g_nd2", "g_nd3")]  # fmt: skip
    hosts.append(("g", "binary_g", f"{kind}, {kind}, Subtract, 4"))
    unit = Unit("binary.h", ("utils.h", "binary_ops.h"), tuple(hosts))
    per = PER_THREAD[kind]
    for size in (1, 7, 65):
        a, b = values(kind, size), values(kind, size).flip(0)
        for op, reference in BINARY.items():
            dtype = torch.bool if op in COMPARE else a.dtype
            for form, (left, right) in {"sv": (a[:1], b), "vs": (a, b[:1]), "vv": (a, b)}.items():
                out = torch.zeros(size, dtype=dtype)
                bench.run(unit, f"{form}_{op}", left.clone(), right.clone(), out, size,
                          threads=-(-size // per), group=32)  # fmt: skip
                assert torch.equal(out, reference(left, right)), (op, form, size)
            out = torch.zeros(1, dtype=dtype)
            bench.run(unit, f"ss_{op}", a[:1].clone(), b[:1].clone(), out, threads=1, group=1)
            assert torch.equal(out, reference(a[:1], b[:1]))
        for form, (left, right) in {"sv2": (a[:1], b), "vs2": (a, b[:1]), "vv2": (a, b)}.items():
            out = torch.zeros(size, dtype=a.dtype)
            bench.run(
                unit, form, left.clone(), right.clone(), out, size, threads=(-(-size // per), 1), group=(8, 1)
            )
            assert torch.equal(out, left - right)
    a, b = values(kind, 3, 5, 6), values(kind, 6, 5, 3)
    for dims, view, other in ((1, a[0, 0], b[:, 0, 0]), (2, a[0], b[..., 0].t()), (3, a, b.permute(2, 1, 0))):
        out = torch.zeros(view.shape, dtype=a.dtype)
        left, right = torch.tensor(view.stride()), torch.tensor(other.stride())
        bench.run(
            unit,
            f"g_nd{dims}",
            a,
            b,
            out,
            left,
            right,
            threads=view.shape[::-1],
            group=(2,) + (1,) * (dims - 1),
        )
        assert torch.equal(out, view - other), dims
    view, other = a, b.permute(2, 1, 0)
    out = torch.zeros(view.shape, dtype=a.dtype)
    shape, ndim = torch.tensor(view.shape, dtype=torch.int32), torch.tensor([3], dtype=torch.int32)
    bench.run(unit, "g", a, b, out, shape, torch.tensor(view.stride()), torch.tensor(other.stride()), ndim,
              threads=(2, 5, 3), group=(2, 1, 1))  # fmt: skip
    assert torch.equal(out, view - other)


@pytest.mark.parametrize("kind", ["half"])
def test_ternary(bench, kind: str) -> None:
    hosts = [(f"v_{b:d}{c:d}", "ternary_v", f"{kind}, Select, {str(b).lower()}, {str(c).lower()}")
             for b in (False, True) for c in (False, True)]  # fmt: skip
    hosts += [("v2", "ternary_v2", f"{kind}, Select, false, false"), ("g", "ternary_g", f"{kind}, Select, 4")]
    hosts += [(f"g_nd{n}", f"ternary_g_nd{n}", f"{kind}, Select") for n in (1, 2, 3)]
    unit = Unit("ternary.h", ("utils.h", "ternary_ops.h"), tuple(hosts))
    for size in (1, 9, 66):
        a, b, c = values("int", size) > 0, values(kind, size), values(kind, size).flip(0)
        for scalar_b in (False, True):
            for scalar_c in (False, True):
                left, right = b[:1].clone() if scalar_b else b, c[:1].clone() if scalar_c else c
                out = torch.zeros(size, dtype=b.dtype)
                bench.run(unit, f"v_{scalar_b:d}{scalar_c:d}", a, left, right, out, size,
                          threads=-(-size // PER_THREAD[kind]), group=16)  # fmt: skip
                assert torch.equal(out, torch.where(a, left, right))
        out = torch.zeros(size, dtype=b.dtype)
        bench.run(unit, "v2", a, b, c, out, size, threads=(-(-size // PER_THREAD[kind]), 1), group=(16, 1))
        assert torch.equal(out, torch.where(a, b, c))
    a, b, c = values("int", 3, 4, 5) > 0, values(kind, 5, 4, 3), values(kind, 3, 4, 5)
    turned = b.permute(2, 1, 0)
    for dims, (x, y, z) in {
        1: (a[0, 0], turned[0, 0], c[0, 0]),
        2: (a[0], turned[0], c[0]),
        3: (a, turned, c),
    }.items():
        out = torch.zeros(x.shape, dtype=b.dtype)
        strides = [torch.tensor(one.stride()) for one in (x, y, z)]
        bench.run(unit, f"g_nd{dims}", a, b, c, out, *strides, threads=x.shape[::-1], group=(1,) * dims)
        assert torch.equal(out, torch.where(x, y, z)), dims
    out = torch.zeros(a.shape, dtype=b.dtype)
    shape, ndim = torch.tensor(a.shape, dtype=torch.int32), 3
    strides = [torch.tensor(one.stride()) for one in (a, turned, c)]
    bench.run(unit, "g", a, b, c, out, shape, *strides, ndim, threads=(2, 4, 3), group=(2, 1, 1))
    assert torch.equal(out, torch.where(a, turned, c))


COPIES = [("float", "half")]


@pytest.mark.parametrize(("source", "target"), COPIES)
def test_copy(bench, source: str, target: str) -> None:
    names = "s v s2 v2 g_nd1 g_nd2 g_nd3 gg_nd1 gg_nd2 gg_nd3 gg_dynamic_nd1 gg_dynamic_nd2 gg_dynamic_nd3".split()
    hosts = [(name, f"copy_{name}", f"{source}, {target}") for name in names]
    hosts += [(name, f"copy_{name}", f"{source}, {target}, 4") for name in ("g", "gg", "gg_dynamic")]
    unit = Unit("copy.h", UTILS, tuple(hosts))
    per = PER_THREAD[target]
    dtype = TYPES[target]
    for size in (1, 10, 67):
        x = values(source, size)
        for form in ("s", "v"):
            expected = (x if form == "v" else x[:1].expand(size)).to(dtype)
            out = torch.zeros(size, dtype=dtype)
            bench.run(unit, form, x, out, size, threads=-(-size // per), group=16)
            assert torch.equal(out, expected)
            out = torch.zeros(size, dtype=dtype)
            bench.run(unit, f"{form}2", x, out, size, threads=(-(-size // per), 1), group=(16, 1))
            assert torch.equal(out, expected)
    x = values(source, 3, 4, 5)
    turned = x.permute(1, 2, 0)
    for dims, view in ((1, turned[0, 0]), (2, turned[0]), (3, turned)):
        strides = torch.tensor(view.stride())
        expected = view.to(dtype)
        spaced = torch.zeros([2 * n for n in view.shape], dtype=dtype)
        target_view = spaced[(slice(None, None, 2),) * dims]
        where = dict(threads=view.shape[::-1], group=(1,) * dims)
        out = torch.zeros(view.shape, dtype=dtype)
        bench.run(unit, f"g_nd{dims}", x, out, 0, strides, **where)
        assert torch.equal(out, expected)
        bench.run(unit, f"gg_nd{dims}", x, spaced, 0, strides, torch.tensor(target_view.stride()), **where)
        assert torch.equal(target_view, expected)
        spaced.zero_()
        bench.run(unit, f"gg_dynamic_nd{dims}", x, spaced, 0, strides, torch.tensor(target_view.stride()), 0, 0, 1,
                  **where)  # fmt: skip
        assert torch.equal(
            spaced.flatten()[1:].as_strided(target_view.shape, target_view.stride(), 1), expected
        )
    shape, strides, ndim = torch.tensor(turned.shape, dtype=torch.int32), torch.tensor(turned.stride()), 3
    expected = turned.to(dtype)
    where = dict(threads=(1, 5, 4), group=(1, 5, 1))
    out = torch.zeros(turned.shape, dtype=dtype)
    bench.run(unit, "g", x, out, shape, strides, 0, ndim, **where)
    assert torch.equal(out, expected)
    for form, more in (("gg", ()), ("gg_dynamic", (0, 0))):
        out = torch.zeros(turned.shape, dtype=dtype)
        bench.run(unit, form, x, out, shape, strides, torch.tensor(out.stride()), ndim, *more, **where)
        assert torch.equal(out, expected)


@pytest.mark.parametrize("kind", ["float", "int"])
def test_arange(bench, kind: str) -> None:
    unit = Unit("arange.h", UTILS, (("arange", "arange", kind),))
    out = torch.zeros(37, dtype=TYPES[kind])
    start, step = torch.tensor([3], dtype=out.dtype), torch.tensor([2], dtype=out.dtype)
    bench.run(unit, "arange", start, step, out, threads=37, group=32)
    assert torch.equal(out, torch.arange(3, 3 + 2 * 37, 2, dtype=out.dtype))
