// The scales of a tensor's elements: a second plane beside that of the data, with one scale for each block of elements.
#pragma once
#include <metal_type_traits>
#include <metalwright/intrinsics.h>
#include <metalwright/packed_formats.h>

namespace metal {
// What the elements of a plane are for.
struct tensor_plane_scales {};

// A plane with one element for each block of so many elements of the data, and in the kernel where it begins.
template <class Plane, class Element, size_t... BlockSizes>
struct tensor_blockwise {
  static_assert(is_same_v<Plane, tensor_plane_scales>, "the planes of a tensor besides its data are tensor_plane_scales");
  static_assert(((BlockSizes > 0) && ...), "the sizes of a block are numbers of elements");
  using plane_type = Plane;
  using element_type = Element;
  using data_handle_type = typename __mw::elements<Element>::handle;

  constexpr tensor_blockwise() = default;
  constexpr explicit tensor_blockwise(data_handle_type data) : __data(data) {}
  // A packed format's bytes, said to be of that format.
  explicit tensor_blockwise(Element* data)
    requires(__mw::packed_format<Element>)
      : __data(reinterpret_cast<data_handle_type>(data)) {}
  constexpr data_handle_type get_data() const { return __data; }

  data_handle_type __data = nullptr;
};
}  // namespace metal

namespace __mw {
template <class Tag> inline constexpr bool is_plane = false;
template <class Plane, class Element, size_t... Sizes>
inline constexpr bool is_plane<metal::tensor_blockwise<Plane, Element, Sizes...>> = true;

// The plane among the tags of a tensor, or void.
template <class... Tags>
struct plane_among { using type = void; };
template <class Tag, class... Tags>
struct plane_among<Tag, Tags...> {
  using type = metal::conditional_t<is_plane<Tag>, Tag, typename plane_among<Tags...>::type>;
};

// What a tensor keeps of its scales: where they begin, how far apart they are, and where the tensor begins in the one
// that it is a part of, since that may be inside a block. Without scales it is empty, and takes no room.
template <class Plane, size_t Rank>
struct scales {
  static constexpr bool has_scales = true;
  template <class P> struct blocks;
  template <class P, class E, size_t... Sizes>
  struct blocks<metal::tensor_blockwise<P, E, Sizes...>> {
    static_assert(sizeof...(Sizes) == Rank, "a plane's blocks have as many sizes as the tensor has dimensions");
    static constexpr long sizes[] = {long(Sizes)...};
  };
  using plane_type = Plane;
  using scale_elements = elements<typename Plane::element_type>;

  typename scale_elements::pointer __scales = {};
  long __scale_strides[Rank] = {}, __scale_begin[Rank] = {};

  static constexpr long block(size_t i) { return blocks<Plane>::sizes[i]; }
  // Scales lie without gaps: as many along a dimension as blocks begin there.
  template <class Extents>
  constexpr void set_scales(const Plane& plane, const Extents& sizes) {
    __scales = scale_elements::from(plane.get_data());
    long stride = 1;
    for (size_t i = 0; i < Rank; i++) {
      __scale_strides[i] = stride;
      stride *= (long(sizes.extent(i)) + block(i) - 1) / block(i);
    }
  }
  template <class Index>
  constexpr void set_scales(const scales& whole, const Index* begin) {
    *this = whole;
    for (size_t i = 0; i < Rank; i++) __scale_begin[i] += long(begin[i]);
  }
  // The scale of an element, as a number.
  constexpr auto scale_at(const long (&place)[Rank]) const {
    long offset = 0;
    for (size_t i = 0; i < Rank; i++) offset += (__scale_begin[i] + place[i]) / block(i) * __scale_strides[i];
    return scale_elements::read(__scales, offset);
  }
};
template <size_t Rank>
struct scales<void, Rank> {
  static constexpr bool has_scales = false;
};
template <class Tensor> inline constexpr bool has_scales = false;
template <class Tensor>
  requires requires { Tensor::has_scales; }
inline constexpr bool has_scales<Tensor> = Tensor::has_scales;
}  // namespace __mw
