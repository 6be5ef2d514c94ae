// Opens the arithmetic that the math headers need whatever the user's flags: no contraction, no reassociation,
// NaN and infinity honoured, everything inlined. No include guard: each header brackets itself with begin.h and end.h.
#pragma float_control(precise, on, push)
#pragma STDC FP_CONTRACT OFF
#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)
