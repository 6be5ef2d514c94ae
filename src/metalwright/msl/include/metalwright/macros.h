// The macros of the Metal standard library. Object-like and free of declarations: this file is also read when user
// code is preprocessed, before anything is declared. Values are written so that they mean the same with and
// without the front-end's rule for literals; the mathematical constants are rounded to nearest in their type.
#pragma once

#define __METAL__ 1
#define __METAL_VERSION__ 400
#define __METAL_MACOS__ 1
#define __HAVE_BFLOAT__ 1

// Attributes of Apple's headers that kernels use. Everything is inlined here, so the words carry no meaning.
#define METAL_FUNC inline
#define METAL_INTERNAL inline
#define METAL_CONST
#define METAL_PURE

// ---- integers
#define CHAR_BIT 8
#define CHAR_MAX 127
#define CHAR_MIN (-127 - 1)
#define SCHAR_MAX 127
#define SCHAR_MIN (-127 - 1)
#define SHRT_MAX 32767
#define SHRT_MIN (-32767 - 1)
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define LONG_MAX 9223372036854775807L
#define LONG_MIN (-9223372036854775807L - 1)
#define UCHAR_MAX 255
#define USHRT_MAX 65535
#define UINT_MAX 4294967295U
#define ULONG_MAX 18446744073709551615UL

// ---- float
// From their bits: no warning and no surprise under fast math; in words of Metal, since user code expands to them.
#define INFINITY (::metal::as_type<float>(0x7f800000))
#define NAN (::metal::as_type<float>(0x7fc00000))
#define HUGE_VALF INFINITY
#define MAXFLOAT 0x1.fffffep127f
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_MAX_10_EXP 38
#define FLT_MAX_EXP 128
#define FLT_MIN_10_EXP (-37)
#define FLT_MIN_EXP (-125)
#define FLT_RADIX 2
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1p-126f
#define FLT_EPSILON 0x1p-23f
#define FLT_DECIMAL_DIG 9
#define FLT_TRUE_MIN 0x1p-149f
#define M_E_F 0x1.5bf0a8p1f
#define M_LOG2E_F 0x1.715476p0f
#define M_LOG10E_F 0x1.bcb7b2p-2f
#define M_LN2_F 0x1.62e43p-1f
#define M_LN10_F 0x1.26bb1cp1f
#define M_PI_F 0x1.921fb6p1f
#define M_PI_2_F 0x1.921fb6p0f
#define M_PI_4_F 0x1.921fb6p-1f
#define M_1_PI_F 0x1.45f306p-2f
#define M_2_PI_F 0x1.45f306p-1f
#define M_2_SQRTPI_F 0x1.20dd76p0f
#define M_SQRT2_F 0x1.6a09e6p0f
#define M_SQRT1_2_F 0x1.6a09e6p-1f

// ---- half
#define HUGE_VALH (::metal::as_type<half>((unsigned short)0x7c00))
#define MAXHALF ((half)0x1.ffcp15f)
#define HALF_DIG 3
#define HALF_MANT_DIG 11
#define HALF_MAX_10_EXP 4
#define HALF_MAX_EXP 16
#define HALF_MIN_10_EXP (-4)
#define HALF_MIN_EXP (-13)
#define HALF_RADIX 2
#define HALF_MAX ((half)0x1.ffcp15f)
#define HALF_MIN ((half)0x1p-14f)
#define HALF_EPSILON ((half)0x1p-10f)
#define M_E_H ((half)0x1.5cp1f)
#define M_LOG2E_H ((half)0x1.714p0f)
#define M_LOG10E_H ((half)0x1.bccp-2f)
#define M_LN2_H ((half)0x1.63p-1f)
#define M_LN10_H ((half)0x1.26cp1f)
#define M_PI_H ((half)0x1.92p1f)
#define M_PI_2_H ((half)0x1.92p0f)
#define M_PI_4_H ((half)0x1.92p-1f)
#define M_1_PI_H ((half)0x1.46p-2f)
#define M_2_PI_H ((half)0x1.46p-1f)
#define M_2_SQRTPI_H ((half)0x1.20cp0f)
#define M_SQRT2_H ((half)0x1.6ap0f)
#define M_SQRT1_2_H ((half)0x1.6ap-1f)

// ---- bfloat
#define HUGE_VALBF (::metal::as_type<bfloat>((unsigned short)0x7f80))
#define MAXBFLOAT ((bfloat)0x1.fep127f)
#define BFLT_DIG 2
#define BFLT_MANT_DIG 8
#define BFLT_MAX_10_EXP 38
#define BFLT_MAX_EXP 128
#define BFLT_MIN_10_EXP (-37)
#define BFLT_MIN_EXP (-125)
#define BFLT_RADIX 2
#define BFLT_MAX ((bfloat)0x1.fep127f)
#define BFLT_MIN ((bfloat)0x1p-126f)
#define BFLT_EPSILON ((bfloat)0x1p-7f)
#define M_E_BF ((bfloat)0x1.5cp1f)
#define M_LOG2E_BF ((bfloat)0x1.72p0f)
#define M_LOG10E_BF ((bfloat)0x1.bcp-2f)
#define M_LN2_BF ((bfloat)0x1.62p-1f)
#define M_LN10_BF ((bfloat)0x1.26p1f)
#define M_PI_BF ((bfloat)0x1.92p1f)
#define M_PI_2_BF ((bfloat)0x1.92p0f)
#define M_PI_4_BF ((bfloat)0x1.92p-1f)
#define M_1_PI_BF ((bfloat)0x1.46p-2f)
#define M_2_PI_BF ((bfloat)0x1.46p-1f)
#define M_2_SQRTPI_BF ((bfloat)0x1.2p0f)
#define M_SQRT2_BF ((bfloat)0x1.6ap0f)
#define M_SQRT1_2_BF ((bfloat)0x1.6ap-1f)
