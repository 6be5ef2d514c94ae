"""The runtime by itself, for both processors that it has code for: fibers, barriers, exchange, fused multiply-add.

The program brings its own kernel and no library, so it is built and linked here for either processor; the one for
the other processor runs where QEMU's user-mode emulator is installed.
"""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from metalwright import toolchain

RUNTIME = Path(toolchain.__file__).parent / "engine" / "runtime"
SOURCE = Path(__file__).with_name("bare_kernel.c")
OPTIONS = "-x c -std=c23 -ffreestanding -nostdinc -fno-builtin -O2 -w -fno-stack-protector".split()


def emulator(processor: str) -> list[str]:
    native = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    if processor == native and platform.system() == "Linux":
        return []
    for name in (f"qemu-{processor}-static", f"qemu-{processor}"):
        if found := shutil.which(name):
            return [found]
    pytest.skip(f"built for {processor}; running it needs qemu-{processor} (Debian's qemu-user-static)")


@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
def test_threads_meet_and_exchange(processor: str, tmp_path: Path) -> None:
    made, program = tmp_path / "kernel.o", tmp_path / "kernel"
    target = f"--target={processor}-unknown-linux-gnu"
    zig = str(toolchain.driver())
    compile_it = [zig, "clang", target, *OPTIONS, "-I", str(RUNTIME), "-c", str(SOURCE), "-o", str(made)]
    subprocess.run(compile_it, check=True)
    subprocess.run([zig, "ld.lld", "-static", "-o", str(program), str(made)], check=True)
    done = subprocess.run([*emulator(processor), str(program)], check=False, timeout=60)
    assert done.returncode == 0, "1: a value that threads handed over is wrong; 2: fmaf rounds twice"
