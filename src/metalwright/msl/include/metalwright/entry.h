// How the engine's call of a kernel becomes the call that the user wrote: each parameter is made from its attribute.
#pragma once
#include <metal_tensor>
#include <metal_texture>
#include <metal_types>
#include <metalwright/intrinsics.h>

namespace __mw {
// Attributes, as tags.
template <u32 Index> struct buffer_at {};
template <u32 Index> struct threadgroup_at {};
template <u32 Index> struct texture_at {};
// A buffer with [[function_constant(c)]] where c is false, in constant memory or not.
template <class Tag, bool Constant> struct absent {};
template <bool Present, class Tag, bool Constant>
using only_if = metal::conditional_t<Present, Tag, absent<Tag, Constant>>;
enum class position {
  thread_position_in_grid,
  threads_per_grid,
  thread_position_in_threadgroup,
  threads_per_threadgroup,
  dispatch_threads_per_threadgroup,
  threadgroup_position_in_grid,
  threadgroups_per_grid,
  thread_index_in_threadgroup,
  thread_index_in_simdgroup,
  thread_index_in_quadgroup,
  simdgroup_index_in_threadgroup,
  quadgroup_index_in_threadgroup,
  simdgroups_per_threadgroup,
  quadgroups_per_threadgroup,
  threads_per_simdgroup,
  thread_execution_width,
  dispatch_simdgroups_per_threadgroup,
  dispatch_quadgroups_per_threadgroup,
  grid_origin,
  grid_size,
};
template <position Which> struct attribute {};

struct triple { u32 of[3]; };

inline u32 parts(u32 threads, u32 size) { return (threads + size - 1) / size; }

template <position Which>
inline triple value_of(const thread& t) {
  using enum position;
  if constexpr (Which == thread_position_in_grid)
    return {{t.group[0] * t.full_size[0] + t.local[0], t.group[1] * t.full_size[1] + t.local[1],
             t.group[2] * t.full_size[2] + t.local[2]}};
  else if constexpr (Which == threads_per_grid || Which == grid_size)
    return {{t.grid_size[0], t.grid_size[1], t.grid_size[2]}};
  else if constexpr (Which == thread_position_in_threadgroup)
    return {{t.local[0], t.local[1], t.local[2]}};
  else if constexpr (Which == threads_per_threadgroup)
    return {{t.group_size[0], t.group_size[1], t.group_size[2]}};
  else if constexpr (Which == dispatch_threads_per_threadgroup)
    return {{t.full_size[0], t.full_size[1], t.full_size[2]}};
  else if constexpr (Which == threadgroup_position_in_grid)
    return {{t.group[0], t.group[1], t.group[2]}};
  else if constexpr (Which == threadgroups_per_grid)
    return {{t.groups[0], t.groups[1], t.groups[2]}};
  else if constexpr (Which == thread_index_in_threadgroup)
    return {{index_in_group(t)}};
  else if constexpr (Which == thread_index_in_simdgroup)
    return {{index_in_group(t) % lanes}};
  else if constexpr (Which == thread_index_in_quadgroup)
    return {{index_in_group(t) % 4}};
  else if constexpr (Which == simdgroup_index_in_threadgroup)
    return {{index_in_group(t) / lanes}};
  else if constexpr (Which == quadgroup_index_in_threadgroup)
    return {{index_in_group(t) / 4}};
  else if constexpr (Which == simdgroups_per_threadgroup)
    return {{parts(volume(t.group_size), lanes)}};
  else if constexpr (Which == quadgroups_per_threadgroup)
    return {{parts(volume(t.group_size), 4)}};
  else if constexpr (Which == threads_per_simdgroup || Which == thread_execution_width)
    return {{lanes}};
  else if constexpr (Which == dispatch_simdgroups_per_threadgroup)
    return {{parts(volume(t.full_size), lanes)}};
  else if constexpr (Which == dispatch_quadgroups_per_threadgroup)
    return {{parts(volume(t.full_size), 4)}};
  else
    return {{0, 0, 0}};
}

enum parameter_kind : u32 { kind_tensor, kind_pointer, kind_reference, kind_threadgroup, kind_attribute, kind_texture };

// The front-end knows these numbers (msl/signature.py).
template <class T> inline constexpr u32 element_code = 0;
template <> inline constexpr u32 element_code<bool> = 1;
template <> inline constexpr u32 element_code<signed char> = 2;
template <> inline constexpr u32 element_code<char> = 2;
template <> inline constexpr u32 element_code<unsigned char> = 3;
template <> inline constexpr u32 element_code<short> = 4;
template <> inline constexpr u32 element_code<unsigned short> = 5;
template <> inline constexpr u32 element_code<int> = 6;
template <> inline constexpr u32 element_code<unsigned int> = 7;
template <> inline constexpr u32 element_code<long> = 8;
template <> inline constexpr u32 element_code<unsigned long> = 9;
template <> inline constexpr u32 element_code<half> = 10;
template <> inline constexpr u32 element_code<bfloat> = 11;
template <> inline constexpr u32 element_code<float> = 12;

// All in literals: the front-end reads the calls from IR that no optimiser has touched.
template <class T, u32 Position, u32 Kind, u32 Rank = 0>
inline void describe() {
  using plain = metal::remove_cv_t<T>;
  if constexpr (metal::is_void_v<plain>)
    __mw_describe(Position, Kind, 0, 0, 1, Rank);
  else if constexpr (is_vec_v<plain>)
    __mw_describe(Position, Kind, element_code<element_t<plain>>, sizeof(plain), lanes_v<plain>, Rank);
  else
    __mw_describe(Position, Kind, element_code<plain>, sizeof(plain), 1, Rank);
}

// One parameter of type P with the attribute Tag: how it is made, and how it is described.
template <class P, class Tag> struct bind {
  static_assert(metal::is_void_v<P>,
                "a parameter with [[buffer(n)]] must be a tensor<device T, ..., tensor_handle>, a pointer or a reference, "
                "one with [[threadgroup(n)]] a pointer, one with [[texture(n)]] a texture");
};

// What is said of a tensor of a packed format, with a plane of scales and without.
template <class Element> struct bind_packed {
  static_assert(metal::is_void_v<Element>,
                "a kernel takes a packed format as its bytes, device uchar* or a tensor of uchar, and makes a "
                "tensor_inline of them");
};
template <packed_format Element, class Extents, u32 Index>
struct bind<metal::tensor<Element, Extents, metal::tensor_handle>, buffer_at<Index>> : bind_packed<Element> {};
template <packed_format Element, class Extents, class Plane, u32 Index>
struct bind<metal::tensor<Element, Extents, metal::tensor_handle, Plane>, buffer_at<Index>> : bind_packed<Element> {};
template <class Element, class Extents, u32 Index>
struct bind<metal::tensor<Element, Extents, metal::tensor_handle>, buffer_at<Index>> {
  static constexpr size_t rank = Extents::rank();
  static auto make(const thread&) {
    Extents sizes;
    each<rank>([&](auto i) {
      if constexpr (Extents::static_extent(i) == metal::dynamic_extent)
        sizes.__sizes[i] = __mw_buffer_extent(Index, decltype(i)::value);
    });
    return metal::tensor<Element, Extents, metal::tensor_handle>(reinterpret_cast<Element*>(__mw_buffer(Index)), sizes);
  }
  template <u32 Position> static void describe() { __mw::describe<Element, Position, kind_tensor, rank>(); }
};
template <class T, u32 Index>
struct bind<T*, buffer_at<Index>> {
  static T* make(const thread&) { return reinterpret_cast<T*>(__mw_buffer(Index)); }
  template <u32 Position> static void describe() { __mw::describe<T, Position, kind_pointer>(); }
};
template <class T, u32 Index>
struct bind<T&, buffer_at<Index>> {
  static T& make(const thread&) { return *reinterpret_cast<T*>(__mw_buffer(Index)); }
  template <u32 Position> static void describe() { __mw::describe<T, Position, kind_reference>(); }
};
template <class T, u32 Index>
struct bind<T*, threadgroup_at<Index>> {
  static T* make(const thread&) { return reinterpret_cast<T*>(__mw_threadgroup_argument(Index)); }
  template <u32 Position> static void describe() { __mw::describe<T, Position, kind_threadgroup>(); }
};
template <class T, u32 Index>
  requires(texture_type<T>::number >= 0)
struct bind<T, texture_at<Index>> {
  static_assert(Index < 128, "a kernel has at most 128 textures");
  static T make(const thread&) { return T(image_at<first_texture + Index>()); }
  template <u32 Position> static void describe() {
    using type = texture_type<T>;
    __mw_describe(Position, kind_texture, element_code<typename type::element>, u32(type::access), 1, u32(type::number));
  }
};
template <class T, position Which>
struct bind<T, attribute<Which>> {
  static T make(const thread& t) {
    const triple value = value_of<Which>(t);
    if constexpr (is_vec_v<T>) {
      static_assert(lanes_v<T> <= 3, "a position has at most three components");
      T made;
      each<lanes_v<T>>([&](auto i) { made[i] = element_t<T>(value.of[i]); });
      return made;
    } else {
      return T(value.of[0]);
    }
  }
  template <u32 Position> static void describe() { __mw::describe<T, Position, kind_attribute>(); }
};

// A pointer to no memory; a constant or a struct of constants is zero, since kernels copy some that they go on not to
// use.
template <class P, class Tag> struct bind_absent : bind<P, Tag> {
  template <u32 Position> static void describe() {
    bind<P, Tag>::template describe<Position>();
    __mw_describe_absent(Position);
  }
};
template <class T> struct zeros { alignas(T) static constexpr unsigned char bytes[sizeof(T)] = {}; };
template <class P, class Tag, bool Constant> struct bind<P, absent<Tag, Constant>> : bind_absent<P, Tag> {};
template <class T, class Tag, bool Constant>
struct bind<const T&, absent<Tag, Constant>> : bind_absent<const T&, Tag> {
  static const T& make(const thread&) { return reinterpret_cast<const T&>(zeros<T>::bytes); }
};
template <class T, class Tag>
  requires(metal::is_class_v<T> && !is_vec_v<T>)
struct bind<const T*, absent<Tag, true>> : bind_absent<const T*, Tag> {
  static const T* make(const thread&) { return reinterpret_cast<const T*>(zeros<T>::bytes); }
};

// The number of [[buffer(n)]] and its like, which may be any constant expression.
template <class Tag> inline constexpr u32 index_of = 0;
template <template <u32> class At, u32 Index> inline constexpr u32 index_of<At<Index>> = Index;
template <class Tag, bool Constant> inline constexpr u32 index_of<absent<Tag, Constant>> = index_of<Tag>;
template <u32 Position, u32 Index> inline void describe_index() { __mw_describe_index(Position, Index); }

template <class... Tags> struct kernel {
  template <auto Body> static void call(const thread& t) { caller<decltype(Body)>::template call<Body>(t); }
  template <auto Body> static void describe() { caller<decltype(Body)>::describe(); }

 private:
  template <class F> struct caller;
  template <class... P> struct caller<void (*)(P...)> {
    static_assert(sizeof...(P) == sizeof...(Tags), "every parameter of a kernel needs an attribute");
    template <auto Body> static void call(const thread& t) { Body(bind<metal::remove_cv_t<P>, Tags>::make(t)...); }
    static void describe() { describe_each(__make_integer_seq<sequence, u32, sizeof...(P)>()); }
    template <u32... Positions> static void describe_each(sequence<u32, Positions...>) {
      (bind<metal::remove_cv_t<P>, Tags>::template describe<Positions>(), ...);
      (describe_index<Positions, index_of<Tags>>(), ...);
    }
  };
};
}  // namespace __mw
