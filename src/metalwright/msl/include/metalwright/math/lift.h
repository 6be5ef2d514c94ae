// From a function of one element to Metal's overloads: which argument types go together, what comes out, and the
// application to each element of a vector. Built on the vocabulary of <metal_types> (common_t, element_t, rebind).
#pragma once

#include <metalwright/math/bits.h>

#include <metalwright/math/begin.h>

namespace __mw::math {

// Integers alone are taken as float.
template <class C>
struct evaluated_as {
  using type = C;
};
template <class C>
  requires(__is_integral(C) || __is_same(C, double))
struct evaluated_as<C> {
  using type = float;
};
template <class... X>
using result = typename evaluated_as<common_t<X...>>::type;

// Floating scalars and vectors in any mixture with scalars, or integer scalars alone. `__mw::floats` is the same
// without the integers, for names that <metal_integer> shares.
template <class... X>
concept numbers = floats<X...> || (requires { typename common_t<X...>; } && __is_integral(common_t<X...>));

// Element i of an argument as T; scalars are splatted. Reading through a reference also takes volatile scalars.
template <class T, class X>
inline T lane(const X& x, int i) {
  if constexpr (is_any_vec_v<X>)
    return (T)x[i];
  else
    return (T)x;
}

// f(i) for each element i of an R.
template <class R, class F>
inline R each_lane(F f) {
  if constexpr (is_vec_v<R>) {
    R r;
    for (int i = 0; i < lanes_v<R>; ++i) r[i] = f(i);
    return r;
  } else {
    return f(0);
  }
}
template <class V>
inline auto& lane_of(V& v, int i) {
  if constexpr (is_vec_v<V>)
    return v[i];
  else
    return v;
}

// F on each element, evaluated in W; each result is rounded once to R's element.
template <class W, class R, auto F, class... X>
inline R lift(const X&... x) {
  using T = element_t<R>;
  return each_lane<R>([&](int i) { return narrow<T>::from(F(widen<W>(lane<T>(x, i))...)); });
}

// For functions with a form for float elements and one, in double, for the narrow types.
template <class R, auto ForFloat, auto ForNarrow, class... X>
inline R lift_own(const X&... x) {
  if constexpr (__is_same(element_t<R>, float))
    return lift<float, R, ForFloat>(x...);
  else
    return lift<double, R, ForNarrow>(x...);
}

// As lift(), for F(x, second) with a second result of type E; it goes to `extra`.
template <class W, class E, class R, auto F, class X, class S>
inline R lift_two(const X& x, S& extra) {
  using T = element_t<R>;
  return each_lane<R>([&](int i) {
    E second;
    const T first = narrow<T>::from(F(widen<W>(lane<T>(x, i)), second));
    if constexpr (__is_same(element_t<S>, int))
      lane_of(extra, i) = second;
    else
      lane_of(extra, i) = narrow<element_t<S>>::from(second);
    return first;
  });
}

}  // namespace __mw::math

#include <metalwright/math/end.h>
