// Functions that LLVM calls by itself: block moves, and conversions and fused multiply-add where the processor has
// no instruction for them. Written here so that a kernel needs nothing from the host's libraries.
#include "abi.h"

#define MW_KEEP __attribute__((visibility("hidden"), used))

MW_KEEP void *memcpy(void *restrict to, const void *restrict from, __SIZE_TYPE__ bytes) {
  char *out = to;
  const char *in = from;
  for (__SIZE_TYPE__ i = 0; i < bytes; i++) out[i] = in[i];
  return to;
}

MW_KEEP void *memmove(void *to, const void *from, __SIZE_TYPE__ bytes) {
  char *out = to;
  const char *in = from;
  if ((u64)out - (u64)in >= bytes)
    for (__SIZE_TYPE__ i = 0; i < bytes; i++) out[i] = in[i];
  else
    for (__SIZE_TYPE__ i = bytes; i > 0; i--) out[i - 1] = in[i - 1];
  return to;
}

MW_KEEP void *memset(void *to, int value, __SIZE_TYPE__ bytes) {
  char *out = to;
  for (__SIZE_TYPE__ i = 0; i < bytes; i++) out[i] = (char)value;
  return to;
}

static u32 mw_bits(float value) { return __builtin_bit_cast(u32, value); }
static u64 mw_bits64(double value) { return __builtin_bit_cast(u64, value); }

// Rounds the significand `bits` (its lowest `drop` bits go) to nearest, ties to even.
static u64 mw_round(u64 bits, u32 drop) {
  if (drop == 0) return bits;
  if (drop > 63) return 0;
  u64 half = 1ull << (drop - 1), rest = bits & ((half << 1) - 1), kept = bits >> drop;
  return kept + (rest > half || (rest == half && (kept & 1)));
}

// Double to half, rounding once.
static unsigned short mw_narrow(u64 bits) {
  enum { fraction_bits = 10, top = 31, bias = 15 };
  u32 sign = (u32)(bits >> 63) << 15;
  int exponent = (int)(bits >> 52 & 0x7ff);
  u64 fraction = bits & ((1ull << 52) - 1);
  if (exponent == 0x7ff) {
    u32 payload = fraction ? (u32)(fraction >> (52 - fraction_bits)) | 1u << (fraction_bits - 1) : 0;
    return (unsigned short)(sign | (u32)top << fraction_bits | payload);
  }
  if (exponent == 0) return (unsigned short)sign;  // a double's subnormals are far below half's
  int target = exponent - 1023 + bias;
  u64 significand = fraction | 1ull << 52;
  u32 drop = (u32)(52 - fraction_bits);
  if (target <= 0) {
    drop += (u32)(1 - target);
    return (unsigned short)(sign | (u32)mw_round(significand, drop));
  }
  u64 rounded = mw_round(significand, drop) + ((u64)(target - 1) << fraction_bits);
  u64 infinity = (u64)top << fraction_bits;
  return (unsigned short)(sign | (u32)(rounded >= infinity ? infinity : rounded));
}

MW_KEEP _Float16 __truncdfhf2(double value) {
  return __builtin_bit_cast(_Float16, mw_narrow(mw_bits64(value)));
}
MW_KEEP _Float16 __truncsfhf2(float value) { return __truncdfhf2((double)value); }

MW_KEEP float __extendhfsf2(_Float16 value) {
  u32 bits = __builtin_bit_cast(unsigned short, value);
  u32 sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  if (exponent == 0x1f) return __builtin_bit_cast(float, sign | 0x7f800000u | fraction << 13);
  if (exponent) return __builtin_bit_cast(float, sign | (exponent + 112) << 23 | fraction << 13);
  float small = (float)fraction * 0x1p-24f;
  return __builtin_bit_cast(float, sign | mw_bits(small));
}

// a + b with the rounding error's sticky bit in the last place (round to odd), so that rounding again to a
// narrower type gives what one rounding of the exact sum would give. (Boldo and Melquiond, 2008.)
static double mw_add_to_odd(double a, double b) {
  double sum = a + b;
  double from_b = sum - a;
  double error = (a - (sum - from_b)) + (b - from_b);
  u64 bits = mw_bits64(sum);
  if (error != 0.0 && (bits & 1) == 0 && (bits >> 52 & 0x7ff) != 0x7ff)
    bits += ((error > 0.0) == (sum > 0.0)) ? 1 : -1ull;
  return __builtin_bit_cast(double, bits);
}

MW_KEEP float fmaf(float a, float b, float c) { return (float)mw_add_to_odd((double)a * (double)b, (double)c); }

// The product of two doubles as the sum of two. (Dekker, 1971; splitting by Veltkamp.)
static void mw_multiply_exactly(double a, double b, double *high, double *low) {
  double split_a = 134217729.0 * a, split_b = 134217729.0 * b;
  double a1 = split_a - (split_a - a), b1 = split_b - (split_b - b);
  double a2 = a - a1, b2 = b - b1;
  *high = a * b;
  *low = ((a1 * b1 - *high) + a1 * b2 + a2 * b1) + a2 * b2;
}

// Exact but where the product's halves leave double's range, which no float or half computation reaches.
MW_KEEP double fma(double a, double b, double c) {
  double high, low;
  mw_multiply_exactly(a, b, &high, &low);
  double product = a * b;
  if (low != low || product - product != 0.0) return product + c;
  double sum = high + c, from_c = sum - high;
  double error = (high - (sum - from_c)) + (c - from_c);
  return sum + mw_add_to_odd(error, low);
}
