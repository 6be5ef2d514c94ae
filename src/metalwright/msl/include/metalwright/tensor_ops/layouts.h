// How the elements of a cooperative tensor are shared out over the threads of an execution scope. Metal leaves that to
// the implementation. The rows and columns of a matrix over simdgroups follow what kernels in public use rely on:
// fragments of 16x16, of which each lane holds two rows of four, eight rows apart.
#pragma once
#include <metal_array>
#include <metal_type_traits>
#include <metalwright/intrinsics.h>

namespace __mw {
constexpr int parts_of(int size, int part) { return (size + part - 1) / part; }

// Where this thread's part of a matrix begins.
struct origin { int row, col; };

// A matrix in the registers of one thread, row by row.
template <int Rows, int Cols>
struct serial {
  static constexpr int rows = Rows, cols = Cols;
  // Elements come in blocks, inside which all rows see the same columns.
  static constexpr int block_rows = 1, block_cols = Cols % 8 == 0 ? 8 : Cols % 4 == 0 ? 4 : Cols % 2 == 0 ? 2 : 1;
  static constexpr int capacity = Rows * Cols;

  static origin here() { return {0, 0}; }
  static constexpr int row(origin, int element) { return element / Cols; }
  static constexpr int col(origin, int element) { return element % Cols; }
};

// A matrix over the lanes of some simdgroups, in fragments. The simdgroups form a grid over the matrix, and take
// turns where there are more fragments than simdgroups.
template <int Rows, int Cols, int Simdgroups>
struct fragments {
  static constexpr int rows = Rows, cols = Cols, side = 16;
  static constexpr int fragment_rows = parts_of(Rows, side), fragment_cols = parts_of(Cols, side);
  static constexpr int block_rows = 2, block_cols = 4;

  // How many simdgroups stand side by side: as few fragments for each as possible, and then nearest to a square.
  static constexpr int choose_across() {
    int best = 1, fewest = 0x7fffffff, least_skew = 0x7fffffff;
    for (int across = 1; across <= Simdgroups; across++) {
      if (Simdgroups % across) continue;
      const int down = Simdgroups / across;
      const int each = parts_of(fragment_rows, down) * parts_of(fragment_cols, across);
      const int skew = across > down ? across - down : down - across;
      if (each < fewest || (each == fewest && skew < least_skew)) best = across, fewest = each, least_skew = skew;
    }
    return best;
  }
  static constexpr int across = choose_across(), down = Simdgroups / across;
  static constexpr int tall = parts_of(fragment_rows, down), wide = parts_of(fragment_cols, across);
  static constexpr int capacity = tall * wide * block_rows * block_cols;

  static constexpr int lane_row(u32 lane) { return (lane >> 2 & 4) | (lane >> 1 & 3); }
  static constexpr int lane_col(u32 lane) { return ((lane >> 2 & 2) | (lane & 1)) * 4; }
  // The lane that holds an element of a fragment, and which of the lane's eight it is.
  static constexpr u32 owner(int row, int col) {
    return (row & 4) << 2 | (col >> 2 & 2) << 2 | (row & 3) << 1 | (col >> 2 & 1);
  }
  static constexpr int slot(int row, int col) { return row / 8 * 4 + col % 4; }

  static origin here() {
    const u32 index = index_in_group(*__mw_thread());
    // one simdgroup works for itself, wherever it stands in its threadgroup
    const int simdgroup = Simdgroups == 1 ? 0 : index / lanes;
    return {side * (simdgroup / across) + lane_row(index % lanes), side * (simdgroup % across) + lane_col(index % lanes)};
  }
  static constexpr int row(origin at, int element) {
    return at.row + side * down * (element / 8 / wide) + element / 4 % 2 * 8;
  }
  static constexpr int col(origin at, int element) {
    return at.col + side * across * (element / 8 % wide) + element % 4;
  }
};

// What every cooperative tensor asks of a layout: of which coordinates an element is, and whether it is one at all.
template <class Matrix>
struct matrix_layout {
  using matrix = Matrix;
  static constexpr int rank = 2, capacity = Matrix::capacity;
  template <class I>
  static metal::array<I, 2> place(int element) {
    const origin at = Matrix::here();
    return {I(Matrix::col(at, element)), I(Matrix::row(at, element))};
  }
  static bool valid(int element) {
    const origin at = Matrix::here();
    return Matrix::row(at, element) < Matrix::rows && Matrix::col(at, element) < Matrix::cols;
  }
  // Whether this thread is the one that writes the element to memory.
  static bool stores(int element) { return valid(element); }
};

// One value for each row of a matrix (Dimension 1), or for each column (0): every lane holds those of its own elements.
template <class Matrix, int Dimension>
struct reduced_layout {
  using matrix = Matrix;
  static constexpr int rank = 1, dimension = Dimension;
  static constexpr int length = Dimension == 1 ? Matrix::rows : Matrix::cols;
  static constexpr int lines = Dimension == 1 ? Matrix::block_rows : Matrix::block_cols;  // of a block
  static constexpr int capacity = lines * (Dimension == 1 ? Matrix::tall : Matrix::wide);

  // The element of the matrix that stands for a line: the first of this thread in it.
  static constexpr int representative(int line) {
    const int block = line / lines, inside = line % lines;
    return Dimension == 1 ? block * Matrix::wide * 8 + inside * 4 : block * 8 + inside;
  }
  // The line of an element of the matrix.
  static constexpr int line_of(int element) {
    const int block = element / 8;
    return Dimension == 1 ? block / Matrix::wide * lines + element / 4 % 2 : block % Matrix::wide * lines + element % 4;
  }
  template <class I>
  static metal::array<I, 1> place(int line) {
    return {I(matrix_layout<Matrix>::template place<I>(representative(line))[Dimension])};
  }
  static bool valid(int line) { return place<int>(line)[0] < length; }
  static bool stores(int line) {
    const origin at = Matrix::here();
    return valid(line) && (Dimension == 1 ? at.col : at.row) == 0;
  }
};
}  // namespace __mw
