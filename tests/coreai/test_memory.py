"""Large tensors: the memory of one call is used again, and nobody who still reads it notices."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coreai._compiler.dialects import coreai
from coreai.runtime import _NDArray

from metalwright.coreai import Model, arrays, load
from tests.coreai.graphs import constant, doubled, handle, one, save, tensor, token

SIZE = 1 << 17
X = np.arange(SIZE, dtype=np.float32)
VECTOR = tensor((SIZE,))


def model(path: Path, body: Any, *outputs: str) -> Model:
    made = dict.fromkeys(outputs or ("y",), VECTOR)
    return load(save(path / "m.aimodel", lambda: one("main", {"x": VECTOR}, made, body)))


def chain(x: Any, links: int = 4) -> Any:
    """Multiply by three, with a kernel and a plain operation, again and again."""
    for _ in range(links):
        x = coreai.add(doubled(x), x)
    return x


def reshaped(x: Any, *shape: int) -> Any:
    return coreai.reshape(x, constant(shape, np.uint32))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the types of the arrays that are really made."""
    seen: list[Any] = []
    make = arrays.Allocator.make

    def counted(self: Any, element: str, shape: tuple[int, ...]) -> Any:
        seen.append((element, shape))
        return make(self, element, shape)

    monkeypatch.setattr(arrays.Allocator, "make", counted)
    return seen


def test_a_call_works_in_the_memory_of_the_one_before(tmp_path: Path, made: list[Any]) -> None:
    run = model(tmp_path, lambda x: [chain(x)])
    assert (run(x=X)["y"] == 81 * X).all()
    assert 0 < len(made) < 4, "the kernels of one call take turns"
    del made[:]
    assert (run(x=X + 1)["y"] == 81 * (X + 1)).all()
    assert not made


def test_what_the_interpreter_returns_is_let_go(tmp_path: Path) -> None:
    """``coreai-core`` 1.0.0b3 keeps each dict that a function returns for good."""
    run = model(tmp_path, lambda x: [chain(x)])

    def alive() -> int:
        run(x=X)
        gc.collect()
        return sum(type(one) is _NDArray for one in gc.get_objects())

    alive()
    assert alive() == alive()


def test_results_stay_as_they_are_when_the_next_call_runs(tmp_path: Path) -> None:
    def body(x: Any) -> list[Any]:
        y = doubled(chain(x))
        return [y, doubled(y), reshaped(doubled(x), SIZE)]

    run = model(tmp_path, body, "y", "z", "same")
    first = run(x=X)
    run(x=X + 1)
    for name, factor in (("y", 162), ("z", 324), ("same", 2)):
        assert (first[name] == factor * X).all(), name


def test_a_view_of_a_kernels_result_keeps_its_memory(tmp_path: Path) -> None:
    def body(x: Any) -> list[Any]:
        view = reshaped(doubled(x), SIZE // 2, 2)
        # these kernels would write to the memory of the first, which nothing asks for any more by its own name
        later = chain(x)
        return [coreai.add(reshaped(view, SIZE), later)]

    run = model(tmp_path, body)
    for start in (0, 1):
        assert (run(x=X + start)["y"] == 83 * (X + start)).all()


def test_memory_that_an_output_shares_is_not_taken_back() -> None:
    """This version of the interpreter copies even in a reshape; one that does not must do no harm."""
    workspace = arrays.Workspace({}, {})
    shared, own = (workspace.make("f32", (SIZE,)) for _ in range(2))
    workspace.give_up([shared, own], [shared])
    workspace.release(shared)
    assert not workspace.released
    workspace.release(own)
    assert [len(found) for found in workspace.released.values()] == [1]


def test_a_value_with_two_names_keeps_its_memory(tmp_path: Path) -> None:
    """What a loop begins with is also what it carries, and the loop is done with it after one round."""

    def body(x: Any) -> list[Any]:
        first = doubled(x)
        three = constant(3, np.int32)
        results, (before, after) = coreai.while_([three.type, x.type], [constant(0, np.int32), first])
        with before:
            count, current = before.arguments
            coreai.condition(coreai.not_equal(count, three), count, current)
        with after:
            count, current = after.arguments
            coreai.yield_([coreai.add(count, constant(1, np.int32)), doubled(doubled(current))])
        return [coreai.add(results[1], first)]

    run = model(tmp_path, body)
    for start in (0, 1):
        assert (run(x=X + start)["y"] == (128 + 2) * (X + start)).all()


def test_a_state_keeps_its_memory(tmp_path: Path) -> None:
    def body(total: Any, x: Any) -> list[Any]:
        now = coreai.create_token()
        old, now = coreai.read_handle(total, now)
        now = coreai.write_handle(total, doubled(x), now)
        return [now, coreai.add(chain(x), old)]

    path = save(
        tmp_path / "m.aimodel",
        lambda: one("main", {"total": handle((SIZE,)), "x": VECTOR}, {"total": token, "y": VECTOR}, body),
    )
    run = load(path)
    assert (run(x=X)["y"] == 81 * X).all()
    assert (run(x=X + 1)["y"] == 81 * (X + 1) + 2 * X).all()
    assert (run.state("total") == 2 * (X + 1)).all()


def test_calls_at_once_have_memory_of_their_own(tmp_path: Path) -> None:
    run = model(tmp_path, lambda x: [chain(x)])
    wrong: list[int] = []

    def work(factor: int) -> None:
        for _ in range(10):
            if not (run(x=X * factor)["y"] == 81 * factor * X).all():
                wrong.append(factor)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
