// pow and powr in double.
#pragma once

#include <metalwright/math/log.h>

#include <metalwright/math/begin.h>

namespace __mw::math {

// The leading `53 - dropped` bits of x.
inline double leading_bits(in x, int dropped) { return bits_as<double>(bits_as<u64>(x) & (~0ul << dropped)); }

// x^y for x > 0, where x and y have at most 24 significant bits. The logarithm carries about 60 bits, because y
// magnifies its absolute error by up to 2^8.
inline double pow_positive(in x, in y) {
  const scaled v = split_exponent(x);
  // s = s_hi + s_lo: v.m has 24 bits, v.m + 1 has 25 and s_hi has 28, so the residual is exact.
  const double numerator = v.m - 1.0, denominator = v.m + 1.0;
  const double s = numerator / denominator;
  const double s_hi = leading_bits(s, 25);
  const double s_lo = (numerator - s_hi * denominator) / denominator;
  // log2 x = k + (2/ln 2) atanh(s) = whole + rest; s_hi * two_over_ln2_hi is exact.
  const double main = s_hi * two_over_ln2_hi;
  const double sum = v.k + main;
  const double lost = main - (sum - v.k);  // |k| >= |main| or k = 0: exact
  const double small = s_hi * two_over_ln2_lo + two_over_ln2 * (s_lo + s * atanh_tail(s * s));
  const double whole = leading_bits(sum, 24);
  const double rest = ((sum - whole) + lost) + small;
  // y * whole is exact (24 + 29 bits).
  const double product = limit(y * whole, -exponent_limit, exponent_limit);
  const double correction = limit(y * rest, -8, 8);
  const nearest n = nearest_integer(limit(product + correction, -exponent_limit, exponent_limit));
  const double fraction = limit((product - n.value) + correction, -1, 1);
  const double result = scale_by(exp_reduced(fraction * ln2), n.raw);
  // Rounded to 49 bits, so that results which are short fractions (x^2, roots of squares) come out exact and a tie
  // of the final rounding is seen as one; 2^-49 is nothing elsewhere.
  const double shifted = result * 17.0;
  return shifted - (shifted - result);
}

// x^y of magnitudes, where either may be zero or infinite: such a base or exponent grows or shrinks without limit.
inline double pow_magnitude(in a, in y) {
  const bool grows = (a > 1) == (y > 0);
  const bool limiting = either(either(is_zero(a), is_infinite(a)), is_infinite(y));
  return pick(limiting, pick(grows, infinity(), 0.0), pow_positive(a, y));
}

inline double pow(in x, in y) {
  const double a = magnitude(x), half_y = 0.5 * y;
  const bool integral = __builtin_elementwise_trunc(y) == y;
  const bool odd = both(both(integral, is_finite(y)), __builtin_elementwise_trunc(half_y) != half_y);
  const u64 sign = sign_bit(x);
  const bool rootless = both(both(!integral, sign != 0), both(!is_zero(x), is_finite(x)));
  const bool undefined = either(rootless, either(is_nan(x), is_nan(y)));
  const bool one = either(either(x == 1, is_zero(y)), both(a == 1, is_infinite(y)));
  const double r = flip_sign(pow_magnitude(a, y), odd ? sign : 0);
  return pick(one, 1.0, pick(undefined, quiet_nan(), r));
}

// pow for x >= 0 as exp2(y * log2(x)): NaN for x < 0 and where that product is 0 * infinity.
inline double powr(in x, in y) {
  const double a = magnitude(x);
  const bool zero_times_infinity =
      either(both(is_zero(y), either(is_zero(x), is_infinite(x))), both(a == 1, is_infinite(y)));
  const bool negative = both(!is_zero(x), sign_bit(x) != 0);
  const bool undefined = either(either(negative, zero_times_infinity), either(is_nan(x), is_nan(y)));
  return pick(undefined, quiet_nan(), pick(is_zero(y), 1.0, pow_magnitude(a, y)));
}

}  // namespace __mw::math

#include <metalwright/math/end.h>
