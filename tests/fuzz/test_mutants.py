"""Whatever a source looks like, the answer is a result or an error of ours: no crash, no hang, no other exception.

A few hundred mutants run in the suite. ``make fuzz`` runs ten thousand (``METALWRIGHT_FUZZ_MUTANTS`` sets the number,
``METALWRIGHT_FUZZ_SEED`` makes them others).
"""

from __future__ import annotations

import copy
import os
import re
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from metalwright.authoring import binding, compile_shader
from metalwright.authoring.run import execute
from metalwright.engine import Parameter
from metalwright.errors import CompileError, MetalwrightError, ToolchainError
from tests.fuzz.mutate import mutants
from tests.fuzz.sources import FILES, Body, bodies

MUTANTS = int(os.environ.get("METALWRIGHT_FUZZ_MUTANTS", "200"))
# other seeds are other mutants
FIRST_SEED = int(os.environ.get("METALWRIGHT_FUZZ_SEED", "0"))
SHARDS = 4  # parts that a run on several processes can share out
SECONDS = 60  # for one mutant, on a machine that is busy with others
LAUNCH_SECONDS = 1.0
# what nobody who writes MSL has to know
INTERNAL = re.compile(
    r"__mw_|__mw::|__MW_|_Float16|__bf16|/metalwright/|\.yaml|<stdin>|<kernels>|site-packages"
)
ELEMENTS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i1": torch.bool, "si8": torch.int8,
            "ui8": torch.uint8, "si16": torch.int16, "si32": torch.int32, "ui32": torch.int32, "si64": torch.int64}  # fmt: skip
BODIES = bodies()


def problem(run: Callable[[], Any], source: str, *, whole: bool) -> str | None:
    """Run; every failure must be one of ours, and a failure to compile must say what and where."""
    began = time.monotonic()
    try:
        run()
    except ToolchainError as error:
        return f"the toolchain failed: {error}"
    except CompileError as error:
        return _bad_diagnostics(error, source, whole=whole)
    except MetalwrightError as error:
        return None if str(error) else "an error without words"
    except Exception:
        return traceback.format_exc()
    seconds = time.monotonic() - began
    return f"took {seconds:.0f} s" if seconds > SECONDS else None


def _bad_diagnostics(error: CompileError, source: str, *, whole: bool) -> str | None:
    if not error.diagnostics:
        return "a compile error without diagnostics"
    for diagnostic in error.diagnostics:
        # names that the mutation itself wrote may come back
        mine = "__mw" in source or "__builtin" in source
        if not diagnostic.message or (not mine and INTERNAL.search(diagnostic.message)):
            return f"speaks of internals: {error}"
        site = diagnostic.site
        if site is None:
            continue
        if site.line < 1 or site.column < 0 or (whole and site.line > source.count("\n") + 1):
            return f"points outside the source: {error}"
    return None


class Problems:
    """What a run has found; all of it is shown at the end, since one problem says nothing about the next."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def look(self, run: Callable[[], Any], source: str, *, whole: bool) -> None:
        keep = os.environ.get("METALWRIGHT_FUZZ_LAST")
        if keep:
            # a crash takes the process with it: the file then holds what it ran on
            Path(f"{keep}.{os.getpid()}").write_text(source, "utf-8", "surrogatepass")
            with Path(f"{keep}.count.{os.getpid()}").open("a") as file:
                file.write(".")
        said = problem(run, source, whole=whole)
        if said is not None:
            self.found.append(f"{said}\n--- in ---\n{source}\n")
            if keep:
                with Path(f"{keep}.problems").open("a", encoding="utf-8", errors="surrogatepass") as file:
                    file.write(self.found[-1] + "=" * 80 + "\n")

    def check(self) -> None:
        assert not self.found, f"{len(self.found)} problems\n" + "\n".join(self.found[:5])


def run_file(text: str) -> None:
    library = compile_shader(
        text, constants={"steps": 2, "fast_path": False} if "fast_path" in text else None
    )
    for name in dir(library):
        kernel = library[name]
        arguments = binding.bind(kernel.signature, _values(kernel.signature.parameters))
        local = max((p.index + 1 for p in kernel.signature.parameters if p.kind == "threadgroup"), default=0)
        kernel._program.launch(
            arguments.arguments,
            (8, 4, 1),
            (8, 2, 1),
            threadgroup_memory=[256] * min(local, 31),
            max_workers=1,
            timeout=LAUNCH_SECONDS,
        )


def _values(parameters: tuple[Parameter, ...]) -> list[Any]:
    buffers = {p.index: p for p in parameters if p.kind in ("pointer", "reference")}
    found: list[Any] = []
    for index in range(min(max(buffers, default=-1) + 1, 40)):
        kind = ELEMENTS.get(buffers[index].element, torch.int32) if index in buffers else torch.int32
        found.append(torch.ones(64, dtype=kind))
    return found


def run_body(body: Body, src: str, helpers: str | None) -> None:
    kernel = copy.copy(body.kernel)
    kernel.src = src
    if helpers is not None:
        kernel.helpers = helpers
    case = dict(body.case)
    group = case.pop("threads_per_thread_group")
    execute(kernel, case["inputs"], case["threads_per_grid"], group, case["result_shapes"], workers=1,
            timeout=LAUNCH_SECONDS)  # fmt: skip


def quick(count: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=max(count, 1),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        # a mutant that fails is shown as it is: to compile hundreds of smaller ones takes longer than to read it
        phases=(Phase.generate,),
    )


@pytest.mark.parametrize("shard", range(SHARDS))
def test_files(shard: int) -> None:
    @seed(FIRST_SEED + shard)
    @quick(MUTANTS // 2 // SHARDS)
    @given(st.sampled_from(FILES).flatmap(mutants))
    def check(text: str) -> None:
        problems.look(lambda: run_file(text), text, whole=True)

    problems = Problems()
    check()
    problems.check()


@pytest.mark.parametrize("shard", range(SHARDS))
def test_bodies(shard: int) -> None:
    @seed(FIRST_SEED + 100 + shard)
    @quick(MUTANTS // 2 // SHARDS)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        body = data.draw(st.sampled_from(BODIES))
        if body.kernel.helpers and data.draw(st.booleans()):
            src, helpers = body.kernel.src, data.draw(mutants(body.kernel.helpers))
        else:
            src, helpers = data.draw(mutants(body.kernel.src)), None
        problems.look(lambda: run_body(body, src, helpers), helpers or src, whole=False)

    problems = Problems()
    check()
    problems.check()


@pytest.mark.parametrize("index", range(len(FILES)))
def test_the_files_run_as_they_are(index: int) -> None:
    run_file(FILES[index])
