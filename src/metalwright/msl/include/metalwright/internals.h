// Names of Apple's standard library that kernels reach for although they are no part of the specification: MLX defines
// its functions for bfloat in terms of them. Each does what the public function of that name does; the last argument
// of a math function says how fast it may be, which makes no difference here.
#pragma once
#include <metal_math>
#include <metal_simdgroup>
#include <metal_type_traits>

namespace __mw {
enum class math_speed { maybe_fast, fast, precise };
// What the front-end reads a swizzle through where user code overloads the operator beside it.
template <class T> constexpr T lane_value(T value) { return value; }
template <size_t N> struct bits_as_wide { using type = uint; };
template <> struct bits_as_wide<2> { using type = ushort; };
template <size_t N> using same_width_bits = typename bits_as_wide<N>::type;
// Bits of any scalar can be combined; Apple's compiler takes a float here too.
template <class T> inline T simd_bits_xor(T value) {
  if constexpr (floating<T>) return metal::as_type<T>(metal::simd_xor(metal::as_type<same_width_bits<sizeof(T)>>(value)));
  else return metal::simd_xor(value);
}
}  // namespace __mw
inline constexpr __mw::math_speed __METAL_MAYBE_FAST_MATH__ = __mw::math_speed::maybe_fast;
inline constexpr __mw::math_speed __METAL_FAST_MATH__ = __mw::math_speed::fast;
inline constexpr __mw::math_speed __METAL_PRECISE_MATH__ = __mw::math_speed::precise;

#define __MW_INTERNAL_1(NAME) \
  template <class X> inline auto __metal_##NAME(X x, __mw::math_speed) { return metal::NAME(x); }
#define __MW_INTERNAL_2(NAME) \
  template <class X, class Y> inline auto __metal_##NAME(X x, Y y, __mw::math_speed) { return metal::NAME(x, y); }
#define __MW_INTERNAL_3(NAME)                                                                     \
  template <class X, class Y, class Z> inline auto __metal_##NAME(X x, Y y, Z z, __mw::math_speed) { \
    return metal::NAME(x, y, z);                                                                  \
  }
__MW_INTERNAL_1(acos)
__MW_INTERNAL_1(acosh)
__MW_INTERNAL_1(asin)
__MW_INTERNAL_1(asinh)
__MW_INTERNAL_1(atan)
__MW_INTERNAL_1(atanh)
__MW_INTERNAL_1(ceil)
__MW_INTERNAL_1(cos)
__MW_INTERNAL_1(cosh)
__MW_INTERNAL_1(cospi)
__MW_INTERNAL_1(exp)
__MW_INTERNAL_1(exp10)
__MW_INTERNAL_1(exp2)
__MW_INTERNAL_1(fabs)
__MW_INTERNAL_1(floor)
__MW_INTERNAL_1(fract)
__MW_INTERNAL_1(log)
__MW_INTERNAL_1(log10)
__MW_INTERNAL_1(log2)
__MW_INTERNAL_1(rint)
__MW_INTERNAL_1(round)
__MW_INTERNAL_1(rsqrt)
__MW_INTERNAL_1(sin)
__MW_INTERNAL_1(sinh)
__MW_INTERNAL_1(sinpi)
__MW_INTERNAL_1(sqrt)
__MW_INTERNAL_1(tan)
__MW_INTERNAL_1(tanh)
__MW_INTERNAL_1(tanpi)
__MW_INTERNAL_1(trunc)
__MW_INTERNAL_2(atan2)
__MW_INTERNAL_2(divide)
__MW_INTERNAL_2(fmax)
__MW_INTERNAL_2(fmin)
__MW_INTERNAL_2(fmod)
__MW_INTERNAL_2(ldexp)
__MW_INTERNAL_2(pow)
__MW_INTERNAL_2(powr)
__MW_INTERNAL_3(fmax3)
__MW_INTERNAL_3(fmedian3)
__MW_INTERNAL_3(fmin3)
#undef __MW_INTERNAL_1
#undef __MW_INTERNAL_2
#undef __MW_INTERNAL_3
template <class X, class Y, class Z> inline auto __metal_fma(X x, Y y, Z z) { return metal::fma(x, y, z); }
template <class X, class Y> inline auto __metal_nextafter(X x, Y y) { return metal::nextafter(x, y); }
template <class X, class E> inline auto __metal_frexp(X x, E* exponent) { return metal::frexp(x, *exponent); }

#define __MW_INTERNAL_SIMD(NAME) \
  template <class T> inline T __metal_simd_##NAME(T value) { return metal::simd_##NAME(value); }
__MW_INTERNAL_SIMD(max)
__MW_INTERNAL_SIMD(min)
__MW_INTERNAL_SIMD(prefix_exclusive_product)
__MW_INTERNAL_SIMD(prefix_exclusive_sum)
__MW_INTERNAL_SIMD(prefix_inclusive_product)
__MW_INTERNAL_SIMD(prefix_inclusive_sum)
__MW_INTERNAL_SIMD(product)
__MW_INTERNAL_SIMD(sum)
#undef __MW_INTERNAL_SIMD
template <class T> inline T __metal_simd_xor(T value) { return __mw::simd_bits_xor(value); }
#define __MW_INTERNAL_SHUFFLE(NAME) \
  template <class T> inline T __metal_simd_##NAME(T value, ushort other) { return metal::simd_##NAME(value, other); }
__MW_INTERNAL_SHUFFLE(broadcast)
__MW_INTERNAL_SHUFFLE(shuffle)
__MW_INTERNAL_SHUFFLE(shuffle_down)
__MW_INTERNAL_SHUFFLE(shuffle_rotate_down)
__MW_INTERNAL_SHUFFLE(shuffle_rotate_up)
__MW_INTERNAL_SHUFFLE(shuffle_up)
__MW_INTERNAL_SHUFFLE(shuffle_xor)
#undef __MW_INTERNAL_SHUFFLE
template <class T> inline T __metal_simd_shuffle_and_fill_down(T value, T filling, ushort delta, ushort modulo) {
  return metal::simd_shuffle_and_fill_down(value, filling, delta, modulo);
}
template <class T> inline T __metal_simd_shuffle_and_fill_up(T value, T filling, ushort delta, ushort modulo) {
  return metal::simd_shuffle_and_fill_up(value, filling, delta, modulo);
}
// The argument only says of which type the answer is to be.
template <class T> inline T __metal_get_simdgroup_size(T) { return T(__mw::lanes); }
template <class T> inline T __metal_get_thread_index_in_simdgroup(T) { return T(__mw_lane(__mw_context())); }

namespace metal {
template <class... B> using _disjunction = disjunction<B...>;
template <class... B> using _conjunction = conjunction<B...>;
template <class B> using _negation = negation<B>;
}  // namespace metal
