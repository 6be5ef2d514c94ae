"""Ways to reach outside a kernel that a reader of the source does not see at once. MSL becomes native code here, so
each of these once ran, or read, something of the process."""

import re

import numpy as np
import pytest

from metalwright.errors import (
    CompileError,
    KernelFault,
    MetalwrightError,
    RefusedSourceError,
    UnsupportedFeatureError,
)
from tests.support import body, launch, tensor

PARAMETERS = (
    tensor("float", 1, "x", 0),
    tensor("float", 1, "out", 1),
    "uint gid [[thread_position_in_grid]]",
)
ASSEMBLY = '("nop"); out[gid] = 1;\n'
PASTED = "define C(a, b) a##b\nC(as, m)" + ASSEMBLY


@pytest.mark.parametrize(
    "src",
    [
        "asm" + ASSEMBLY,
        "__asm__ volatile" + ASSEMBLY,
        "// a comment\rasm" + ASSEMBLY,
        "as\\ \nm" + ASSEMBLY,
        "as\\\r\nm" + ASSEMBLY,
        "#" + PASTED,
        "/**/#" + PASTED,
        "\v#" + PASTED,
        "\f#" + PASTED,
        "%:" + PASTED,
    ],
)
def test_assembly_in_every_spelling(src: str) -> None:
    with pytest.raises(RefusedSourceError, match="inline assembly is refused"):
        body("\n" + src, *PARAMETERS)


@pytest.mark.parametrize("word", ["__mw_barrier(0, 0, 0);", "double d = 1;"])
def test_other_words_made_by_pasting(word: str) -> None:
    head, rest = word[:3], word[3:].partition("(")[0].partition(" ")[0]
    src = f"#define C(a, b) a##b\nC({head}, {rest}){word[3 + len(rest) :]}\nout[gid] = 1;"
    with pytest.raises(CompileError, match="__mw|'double' does not exist"):
        body(src, *PARAMETERS)


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize(
    "src",
    [
        "((void (*)())0)();",
        "auto f = (void (*)())(ulong)(0x1234 + x[gid]); f();",
        "auto f = (float (*)(float))(ulong)x[gid]; out[gid] = f(1);",
        "auto f = (void (*)(constant float*))(ulong)x[gid]; f(TABLE);",
        "struct S { void (*f)(); }; S s; s.f = (void (*)())(ulong)x[gid]; s.f();",
    ],
)
def test_calls_through_a_pointer(src: str, checked: bool) -> None:
    helper = "constant float TABLE[2] = {1, 2};"
    if "0)()" in src and not checked:
        # the optimiser knows that this never happens, so nothing is left to see: whoever comes there is stopped
        arrays = {"x": np.zeros(4, np.float32)}, {"out": np.zeros(4, np.float32)}
        with pytest.raises(KernelFault, match="must not be reached"):
            launch(body(f"{src} out[gid] = 1;", *PARAMETERS, checked=False), *arrays, 4, 4)
        return
    with pytest.raises(UnsupportedFeatureError, match="through a pointer"):
        body(f"{src} out[gid] = 1;", *PARAMETERS, helper=helper, checked=checked)


@pytest.mark.parametrize("name", ["environ", "nothing_of_this_name"])
def test_constants_of_the_process(name: str) -> None:
    with pytest.raises(RefusedSourceError, match=f"variable '{name}' is declared but not defined") as caught:
        body(f"extern constant float {name};\nout[gid] = {name};", *PARAMETERS)
    assert f"k.src:1:23: error: variable '{name}'" in str(caught.value)


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("size", ["n", "n * 1000000l", "-n"])
def test_arrays_sized_at_run_time(size: str, checked: bool) -> None:
    src = f"int n = x.get_extent(0);\nfloat a[{size}];\nfor (int i = 0; i < n; i++) a[i] = x[i];\nout[gid] = a[gid];"
    with pytest.raises(UnsupportedFeatureError, match="the size of an array must be a constant") as caught:
        body(src, *PARAMETERS, checked=checked)
    if checked:  # without checks the IR says nothing of lines
        assert "k.src:2:1: error:" in str(caught.value)


@pytest.mark.parametrize("word", ['_Pragma("clang __debug crash")', '__pragma("x")'])
def test_pragmas_as_operators(word: str) -> None:
    with pytest.raises(RefusedSourceError, match="is refused: it is not part of Metal"):
        body(f"{word} out[gid] = 1;", *PARAMETERS)


@pytest.mark.parametrize("sign", ["#", "%:", " # "])
def test_pragmas_that_crash_clang_are_not_obeyed(sign: str) -> None:
    out = np.zeros(4, np.float32)
    program = body(f"\n{sign}pragma clang __debug crash\nout[gid] = 3;", *PARAMETERS)
    launch(program, {"x": np.zeros(4, np.float32)}, {"out": out}, 4, 4)
    assert (out == 3).all()


def test_a_pragma_made_by_pasting_gives_an_error_and_no_dump() -> None:
    with pytest.raises(MetalwrightError) as caught:
        body('#define C(a, b) a##b\nC(_Pra, gma)("clang __debug crash") out[gid] = 1;', *PARAMETERS)
    assert not re.search(r"zig|Stack dump|InstalledDir", str(caught.value))
