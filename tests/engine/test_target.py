"""Machine code for this processor: what LLVM is known to get wrong on some of them."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import numpy as np

from metalwright.engine.target import target_machine

# Of each pair: the magnitude of `r` with the sign of `x` where `c` is finite, and `x` elsewhere. The wrong code needs
# all three in registers.
CHOSEN_SIGNS = """
define <2 x i64> @pick(<2 x i64> %x, <2 x i64> %r, <2 x i64> %c) noinline {
  %sign = and <2 x i64> %x, splat (i64 -9223372036854775808)
  %magnitude = and <2 x i64> %r, splat (i64 9223372036854775807)
  %both = or disjoint <2 x i64> %sign, %magnitude
  %twice = shl <2 x i64> %c, splat (i64 1)
  %finite = icmp ult <2 x i64> %twice, splat (i64 -9007199254740992)
  %chosen = select <2 x i1> %finite, <2 x i64> %both, <2 x i64> %x
  ret <2 x i64> %chosen
}
define void @chosen(ptr %xs, ptr %rs, ptr %cs, ptr %out) {
  %x = load <2 x i64>, ptr %xs
  %r = load <2 x i64>, ptr %rs
  %c = load <2 x i64>, ptr %cs
  %chosen = call <2 x i64> @pick(<2 x i64> %x, <2 x i64> %r, <2 x i64> %c)
  store <2 x i64> %chosen, ptr %out
  ret void
}
"""


def test_a_chosen_sign_is_right_on_every_processor() -> None:
    """LLVM 22 gets this wrong where it may use AVX-512 (llvm/llvm-project#157929)."""
    jit = llvm.create_lljit_compiler(target_machine())
    code = llvm.JITLibraryBuilder().add_ir(CHOSEN_SIGNS).export_symbol("chosen").link(jit, "chosen")
    x, r, c = np.array([-3.0, 5.0]), np.array([7.0, -9.0]), np.array([1.0, np.inf])
    out = np.zeros(2)
    chosen = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(code["chosen"])
    chosen(x.ctypes.data, r.ctypes.data, c.ctypes.data, out.ctypes.data)
    assert out.tolist() == [-7.0, 5.0]
