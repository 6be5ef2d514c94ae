// The operands of a matrix product, seen as lines of numbers along the dimension that is summed over: the rows of the
// left matrix, the columns of the right one.
#pragma once
#include <metal_cooperative_tensor>
#include <metal_simdgroup>
#include <metalwright/tensor_ops/scopes.h>

namespace __mw {
template <class T> inline constexpr bool is_tensor = false;
template <class E, class X, class... D> inline constexpr bool is_tensor<metal::tensor<E, X, D...>> = true;
template <class T> inline constexpr bool is_cooperative = false;
template <class E, class X, class L> inline constexpr bool is_cooperative<metal::cooperative_tensor<E, X, L>> = true;

// What points at the elements of a tensor, and what a product takes them for: packed formats are read as numbers.
template <class Tensor> using pointer_of = decltype(Tensor::__data);
template <class Tensor>
using operand_of =
    metal::conditional_t<has_scales<Tensor>, float, typename elements<typename Tensor::element_type>::operand>;

// Some lines of a tensor in memory. What lies outside the tensor reads as zero.
template <class Pointer, class T, int Lines>
struct lines_in_memory {
  static constexpr bool at_hand = false;
  Pointer start[Lines];
  bool inside[Lines];
  long step, size;  // along a line: between elements, and how many there are

  bool whole() const {
    bool all = true;
    for (int i = 0; i < Lines; i++) all = all && inside[i];
    return all;
  }
  T at(int line, long k) const { return start[line][k * step]; }
  T edge(int line, long k) const { return inside[line] && k < size ? start[line][k * step] : T(0); }
};

// The same with scales, which multiply the numbers.
template <class Tensor, class T, int Line, int Lines>
struct scaled_lines_in_memory : lines_in_memory<pointer_of<Tensor>, T, Lines> {
  using unscaled = lines_in_memory<pointer_of<Tensor>, T, Lines>;
  const Tensor& tensor;
  int numbers[Lines];

  float scale(int line, long k) const {
    return Line == 1 ? tensor.scale_at({k, numbers[line]}) : tensor.scale_at({numbers[line], k});
  }
  T at(int line, long k) const { return unscaled::at(line, k) * scale(line, k); }
  T edge(int line, long k) const { return this->inside[line] && k < this->size ? at(line, k) : T(0); }
};

// A matrix in memory: Line is the dimension of the tensor that counts the lines, the other runs along them.
template <class Tensor, int Line, int Count>
struct matrix_in_memory {
  using element = operand_of<Tensor>;
  const Tensor& tensor;

  long size() const { return tensor.get_extent(1 - Line); }
  template <int Lines>
  auto lines(const int (&numbers)[Lines]) const {
    lines_in_memory<pointer_of<Tensor>, element, Lines> some;
    const long end = tensor.get_extent(Line) < Count ? tensor.get_extent(Line) : Count;
    some.step = tensor.get_stride(1 - Line);
    some.size = size();
    for (int i = 0; i < Lines; i++) {
      some.inside[i] = numbers[i] < end;
      some.start[i] = tensor.__data + (some.inside[i] ? numbers[i] * long(tensor.get_stride(Line)) : 0);
    }
    if constexpr (has_scales<Tensor>) {
      scaled_lines_in_memory<Tensor, element, Line, Lines> scaled{some, tensor, {}};
      for (int i = 0; i < Lines; i++) scaled.numbers[i] = numbers[i];
      return scaled;
    } else {
      return some;
    }
  }
};

// Some lines that this thread has all of, in an array of Depth numbers each.
template <class T, int Lines, int Depth>
struct lines_at_hand {
  static constexpr bool at_hand = true;
  const T* values;
  int first;
  long size = Depth;

  bool whole() const { return true; }
  T at(int line, long k) const { return values[(first + line) * Depth + k]; }
  T edge(int line, long k) const { return k < Depth ? at(line, k) : T(0); }
};

// A matrix that one thread holds.
template <class Tensor, int Line, int Count, int Depth>
struct matrix_of_one {
  using element = typename Tensor::value_type;
  element values[Count * Depth];

  explicit matrix_of_one(const Tensor& tensor) {
    for (int line = 0; line < Count; line++)
      for (int k = 0; k < Depth; k++)
        values[line * Depth + k] = tensor.__elements[Line == 1 ? line * Depth + k : k * Count + line];
  }
  long size() const { return Depth; }
  template <int Lines>
  lines_at_hand<element, Lines, Depth> lines(const int (&numbers)[Lines]) const { return {values, numbers[0]}; }
};

// A matrix that the lanes of a simdgroup hold: each lane gathers the lines that it needs, which for every fragment
// are those of its own elements (two rows, or four columns) in the fragments of the result.
template <class Tensor, int Line, int Count, int Depth, int PerBlock>
struct matrix_of_simdgroup {
  using element = typename Tensor::value_type;
  using layout = typename Tensor::layout::matrix;
  static constexpr int side = layout::side, blocks = parts_of(Count, side), depth = parts_of(Depth, side) * side;
  element values[blocks * PerBlock * depth];

  explicit matrix_of_simdgroup(const Tensor& tensor) {
    struct fragment { element of[8]; } mine;
    const u32 lane = index_in_group(*__mw_thread()) % lanes;
    for (int at = 0; at < layout::capacity / 8; at++) {
      for (int i = 0; i < 8; i++) mine.of[i] = tensor.__elements[at * 8 + i];
      const auto all = meet(mine);
      __mw_whole_simdgroup(__mw_context(), all.active, -1u);
      const int block = Line == 1 ? at / layout::wide : at % layout::wide;
      const int along = (Line == 1 ? at % layout::wide : at / layout::wide) * side;
      for (int line = 0; line < PerBlock; line++) {
        const int place = PerBlock == 2 ? layout::lane_row(lane) + 8 * line : layout::lane_col(lane) + line;
        element* out = values + (block * PerBlock + line) * depth + along;
        for (int k = 0; k < side; k++) {
          const int row = Line == 1 ? place : k, col = Line == 1 ? k : place;
          const char* theirs = all.values + layout::owner(row, col) * exchange_bytes;
          __builtin_memcpy(&out[k], theirs + layout::slot(row, col) * sizeof(element), sizeof(element));
        }
      }
    }
  }
  long size() const { return Depth; }
  template <int Lines>
  lines_at_hand<element, Lines, depth> lines(const int (&numbers)[Lines]) const {
    return {values, numbers[0] / side * PerBlock, Depth};
  }
};

template <class Scope, class Tensor, int Line, int Count, int Depth, int PerBlock>
inline auto matrix_from(const Tensor& tensor) {
  if constexpr (is_tensor<Tensor>) {
    static_assert(Tensor::get_rank() == 2, "the operands of a matrix product have two dimensions");
    return matrix_in_memory<Tensor, Line, Count>{tensor};
  } else {
    using layout = typename Tensor::layout::matrix;
    static_assert(layout::rows == (Line == 1 ? Count : Depth) && layout::cols == (Line == 1 ? Depth : Count),
                  "this cooperative tensor has not the shape that the operation's descriptor asks of its input");
    if constexpr (is_one_thread<Scope>)
      return matrix_of_one<Tensor, Line, Count, Depth>(tensor);
    else
      return matrix_of_simdgroup<Tensor, Line, Count, Depth, PerBlock>(tensor);
  }
}

// Adds the products of R lines with C lines, in the order along them.
template <class Sum, int R, int C, class Left, class Right>
inline void add_products(Sum (&sums)[R][C], const Left& left, const Right& right, long depth) {
  // where nothing can lie outside, there is no code for it: kernels that are written out have very many products
  constexpr bool no_edge = Left::at_hand && Right::at_hand;
  long both = no_edge ? depth : 0;
  if constexpr (!no_edge) {
    if (left.whole() && right.whole()) {
      both = left.size < right.size ? left.size : right.size;
      if (depth < both) both = depth;
    }
  }
  for (long k = 0; k < both; k++) {
    Sum a[R], b[C];
    for (int i = 0; i < R; i++) a[i] = Sum(left.at(i, k));
    for (int j = 0; j < C; j++) b[j] = Sum(right.at(j, k));
    for (int i = 0; i < R; i++)
      for (int j = 0; j < C; j++) sums[i][j] += a[i] * b[j];
  }
  if constexpr (!no_edge) {
    for (long k = both; k < depth; k++)
      for (int i = 0; i < R; i++) {
        const Sum a = Sum(left.edge(i, k));
        for (int j = 0; j < C; j++) sums[i][j] += a * Sum(right.edge(j, k));
      }
  }
}
}  // namespace __mw
