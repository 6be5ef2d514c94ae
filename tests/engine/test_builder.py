"""The process that LLVM runs in: what ends it costs an error, and the next kernel gets a new one."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import metalwright
from metalwright.engine import Module, builder
from metalwright.errors import CompileError, Diagnostic, MemoryFault, Site, ToolchainError
from metalwright.msl import CompileOptions, Section, compile_msl
from tests.support import launch, whole

TEXT = """#include <metal_stdlib>
kernel void k(device float* out, uint i [[thread_position_in_grid]]) { out[i] = SCALE; }
"""
# no front-end lets this through; LLVM ends its process over the register
FATAL = """
define void @k(ptr %0, ptr %1, ptr %2) {
  %value = call i32 asm "", "={nonsense}"()
  store i32 %value, ptr %1
  ret void
}
"""


def module(scale: float) -> Module:
    return compile_msl((Section(TEXT.replace("SCALE", str(scale)), "k.metal"),), CompileOptions(), "k")


def builds(scale: float) -> bool:
    made = module(scale)
    return len(builder.generate(made, made.kernels[0].symbol).machine_code) > 0


def long_ir() -> str:
    """Return IR that LLVM works on for long: many functions that are each inlined five times a level."""
    lines = ["define internal i32 @f0(i32 %n) alwaysinline {\n %r = mul i32 %n, %n\n ret i32 %r\n}"]
    for j in range(1, 11):
        calls = [
            f" %c{k} = call i32 @f{j - 1}(i32 %s{k})\n %s{k + 1} = add i32 %c{k}, %s{k}" for k in range(5)
        ]
        head = f"define internal i32 @f{j}(i32 %n) alwaysinline {{\n %s0 = add i32 %n, 1"
        lines.append("\n".join([head, *calls, " ret i32 %s5\n}"]))
    body = "define void @k(ptr %0, ptr %1, ptr %2) {\n %v = load i32, ptr %1\n %r = call i32 @f10(i32 %v)\n"
    return "\n".join([*lines, body + " store i32 %r, ptr %1\n ret void\n}\n"])


def child() -> subprocess.Popen[bytes]:
    assert builder._child is not None
    return builder._child.process


def test_what_ends_llvms_process_is_an_error() -> None:
    bad = Module(FATAL, (), checked=False, label="registers")
    with pytest.raises(
        ToolchainError,
        match=r"kernel 'registers': LLVM cannot make machine code of it: .*nonsense.*not in the kernel",
    ):
        builder.generate(bad, "k")
    assert builds(1.5)


def test_a_child_that_was_killed_is_replaced() -> None:
    assert builds(2.5)
    first = child()
    first.kill()
    first.wait()
    assert builds(2.5)
    assert child().pid != first.pid


def test_errors_cross_from_the_child() -> None:
    with pytest.raises(ToolchainError, match="kernel 'broken': LLVM cannot read its IR"):
        builder.generate(Module("define void @k() {\n nonsense\n}", (), checked=False, label="broken"), "k")
    assert builds(3.5)


def test_an_interrupt_while_it_builds_leaves_no_stale_answer() -> None:
    assert builds(4.5)
    first = child()
    made = module(5.5)  # before the interrupt, which is for the child's answer
    # a shell that started the tests in the background has them ignore Ctrl-C
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        os.kill(first.pid, signal.SIGSTOP)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            builder.generate(made, made.kernels[0].symbol)
    finally:
        signal.signal(signal.SIGINT, before)
    assert builds(6.5)
    assert child().pid != first.pid
    assert first.wait(timeout=10) != 0


def test_a_forked_process_has_a_child_of_its_own() -> None:
    code = (
        "import os\n"
        "from tests.engine.test_builder import builds, child\n"
        "assert builds(7.5); first = child().pid\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os._exit(0 if builds(8.5) and child().pid != first else 3)\n"
        "status = os.waitpid(pid, 0)[1]\n"
        "assert builds(9.5) and child().pid == first\n"
        "print(os.waitstatus_to_exitcode(status))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "0\n", done.stderr


def test_users_files_do_not_stand_in_for_the_childs_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`metalwright run` puts a file's folder first on the path, and people have a ``random.py``."""
    for name in ("random", "llvmlite", "platformdirs"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    if builder._child is not None:
        child().kill()
        child().wait()
    assert builds(11.5)


def test_the_child_has_the_package_of_its_parent(tmp_path: Path) -> None:
    """Also where another version is installed: here a copy that answers differently is on the parent's path."""
    copy = tmp_path / "metalwright"
    shutil.copytree(Path(metalwright.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "engine" / "codegen.py").open("a") as file:
        file.write("\nraise ImportError('this is the copy')\n")
    code = (
        "import torch, metalwright; metalwright.compile_shader("
        f"{TEXT.replace('SCALE', '3.5')!r}).k(torch.zeros(1))"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "METALWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode != 0
    assert "this is the copy" in done.stderr


def test_the_child_ends_with_its_process() -> None:
    code = "from tests.engine.test_builder import builds, child\nassert builds(10.5); print(child().pid)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    for _ in range(100):
        try:
            os.kill(int(done.stdout), 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the child is still there after ten seconds")


def test_threads_share_the_child() -> None:
    results: list[bool] = []
    threads = [threading.Thread(target=lambda n=n: results.append(builds(20.5 + n))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 6


@pytest.mark.parametrize(
    "error",
    [
        CompileError("k", (Diagnostic("error", "no", Site("k.metal", 3, 4), "a b"),)),
        MemoryFault("too far", kernel="k", site=Site("k.metal", 1), excerpt="x[9]", thread=(1, 2, 3)),
        ToolchainError("no clang"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_can_be_pickled(error: metalwright.MetalwrightError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_what_the_child_builds_runs() -> None:
    out = np.zeros(8, np.float32)
    launch(whole(TEXT.replace("SCALE", "2.0f * i")), {}, {"out": out}, 8, 8)
    assert out.tolist() == [2.0 * i for i in range(8)]


def test_a_child_that_is_expected_builds_the_kernel() -> None:
    assert builds(8.5)
    child().kill()
    child().wait()
    builder.expect()
    expected = child()
    assert expected.poll() is None
    builder.expect()
    assert builds(9.5)
    assert child() is expected


def test_a_child_can_be_ended() -> None:
    assert builds(11.5)
    ended = child()
    builder.end()
    assert ended.returncode == 0
    builder.end()
    assert builds(12.5)
    assert child() is not ended


@pytest.mark.parametrize("wish", ["#pragma unroll", "#pragma clang loop unroll(full)", "#pragma unroll(8)"])
def test_checked_loops_are_not_unrolled_by_wish(wish: str) -> None:
    loop = """#include <metal_stdlib>
    kernel void k(device float* x, uint i [[thread_position_in_grid]]) {
      WISH
      for (uint j = 0; j < 512; j++) x[i * 512 + j] = metal::sqrt(x[i * 512 + j]) + j;
    }"""

    def machine_code(wish: str) -> bytes:
        made = compile_msl((Section(loop.replace("WISH", wish), "k.metal"),), CompileOptions(), "k")
        return builder.generate(made, made.kernels[0].symbol).machine_code

    assert len(machine_code(wish)) == len(machine_code(""))


def test_a_child_at_work_ends_when_its_process_is_killed() -> None:
    """It is in the middle of a kernel that takes long, and reads no pipe."""
    code = (
        "import threading, time\n"
        "from tests.engine.test_builder import builds, builder, child, long_ir\n"
        "assert builds(13.5)\n"
        "threading.Thread(target=builder.inline, args=(long_ir(), 'k'), daemon=True).start()\n"
        "time.sleep(1); print(child().pid, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    for _ in range(50):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the child is still at work after five seconds")
