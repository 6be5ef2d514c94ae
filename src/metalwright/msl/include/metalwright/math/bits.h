// Bit-level helpers: reinterpretation, widening to and rounding from the type in which functions are evaluated.
//
// Arguments travel by const reference (`in`) throughout the math headers. Under -ffast-math clang marks every
// floating value parameter `nofpclass(nan inf)`, whatever the pragmas say, and the optimiser would then fold our
// own handling of NaN and infinity away; a reference carries no such promise and costs nothing once inlined.
#pragma once

#include <metal_types>

#include <metalwright/math/begin.h>

namespace __mw::math {

using in = const double&;
using in_f = const float&;
using u32 = unsigned int;
using u64 = unsigned long;
using i64 = long;

template <class To, class From>
inline To bits_as(const From& x) { return __builtin_bit_cast(To, x); }

inline double infinity() { return __builtin_inf(); }
inline double quiet_nan() { return __builtin_nan(""); }

inline double magnitude(in x) { return bits_as<double>(bits_as<u64>(x) & ~(1ul << 63)); }
inline u64 sign_bit(in x) { return bits_as<u64>(x) & (1ul << 63); }
inline double with_sign(in x, u64 sign) { return bits_as<double>((bits_as<u64>(x) & ~(1ul << 63)) | sign); }
inline double flip_sign(in x, u64 sign) { return bits_as<double>(bits_as<u64>(x) ^ sign); }

inline float magnitude(in_f x) { return bits_as<float>(bits_as<u32>(x) & 0x7fffffffu); }
inline u32 sign_bit(in_f x) { return bits_as<u32>(x) & 0x80000000u; }
inline float with_sign(in_f x, u32 sign) { return bits_as<float>((bits_as<u32>(x) & 0x7fffffffu) | sign); }

// Classification looks at bits: under flush-to-zero attributes, which fast math brings, `x == 0` may take in
// subnormals.
inline bool is_zero(in x) { return bits_as<u64>(x) << 1 == 0; }
inline bool is_finite(in x) { return bits_as<u64>(x) << 1 < 0x7fful << 53; }
inline bool is_infinite(in x) { return bits_as<u64>(x) << 1 == 0x7fful << 53; }
inline bool is_nan(in x) { return bits_as<u64>(x) << 1 > 0x7fful << 53; }
// `&&` and `||` without the branch, so that loops over these functions vectorise.
inline bool both(bool a, bool b) { return a & b; }
inline bool either(bool a, bool b) { return a | b; }

// a if c holds, else b. Under -ffast-math clang flags every floating `?:` as free of NaN and infinity, pragmas or not;
// a choice between bit patterns carries no flags.
inline double pick(bool c, in a, in b) { return bits_as<double>(c ? bits_as<u64>(a) : bits_as<u64>(b)); }
inline float pick(bool c, in_f a, in_f b) { return bits_as<float>(c ? bits_as<u32>(a) : bits_as<u32>(b)); }

// x limited to [lo, hi]; NaN stays NaN.
inline double limit(in x, in lo, in hi) { return pick(x < lo, lo, pick(x > hi, hi, x)); }

// 2^n for an integer n in [-1022, 1023].
inline double power_of_two(i64 n) { return bits_as<double>((u64)(n + 1023) << 52); }

// Exponent e of x = m * 2^e, 1 <= |m| < 2, for normal x.
inline i64 exponent(in x) { return (i64)((bits_as<u64>(x) >> 52) & 0x7ff) - 1023; }

// Nearest integer to x (ties to even) for |x| < 2^51, as a double and, in the low bits of `raw`, as an integer
// modulo 2^51. Adding 1.5 * 2^52 leaves no fraction bits; no conversion instruction is needed.
struct nearest {
  double value;
  u64 raw;
};
inline nearest nearest_integer(in x) {
  const double shifted = x + 0x1.8p52;
  return {shifted - 0x1.8p52, bits_as<u64>(shifted)};
}

// x * 2^n with n taken from nearest_integer(), |n| <= 1022.
inline double scale_by(in x, u64 raw) { return x * bits_as<double>((raw + 1023) << 52); }

// double -> float, rounded to odd: truncated, with the last bit set when anything was lost. Rounding that once more
// to a format with at least two bits fewer gives the same as rounding the double once.
inline float round_to_odd(in x) {
  const float nearest = (float)x;
  const double back = nearest;
  u32 bits = bits_as<u32>(nearest);
  const double excess = magnitude(x) - magnitude(back);  // exact; NaN compares false below
  const u32 even = ~bits & 1u;
  bits += excess > 0 ? even : 0u;
  bits -= excess < 0 ? even : 0u;
  return bits_as<float>(bits);
}

// float -> bfloat, ties to even, in integer arithmetic (a plain cast may become a call).
inline bfloat round_to_bfloat(in_f x) {
  const u32 bits = bits_as<u32>(x);
  const u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const u32 quiet = (bits >> 16) | 0x40u;
  return bits_as<bfloat>((unsigned short)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded));
}

inline float to_float(in_f x) { return x; }
inline float to_float(const half& x) { return (float)x; }
inline float to_float(const bfloat& x) { return bits_as<float>((u32)bits_as<unsigned short>(x) << 16); }

// W is the type of evaluation.
template <class W, class T>
inline W widen(const T& x) { return (W)to_float(x); }

// Round once to T.
template <class T>
struct narrow;
template <>
struct narrow<float> {
  static float from(in x) { return (float)x; }
  static float from(in_f x) { return x; }
};
template <>
struct narrow<half> {
  static half from(in x) { return (half)round_to_odd(x); }
  static half from(in_f x) { return (half)x; }
};
template <>
struct narrow<bfloat> {
  static bfloat from(in x) { return round_to_bfloat(round_to_odd(x)); }
  static bfloat from(in_f x) { return round_to_bfloat(x); }
};

}  // namespace __mw::math

#include <metalwright/math/end.h>
