// Which element types the tensor operations take together, and in what they add.
#pragma once
#include <metal_tensor>
#include <metal_type_traits>
#include <metalwright/intrinsics.h>

namespace __mw {
template <class T, class... Types> inline constexpr bool is_any_of = (__is_same(T, Types) || ...);
template <class T>
inline constexpr bool is_packed_signed = is_any_of<T, metal::int4b_format, metal::int2b_format>;
template <class T>
inline constexpr bool is_packed_unsigned = is_any_of<T, metal::uint4b_format, metal::uint2b_format>;
template <class T>
inline constexpr bool is_packed_float =
    is_any_of<T, metal::metal_fp8_e4m3_format, metal::metal_fp8_e5m2_format, metal::metal_fp4_e2m1_format>;
template <class T> inline constexpr bool is_byte = is_any_of<T, signed char, char, u8>;
template <class T> inline constexpr bool is_number = is_any_of<T, float, half, bfloat>;

// Products of integers are added as int, all others as float.
template <class L, class R>
using sum_of = metal::conditional_t<is_byte<L> && is_byte<R>, int, float>;

// The table in Apple's MPPTensorOpsMatMul2d.h. Packed integers stand on the right.
template <class L, class R, class D>
constexpr bool takes_together() {
  if constexpr (is_byte<L> && is_byte<R>) {
    return metal::is_unsigned_v<L> == metal::is_unsigned_v<R> && __is_same(D, int);
  } else if constexpr (is_packed_signed<R> || is_packed_unsigned<R>) {
    if constexpr (is_byte<L>)
      return metal::is_unsigned_v<L> == is_packed_unsigned<R> && __is_same(D, int);
    else
      return is_any_of<L, half, bfloat> && is_any_of<D, L, float>;
  } else if constexpr (is_packed_float<R>) {
    return is_any_of<L, half, R> && is_any_of<D, half, float>;
  } else if constexpr (!(is_number<L> || is_byte<L>) || !(is_number<R> || is_byte<R>)) {
    return false;
  } else {
    const bool any_float = is_any_of<float, L, R>;
    return __is_same(D, float) || (!any_float && is_any_of<D, half, bfloat> && is_any_of<D, L, R>);
  }
}
template <class L, class R, class D> inline constexpr bool multiplies = takes_together<L, R, D>();
}  // namespace __mw
