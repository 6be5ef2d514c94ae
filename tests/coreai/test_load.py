"""Artifacts run here: kernels among plain operations, control flow, invoked graphs and states."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from coreai._compiler.dialects import coreai
from coreai.authoring import CustomMetalKernel

import metalwright
from metalwright.coreai import compiled, interpreter, load
from metalwright.coreai.execute import KernelRun, SegmentRun
from metalwright.errors import ArgumentError, ArtifactError
from tests.coreai.graphs import GID, constant, doubled, handle, launch, one, save, tensor, token

X = np.arange(4, dtype=np.float32)


def vector(size: int = 4) -> Any:
    return tensor((size,))


def simple(path: Path, body: Any) -> metalwright.coreai.Model:
    return load(save(path / "m.aimodel", lambda: one("main", {"x": vector()}, {"y": vector()}, body)))


def test_kernels_feed_kernels_and_plain_operations(tmp_path: Path) -> None:
    model = simple(tmp_path, lambda x: [coreai.add(doubled(doubled(x)), doubled(coreai.add(x, x)))])
    (out,) = model(x=X).values()
    assert out.tolist() == (8 * X).tolist()
    assert isinstance(out, np.ndarray)


def test_tensors_come_back_as_tensors_of_the_same_dtype(tmp_path: Path) -> None:
    out = simple(tmp_path, lambda x: [doubled(x)])(x=torch.from_numpy(X))["y"]
    assert isinstance(out, torch.Tensor)
    assert out.dtype == torch.float32
    assert out.tolist() == [0, 2, 4, 6]


def test_an_output_is_no_view_of_an_input(tmp_path: Path) -> None:
    def body(x: Any) -> list[Any]:
        return [x, doubled(x)]

    path = save(
        tmp_path / "m.aimodel",
        lambda: one("main", {"x": vector()}, {"same": vector(), "y": vector()}, body),
    )
    x = X.copy()
    out = load(path)(x=x)
    x[:] = 9
    assert out["same"].tolist() == [0, 1, 2, 3]


def test_several_results_and_a_constant_operand(tmp_path: Path) -> None:
    kernel = CustomMetalKernel(
        "sum_and_difference", ["x", "w"], ["s", "d"], "s[i] = x[i] + w[i]; d[i] = x[i] - w[i];", [GID]
    )

    def body(x: Any) -> list[Any]:
        s, d = launch(kernel, [x, constant([1, 2, 3, 4], np.float32)], 4, [[4], [4]], [x.type, x.type])
        return [d, coreai.add(s, s)]

    path = save(
        tmp_path / "m.aimodel",
        lambda: one("main", {"x": vector()}, {"d": vector(), "s": vector()}, body),
    )
    out = load(path)(x=X)
    assert out["d"].tolist() == [-1, -1, -1, -1]
    assert out["s"].tolist() == [2, 6, 10, 14]


@pytest.mark.parametrize(
    "dtype",
    [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32],
)  # fmt: skip
def test_every_element_type(tmp_path: Path, dtype: Any) -> None:
    kind = tensor((4,), dtype)
    path = save(
        tmp_path / "m.aimodel",
        lambda: one("main", {"x": kind}, {"y": kind}, lambda x: [coreai.add(doubled(x), x)]),
    )
    out = load(path)(x=X.astype(dtype))["y"]
    assert out.dtype == dtype
    assert out.astype(np.float64).tolist() == [0, 3, 6, 9]


def test_a_branch_with_a_kernel_in_one_arm(tmp_path: Path) -> None:
    def body(c: Any, x: Any) -> list[Any]:
        result, (then, otherwise) = coreai.if_([x.type], c)
        with then:
            coreai.yield_([doubled(x)])
        with otherwise:
            coreai.yield_([coreai.add(x, constant([1, 1, 1, 1], np.float32))])
        return [result]

    inputs = {"c": tensor((), np.bool_), "x": vector()}
    model = load(save(tmp_path / "m.aimodel", lambda: one("main", inputs, {"y": vector()}, body)))
    assert model(c=np.array(True), x=X)["y"].tolist() == [0, 2, 4, 6]
    assert model(c=np.array(False), x=X)["y"].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("times", [0, 1, 5])
def test_a_loop_around_a_kernel(tmp_path: Path, times: int) -> None:
    def body(n: Any, x: Any) -> list[Any]:
        results, (before, after) = coreai.while_([n.type, x.type], [constant(0, np.int32), x])
        with before:
            count, current = before.arguments
            coreai.condition(coreai.not_equal(count, n), count, current)
        with after:
            count, current = after.arguments
            coreai.yield_([coreai.add(count, constant(1, np.int32)), doubled(current)])
        return [results[1]]

    inputs = {"n": tensor((), np.int32), "x": vector()}
    model = load(save(tmp_path / "m.aimodel", lambda: one("main", inputs, {"y": vector()}, body)))
    assert model(n=np.array(times, np.int32), x=X)["y"].tolist() == (X * 2**times).tolist()


def test_graphs_that_invoke_graphs_with_kernels(tmp_path: Path) -> None:
    def write() -> None:
        inner = one(
            "inner", {"x": vector()}, {"y": vector()}, lambda x: [coreai.add(doubled(x), x)],
            private=True, no_inline=True,
        )  # fmt: skip
        one("main", {"x": vector()}, {"y": vector()}, lambda x: [inner(inner(x)[0])[0]])

    model = load(save(tmp_path / "m.aimodel", write))
    assert list(model.functions) == ["main"]
    assert model(x=X)["y"].tolist() == (9 * X).tolist()


def test_functions_with_and_without_kernels(tmp_path: Path) -> None:
    model = load(
        save(
            tmp_path / "m.aimodel",
            lambda: one("plain", {"x": vector()}, {"y": vector()}, lambda x: [coreai.add(x, x)]),
            lambda: one("metal", {"x": vector()}, {"y": vector()}, lambda x: [doubled(x)]),
        )
    )
    assert (
        model.run("plain", {"x": X})["y"].tolist()
        == model.run("metal", {"x": X})["y"].tolist()
        == [0, 2, 4, 6]
    )
    with pytest.raises(ArgumentError, match="has the functions plain, metal: use run"):
        model(x=X)


def test_functions_without_inputs_and_without_outputs(tmp_path: Path) -> None:
    model = load(
        save(
            tmp_path / "m.aimodel",
            lambda: one("given", {}, {"y": vector(2)}, lambda: [doubled(constant([1, 2], np.float32))]),
            lambda: one("taken", {"x": vector()}, {}, lambda x: []),
        )
    )
    assert model.run("given", {})["y"].tolist() == [2, 4]
    assert model.run("taken", {"x": X}) == {}


# States -----------------------------------------------------------------------------------------------------------


def accumulating(path: Path) -> metalwright.coreai.Model:
    """`total` takes twice the input more with each call; the outputs are what it was and what it is."""

    def body(total: Any, x: Any) -> list[Any]:
        now = coreai.create_token()
        old, now = coreai.read_handle(total, now)
        now = coreai.write_handle(total, coreai.add(old, doubled(x)), now)
        new, now = coreai.read_handle(total, now)
        return [now, old, new]

    def write() -> None:
        inputs = {"total": handle((4,)), "x": vector()}
        outputs = {"total": token, "old": vector(), "new": vector()}
        one("main", inputs, outputs, body)

    return load(save(path / "m.aimodel", write))


def test_states_keep_their_values_until_they_are_reset(tmp_path: Path) -> None:
    model = accumulating(tmp_path)
    (info,) = model.functions["main"].states
    assert (info.name, info.dtype, info.shape) == ("total", "f32", (4,))
    assert [one.name for one in model.functions["main"].inputs] == ["x"]
    first = model(x=X)
    second = model(x=X)
    assert first["new"].tolist() == second["old"].tolist() == [0, 2, 4, 6]
    assert second["new"].tolist() == [0, 4, 8, 12]
    assert first["old"].tolist() == [0, 0, 0, 0]  # a later call does not change what an earlier one returned
    model.reset()
    assert model(x=X)["new"].tolist() == [0, 2, 4, 6]
    model.reset({"total": np.full(4, 10, np.float32)})
    assert model(x=X)["new"].tolist() == [10, 12, 14, 16]
    assert model.state("total").tolist() == [10, 12, 14, 16]


def test_reset_refuses_what_is_no_state(tmp_path: Path) -> None:
    model = accumulating(tmp_path)
    with pytest.raises(ArgumentError, match=r"has no state 'sum'; it has total"):
        model.state("sum")
    with pytest.raises(ArgumentError, match=r"has no state 'sum'; it has total"):
        model.reset({"sum": X})
    with pytest.raises(ArgumentError, match=r"state 'total': expected shape \[4\], got \[3\]"):
        model.reset({"total": X[:3]})
    with pytest.raises(ArgumentError, match="state 'total': expected dtype float32, got int32"):
        model.reset({"total": X.astype(np.int32)})


def test_a_state_read_in_a_branch(tmp_path: Path) -> None:
    """Core AI's own passes end the process over one that is written there."""

    def body(total: Any, c: Any, x: Any) -> list[Any]:
        now = coreai.create_token()
        old, now = coreai.read_handle(total, now)
        now = coreai.write_handle(total, coreai.add(old, doubled(x)), now)
        result, (then, otherwise) = coreai.if_([x.type], c)
        with then:
            present, _ = coreai.read_handle(total, now)
            coreai.yield_([doubled(present)])
        with otherwise:
            coreai.yield_([old])
        return [now, result]

    def write() -> None:
        inputs = {"total": handle((4,)), "c": tensor((), np.bool_), "x": vector()}
        one("main", inputs, {"total": token, "y": vector()}, body)

    model = load(save(tmp_path / "m.aimodel", write))
    model.reset({"total": np.ones(4, np.float32)})
    assert model(c=np.array(False), x=X)["y"].tolist() == [1, 1, 1, 1]
    assert model.state("total").tolist() == [1, 3, 5, 7]
    assert model(c=np.array(True), x=X)["y"].tolist() == [2, 10, 18, 26]
    assert model.state("total").tolist() == [1, 5, 9, 13]


# Calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "function 'main': input 'x' is missing"),
        ({"x": X, "z": X}, "function 'main' has no input 'z'; it has x"),
        ({"x": X.astype(np.float64)}, "input 'x': expected dtype float32, got float64"),
        ({"x": X.astype(np.int32)}, "input 'x': expected dtype float32, got int32"),
        ({"x": X[:3]}, r"input 'x': expected shape \[4\], got \[3\]"),
        ({"x": X.reshape(2, 2)}, r"input 'x': expected shape \[4\], got \[2, 2\]"),
        ({"x": [0, 1, 2, 3]}, "input 'x': expected a torch.Tensor or a NumPy array, got list"),
        ({"x": torch.empty(4, device="meta")}, "input 'x': expected a dense CPU tensor"),
        (
            {"x": torch.ones(4).to(torch.float8_e4m3fn)},
            "input 'x': expected dtype float32, got float8_e4m3fn",
        ),
    ],
)
def test_an_input_that_does_not_fit(tmp_path: Path, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        simple(tmp_path, lambda x: [doubled(x)]).run("main", inputs)


@pytest.mark.parametrize(
    "x",
    [
        X[::-1],
        np.repeat(X, 2)[::2],
        np.broadcast_to(X[1], (4,)),
        X.astype(X.dtype.newbyteorder()),
        np.arange(5, dtype=np.float32)[1:],
        np.frombuffer(b"-" + X.tobytes(), np.uint8)[1:].view(np.float32),
        torch.arange(5.0)[1:],
        torch.arange(8.0)[::2],
        torch.ones(4, requires_grad=True),
        torch._neg_view(torch.ones(4)),
    ],
    ids="reversed strided broadcast swapped slice unaligned tensor-slice tensor-strided gradient negative".split(),
)
def test_an_input_may_lie_in_memory_in_any_way(tmp_path: Path, x: Any) -> None:
    """A kernel that lays vectors over its tensor sees it begin where vectors may."""
    kernel = CustomMetalKernel(
        "vectors", ["x"], ["y"], "float4 v = *(device float4*)&x[0]; y[i] = v[i];", [GID]
    )
    out = simple(tmp_path, lambda x: [doubled(x, kernel)])(x=x)["y"]
    assert out.tolist() == x.tolist()


def test_a_function_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="has no function 'decode'; it has main"):
        simple(tmp_path, lambda x: [doubled(x)]).run("decode", {"x": X})


def test_a_model_shows_its_functions(tmp_path: Path) -> None:
    model = simple(tmp_path, lambda x: [doubled(x)])
    assert repr(model) == f"<Model {tmp_path}/m.aimodel: main(x: f32[4]) -> (y: f32[4])>"


def test_int64_is_taken_for_int32_where_it_fits(tmp_path: Path) -> None:
    kind = tensor((4,), np.int32)
    path = save(tmp_path / "m.aimodel", lambda: one("main", {"x": kind}, {"y": kind}, lambda x: [doubled(x)]))
    model = load(path)
    assert model(x=torch.arange(4))["y"].tolist() == [0, 2, 4, 6]
    with pytest.raises(ArgumentError, match="has values that do not fit si32"):
        model(x=torch.arange(4) + 2**40)


def test_the_observer_sees_every_part_in_order(tmp_path: Path) -> None:
    model = simple(tmp_path, lambda x: [coreai.add(doubled(coreai.add(x, x)), x)])
    seen: list[Any] = []
    model.run("main", {"x": X}, observer=seen.append)
    first, kernel, last = seen
    assert isinstance(first, SegmentRun)
    assert first.operations == ("coreai.add",)
    assert {array.tolist() == X.tolist() for array in first.inputs} == {True}
    assert first.outputs[0].tolist() == [0, 2, 4, 6]
    assert isinstance(kernel, KernelRun)
    assert kernel.kernel.name.startswith("twice_")
    assert kernel.operands[0].tolist() == [0, 2, 4, 6]
    assert kernel.results[0].tolist() == [0, 4, 8, 12]
    assert (kernel.threads_per_grid, kernel.threads_per_threadgroup) == ((4, 1, 1), (4, 1, 1))
    assert isinstance(last, SegmentRun)


def test_it_runs_inside_a_running_event_loop(tmp_path: Path) -> None:
    import asyncio

    model = simple(tmp_path, lambda x: [coreai.add(doubled(x), x)])

    async def inside() -> Any:
        return model(x=X)["y"].tolist()

    assert asyncio.run(inside()) == [0, 3, 6, 9]


@pytest.mark.parametrize("inside", [False, True], ids=["plain", "in-a-loop"])
def test_ctrl_c_stops_a_kernel_that_does_not_end(tmp_path: Path, inside: bool) -> None:
    """In a notebook, too, where an event loop is at work around the call."""
    import asyncio

    kernel = CustomMetalKernel("endless", ["x"], ["y"], "while (x[0] == 0) y[i] += 1;", [GID])
    model = simple(tmp_path, lambda x: [doubled(x, kernel)])

    async def call() -> None:
        model(x=X)

    # what a shell starts in the background ignores the signal
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    loop = asyncio.new_event_loop()
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(call()) if inside else model(x=X)
    finally:
        timer.join()
        loop.close()
        signal.signal(signal.SIGINT, before)
    assert model(x=X + 1)["y"].shape == (4,)


def test_what_is_interrupted_before_it_has_begun_does_not_begin() -> None:
    async def work() -> None:
        raise AssertionError("it began")

    apart = interpreter._Apart()
    apart.interrupt()
    with pytest.raises(KeyboardInterrupt):
        apart.run(work())


def test_threads_may_share_a_model(tmp_path: Path) -> None:
    model = simple(tmp_path, lambda x: [coreai.add(doubled(x), x)])
    found: dict[int, Any] = {}

    def work(factor: int) -> None:
        for _ in range(20):
            found[factor] = model(x=X * factor)["y"].tolist()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: (3 * n * X).tolist() for n in range(1, 5)}


@pytest.mark.parametrize("again", [True, False], ids=["loads", "calls"])
def test_a_forked_process_is_told_and_does_not_hang(tmp_path: Path, again: bool) -> None:
    model = simple(tmp_path, lambda x: [coreai.add(doubled(x), x)])
    model(x=X)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            load(model.path) if again else model(x=X)
        except ArtifactError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0
    with open(reading) as file:
        assert "start it with multiprocessing's 'spawn'" in file.read()


def test_compiled_parts_are_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METALWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    path = save(
        tmp_path / "m.aimodel",
        lambda: one("main", {"x": vector()}, {"y": vector()}, lambda x: [doubled(x)]),
    )
    load(path)
    assert compiled.stats().entries == 1

    def again(*_: Any) -> None:
        raise AssertionError("compiled again")

    with monkeypatch.context() as patch:
        patch.setattr(compiled, "_run", again)
        assert load(path)(x=X)["y"].tolist() == [0, 2, 4, 6]
    assert compiled.clear() == 1
    assert compiled.stats().entries == 0


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an artifact that multiplies by 3, with a cache of its own."""
    monkeypatch.setenv("METALWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    kind = {"x": vector()}, {"y": vector()}
    return save(tmp_path / "m.aimodel", lambda: one("main", *kind, lambda x: [coreai.add(doubled(x), x)]))


def works(path: Path) -> bool:
    return load(path)(x=X)["y"].tolist() == (3 * X).tolist()


@pytest.mark.parametrize("file", ["constants.bin", "files.json", "main-universal.odix", "plan.pickle"])
def test_damaged_parts_are_compiled_again(cached: Path, file: str) -> None:
    """Core AI's interpreter would end the process over a damaged file of its own."""
    assert works(cached)
    (entry,) = compiled.folder().iterdir()
    whole = (entry / file).read_bytes()
    for damaged in (b"", whole[:-1], bytes(byte ^ 0x55 for byte in whole), b"null"):
        (entry / file).write_bytes(damaged)
        assert works(cached)
        assert (entry / file).read_bytes() not in (damaged, b"")


def test_a_cache_that_cannot_be_written_is_no_error(
    cached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    model = load(cached)
    assert model(x=X)["y"].tolist() == (3 * X).tolist()
    assert len(list((tmp_path / "temporary").glob("*.aimodelx"))) == 1
    del model
    gc.collect()
    assert not list((tmp_path / "temporary").glob("*.aimodelx"))


def test_what_a_process_that_died_has_left_goes(cached: Path) -> None:
    assert works(cached)
    for name, age in ((".tmp-old", 7200), (".tmp-new", 60), ("not-ours", 7200)):
        left = compiled.folder() / name
        left.mkdir()
        (left / "part").write_text("x")
        os.utime(left, (time.time() - age,) * 2)
    compiled.trim()
    assert {path.name for path in compiled.folder().iterdir()} >= {".tmp-new", "not-ours"}
    assert not (compiled.folder() / ".tmp-old").exists()
    # what may be at work stays
    assert compiled.clear() == 1
    assert {path.name for path in compiled.folder().iterdir()} == {".tmp-new", "not-ours"}


def test_a_cache_may_be_cleared_at_any_time(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_parts, find = compiled._run, compiled.compiled

    def cleared_while_compiling(path: Path, new: Path) -> None:
        compile_parts(path, new)
        compiled.clear()

    def cleared_before_it_is_opened(path: Path) -> compiled.Compiled:
        parts = find(path)
        compiled.clear()
        return parts

    with monkeypatch.context() as patch:
        patch.setattr(compiled, "_run", cleared_while_compiling)
        assert works(cached)
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "compiled", cleared_before_it_is_opened)
        assert works(cached)
    model = load(cached)
    compiled.clear()
    assert model(x=X)["y"].tolist() == (3 * X).tolist()


def test_old_parts_go_first_when_the_folder_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METALWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("METALWRIGHT_ARTIFACT_CACHE_LIMIT_MB", "0")
    for number in (1, 2):
        kernel = CustomMetalKernel(f"times_{number}", ["x"], ["y"], f"y[i] = x[i] * {number};", [GID])
        path = save(
            tmp_path / f"m{number}.aimodel",
            lambda kernel=kernel: one(
                "main", {"x": vector()}, {"y": vector()}, lambda x: [doubled(x, kernel)]
            ),
        )
        assert load(path)(x=X)["y"].tolist() == (number * X).tolist()
        assert compiled.stats().entries == 1


SLOW_HANDOVER = """
import asyncio, sys, time
import numpy as np
from metalwright import coreai

class Slow(asyncio.SelectorEventLoop):
    def _write_to_self(self):
        super()._write_to_self()
        time.sleep(0.05)  # without Python's lock, as where the system runs something else first

asyncio.new_event_loop = Slow
print(coreai.load(sys.argv[1])(x=np.ones(4, np.float32))["y"])
"""


def test_a_process_may_end_right_after_a_call(tmp_path: Path) -> None:
    """A thread of Core AI's that Python stopped while it handed its result over would abort the process."""
    path = save(
        tmp_path / "m.aimodel",
        lambda: one("main", {"x": vector()}, {"y": vector()}, lambda x: [coreai.add(doubled(x), x)]),
    )
    done = subprocess.run(
        [sys.executable, "-c", SLOW_HANDOVER, path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[3. 3. 3. 3.]\n"), done.stderr
