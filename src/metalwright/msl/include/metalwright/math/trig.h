// sin, cos, tan and their pi forms in double.
#pragma once

#include <metalwright/math/bits.h>

#include <metalwright/math/begin.h>

namespace __mw::math {

inline constexpr double pi = 0x1.921fb54442d18p+1;         // pi, nearest double (mpmath, 400 bits)
inline constexpr double half_pi = 0x1.921fb54442d18p+0;    // pi/2
inline constexpr double two_over_pi = 0x1.45f306dc9c883p-1;

// pi/2 in three parts; the first two have 33 bits, so that a 20-bit integer times either is exact.
inline constexpr double half_pi_1 = 0x1.921fb54400000p+0;
inline constexpr double half_pi_2 = 0x1.0b4611a600000p-34;
inline constexpr double half_pi_3 = 0x1.3198a2e037073p-69;

// The binary fraction of 2/pi, 32 bits a word, behind one word of zeros (mpmath: floor(2/pi * 2^(32 i)) mod 2^32).
inline constexpr u32 two_over_pi_words[9] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                             0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561};

// x = q * pi/2 + r with |r| <= pi/4 and a hair; q modulo 4 in the low bits.
struct quadrant {
  double r;
  u64 q;
};

// |x| < 2^19: subtract the three parts (Cody and Waite). No float comes nearer than 2^-30 to a multiple of pi/2, and
// the error here is below 2^-100.
inline quadrant reduce_moderate(in x) {
  const nearest n = nearest_integer(x * two_over_pi);
  return {((x - n.value * half_pi_1) - n.value * half_pi_2) - n.value * half_pi_3, n.raw};
}

// Any other float: x = m * 2^e with a 24-bit m, and m times the 128 bits of 2/pi that carry 2^(1-e) and below
// (Payne and Hanek). Higher bits only add multiples of 4 quadrants; lower ones are below 2^-100.
inline quadrant reduce_huge(in x) {
  const u64 bits = bits_as<u64>(x);
  const u64 m = ((bits >> 29) & 0x7fffff) | 0x800000;
  const i64 e = exponent(x) - 23;
  const u32 first = (u32)(e > 104 ? 104 : e) + 30;  // first bit of the window; NaN and infinity stay in the table
  const u32 word = first >> 5, shift = first & 31;
  u64 window[4];
  for (u32 i = 0; i < 4; ++i) {
    const u64 pair = ((u64)two_over_pi_words[word + i] << 32) | two_over_pi_words[word + i + 1];
    window[i] = (pair << shift) >> 32;
  }
  const u64 p3 = m * window[3];
  const u64 p2 = m * window[2] + (p3 >> 32);
  const u64 p1 = m * window[1] + (p2 >> 32);
  const u64 p0 = m * window[0] + (p1 >> 32);
  const u64 high = (p0 << 32) | (p1 & 0xffffffff);  // in units of 2^-62 quadrants
  const u64 low = (p2 << 32) | (p3 & 0xffffffff);
  const u64 q = (high + (1ul << 61)) >> 62;
  // The fraction in [-1/2, 1/2): 64 signed bits, then 62 below them.
  const i64 head = (i64)((high << 2) | (low >> 62));
  const i64 rest = (i64)((low << 2) >> 1);
  const double fraction = (double)head * 0x1p-64 + (double)rest * 0x1p-127;
  const u64 sign = sign_bit(x);
  const double r = flip_sign(fraction * half_pi, sign);
  return {pick(is_finite(x), r, quiet_nan()), sign ? 0 - q : q};
}

inline quadrant reduce(in x) {
  if (magnitude(x) < 0x1p19) return reduce_moderate(x);
  return reduce_huge(x);
}

// sin r, |r| <= pi/4: Taylor, coefficients (-1)^n/(2n+1)!. The first term left out, r^16/17!, is below 2^-53.
inline double sin_reduced(in r) {
  const double z = r * r;
  double p = -1.0 / 1307674368000;
  p = p * z + 1.0 / 6227020800;
  p = p * z - 1.0 / 39916800;
  p = p * z + 1.0 / 362880;
  p = p * z - 1.0 / 5040;
  p = p * z + 1.0 / 120;
  p = p * z - 1.0 / 6;
  return r * (1.0 + z * p);  // this form keeps the sign of zero
}

// cos r, |r| <= pi/4: Taylor, coefficients (-1)^n/(2n)!. The first term left out, r^18/18!, is below 2^-58.
inline double cos_reduced(in r) {
  const double z = r * r;
  double p = 1.0 / 20922789888000;
  p = p * z - 1.0 / 87178291200;
  p = p * z + 1.0 / 479001600;
  p = p * z - 1.0 / 3628800;
  p = p * z + 1.0 / 40320;
  p = p * z - 1.0 / 720;
  p = p * z + 1.0 / 24;
  p = p * z - 0.5;
  return 1.0 + z * p;
}

struct sine_cosine {
  double sin, cos;
};
inline sine_cosine turn(const quadrant& a) {
  const double s = sin_reduced(a.r), c = cos_reduced(a.r);
  const bool swap = a.q & 1;
  const u64 sin_sign = (a.q & 2) << 62, cos_sign = ((a.q + 1) & 2) << 62;
  return {flip_sign(pick(swap, c, s), sin_sign), flip_sign(pick(swap, s, c), cos_sign)};
}

inline double sin(in x) { return turn(reduce(x)).sin; }
inline double cos(in x) { return turn(reduce(x)).cos; }
inline double tan(in x) {
  const sine_cosine t = turn(reduce(x));
  return t.sin / t.cos;
}
inline double sincos(in x, double& cosine) {
  const sine_cosine t = turn(reduce(x));
  cosine = t.cos;
  return t.sin;
}

// x in half turns, exactly: x = q/2 + (a remainder of at most 1/4), modulo 2.
inline quadrant reduce_pi(in x) {
  const double within = x - 2.0 * __builtin_elementwise_roundeven(0.5 * x);  // [-1, 1]; NaN for infinities
  const nearest n = nearest_integer(2.0 * within);
  return {(within - 0.5 * n.value) * pi, n.raw};
}

// Zeros as IEEE 754 has them: sinpi of an integer keeps x's sign, cospi at a half is +0, tanpi of an integer n has
// x's sign for even n and the other for odd, tanpi(n + 1/2) is +infinity for even n and -infinity for odd.
inline double sinpi(in x) {
  const double s = turn(reduce_pi(x)).sin;
  return pick(s == 0, with_sign(0.0, sign_bit(x)), s);
}
inline double cospi(in x) {
  const double c = turn(reduce_pi(x)).cos;
  return pick(c == 0, 0.0, c);
}
inline double tanpi(in x) {
  const quadrant a = reduce_pi(x);
  const sine_cosine t = turn(a);
  const u64 odd = (a.q & 2) << 62;
  const double r = pick(t.cos == 0, with_sign(infinity(), odd), t.sin / t.cos);
  return pick(t.sin == 0, with_sign(0.0, sign_bit(x) ^ odd), r);
}
inline double sincospi(in x, double& cosine) {
  cosine = cospi(x);
  return sinpi(x);
}

}  // namespace __mw::math

#include <metalwright/math/end.h>
