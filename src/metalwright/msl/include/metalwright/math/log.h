// log, log2, log10, asinh, acosh, atanh in double.
#pragma once

#include <metalwright/math/exp.h>

#include <metalwright/math/begin.h>

namespace __mw::math {

inline constexpr double two_over_ln2 = 0x1.71547652b82fep+1;      // 2 / ln 2 (mpmath, 400 bits)
inline constexpr double two_over_ln2_hi = 0x1.7154760000000p+1;   // its leading 25 bits
inline constexpr double two_over_ln2_lo = 0x1.4ae0bf85ddf44p-25;  // the rest
inline constexpr double two_over_ln10 = 0x1.bcb7b1526e50ep-1;     // 2 / ln 10

// x = m * 2^k with sqrt(1/2) <= m < sqrt(2), for positive normal x.
struct scaled {
  double k, m;
};
inline scaled split_exponent(in x) {
  constexpr u64 root_half = 0x3fe6a09e667f3bcd;  // bits of sqrt(1/2)
  constexpr u64 bias = 1023;
  const u64 shifted = bits_as<u64>(x) - root_half + (bias << 52);
  // The biased exponent becomes a double by being put under the exponent of 2^52.
  const double k = bits_as<double>((shifted >> 52) | 0x4330000000000000) - (0x1p52 + bias);
  return {k, bits_as<double>((shifted & 0xfffffffffffff) + root_half)};
}

// atanh(s)/s - 1 for z = s^2 <= 0.0295, which |m - 1|/(m + 1) never passes: Taylor, coefficients 1/(2n+1).
// The first term left out, z^10/21, is below 2^-55.
inline double atanh_tail(in z) {
  double p = 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  return p * z;
}

// `finite` for positive finite x, and what a logarithm is elsewhere.
inline double log_or_special(in x, in finite) {
  const double outside = pick(is_zero(x), -infinity(), quiet_nan());
  return pick(x > 0, pick(is_finite(x), finite, x), outside);
}

// ln m = 2 atanh(s) with s = (m - 1)/(m + 1).
inline double log(in x) {
  const scaled v = split_exponent(x);
  const double s = (v.m - 1.0) / (v.m + 1.0);
  const double tail = atanh_tail(s * s);
  return log_or_special(x, v.k * ln2_hi + (2.0 * s + (2.0 * s * tail + v.k * ln2_lo)));
}

inline double log2(in x) {
  const scaled v = split_exponent(x);
  const double s = (v.m - 1.0) / (v.m + 1.0);
  const double t = s * two_over_ln2;
  return log_or_special(x, v.k + (t + t * atanh_tail(s * s)));
}

inline double log10(in x) {
  const scaled v = split_exponent(x);
  const double s = (v.m - 1.0) / (v.m + 1.0);
  const double t = s * two_over_ln10;
  return log_or_special(x, v.k * log10_2_hi + (t + (t * atanh_tail(s * s) + v.k * log10_2_lo)));
}

// ln(1 + u) for u >= 0. While 1 + u stays below sqrt(2), s comes from u itself, so small u lose nothing.
inline double log1p_positive(in u) {
  const scaled v = split_exponent(1.0 + u);
  const double f = pick(v.k == 0, u, v.m - 1.0);
  const double s = f / (f + 2.0);
  return v.k * ln2_hi + (2.0 * s + (2.0 * s * atanh_tail(s * s) + v.k * ln2_lo));
}

inline double asinh(in x) {
  const double a = magnitude(x), square = a * a;
  const double r = log1p_positive(a + square / (1.0 + __builtin_elementwise_sqrt(square + 1.0)));
  return pick(is_finite(x), with_sign(r, sign_bit(x)), x);
}

inline double acosh(in x) {
  const double u = x - 1.0;
  const double r = log1p_positive(u + __builtin_elementwise_sqrt(u * (x + 1.0)));
  return pick(x >= 1.0, pick(is_finite(x), r, x), quiet_nan());
}

inline double atanh(in x) {
  const double a = magnitude(x);
  const double r = pick(a < 1.0, 0.5 * log1p_positive(2.0 * a / (1.0 - a)), infinity());
  return pick(a <= 1.0, with_sign(r, sign_bit(x)), quiet_nan());
}

}  // namespace __mw::math

#include <metalwright/math/end.h>
