"""emulate(): plain Core AI kernels execute their MSL inside it, and only there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from coreai_torch import TorchMetalKernel

from metalwright.authoring import MetalParameter, emulate
from metalwright.errors import ArgumentError, MemoryFault, ToolchainError

X = torch.arange(4.0)
SIZES: Any = {"threads_per_grid": (4, 1, 1), "threads_per_thread_group": (4, 1, 1), "result_shapes": [[4]]}


def zeros(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x)


@pytest.fixture
def plain(unique: Callable[[str], str]) -> TorchMetalKernel:
    """A kernel whose MSL adds one and whose reference gives zeros, so that one can tell which of them ran."""
    return TorchMetalKernel(unique("plain"), ["x"], ["out"], "out[gid] = x[gid] + 1;", zeros,
                            [MetalParameter("gid", "uint", "thread_position_in_grid")])  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = TorchMetalKernel.__call__
    yield
    assert TorchMetalKernel.__call__ is before


def executed(kernel: TorchMetalKernel) -> bool:
    return torch.equal(kernel(X, **SIZES), X + 1)


def test_inside_and_outside(plain: TorchMetalKernel) -> None:
    assert not executed(plain)
    with emulate():
        assert executed(plain)
    assert not executed(plain)


@pytest.mark.parametrize("names", [(), ("coreai_torch",), ("coreai_torch", "coreai_torch")])
def test_names(names: tuple[str, ...], plain: TorchMetalKernel) -> None:
    with emulate(*names):
        assert executed(plain)


def test_it_nests(plain: TorchMetalKernel) -> None:
    with emulate():
        with emulate(math_mode="fast"):
            assert executed(plain)
        assert executed(plain)
    assert not executed(plain)


def test_one_object_may_be_entered_again(plain: TorchMetalKernel) -> None:
    emulation = emulate()
    with emulation:
        with emulation:
            assert executed(plain)
        assert executed(plain)
    assert not executed(plain)


def test_it_restores_on_error(plain: TorchMetalKernel) -> None:
    with pytest.raises(ZeroDivisionError), emulate():
        raise ZeroDivisionError
    assert not executed(plain)


def test_as_a_decorator(plain: TorchMetalKernel) -> None:
    @emulate()
    def inside() -> bool:
        return executed(plain)

    assert inside() and inside()
    assert not executed(plain)


def test_the_innermost_options_hold(unique: Callable[[str], str]) -> None:
    outside = TorchMetalKernel(unique("outside"), ["x"], ["out"], "out[gid] = x[gid + 1];", zeros,
                               [MetalParameter("gid", "uint", "thread_position_in_grid")])  # fmt: skip
    with emulate(checked=False):
        outside(X, **SIZES)
        with emulate(), pytest.raises(MemoryFault):
            outside(X, **SIZES)
        outside(X, **SIZES)


def test_another_thread_is_not_disturbed(plain: TorchMetalKernel) -> None:
    seen: list[bool] = []
    with emulate():
        thread = threading.Thread(target=lambda: seen.append(executed(plain)))
        thread.start()
        thread.join()
    assert seen == [False]


def test_threads_come_and_go_as_they_like(plain: TorchMetalKernel) -> None:
    barrier = threading.Barrier(4)
    wrong: list[str] = []

    def work(emulated: bool) -> None:
        barrier.wait()
        for _ in range(50):
            if emulated:
                with emulate():
                    if not executed(plain):
                        wrong.append("not executed inside")
            elif executed(plain):
                wrong.append("executed outside")

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_tasks_are_kept_apart(plain: TorchMetalKernel) -> None:
    async def inside(turn: asyncio.Event, done: asyncio.Event) -> bool:
        with emulate():
            turn.set()
            await done.wait()
            return executed(plain)

    async def beside(turn: asyncio.Event, done: asyncio.Event) -> bool:
        await turn.wait()
        result = executed(plain)
        done.set()
        return result

    async def main() -> list[bool]:
        turn, done = asyncio.Event(), asyncio.Event()
        return list(await asyncio.gather(inside(turn, done), beside(turn, done)))

    assert asyncio.run(main()) == [True, False]


class Model(torch.nn.Module):
    def __init__(self, kernel: TorchMetalKernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.bias = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.kernel(x + self.bias, **SIZES)


def test_an_existing_model_runs_unchanged(plain: TorchMetalKernel) -> None:
    with emulate():
        out = Model(plain)(X)
    assert torch.equal(out.detach(), X + 1)
    with pytest.raises(Exception, match="no gradient"):
        out.sum().backward()


@pytest.mark.parametrize("strict", [False, True])
def test_export_inside_is_as_outside(strict: bool, plain: TorchMetalKernel) -> None:
    outside = torch.export.export(Model(plain), (X,), strict=strict)
    with emulate():
        inside = torch.export.export(Model(plain), (X,), strict=strict)
    assert [str(n.target) for n in inside.graph.nodes] == [str(n.target) for n in outside.graph.nodes]


def test_meta_tensors_trace(plain: TorchMetalKernel) -> None:
    with emulate():
        assert plain(X.to("meta"), **SIZES).device.type == "meta"


def test_bad_arguments() -> None:
    with pytest.raises(ArgumentError, match=r"unknown name 'cuda'; known: .*coreai_torch"):
        emulate("cuda")
    with pytest.raises(ArgumentError, match="math_mode: expected 'safe' or 'fast', got 'quick'"):
        emulate(math_mode="quick")


def test_the_registry_takes_more_targets(plain: TorchMetalKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    from metalwright.authoring import registry

    events: list[str] = []
    monkeypatch.setattr(registry, "_targets", dict(registry._targets))
    registry.register(
        registry.Target("other", "json", lambda o: events.append("begin"), lambda o: events.append("end"))
    )
    registry.register(registry.Target("absent", "no_such_package_here", print, print))
    with emulate():
        assert executed(plain) and events == ["begin"]
    assert events == ["begin", "end"]
    with emulate("other"):
        assert not executed(plain)
    with pytest.raises(ToolchainError, match="'no_such_package_here' is not installed"):
        emulate("absent")


def test_a_target_that_fails_to_begin_undoes_the_others(
    plain: TorchMetalKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from metalwright.authoring import registry

    def fail(options: Any) -> None:
        raise OSError("no")

    monkeypatch.setattr(registry, "_targets", dict(registry._targets))
    registry.register(registry.Target("failing", "json", fail, fail))
    with pytest.raises(OSError, match="no"), emulate():
        pass
    assert not executed(plain)
