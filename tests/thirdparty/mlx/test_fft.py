"""Fourier transforms by every algorithm of MLX, forward and back, of complex and of real numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import fft_plans
import numpy as np
import pytest
import torch
from arrays import garbage, normal, up
from fft_plans import Plan
from test_gemv import UNREACHED
from units import FFT, Unit

import metalwright

# the worst error, in parts of the largest result: twiddles are products of rounded ones
CLOSE = 3e-6


@dataclass(frozen=True)
class Form:
    """What is transformed into what."""

    real: bool = False
    inverse: bool = False

    @property
    def types(self) -> tuple[str, str]:
        given, made = ("float" if self.real else "float2"), "float2"
        return (made, given) if self.inverse else (given, made)

    def inputs(self, count: int, length: int) -> torch.Tensor:
        """Return random ones; what becomes real is the spectrum of something real."""
        x = normal(length, count, length, kind="float" if self.real else "complex64_t")
        return torch.fft.rfft(x) if self.real and self.inverse else x

    def output(self, count: int, length: int) -> torch.Tensor:
        if self.real and self.inverse:
            return garbage(count, length, dtype=torch.float32)
        return garbage(count, length // 2 + 1 if self.real else length, dtype=torch.complex64)

    def reference(self, x: torch.Tensor, length: int) -> np.ndarray:
        """Return what NumPy gives, in double."""
        wide = x.numpy().astype(np.complex128 if x.is_complex() else np.float64)
        if self.real:
            return np.fft.irfft(wide, length) if self.inverse else np.fft.rfft(wide)
        return np.fft.ifft(wide) if self.inverse else np.fft.fft(wide)


FORWARD, BACK, REAL, REAL_BACK = Form(), Form(inverse=True), Form(real=True), Form(real=True, inverse=True)


def close(out: torch.Tensor, expected: np.ndarray, most: float = CLOSE) -> None:
    error = np.abs(out.numpy() - expected).max() / np.abs(expected).max()
    assert error < most, error


def unit_of(name: str, memory: int, form: Form, plan: Plan, *more: str, table: bool = False) -> Unit:
    arguments = ", ".join([str(memory), *form.types, *more])
    return Unit("fft.h", (), ((name, name, arguments),), plan.constants(form.inverse, table))


def launch(
    bench: Any,
    name: str,
    form: Form,
    plan: Plan,
    count: int,
    *more: Any,
    table: torch.Tensor | None = None,
    behind: int = 0,
    checked: bool = True,
) -> None:
    """Transform so many inputs and compare; ``more`` are the arguments between the tensors and the count.

    There are some elements of memory ``behind`` the input.
    """
    together = plan.together()
    unit = unit_of(name, fft_plans.power_of_two(together * plan.size), form, plan, table=table is not None)
    x, out = form.inputs(count, plan.length), form.output(count, plan.length)
    # two real transforms are done as a complex one
    batches = up(up(count, together), 2 if form.real else 1)
    arguments = [plan.length, count]
    if name == "bluestein_fft":
        arguments.insert(1, plan.size)
    if name == "rader_fft":
        arguments.append(plan.rader)
    memory = torch.cat([x.flatten(), garbage(behind, dtype=x.dtype)])
    bench.run(
        unit,
        name,
        memory,
        out,
        *more,
        *arguments,
        threads=(batches, together, plan.threads),
        group=(1, together, plan.threads),
        checked=checked,
    )
    close(out, form.reference(x, plan.length))


@pytest.mark.parametrize(
    ("length", "form", "count"),
    [
        (4, FORWARD, 64),
        (36, BACK, 14),
        (512, BACK, 3),
        (2002, FORWARD, 1),
        (30, REAL, 15),
        (15, REAL_BACK, 34),
    ],
    ids=str,
)
def test_fft(bench, length: int, form: Form, count: int) -> None:
    plan = fft_plans.plan(length)
    assert plan.rader == 1
    assert plan.size == length
    launch(bench, "fft", form, plan, count)


@pytest.mark.parametrize("checked", [False, pytest.param(True, marks=pytest.mark.xfail(
    raises=metalwright.BarrierFault, reason=UNREACHED))])  # fmt: skip
def test_threadgroups_with_fewer_transforms(bench, checked: bool) -> None:
    """Threads without a transform return before the barriers."""
    launch(bench, "fft", FORWARD, fft_plans.plan(4), 100, checked=checked)


def test_half(bench) -> None:
    """Numbers are in half at every step; the inverse transform is scaled at its end."""
    plan = fft_plans.plan(64)
    name, kernels = "fft", (("fft", "fft", "256, half2, half2"),)
    x = normal(1, 8, 64, 2, kind="half")
    out = garbage(8, 64, 2, dtype=torch.float16)
    sizes = {"threads": (2, 4, plan.threads), "group": (1, 4, plan.threads)}
    bench.run(Unit("fft.h", (), kernels, plan.constants(inverse=True)), name, x, out, 64, 8, **sizes)
    wide = torch.view_as_complex(x.double()).numpy()
    close(torch.view_as_complex(out.double()), np.fft.ifft(wide), 4e-3)


@pytest.mark.parametrize(
    ("length", "form", "count"),
    [(102, BACK, 4), (34, REAL, 13), (38, REAL_BACK, 12)],
    ids=str,
)
def test_rader(bench, length: int, form: Form, count: int) -> None:
    plan = fft_plans.plan(length)
    assert plan.rader > 1
    tables = [torch.from_numpy(one) for one in fft_plans.rader(plan.rader)]
    launch(bench, "rader_fft", form, plan, count, *tables)


@pytest.mark.parametrize(
    ("length", "form", "count"),
    [(59, BACK, 4), (118, REAL, 3), (47, REAL_BACK, 4)],
    ids=str,
)
def test_bluestein(bench, length: int, form: Form, count: int) -> None:
    plan = fft_plans.plan(length)
    assert plan.size > length
    tables = map(torch.from_numpy, fft_plans.bluestein(plan))
    launch(bench, "bluestein_fft", form, plan, count, *tables, behind=plan.size)


@pytest.mark.xfail(
    raises=metalwright.MemoryFault,
    reason="threads that pad a spectrum read past its end, what they do not use; where memory goes on, it matches",
)
def test_bluestein_with_nothing_behind_the_spectrum(bench) -> None:
    plan = fft_plans.plan(47)
    tables = map(torch.from_numpy, fft_plans.bluestein(plan))
    launch(bench, "bluestein_fft", REAL_BACK, plan, 4, *tables)


def test_bluestein_with_a_table_of_twiddles(bench) -> None:
    """The largest one that fits has its twiddles made by a kernel, behind the spectrum that it multiplies with."""
    plan = fft_plans.plan(1627)
    assert plan.size == 4096
    radix = 8
    entries = [radix**power for power in (1, 2, 3)]
    spectrum, chirp = map(torch.from_numpy, fft_plans.bluestein(plan))
    table = torch.cat([spectrum, garbage(sum(entries), dtype=torch.complex64)])
    twiddles = table[plan.size :]
    name = "generate_bluestein_twiddles"
    sizes = {"threads": len(twiddles), "group": 256}
    bench.run(Unit("fft.h", (), ((name, name, ""),), FFT), name, twiddles, **sizes)
    expected = np.concatenate([np.exp(-2j * np.pi * np.arange(p) / (radix * p)) for p in entries])
    close(twiddles, expected, 2e-7)
    launch(bench, "bluestein_fft", FORWARD, plan, 2, table, chirp, table=table)


@pytest.mark.parametrize("form", [BACK, REAL, REAL_BACK], ids=str)
def test_four_step(bench, form: Form) -> None:
    """More than fits in threadgroup memory: columns, twiddles, then rows."""
    name, count, columns, rows = "four_step_fft", 2, 128, 64
    length = columns * rows
    x, out = form.inputs(count, length), form.output(count, length)
    between = garbage(count, length, dtype=torch.complex64)
    given, made = form.types
    for step, (part, source, target) in enumerate(((columns, x, between), (rows, between, out))):
        plan = fft_plans.plan(part)
        together = plan.together(columns=True)
        types = (given, "float2") if step == 0 else ("float2", made)
        arguments = f"{together * part}, {types[0]}, {types[1]}, {step}, {str(form.real).lower()}"
        unit = Unit("fft.h", (), ((name, name, arguments),), plan.constants(form.inverse))
        batches = count * length // part
        bench.run(
            unit,
            name,
            source,
            target,
            columns,
            rows,
            batches,
            threads=(batches // together, together, plan.threads),
            group=(1, together, plan.threads),
        )
    close(out, form.reference(x, length))
