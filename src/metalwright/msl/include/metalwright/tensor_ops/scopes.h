// Execution scopes ("Execution Scopes" of the Metal Shading Language specification): the threads that carry out a
// tensor operation together.
#pragma once
#include <metal_type_traits>
#include <metal_types>
#include <metalwright/intrinsics.h>

namespace metal {
template <size_t Size>
class execution_threads {
  static_assert(Size == 1, "the only scope in threads is execution_thread");

 public:
  static constexpr size_t static_size = Size;
  constexpr uint size() const { return Size; }
};
template <size_t Size>
class execution_simdgroups {
  static_assert(Size != 0, "a scope has at least one simdgroup");

 public:
  static constexpr size_t static_size = Size;
  constexpr uint size() const { return Size; }
};
using execution_thread = execution_threads<1>;
using execution_simdgroup = execution_simdgroups<1>;
}  // namespace metal

namespace __mw {
template <class Scope> inline constexpr bool is_scope = false;
template <metal::size_t Size> inline constexpr bool is_scope<metal::execution_threads<Size>> = true;
template <metal::size_t Size> inline constexpr bool is_scope<metal::execution_simdgroups<Size>> = true;

template <class Scope> inline constexpr bool is_one_thread = false;
template <> inline constexpr bool is_one_thread<metal::execution_thread> = true;

// Checked mode stops where the threads that were launched are not those of the scope: a GPU then does anything.
template <class Scope>
inline void enter() {
  if constexpr (!is_one_thread<Scope>) __mw_scope(__mw_context(), Scope::static_size, -1u);
}
}  // namespace __mw
