"""A kernel's stack: as large as its code needs, read off the code itself."""

import numpy as np
import pytest

from metalwright.engine.frames import largest_frame
from tests.support import body, launch, tensor

VALUES = 600


@pytest.mark.parametrize("checked", [False, True])
def test_many_values_stay_alive_across_a_barrier(checked: bool) -> None:
    """Each has to be kept on the fiber's stack; a neighbour's stack must not feel it."""
    taken = "".join(f"float v{i} = x[(gid + {i}) % 64];\n" for i in range(VALUES))
    added = "".join(f"sum += v{i} * last[{i} % 64];\n" for i in range(VALUES))
    program = body(
        f"threadgroup float last[64];\n{taken}last[lid] = x[63 - lid];\n"
        f"threadgroup_barrier(mem_flags::mem_threadgroup);\nfloat sum = 0;\n{added}out[gid] = sum;",
        tensor("float", 1, "x", 0),
        tensor("float", 1, "out", 1),
        "uint gid [[thread_position_in_grid]]",
        "uint lid [[thread_position_in_threadgroup]]",
        checked=checked,
    )
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    out = np.zeros(64, np.float32)
    launch(program, {"x": x}, {"out": out}, 64, 64)
    index = np.arange(VALUES)
    expected = (x[(np.arange(64)[:, None] + index) % 64].astype(float) * x[63 - index % 64]).sum(axis=1)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-3)


def test_frames_are_found_in_both_instruction_sets() -> None:
    # sub rsp, 0x12340 — and sub sp, sp, #0x12, lsl #12 / sub sp, sp, #0x340, as their manuals encode them
    assert largest_frame(b"\x90\x48\x81\xec\x40\x23\x01\x00\xc3", "x86_64") == 0x12340
    words = (0xD503201F, 0xD1404BFF, 0xD10D03FF)
    code = b"".join(word.to_bytes(4, "little") for word in words)
    assert largest_frame(code, "aarch64") >= 0x12340
    assert largest_frame(b"\xc3", "x86_64") == 0
