// Which element types the tensor operations take together, and in what they add.
#pragma once
#include <metal_tensor>
#include <metal_type_traits>

namespace __mw {
template <class T> inline constexpr bool is_byte = __is_same(T, signed char) || __is_same(T, char) || __is_same(T, u8);
template <class T> inline constexpr bool is_number = __is_same(T, float) || __is_same(T, half) || __is_same(T, bfloat);

// Products of integers are added as int, all others as float.
template <class L, class R>
using sum_of = metal::conditional_t<is_byte<L> && is_byte<R>, int, float>;

// The table in Apple's MPPTensorOpsMatMul2d.h.
template <class L, class R, class D>
constexpr bool takes_together() {
  if constexpr (is_byte<L> && is_byte<R>) {
    return metal::is_unsigned_v<L> == metal::is_unsigned_v<R> && __is_same(D, int);
  } else if constexpr (!(is_number<L> || is_byte<L>) || !(is_number<R> || is_byte<R>)) {
    return false;
  } else {
    const bool any_half = __is_same(L, half) || __is_same(R, half);
    const bool any_bfloat = __is_same(L, bfloat) || __is_same(R, bfloat);
    const bool any_float = __is_same(L, float) || __is_same(R, float);
    return __is_same(D, float) || (!any_float && ((__is_same(D, half) && any_half) || (__is_same(D, bfloat) && any_bfloat)));
  }
}
template <class L, class R, class D> inline constexpr bool multiplies = takes_together<L, R, D>();
}  // namespace __mw
