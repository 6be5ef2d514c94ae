"""Pointers whose origin is only known at run time: a thread may touch its own variables, and nothing else nearby."""

import numpy as np
import pytest

from metalwright.errors import MemoryFault
from tests.support import body, launch, tensor

PARAMETERS = (
    tensor("float", 1, "x", 0),
    tensor("float", 1, "out", 1),
    "uint gid [[thread_position_in_grid]]",
)


def run(src: str) -> np.ndarray:
    out = np.zeros(8, np.float32)
    launch(body(src, *PARAMETERS), {"x": np.arange(8, dtype=np.float32)}, {"out": out}, 8, 8)
    return out


def either(first: str, rounds: int) -> str:
    return (
        "float a[4], b[4];\nfor (int i = 0; i < 4; i++) a[i] = b[i] = x[i];\n"
        f"thread float* p = x[gid] > 1 ? a : b;\nfor (int i = {first}; i < {rounds}; i++) p[i] = 100;\n"
        "float sum = 0;\nfor (int i = 0; i < 4; i++) sum += a[i] + b[i];\nout[gid] = sum;"
    )


def test_a_pointer_to_one_of_two_arrays_is_fine_inside() -> None:
    np.testing.assert_array_equal(run(either("0", 4)), np.full(8, 4 * 100 + 0 + 1 + 2 + 3))


# past both arrays lie the thread's saved registers and its return address
@pytest.mark.parametrize("rounds", [16, 24, 32, 48, 64, 1000])
def test_a_pointer_to_one_of_two_arrays_may_not_leave_them(rounds: int) -> None:
    with pytest.raises(MemoryFault, match=r"writes 4 bytes"):
        run(either("0", rounds))
    with pytest.raises(MemoryFault, match=r"writes 4 bytes"):
        run(either(f"-{rounds}", 4))
    assert (run("out[gid] = 5;") == 5).all(), "and the process goes on"


@pytest.mark.parametrize(
    "src",
    [
        "os_log_default.log((constant char*)16ul);",
        "char a[3] = {65, 66, 67}; os_log_default.log((constant char*)(ulong)a);",
        "os_log_default.log((constant char*)(ulong)x[gid]);",
    ],
)
def test_a_log_format_that_is_no_constant(src: str) -> None:
    with pytest.raises(MemoryFault, match="pointer to nothing"):
        run(src)


@pytest.mark.parametrize(
    "value", ["device float* p = (device float*)123456ul;", "device float* p = nullptr;"]
)
def test_a_constant_pointer(value: str) -> None:
    with pytest.raises(MemoryFault, match=r"reads 4 bytes through a pointer to nothing"):
        run(f"{value} out[gid] = *p;")
    with pytest.raises(MemoryFault, match=r"writes 4 bytes through a pointer to nothing"):
        run(f"{value} *p = 1;")
