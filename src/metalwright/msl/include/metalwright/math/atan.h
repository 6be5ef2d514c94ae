// atan, atan2, asin, acos in double.
#pragma once

#include <metalwright/math/trig.h>

#include <metalwright/math/begin.h>

namespace __mw::math {

// atan(t)/t - 1 for z = t^2 <= tan(pi/16)^2 < 0.0396: Taylor, coefficients (-1)^n/(2n+1). The first term left out,
// z^12/25, is below 2^-60.
inline double atan_tail(in z) {
  double p = -1.0 / 23;
  p = p * z + 1.0 / 21;
  p = p * z - 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z - 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z - 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z - 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z - 1.0 / 3;
  return p * z;
}

// atan(a/b) for 0 <= a <= b, not both infinite. The angle is turned back by 0, pi/8 or pi/4, whichever is nearest:
// atan(a/b) = base + atan((a - c b)/(b + c a)) with c = tan(base).
inline double atan_ratio(in a, in b) {
  const bool eighth = a > 0x1.975f5e0553158p-3 * b;   // tan(pi/16)
  const bool quarter = a > 0x1.561b82ab7f990p-1 * b;  // tan(3 pi/16)
  const double c = pick(quarter, 1.0, pick(eighth, 0x1.a827999fcef32p-2, 0.0));  // tan(pi/8) = sqrt(2) - 1
  const double base = pick(quarter, pi / 4, pick(eighth, pi / 8, 0.0));
  const double below = pick(is_zero(a), 1.0, b + c * a);  // 0/0 is 0 here
  const double t = pick(eighth, a - c * b, a) / below;
  return base + (t + t * atan_tail(t * t));
}

inline double atan2(in y, in x) {
  const double ax = magnitude(x), ay = magnitude(y);
  const bool steep = ay > ax;
  const bool diagonal = both(is_infinite(x), is_infinite(y));
  const double a = pick(diagonal, 1.0, pick(steep, ax, ay));
  const double b = pick(diagonal, 1.0, pick(steep, ay, ax));
  const double acute = atan_ratio(a, b);
  const double first = pick(steep, half_pi - acute, acute);
  const double angle = pick(sign_bit(x), pi - first, first);
  return pick(either(is_nan(x), is_nan(y)), quiet_nan(), with_sign(angle, sign_bit(y)));
}

inline double atan(in x) { return atan2(x, 1.0); }

// (1 - x)(1 + x) loses nothing near 1, so both ends stay accurate. |x| > 1 gives NaN through the root.
inline double asin(in x) { return atan2(x, __builtin_elementwise_sqrt((1.0 - x) * (1.0 + x))); }
inline double acos(in x) { return atan2(__builtin_elementwise_sqrt((1.0 - x) * (1.0 + x)), x); }

}  // namespace __mw::math

#include <metalwright/math/end.h>
