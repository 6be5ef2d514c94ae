// exp, exp2, exp10, sinh, cosh, tanh in double.
#pragma once

#include <metalwright/math/bits.h>

#include <metalwright/math/begin.h>

namespace __mw::math {

// The results overflow and underflow every narrow format well inside |exponent| <= 300.
inline constexpr double exponent_limit = 300;

// e^r for |r| <= ln(2)/2: Taylor polynomial, coefficients 1/n!. The first term left out, r^14/14!, is below 2^-57.
inline double exp_reduced(in r) {
  double p = 1.0 / 6227020800;
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  return 1.0 + (r + r * r * p);
}

inline constexpr double ln2 = 0x1.62e42fefa39efp-1;           // ln 2, nearest double (mpmath, 400 bits)
inline constexpr double ln2_hi = 0x1.62e42fefa2000p-1;        // its leading 40 bits: exact times an 11-bit integer
inline constexpr double ln2_lo = 0x1.9ef35793c7673p-41;       // ln 2 - ln2_hi
inline constexpr double log2_e = 0x1.71547652b82fep+0;        // 1 / ln 2
inline constexpr double log10_2_hi = 0x1.34413509f6000p-2;    // log10 2, leading 40 bits
inline constexpr double log10_2_lo = 0x1.9fef311f12b36p-42;   // log10 2 - log10_2_hi
inline constexpr double log2_10 = 0x1.a934f0979a371p+1;       // log2 10
inline constexpr double ln10 = 0x1.26bb1bbb55516p+1;          // ln 10

inline double exp(in x) {
  const double y = limit(x, -exponent_limit * ln2, exponent_limit * ln2);
  const nearest n = nearest_integer(y * log2_e);
  const double r = (y - n.value * ln2_hi) - n.value * ln2_lo;
  return scale_by(exp_reduced(r), n.raw);
}

inline double exp2(in x) {
  const double y = limit(x, -exponent_limit, exponent_limit);
  const nearest n = nearest_integer(y);
  return scale_by(exp_reduced((y - n.value) * ln2), n.raw);
}

inline double exp10(in x) {
  const double y = limit(x, -90, 90);
  const nearest n = nearest_integer(y * log2_10);
  const double r = (y - n.value * log10_2_hi) - n.value * log10_2_lo;
  return scale_by(exp_reduced(r * ln10), n.raw);
}

// sinh x for |x| <= 1: Taylor, coefficients 1/(2n+1)!. The first term left out, x^18/19!, is below 2^-56.
inline double sinh_small(in x) {
  const double z = x * x;
  double p = 1.0 / 355687428096000;
  p = p * z + 1.0 / 1307674368000;
  p = p * z + 1.0 / 6227020800;
  p = p * z + 1.0 / 39916800;
  p = p * z + 1.0 / 362880;
  p = p * z + 1.0 / 5040;
  p = p * z + 1.0 / 120;
  p = p * z + 1.0 / 6;
  return x + x * z * p;
}

struct hyperbolic {
  double sinh, cosh;
};
inline hyperbolic sinh_cosh(in x) {
  const double grow = exp(x), decay = 1.0 / grow;
  const double large = 0.5 * (grow - decay);
  return {pick(magnitude(x) < 1.0, sinh_small(x), large), 0.5 * (grow + decay)};
}

inline double sinh(in x) { return sinh_cosh(x).sinh; }
inline double cosh(in x) { return sinh_cosh(x).cosh; }

inline double tanh(in x) {
  const hyperbolic h = sinh_cosh(limit(x, -30, 30));  // 1 - tanh 30 is below 2^-85
  return h.sinh / h.cosh;
}

}  // namespace __mw::math

#include <metalwright/math/end.h>
