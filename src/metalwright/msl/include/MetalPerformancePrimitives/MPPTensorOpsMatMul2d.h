// matmul2d and what goes with it ("Matrix Multiplication" of the Metal Shading Language specification, and the
// functions of Apple's header of this name).
#pragma once
#include <metal_limits>
#include <metalwright/tensor_ops/element_types.h>
#include <metalwright/tensor_ops/operands.h>
#include <metalwright/tensor_ops/reductions.h>

namespace mpp {
namespace tensor_ops {
template <class T> inline constexpr T dynamic_length_v = metal::numeric_limits<T>::max();

struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };

  constexpr matmul2d_descriptor(int m, int n, int k = dynamic_length_v<int>, bool transpose_left = false,
                                bool transpose_right = false, bool relaxed_precision = false,
                                mode matmul_mode = mode::multiply)
      : m(m), n(n), k(k), transpose_left(transpose_left), transpose_right(transpose_right),
        relaxed_precision(relaxed_precision), matmul_mode(matmul_mode) {}

  int m, n, k;
  bool transpose_left, transpose_right, relaxed_precision;
  mode matmul_mode;
};

template <matmul2d_descriptor Descriptor, class Scope, class... Arguments>
class matmul2d {
  static_assert(__mw::is_scope<Scope>, "the scope is execution_thread, execution_simdgroup or execution_simdgroups<N>");
  static_assert(Descriptor.m > 0 && Descriptor.n > 0, "m and n of a matmul2d_descriptor are sizes of a tile");

  // The ways to leave k to the operands: nothing, dynamic_extent, 0.
  static constexpr bool fixed_depth = Descriptor.k > 0 && Descriptor.k != dynamic_length_v<int>;
  static constexpr int depth = fixed_depth ? Descriptor.k : 1;
  static constexpr int left_line = Descriptor.transpose_left ? 0 : 1, right_line = Descriptor.transpose_right ? 1 : 0;

  template <class T>
  static constexpr bool is_operand =
      __mw::is_tensor<metal::remove_cv_t<metal::remove_reference_t<T>>> ||
      __mw::is_cooperative<metal::remove_cv_t<metal::remove_reference_t<T>>>;

  template <int Rows, int Cols>
  static constexpr auto share_out() {
    if constexpr (__mw::is_one_thread<Scope>)
      return __mw::serial<Rows, Cols>();
    else
      return __mw::fragments<Rows, Cols, int(Scope::static_size)>();
  }
  template <int Rows, int Cols> using matrix_t = decltype(share_out<Rows, Cols>());
  template <class Element, class Coordinate, int Rows, int Cols>
  using cooperative = metal::cooperative_tensor<Element, metal::extents<Coordinate, Cols, Rows>,
                                                __mw::matrix_layout<matrix_t<Rows, Cols>>>;
  template <class Element, class Coordinate, int Dimension>
  using reduced =
      metal::cooperative_tensor<Element, metal::extents<Coordinate, Dimension == 1 ? Descriptor.m : Descriptor.n>,
                                __mw::reduced_layout<matrix_t<Descriptor.m, Descriptor.n>, Dimension>>;
  using result = matrix_t<Descriptor.m, Descriptor.n>;

 public:
  static constexpr matmul2d_descriptor descriptor = Descriptor;
  using scope = Scope;

  template <class Left, class Right, class Element, class Coordinate = int>
  using cooperative_tensor_left_input_t =
      cooperative<Left, Coordinate, Descriptor.transpose_left ? depth : Descriptor.m,
                  Descriptor.transpose_left ? Descriptor.m : depth>;
  template <class Left, class Right, class Element, class Coordinate = int>
  using cooperative_tensor_right_input_t =
      cooperative<Right, Coordinate, Descriptor.transpose_right ? Descriptor.n : depth,
                  Descriptor.transpose_right ? depth : Descriptor.n>;
  template <class Left, class Right, class Element, class Coordinate = int>
  using cooperative_tensor_destination_t = cooperative<Element, Coordinate, Descriptor.m, Descriptor.n>;
  template <class Left, class Right, class Element, class Coordinate = int>
  using cooperative_tensor_row_reduction_destination_t = reduced<Element, Coordinate, 1>;
  template <class Left, class Right, class Element, class Coordinate = int>
  using cooperative_tensor_column_reduction_destination_t = reduced<Element, Coordinate, 0>;

  template <class Left, class Right, class Element, class Coordinate = int>
  cooperative_tensor_left_input_t<Left, Right, Element, Coordinate> get_left_input_cooperative_tensor() const {
    check_input_scope();
    return {};
  }
  template <class Left, class Right, class Element, class Coordinate = int>
  cooperative_tensor_right_input_t<Left, Right, Element, Coordinate> get_right_input_cooperative_tensor() const {
    check_input_scope();
    return {};
  }
  template <class Left, class Right, class Element, class Coordinate = int>
  cooperative_tensor_destination_t<Left, Right, Element, Coordinate> get_destination_cooperative_tensor() const {
    check_operand<Left>();
    check_operand<Right>();
    return {};
  }
  template <class Left, class Right, class Element, class Coordinate = int>
  auto get_row_reduction_destination_cooperative_tensor() const {
    check_reduction_scope();
    return reduced<Element, Coordinate, 1>();
  }
  template <class Left, class Right, class Element, class Coordinate = int>
  auto get_column_reduction_destination_cooperative_tensor() const {
    check_reduction_scope();
    return reduced<Element, Coordinate, 0>();
  }

  // The result of one product as the operand of the next: possible where the elements are shared out the same way.
  template <class Left, class Right, class Element, class T, class Extents, class Layout>
  bool is_compatible_as_left_input(const metal::cooperative_tensor<T, Extents, Layout>&) const {
    return __is_same(Layout, typename cooperative_tensor_left_input_t<Left, Right, Element>::layout);
  }
  template <class Left, class Right, class Element, class T, class Extents, class Layout>
  bool is_compatible_as_right_input(const metal::cooperative_tensor<T, Extents, Layout>&) const {
    return __is_same(Layout, typename cooperative_tensor_right_input_t<Left, Right, Element>::layout);
  }
  template <class Left, class Right, class Element, class Coordinate = int, class T, class Extents, class Layout>
  auto get_left_input_cooperative_tensor(const metal::cooperative_tensor<T, Extents, Layout>& source) const {
    check_input_scope();
    return converted<cooperative_tensor_left_input_t<Left, Right, Element, Coordinate>>(source);
  }
  template <class Left, class Right, class Element, class Coordinate = int, class T, class Extents, class Layout>
  auto get_right_input_cooperative_tensor(const metal::cooperative_tensor<T, Extents, Layout>& source) const {
    check_input_scope();
    return converted<cooperative_tensor_right_input_t<Left, Right, Element, Coordinate>>(source);
  }

  // destination = left * right, or destination += left * right. All threads of the scope come here together.
  template <class Left, class Right, class Destination>
  void run(Left& left, Right& right, Destination& destination) const {
    check_operand<Left>();
    check_operand<Right>();
    check_operand<Destination>();
    if constexpr (is_operand<Left> && is_operand<Right> && is_operand<Destination>) {
      using left_t = metal::remove_cv_t<Left>;
      using right_t = metal::remove_cv_t<Right>;
      static_assert(__mw::multiplies<typename left_t::value_type, typename right_t::value_type,
                                     typename metal::remove_cv_t<Destination>::value_type>,
                    "matmul2d does not take these element types together");
      check_scales<left_t>();
      check_scales<right_t>();
      static_assert(!__mw::has_scales<left_t> || !Descriptor.transpose_left,
                    "a left operand of matmul2d with scales is not transposed: its blocks lie along k");
      static_assert(!__mw::has_scales<right_t> || Descriptor.transpose_right,
                    "a right operand of matmul2d with scales is transposed: its blocks lie along k");
      static_assert(!__mw::has_scales<metal::remove_cv_t<Destination>>, "the destination of matmul2d has no scales");
      if constexpr (__mw::is_cooperative<left_t> || __mw::is_cooperative<right_t>) check_input_scope();
      __mw::enter<Scope>();
      const auto rows = __mw::matrix_from<Scope, left_t, left_line, Descriptor.m, depth, result::block_rows>(left);
      const auto cols = __mw::matrix_from<Scope, right_t, right_line, Descriptor.n, depth, result::block_cols>(right);
      const long deepest = rows.size() > cols.size() ? rows.size() : cols.size();
      multiply(rows, cols, destination, !fixed_depth ? rows.size() : depth < deepest ? depth : deepest);
    }
  }

 private:
  template <class T>
  static constexpr void check_operand() {
    static_assert(is_operand<T>, "an operand of matmul2d is a tensor or a cooperative_tensor");
  }
  template <class T>
  static constexpr void check_scales() {
    if constexpr (__mw::has_scales<T>) {
      using scale = metal::remove_cv_t<typename T::plane_type::element_type>;
      static_assert(__is_same(scale, metal::metal_fp8_ue8m0_format),
                    "the scales of an operand of matmul2d are metal_fp8_ue8m0_format");
      static_assert(T::block(0) == 32 && T::block(1) == 1, "the blocks of an operand of matmul2d are 32, 1");
      static_assert(__mw::is_packed_float<typename T::value_type>,
                    "an operand of matmul2d with scales has elements of a packed float format");
    }
  }
  static constexpr void check_input_scope() {
    static_assert(Scope::static_size == 1, "an input that is a cooperative tensor needs the scope execution_simdgroup");
    static_assert(fixed_depth, "an input that is a cooperative tensor needs a descriptor that says k");
  }
  static constexpr void check_reduction_scope() {
    static_assert(!__mw::is_one_thread<Scope> && Scope::static_size == 1,
                  "reductions of a cooperative tensor need the scope execution_simdgroup");
  }
  template <class To, class From>
  static To converted(const From& source) {
    static_assert(__is_same(typename To::layout, typename From::layout),
                  "this cooperative tensor cannot become an input: is_compatible_as_left_input and "
                  "is_compatible_as_right_input tell which can");
    To made;
    for (int i = 0; i < To::get_capacity(); i++) made[i] = typename To::value_type(source[i]);
    return made;
  }

  // Block by block of the elements that this thread owns.
  template <class Rows, class Cols, class Destination>
  static void multiply(const Rows& rows, const Cols& cols, Destination& destination, long depth) {
    using sum_t = __mw::sum_of<typename Rows::element, typename Cols::element>;
    constexpr int R = result::block_rows, C = result::block_cols;
    constexpr bool adds = Descriptor.matmul_mode == matmul2d_descriptor::mode::multiply_accumulate;
    const __mw::origin here = result::here();
    for (int block = 0; block < result::capacity; block += R * C) {
      int row[R], col[C];
      for (int i = 0; i < R; i++) row[i] = result::row(here, block + i * C);
      for (int j = 0; j < C; j++) col[j] = result::col(here, block + j);
      sum_t sums[R][C] = {};
      if constexpr (adds)
        for (int i = 0; i < R; i++)
          for (int j = 0; j < C; j++)
            if (owns(destination, row[i], col[j]))
              sums[i][j] = sum_t(element(destination, block + i * C + j, row[i], col[j]));
      if (__mw::is_cooperative<Destination> || owns(destination, row[0], col[0]))
        __mw::add_products(sums, rows.lines(row), cols.lines(col), depth);
      for (int i = 0; i < R; i++)
        for (int j = 0; j < C; j++)
          if (owns(destination, row[i], col[j]))
            element(destination, block + i * C + j, row[i], col[j]) = typename Destination::value_type(sums[i][j]);
    }
  }
  template <class Destination>
  static bool owns(const Destination& destination, int row, int col) {
    if constexpr (__mw::is_cooperative<Destination>)
      return true;
    else
      return row < Descriptor.m && col < Descriptor.n && row < destination.get_extent(1) &&
             col < destination.get_extent(0);
  }
  template <class Destination>
  static auto& element(Destination& destination, int index, int row, int col) {
    if constexpr (__mw::is_cooperative<Destination>)
      return destination.__elements[index];
    else
      return destination[col, row];
  }
};

enum class reduction_operation { sum, max, min };

template <class Element>
struct reduction_operation_identity {
  static constexpr Element sum_identity = Element(0);
  static constexpr Element max_identity = metal::numeric_limits<Element>::lowest();
  static constexpr Element min_identity = metal::numeric_limits<Element>::max();
};

// One value for each row, or column, of a result; the identity is combined with every one. As in Metal, the identity
// that is left out is that of a sum, whatever the operation.
#define __MW_REDUCTION(NAME, DIMENSION)                                                                    \
  template <class Element, class Extents, class Layout, class LineExtents>                                 \
  inline void NAME(                                                                                        \
      metal::cooperative_tensor<Element, Extents, Layout>& source,                                         \
      metal::cooperative_tensor<Element, LineExtents, __mw::reduction_of<Layout, DIMENSION>>& destination, \
      reduction_operation operation = reduction_operation::sum,                                            \
      Element identity = reduction_operation_identity<Element>::sum_identity) {                            \
    if (operation == reduction_operation::sum)                                                             \
      __mw::reduce<DIMENSION>(source, destination, identity, __mw::add());                                 \
    else if (operation == reduction_operation::max)                                                        \
      __mw::reduce<DIMENSION>(source, destination, identity, __mw::maximum());                             \
    else                                                                                                   \
      __mw::reduce<DIMENSION>(source, destination, identity, __mw::minimum());                             \
  }
__MW_REDUCTION(reduce_rows, 1)
__MW_REDUCTION(reduce_columns, 0)
#undef __MW_REDUCTION

// Whether destination.map_iterator takes an iterator over the source.
template <class T, class U, class Sizes, class OtherSizes, class Layout, class OtherLayout>
inline bool is_iterator_compatible(const metal::cooperative_tensor<T, Sizes, Layout>&,
                                   const metal::cooperative_tensor<U, OtherSizes, OtherLayout>&) {
  return __mw::mapped<Layout, OtherLayout>::possible;
}
}  // namespace tensor_ops
}  // namespace mpp
