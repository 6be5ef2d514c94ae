// Rounding, remainders, comparison and the taking apart of numbers. Where a function is exact it works in float
// (which holds every half and bfloat); where it rounds, there is a float form and a double form for the narrow types.
#pragma once

#include <metalwright/math/bits.h>

#include <metalwright/math/begin.h>

namespace __mw::math {

inline float ceil(in_f x) { return __builtin_elementwise_ceil(x); }
inline float floor(in_f x) { return __builtin_elementwise_floor(x); }
inline float trunc(in_f x) { return __builtin_elementwise_trunc(x); }
inline float rint(in_f x) { return __builtin_elementwise_roundeven(x); }

// Halfway cases away from zero. x - trunc(x) is exact; it is NaN for infinities, which then stay.
inline float round(in_f x) {
  const float whole = trunc(x);
  const float step = pick(magnitude(x - whole) >= 0.5f, 1.0f, 0.0f);
  return with_sign(whole + with_sign(step, sign_bit(x)), sign_bit(x));
}

inline float fabs(in_f x) { return magnitude(x); }
inline float copysign(in_f x, in_f y) { return with_sign(x, sign_bit(y)); }

inline float fmax(in_f x, in_f y) { return pick(either(x < y, x != x), y, x); }
inline float fmin(in_f x, in_f y) { return pick(either(y < x, x != x), y, x); }
inline float fmax3(in_f x, in_f y, in_f z) { return fmax(x, fmax(y, z)); }
inline float fmin3(in_f x, in_f y, in_f z) { return fmin(x, fmin(y, z)); }
inline float fmedian3(in_f x, in_f y, in_f z) { return fmax(fmin(x, y), fmin(fmax(x, y), z)); }

inline float sqrt_float(in_f x) { return __builtin_elementwise_sqrt(x); }
inline double sqrt_double(in x) { return __builtin_elementwise_sqrt(x); }
inline double rsqrt(in x) { return 1.0 / __builtin_elementwise_sqrt(x); }

inline float divide_float(in_f x, in_f y) { return x / y; }
inline double divide_double(in x, in y) { return x / y; }

inline float fdim_float(in_f x, in_f y) { return pick(x <= y, 0.0f, x - y); }
inline double fdim_double(in x, in y) { return pick(x <= y, 0.0, x - y); }

inline float fma_float(in_f a, in_f b, in_f c) { return __builtin_elementwise_fma(a, b, c); }
// For half and bfloat the product is exact in double; the sum is rounded to odd, so that the narrowing that follows
// is the only rounding. The error of a sum is found as Knuth has it.
inline double fma_double(in a, in b, in c) {
  const double product = a * b;
  const double sum = product + c;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (c - part);
  const u64 bits = bits_as<u64>(sum);
  const bool away = (error > 0) == (sum > 0);
  const u64 odd = away ? bits + (~bits & 1) : bits - (~bits & 1);
  const bool inexact = either(error < 0, error > 0);  // false for the NaN that infinities leave
  return bits_as<double>(inexact ? odd : bits);
}

// x - y * trunc(x/y), exactly. Quotients are taken 26 bits at a time: each product has at most 51 bits and each
// difference is exact, as every remainder is a multiple of the smaller argument's last bit.
inline double fmod(in x, in y) {
  const double divisor = magnitude(y);
  const bool defined = both(is_finite(x), both(!is_zero(y), !is_nan(y)));
  double left = pick(defined, magnitude(x), 0.0);
  while (left >= divisor * 0x1p26) {
    const double step = divisor * power_of_two(exponent(left) - exponent(divisor) - 25);
    left -= step * __builtin_elementwise_trunc(left / step);
    left = pick(left < 0, left + step, left);  // the quotient had rounded up to an integer
  }
  if (is_finite(y)) {
    left -= divisor * __builtin_elementwise_trunc(left / divisor);
    left = pick(left < 0, left + divisor, left);
  }
  return pick(defined, with_sign(left, sign_bit(x)), quiet_nan());
}

// The integral part goes to `whole`; both parts have x's sign.
inline float modf(in_f x, float& whole) {
  whole = trunc(x);
  const float rest = pick(magnitude(x) == (float)infinity(), 0.0f, x - whole);
  return with_sign(rest, sign_bit(x));
}

// m with 1/2 <= |m| < 1 and x = m * 2^e; zeros, infinities and NaN come back with e = 0.
inline double frexp(in x, int& e) {
  const bool plain = both(!is_zero(x), is_finite(x));
  e = plain ? (int)exponent(x) + 1 : 0;
  return bits_as<double>(plain ? (bits_as<u64>(x) & ~(0x7fful << 52)) | (0x3feul << 52) : bits_as<u64>(x));
}

// The exponent of x: INT_MIN for zero and NaN, INT_MAX for infinities.
inline int ilogb(in x) {
  const int special = is_infinite(x) ? 0x7fffffff : -0x7fffffff - 1;
  return both(!is_zero(x), is_finite(x)) ? (int)exponent(x) : special;
}

// x * 2^k: from 2^-149 to 2^128, 400 binary orders reach past either end of every format.
inline double ldexp(in x, int k) { return x * power_of_two(k < -400 ? -400 : (k > 400 ? 400 : k)); }

// The neighbour of x towards y, on the bits U of a format with `sign` as its sign bit.
template <class T, class U>
inline T next_after(const T& x, const T& y, U sign) {
  const float fx = to_float(x), fy = to_float(y);
  const U bits = bits_as<U>(x);
  const U outward = (U)(bits + 1), inward = (U)(bits - 1);
  const bool grow = (fx < fy) == !(bits & sign);
  const U next = fx == 0 ? (U)((bits_as<U>(y) & sign) | 1) : (grow ? outward : inward);
  return bits_as<T>(fx != fx ? bits : ((either(fx == fy, fy != fy)) ? bits_as<U>(y) : next));
}
inline float nextafter(in_f x, in_f y) { return next_after(x, y, 0x80000000u); }
inline half nextafter(const half& x, const half& y) { return next_after(x, y, (unsigned short)0x8000); }
inline bfloat nextafter(const bfloat& x, const bfloat& y) { return next_after(x, y, (unsigned short)0x8000); }

// x - floor(x), kept below 1.
inline float fract(in_f x) {
  const float f = x - floor(x);
  return pick(f > 0x1.fffffep-1f, 0x1.fffffep-1f, f);
}
inline half fract(const half& x) {
  const float f = to_float(narrow<half>::from((double)to_float(x) - (double)floor(to_float(x))));
  return (half)pick(f > 0x1.ffcp-1f, 0x1.ffcp-1f, f);
}
inline bfloat fract(const bfloat& x) {
  const float f = to_float(narrow<bfloat>::from((double)to_float(x) - (double)floor(to_float(x))));
  return round_to_bfloat(pick(f > 0x1.fep-1f, 0x1.fep-1f, f));
}

}  // namespace __mw::math

#include <metalwright/math/end.h>
