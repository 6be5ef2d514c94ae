// What a kernel asks of the engine that runs it. The engine replaces the calls that give an address or the context,
// numbers those that take a site (-1 here), and links the others with its runtime.
#pragma once

namespace __mw {
using u32 = unsigned int;
using u64 = unsigned long;
using u8 = unsigned char;

enum { lanes = 32, exchange_bytes = 32 };

// As in the engine's runtime/abi.h.
struct thread {
  u32 local[3], group[3], group_size[3], full_size[3], grid_size[3], groups[3];
};
struct buffer;
}  // namespace __mw

extern "C" {
[[gnu::const]] void* __mw_context();
[[gnu::const]] const __mw::thread* __mw_thread();
[[gnu::const]] char* __mw_buffer(__mw::u32 index);
[[gnu::const]] int __mw_buffer_extent(__mw::u32 index, __mw::u32 dimension);
[[gnu::const]] char* __mw_threadgroup_variable(__mw::u32 id, __mw::u64 bytes, __mw::u64 align);
[[gnu::const]] char* __mw_threadgroup_argument(__mw::u32 index);
[[clang::convergent]] void __mw_barrier(void* context, __mw::u32 flags, __mw::u32 site);
[[clang::convergent]] __mw::u32 __mw_exchange(void* context, const void* value, __mw::u32 bytes, __mw::u32 site);
const void* __mw_gathered(void* context);
// Whether the values of these lanes have been folded since the last exchange; from now on they have. The result lies
// behind what is gathered.
__mw::u32 __mw_folded(void* context, __mw::u32 members);
__mw::u32 __mw_lane(void* context);
// Stops where `active` is not every lane.
void __mw_whole_simdgroup(void* context, __mw::u32 active, __mw::u32 site);
void __mw_scope(void* context, __mw::u32 simdgroups, __mw::u32 site);
[[noreturn]] void __mw_trap(void* context, __mw::u32 site);
void __mw_log(void* context, __mw::u32 level, const char* format, const __mw::u64* values, const char* kinds,
              __mw::u32 count);
// Describes a kernel's parameter to the front-end, which reads the calls; they are never run.
void __mw_describe(__mw::u32 position, __mw::u32 kind, __mw::u32 element, __mw::u32 bytes, __mw::u32 lanes,
                   __mw::u32 rank);
void __mw_describe_index(__mw::u32 position, __mw::u32 index);
void __mw_describe_absent(__mw::u32 position);
}

namespace __mw {
inline u32 index_in_group(const thread& t) {
  return (t.local[2] * t.group_size[1] + t.local[1]) * t.group_size[0] + t.local[0];
}
inline u32 volume(const u32* size) { return size[0] * size[1] * size[2]; }

// Whether nothing is written when a variable of the type begins: Metal has no initial values in threadgroup memory.
// A type that has a constructor for threadgroup memory is marked by the front-end.
template <class T>
constexpr bool begins_unset = __is_trivially_constructible(T) || requires { typename T::__mw_made_in_threadgroup; };
template <class T, u64 N>
constexpr bool begins_unset<T[N]> = begins_unset<T>;

// A variable in the threadgroup address space: the engine finds the id and the size, and lays the memory out.
template <class T>
inline T& threadgroup_variable(u32 id) {
  static_assert(begins_unset<T>, "threadgroup variable cannot have an initial value in Metal: its type has one");
  constexpr u64 align = alignof(T) < 16 ? 16 : alignof(T);
  return *reinterpret_cast<T*>(__mw_threadgroup_variable(id, sizeof(T), align));
}
}  // namespace __mw
