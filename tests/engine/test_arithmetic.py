"""Integer division where a CPU would end the process: a fault in checked mode, some value without."""

import numpy as np
import pytest

from metalwright.errors import KernelFault
from tests.support import body, launch, tensor

X, OUT, GID = tensor("int", 1, "x", 0), tensor("int", 1, "out", 1), "uint gid [[thread_position_in_grid]]"
BY_ZERO = {
    "div": "out[gid] = 5 / x[gid];",
    "rem": "out[gid] = 5 % x[gid];",
    "unsigned div": "out[gid] = 5u / uint(x[gid]);",
    "unsigned rem": "out[gid] = 5u % uint(x[gid]);",
    "vector": "int2 q = int2(5, 7) / int2(x[gid], 1); out[gid] = q.x + q.y;",
    "long": "out[gid] = int(5l / long(x[gid]));",
    "literal": "out[gid] = 5 / (x[gid] - x[gid]);",
}


@pytest.mark.parametrize("src", BY_ZERO.values(), ids=BY_ZERO.keys())
def test_division_by_zero_is_reported_and_survived(src: str) -> None:
    x, out = np.array([3, 0, 2], np.int32), np.zeros(3, np.int32)
    with pytest.raises(KernelFault, match="divides an integer by zero") as caught:
        launch(body(src, X, OUT, GID), {"x": x}, {"out": out}, 3, 3)
    assert caught.value.thread is not None
    assert caught.value.site is not None
    assert caught.value.site.file == "k.src"
    launch(body(src, X, OUT, GID, checked=False), {"x": x}, {"out": out}, 3, 3)


@pytest.mark.parametrize("checked", [False, True])
def test_the_lowest_int_by_minus_one_wraps(checked: bool) -> None:
    src = "out[gid] = gid == 0 ? x[0] / x[1] : x[0] % x[1];"
    x, out = np.array([-(2**31), -1], np.int32), np.zeros(2, np.int32)
    launch(body(src, X, OUT, GID, checked=checked), {"x": x}, {"out": out}, 2, 2)
    assert out.tolist() == [-(2**31), 0]


@pytest.mark.parametrize("checked", [False, True])
def test_other_divisions_are_as_in_c(checked: bool) -> None:
    src = "int2 v = int2(x[gid], x[gid] + 1); v = v / int2(x[gid] % 7 + 8, -3); out[gid] = v.x * 1000 + v.y - 100 / 7;"
    x, out = np.arange(-50, 50, dtype=np.int32), np.zeros(100, np.int32)
    launch(body(src, X, OUT, GID, checked=checked), {"x": x}, {"out": out}, 100, 32)

    def quotient(a: np.ndarray, b: np.ndarray | int) -> np.ndarray:
        return np.trunc(a / b).astype(int)

    assert out.tolist() == (quotient(x, np.fmod(x, 7) + 8) * 1000 + quotient(x + 1, -3) - 14).tolist()


def test_a_function_that_ends_without_its_value_is_reported() -> None:
    program = body("out[gid] = f(x[gid]);", X, OUT, GID, helper="int f(int a) { if (a > 0) return 1; }")
    with pytest.raises(KernelFault, match="ends without one"):
        launch(program, {"x": np.zeros(3, np.int32)}, {"out": np.zeros(3, np.int32)}, 3, 3)


def test_an_unset_variable_does_not_look_right_by_luck() -> None:
    """Whatever stood in the register before: on a GPU it is something else."""
    program = body("int v; if (x[gid] > 100) v = 1; out[gid] = v;", X, OUT, GID)
    out = np.zeros(3, np.int32)
    launch(program, {"x": np.zeros(3, np.int32)}, {"out": out}, 3, 3)
    assert not np.isin(out, (0, 1)).any()
