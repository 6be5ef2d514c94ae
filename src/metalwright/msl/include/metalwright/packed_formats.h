// Element types of tensors that are smaller than a byte, or that the language has no numbers for: how their codes lie
// in memory, and what they mean.
//
// A kernel never has a value of such a type, so the types are only names. Codes are packed without gaps, the first in
// the low bits of the first byte.
#pragma once
#include <metal_type_traits>
#include <metal_types>
#include <metalwright/intrinsics.h>

namespace metal {
struct int4b_format;
struct uint4b_format;
struct int2b_format;
struct uint2b_format;
struct metal_fp8_e4m3_format;
struct metal_fp8_e5m2_format;
struct metal_fp4_e2m1_format;
struct metal_fp8_ue8m0_format;
}  // namespace metal

namespace __mw {
// Which codes with all exponent bits set are no finite numbers.
enum class beyond { nothing, last_is_nan, infinity_and_nan };

// The number that a code of a sign, Exponent and Mantissa bits stands for: exact in float.
template <u32 Exponent, u32 Mantissa, beyond Beyond>
inline float small_float(u32 code) {
  constexpr u32 bias = (1u << (Exponent - 1)) - 1, last = (1u << Exponent) - 1;
  const u32 exponent = code >> Mantissa & last, mantissa = code & ((1u << Mantissa) - 1);
  float size;
  if (exponent == 0)
    size = float(mantissa) * __builtin_bit_cast(float, (128 - bias - Mantissa) << 23);
  else
    size = __builtin_bit_cast(float, (exponent + 127 - bias) << 23 | mantissa << (23 - Mantissa));
  if constexpr (Beyond != beyond::nothing)
    if (exponent == last) {
      constexpr u32 all = (1u << Mantissa) - 1;
      if (Beyond == beyond::last_is_nan ? mantissa == all : mantissa != 0) size = __builtin_nanf("");
      if (Beyond == beyond::infinity_and_nan && mantissa == 0) size = __builtin_inff();
    }
  return code >> (Exponent + Mantissa) & 1 ? -size : size;
}

// A power of two without a sign, from 2^-127; the last code is NaN.
inline float power_of_two(u32 code) {
  if (code == 255) return __builtin_nanf("");
  return __builtin_bit_cast(float, code == 0 ? 1u << 22 : code << 23);
}

// Of a packed format: the bits of a code, what reading an element of a tensor gives, and the number that the tensor
// operations take it for.
template <class Format> struct packed { static constexpr bool is_packed = false; };

template <u32 Bits, bool Signed>
struct packed_integer {
  static constexpr bool is_packed = true;
  static constexpr u32 bits = Bits;
  using read_type = uchar;
  using operand_type = metal::conditional_t<Signed, signed char, uchar>;
  // without its sign, as kernels found out on a GPU
  static read_type read(u32 code) { return read_type(code); }
  static operand_type operand(u32 code) {
    if constexpr (Signed) return operand_type(int(code << (32 - Bits)) >> (32 - Bits));
    else return operand_type(code);
  }
};
template <u32 Bits, float Decode(u32)>
struct packed_float {
  static constexpr bool is_packed = true;
  static constexpr u32 bits = Bits;
  using read_type = float;
  using operand_type = float;
  static float read(u32 code) { return Decode(code); }
  static float operand(u32 code) { return Decode(code); }
};
template <> struct packed<metal::int4b_format> : packed_integer<4, true> {};
template <> struct packed<metal::uint4b_format> : packed_integer<4, false> {};
template <> struct packed<metal::int2b_format> : packed_integer<2, true> {};
template <> struct packed<metal::uint2b_format> : packed_integer<2, false> {};
template <> struct packed<metal::metal_fp8_e4m3_format> : packed_float<8, small_float<4, 3, beyond::last_is_nan>> {};
template <> struct packed<metal::metal_fp8_e5m2_format> : packed_float<8, small_float<5, 2, beyond::infinity_and_nan>> {};
template <> struct packed<metal::metal_fp4_e2m1_format> : packed_float<4, small_float<2, 1, beyond::nothing>> {};
template <> struct packed<metal::metal_fp8_ue8m0_format> : packed_float<8, power_of_two> {};

template <class T> concept packed_format = packed<metal::remove_cv_t<T>>::is_packed;

// A place among packed codes, which may be inside a byte. What stands there is read as the tensor operations take it.
template <class Format>
struct packed_pointer {
  using format = packed<metal::remove_cv_t<Format>>;
  using byte = metal::conditional_t<metal::is_const_v<Format>, const uchar, uchar>;
  byte* bytes;
  u32 bit;  // of the first byte

  packed_pointer operator+(long count) const {
    const long at = bit + count * long(format::bits);
    return {bytes + (at >> 3), u32(at & 7)};
  }
  u32 code() const { return bytes[0] >> bit & ((1u << format::bits) - 1); }
  typename format::operand_type operator[](long index) const { return format::operand((*this + index).code()); }
};

// How a tensor keeps and gives its elements.
template <class Element>
struct elements {
  using handle = Element*;
  using pointer = Element*;
  using operand = metal::remove_cv_t<Element>;
  using reference = Element&;
  static constexpr u32 row_multiple = 1;  // of a tensor whose strides are not given, in elements

  static constexpr pointer from(handle data) { return data; }
  static constexpr handle start(pointer data) { return data; }
  static constexpr reference read(pointer data, long offset) { return data[offset]; }
};
template <packed_format Element>
struct elements<Element> {
  using pointer = packed_pointer<Element>;
  using format = typename pointer::format;
  using handle = typename pointer::byte*;
  using operand = typename format::operand_type;
  using reference = typename format::read_type;
  // rows of parts of bytes begin at multiples of 64 bytes
  static constexpr u32 row_multiple = format::bits < 8 ? 64 * 8 / format::bits : 1;

  static pointer from(handle data) { return {data, 0}; }
  static handle start(pointer data) { return data.bytes; }
  static reference read(pointer data, long offset) { return format::read((data + offset).code()); }
};
}  // namespace __mw
