"""Simdgroup functions under divergence: which lanes take part, where lanes part, leave, skip and meet again.

The model is that of a GPU: lanes that leave a loop or skip the rest of a round wait for the others where the
control flow joins.
"""

from __future__ import annotations

import numpy as np
import pytest

from metalwright.engine import Program
from tests.support import body, launch, tensor

# one threadgroup of two whole simdgroups, and one whose second simdgroup has four lanes
COUNT, GROUP = 100, 64
BLOCKS = [range(32), range(32, 64), range(64, 96), range(96, 100)]
PARAMETERS = (tensor("int", 1, "x", 0), tensor("int", 2, "out", 1), "uint gid [[thread_position_in_grid]]")
CHECKED = pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])


def run(program: Program, x: np.ndarray, rows: int) -> np.ndarray:
    """Return what each thread wrote to ``out[gid, row]``; 77 where it wrote nothing."""
    out = np.full((rows, COUNT), 77, np.int32)
    launch(program, {"x": x}, {"out": out}, COUNT, GROUP)
    return out


@CHECKED
def test_lanes_leave_a_loop_one_by_one_and_meet_after_it(checked: bool) -> None:
    program = body(
        """int left = x[gid], seen = 0;
while (left > 0) { seen += simd_sum(1); left--; }
out[gid, 0] = seen;
out[gid, 1] = simd_sum(1);
int total = 0;
for (int i = 0; i < 6; i++) {
  if (x[gid] == i) break;
  total += simd_sum(1);
}
out[gid, 2] = total;
out[gid, 3] = simd_max(x[gid]);""",
        *PARAMETERS,
        checked=checked,
    )
    x = np.random.default_rng(4).integers(0, 9, COUNT, dtype=np.int32)
    out = run(program, x, 4)
    for block in BLOCKS:
        others = x[list(block)]
        for i in block:
            assert out[0, i] == sum((others > round_).sum() for round_ in range(x[i]))
            assert out[1, i] == len(block)
            rounds = range(min(x[i], 6))
            assert out[2, i] == sum((others > round_).sum() for round_ in rounds)
            assert out[3, i] == others.max()


@CHECKED
def test_lanes_that_continue_wait_for_the_rest_of_the_round(checked: bool) -> None:
    program = body(
        """int a = 0, b = 0;
for (int i = 0; i < 3; i++) {
  a += simd_sum(1);
  if (x[gid] == i) continue;
  b += simd_sum(1);
}
out[gid, 0] = a; out[gid, 1] = b;
int c = 0;
for (int i = 0; i < 2; i++) {
  int j = 0;
  while (true) {
    if (j >= x[gid]) break;
    j++;
    if (j == 2) continue;
    c += simd_sum(1);
  }
  c += 1000 * simd_sum(1);
}
out[gid, 2] = c;""",
        *PARAMETERS,
        checked=checked,
    )
    x = (np.arange(COUNT) % 5).astype(np.int32)
    out = run(program, x, 3)
    for block in BLOCKS:
        others = x[list(block)]
        for i in block:
            assert out[0, i] == 3 * len(block)
            assert out[1, i] == sum((others != round_).sum() for round_ in range(3) if x[i] != round_)
            inner = sum((others >= round_).sum() for round_ in range(1, x[i] + 1) if round_ != 2)
            assert out[2, i] == 2 * (inner + 1000 * len(block))


@CHECKED
def test_divergence_nests_and_a_switch_parts_the_lanes(checked: bool) -> None:
    program = body(
        """int k = x[gid];
int n = 0;
if (k & 1) { if (k & 2) n = simd_sum(1); else n = 10 * simd_sum(1); n += 100 * simd_sum(1); }
else n = -simd_sum(1);
out[gid, 0] = n;
switch (k) {
  case 0: n = simd_sum(k + 1); break;
  case 1: case 2: n = simd_sum(k + 1); break;
  default: n = simd_sum(k + 1);
}
out[gid, 1] = n;
out[gid, 2] = k > 1 ? simd_min(k) : simd_max(k);
out[gid, 3] = simd_sum(k);
if (k == 3) return;
out[gid, 4] = simd_sum(1);""",
        *PARAMETERS,
        checked=checked,
    )
    x = np.random.default_rng(6).integers(0, 4, COUNT, dtype=np.int32)
    out = run(program, x, 5)
    for block in BLOCKS:
        others = x[list(block)]
        count = [(others == k).sum() for k in range(4)]
        odd = 100 * (count[1] + count[3])
        nested = [-(count[0] + count[2]), 10 * count[1] + odd, -(count[0] + count[2]), count[3] + odd]
        switched = [count[0], 2 * count[1] + 3 * count[2], 2 * count[1] + 3 * count[2], 4 * count[3]]
        high, low = others[others > 1], others[others <= 1]
        for i in block:
            assert out[0, i] == nested[x[i]]
            assert out[1, i] == switched[x[i]]
            assert out[2, i] == (high.min() if x[i] > 1 else low.max())
            assert out[3, i] == others.sum()
            assert out[4, i] == (77 if x[i] == 3 else len(block) - count[3])


@CHECKED
def test_a_helper_called_twice_is_two_meeting_points(checked: bool) -> None:
    program = body(
        """int v = x[gid];
out[gid, 0] = v > 2 ? total(v) : total(-v);
out[gid, 1] = total(total(1));""",
        *PARAMETERS,
        helper="template <typename T> static inline T total(T v) { return simd_sum(v); }",
        checked=checked,
    )
    x = (np.arange(COUNT) * 7 % 5).astype(np.int32)
    out = run(program, x, 2)
    for block in BLOCKS:
        others = x[list(block)]
        high, low = others[others > 2].sum(), -others[others <= 2].sum()
        for i in block:
            assert out[0, i] == (high if x[i] > 2 else low)
            assert out[1, i] == len(block) ** 2
