// The names that headers shared with a program on the host have for Metal's vectors and matrices.
#pragma once
#include <metal_matrix>
#include <metal_types>

#define __MW_NAMES(T)                                                                        \
  typedef T##2 simd_##T##2, vector_##T##2; typedef T##3 simd_##T##3, vector_##T##3;          \
  typedef T##4 simd_##T##4, vector_##T##4;
__MW_NAMES(char)
__MW_NAMES(uchar)
__MW_NAMES(short)
__MW_NAMES(ushort)
__MW_NAMES(int)
__MW_NAMES(uint)
__MW_NAMES(long)
__MW_NAMES(ulong)
__MW_NAMES(half)
__MW_NAMES(float)
#undef __MW_NAMES
#define __MW_NAMES(T, C)                                                                     \
  typedef metal::T##C##x2 simd_##T##C##x2, matrix_##T##C##x2;                                \
  typedef metal::T##C##x3 simd_##T##C##x3, matrix_##T##C##x3;                                \
  typedef metal::T##C##x4 simd_##T##C##x4, matrix_##T##C##x4;
__MW_NAMES(half, 2)
__MW_NAMES(half, 3)
__MW_NAMES(half, 4)
__MW_NAMES(float, 2)
__MW_NAMES(float, 3)
__MW_NAMES(float, 4)
#undef __MW_NAMES
