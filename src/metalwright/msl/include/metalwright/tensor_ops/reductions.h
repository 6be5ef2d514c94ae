// Reductions of a matrix that the lanes of a simdgroup hold to one value for each row or column.
#pragma once
#include <metal_cooperative_tensor>
#include <metal_simdgroup>

namespace __mw {
template <class Layout, int Dimension> struct reduction;
template <class Matrix, int Dimension>
struct reduction<matrix_layout<Matrix>, Dimension> {
  using layout = reduced_layout<Matrix, Dimension>;
};
template <class Layout, int Dimension> using reduction_of = typename reduction<Layout, Dimension>::layout;

// First over the elements of each lane, in their order, then pairwise over the lanes that share the line.
template <int Dimension, class Source, class Destination, class Element, class Combine>
inline void reduce(const Source& source, Destination& destination, Element identity, Combine combine) {
  using layout = typename Destination::layout;
  using matrix = typename layout::matrix;
  constexpr int at_once = exchange_bytes / sizeof(Element) < layout::capacity ? exchange_bytes / sizeof(Element)
                                                                               : layout::capacity;
  Element own[layout::capacity];
  bool begun[layout::capacity] = {};
  for (int i = 0; i < matrix::capacity; i++) {
    const int line = layout::line_of(i);
    if (!Source::layout::valid(i)) continue;
    own[line] = begun[line] ? combine(own[line], source[i]) : source[i];
    begun[line] = true;
  }
  const u32 lane = index_in_group(*__mw_thread()) % lanes;
  // those that share its rows hold other columns, and the other way round
  u32 sharing = 0;
  for (u32 other = 0; other < lanes; other++)
    if (Dimension == 1 ? matrix::lane_row(other) == matrix::lane_row(lane) && matrix::lane_col(other) < matrix::cols
                       : matrix::lane_col(other) == matrix::lane_col(lane) && matrix::lane_row(other) < matrix::rows)
      sharing |= 1u << other;
  for (int first = 0; first < layout::capacity; first += at_once) {
    struct { Element of[at_once]; } some = {};
    for (int i = 0; i < at_once; i++)
      if (first + i < layout::capacity && begun[first + i]) some.of[i] = own[first + i];
    const auto all = meet(some);
    __mw_whole_simdgroup(__mw_context(), all.active, -1u);
    for (int i = 0; i < at_once && first + i < layout::capacity; i++) {
      gathered<Element> line = {all.active, all.lane, all.values + i * sizeof(Element)};
      destination[first + i] = combine(identity, fold(line, sharing, combine));
    }
  }
}
}  // namespace __mw
