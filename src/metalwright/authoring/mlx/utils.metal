// What MLX puts before every custom kernel: the same names with the same meaning. No directive stands in this text,
// so a kernel that has none needs no preprocessor. Address spaces are one on a CPU; each function is there once.
using namespace metal;

typedef half float16_t;
typedef bfloat bfloat16_t;

inline uint16_t bfloat16_to_uint16(const bfloat16_t x) { return as_type<uint16_t>(x); }
inline bfloat16_t uint16_to_bfloat16(const uint16_t x) { return as_type<bfloat16_t>(x); }

namespace mlx {
using os_log = metal::os_log;
}

static constant constexpr int MAX_REDUCE_SPECIALIZED_DIMS = 4;
static constant constexpr int REDUCE_N_READS = 4;
static constant constexpr int REDUCE_N_WRITES = 4;
static constant constexpr int SOFTMAX_N_READS = 4;
static constant constexpr int RMS_N_READS = 4;
static constant constexpr int RMS_LOOPED_LIMIT = 4096;
static constant constexpr int CROSS_ENTROPY_N_READS = 4;

// ---- complex numbers: a scalar converts to the real part, and a complex number to it

template <typename T> struct complex_t;
template <typename T> static constexpr constant bool is_complex_v = false;
template <typename T> static constexpr constant bool is_complex_v<complex_t<T>> = true;
template <typename From, typename To>
static constexpr constant bool is_lane_convertible_v =
    is_convertible_v<From, To> || (is_same_v<To, bfloat16_t> && is_convertible_v<From, float>) ||
    (is_same_v<From, bfloat16_t> && is_convertible_v<float, To>);

template <typename T>
struct complex_t {
  using value_type = T;
  T real;
  T imag;

  constexpr complex_t() : real(0), imag(0) {}
  constexpr complex_t(T re, T im) : real(re), imag(im) {}
  constexpr complex_t(vec<T, 2> pair) : real(pair.x), imag(pair.y) {}
  template <typename U, enable_if_t<!is_complex_v<U> && is_lane_convertible_v<U, T>, bool> = true>
  constexpr complex_t(U x) : real(static_cast<T>(x)), imag(0) {}
  template <typename U, enable_if_t<!is_same_v<U, T> && is_lane_convertible_v<U, T>, bool> = true>
  constexpr complex_t(complex_t<U> z) : real(static_cast<T>(z.real)), imag(static_cast<T>(z.imag)) {}

  constexpr operator vec<T, 2>() const { return vec<T, 2>(real, imag); }
  template <typename U, enable_if_t<!is_complex_v<U> && is_lane_convertible_v<T, U>, bool> = true>
  constexpr operator U() const {
    return static_cast<U>(real);
  }
};
using complex32_t = complex_t<half>;
using complex64_t = complex_t<float>;

template <typename T, typename U>
using __complex_with = enable_if_t<!is_complex_v<U> && is_lane_convertible_v<U, T>, complex_t<T>>;

template <typename T> constexpr complex_t<T> operator-(complex_t<T> z) { return {T(-z.real), T(-z.imag)}; }

template <typename T> constexpr complex_t<T> operator+(complex_t<T> a, complex_t<T> b) {
  return {T(a.real + b.real), T(a.imag + b.imag)};
}
template <typename T, typename U> constexpr __complex_with<T, U> operator+(complex_t<T> a, U b) {
  return a + complex_t<T>(b);
}
template <typename T, typename U> constexpr __complex_with<T, U> operator+(U a, complex_t<T> b) {
  return complex_t<T>(a) + b;
}
template <typename T> constexpr thread complex_t<T>& operator+=(thread complex_t<T>& a, complex_t<T> b) {
  return a = a + b;
}

template <typename T> constexpr complex_t<T> operator-(complex_t<T> a, complex_t<T> b) {
  return {T(a.real - b.real), T(a.imag - b.imag)};
}
template <typename T, typename U> constexpr __complex_with<T, U> operator-(complex_t<T> a, U b) {
  return {T(a.real - static_cast<T>(b)), a.imag};
}
template <typename T, typename U> constexpr __complex_with<T, U> operator-(U a, complex_t<T> b) {
  return {T(static_cast<T>(a) - b.real), T(-b.imag)};
}

template <typename T> constexpr complex_t<T> operator*(complex_t<T> a, complex_t<T> b) {
  return {T(a.real * b.real - a.imag * b.imag), T(a.real * b.imag + a.imag * b.real)};
}

// divides by the larger part of the divisor first, so that nothing overflows on the way
template <typename T> constexpr complex_t<T> operator/(complex_t<T> a, complex_t<T> b) {
  const float x = a.real, y = a.imag, u = b.real, v = b.imag;
  if ((u < 0 ? -u : u) >= (v < 0 ? -v : v)) {
    const float slope = v / u, scale = u + v * slope;
    return {static_cast<T>((x + y * slope) / scale), static_cast<T>((y - x * slope) / scale)};
  }
  const float slope = u / v, scale = v + u * slope;
  return {static_cast<T>((x * slope + y) / scale), static_cast<T>((y * slope - x) / scale)};
}
template <typename T, typename U> constexpr __complex_with<T, U> operator/(U a, complex_t<T> b) {
  return complex_t<T>(a) / b;
}

// part by part, with the sign of the divisor
template <typename T> constexpr T __floored_remainder(T a, T b) {
  const T rest = T(a - b * static_cast<int64_t>(a / b));
  return rest != 0 && (rest < 0) != (b < 0) ? T(rest + b) : rest;
}
template <typename T> constexpr complex_t<T> operator%(complex_t<T> a, complex_t<T> b) {
  return {__floored_remainder(a.real, b.real), __floored_remainder(a.imag, b.imag)};
}

// ordered by the real part, then by the imaginary one
template <typename T> constexpr bool operator==(complex_t<T> a, complex_t<T> b) {
  return a.real == b.real && a.imag == b.imag;
}
template <typename T> constexpr bool operator>(complex_t<T> a, complex_t<T> b) {
  return a.real > b.real || (a.real == b.real && a.imag > b.imag);
}
template <typename T> constexpr bool operator>=(complex_t<T> a, complex_t<T> b) { return a > b || a == b; }
template <typename T> constexpr bool operator<(complex_t<T> a, complex_t<T> b) { return b > a; }
template <typename T> constexpr bool operator<=(complex_t<T> a, complex_t<T> b) { return b >= a; }

// ---- limits: of a floating type, infinity is the largest, and finite_max the largest that is a number

template <typename U>
struct Limits {
  static constexpr constant U max =
      numeric_limits<U>::has_infinity ? U(numeric_limits<U>::infinity()) : U(numeric_limits<U>::max());
  static constexpr constant U min =
      numeric_limits<U>::has_infinity ? U(-numeric_limits<U>::infinity()) : U(numeric_limits<U>::lowest());
  static constexpr constant U finite_max = numeric_limits<U>::max();
  static constexpr constant U finite_min = numeric_limits<U>::lowest();
};
template <typename T>
struct Limits<complex_t<T>> {
  static constexpr constant complex_t<T> max = complex_t<T>(Limits<T>::max, Limits<T>::max);
  static constexpr constant complex_t<T> min = complex_t<T>(Limits<T>::min, Limits<T>::min);
};

template <typename U>
struct WorkPerThread {
  static_assert(sizeof(U) <= 8, "an element has at most 8 bytes");
  static constexpr int constant n = 8 / sizeof(U);
};

// ---- from an element's number, or its position, to where it lies in an array with strides

template <typename IdxT = int64_t>
inline IdxT elem_to_loc(IdxT elem, constant const int* shape, constant const int64_t* strides, int ndim) {
  IdxT loc = 0;
  for (int axis = ndim; axis-- > 0 && elem > 0; elem /= shape[axis])
    loc += (elem % shape[axis]) * IdxT(strides[axis]);
  return loc;
}

// x counts along the last axis, y along the one before it, z through all others
template <typename IdxT = int64_t>
inline IdxT elem_to_loc(uint3 elem, constant const int* shape, constant const int64_t* strides, int ndim) {
  IdxT loc = elem.x * IdxT(strides[ndim - 1]) + elem.y * IdxT(strides[ndim - 2]);
  for (int axis = ndim - 2; axis-- > 0; elem.z /= shape[axis])
    loc += (elem.z % shape[axis]) * IdxT(strides[axis]);
  return loc;
}

template <typename IdxT = int64_t> inline IdxT elem_to_loc_1(uint elem, constant const int64_t& stride) {
  return elem * IdxT(stride);
}
template <typename IdxT = int64_t> inline IdxT elem_to_loc_2(uint2 elem, constant const int64_t strides[2]) {
  return elem.x * IdxT(strides[1]) + elem.y * IdxT(strides[0]);
}
template <typename IdxT = int64_t> inline IdxT elem_to_loc_3(uint3 elem, constant const int64_t strides[3]) {
  return elem.x * IdxT(strides[2]) + elem.y * IdxT(strides[1]) + elem.z * IdxT(strides[0]);
}

template <typename IdxT = int64_t>
inline vec<IdxT, 2> elem_to_loc_2_nd(uint3 elem, constant const int* shape, constant const int64_t* a_strides,
                                     constant const int64_t* b_strides, int ndim) {
  return {elem_to_loc<IdxT>(elem, shape, a_strides, ndim), elem_to_loc<IdxT>(elem, shape, b_strides, ndim)};
}
template <typename IdxT = int64_t>
inline vec<IdxT, 3> elem_to_loc_3_nd(uint3 elem, constant const int* shape, constant const int64_t* a_strides,
                                     constant const int64_t* b_strides, constant const int64_t* c_strides,
                                     int ndim) {
  return {elem_to_loc<IdxT>(elem, shape, a_strides, ndim), elem_to_loc<IdxT>(elem, shape, b_strides, ndim),
          elem_to_loc<IdxT>(elem, shape, c_strides, ndim)};
}

// Walks through an array in order. With DIM 1 and not General, there is one axis, and its extent is not looked at.
template <int DIM, typename OffsetT = size_t, bool General = true>
struct LoopedElemToLoc {
  int dim;
  OffsetT offset{0};
  OffsetT index{0};

  LoopedElemToLoc(int ndim) : dim(ndim) {}
  void next(const constant int* shape, const constant int64_t* strides) { next(1, shape, strides); }
  void next(int n, const constant int* shape, const constant int64_t* strides) {
    index += n;
    if (dim == 1 || (DIM == 1 && !General))
      offset = index * OffsetT(strides[0]);
    else
      offset = elem_to_loc<OffsetT>(index, shape, strides, dim);
  }
  OffsetT location() { return offset; }
};

// ---- calculation

template <typename T, typename U> inline T ceildiv(T n, U m) { return (n + m - 1) / m; }

// what rounding 1 + x loses, the divisor loses too
inline float log1p(float x) {
  const float sum = 1.0f + x;
  if (sum == 1.0f || sum == Limits<float>::max) return x;
  return x * (metal::log(sum) / (sum - 1.0f));
}
inline bfloat16_t log1p(bfloat16_t x) { return bfloat16_t(log1p(static_cast<float>(x))); }
inline complex64_t log1p(complex64_t z) {
  const float angle = metal::atan2(z.imag, z.real + 1);
  if (metal::precise::sqrt(z.real * z.real + z.imag * z.imag) >= 0.5f)
    return {metal::log(metal::sqrt((z.real + 1) * (z.real + 1) + z.imag * z.imag)), angle};
  // |1 + z|^2 - 1, without the cancellation
  const float excess = z.real * (2 + z.real) + z.imag * z.imag;
  return {excess == 0 ? z.real : 0.5f * log1p(excess), angle};
}

inline float hypot(float x, float y) {
  if (metal::isinf(x) || metal::isinf(y)) return Limits<float>::max;
  const float large = metal::fmax(metal::fabs(x), metal::fabs(y)), small = metal::fmin(metal::fabs(x), metal::fabs(y));
  if (metal::isnan(x) || metal::isnan(y)) return numeric_limits<float>::quiet_NaN();
  return large == 0 ? 0.0f : large * metal::precise::sqrt(1 + (small / large) * (small / large));
}

template <bool condition, typename T, typename U> struct ConditionalType { using type = U; };
template <typename T, typename U> struct ConditionalType<true, T, U> { using type = T; };

template <typename U, typename T> inline U cast_to(T value) {
  if constexpr (is_same_v<U, bool> && is_complex_v<T>)
    return value.real != 0 || value.imag != 0;
  else
    return static_cast<U>(value);
}

// ---- simdgroup functions of 64-bit values, bool and complex numbers: Metal moves values of up to 32 bits

inline uint64_t simd_shuffle(uint64_t x, uint16_t n) {
  return as_type<uint64_t>(metal::simd_shuffle(as_type<uint2>(x), n));
}
inline int64_t simd_shuffle(int64_t x, uint16_t n) {
  return as_type<int64_t>(metal::simd_shuffle(as_type<uint2>(x), n));
}
inline bool simd_shuffle(bool x, uint16_t n) {
  return metal::simd_shuffle(uint(x), n);
}
inline uint64_t simd_shuffle_down(uint64_t x, uint16_t n) {
  return as_type<uint64_t>(metal::simd_shuffle_down(as_type<uint2>(x), n));
}
inline int64_t simd_shuffle_down(int64_t x, uint16_t n) {
  return as_type<int64_t>(metal::simd_shuffle_down(as_type<uint2>(x), n));
}
inline bool simd_shuffle_down(bool x, uint16_t n) {
  return metal::simd_shuffle_down(uint(x), n);
}
inline uint64_t simd_shuffle_up(uint64_t x, uint16_t n) {
  return as_type<uint64_t>(metal::simd_shuffle_up(as_type<uint2>(x), n));
}
inline int64_t simd_shuffle_up(int64_t x, uint16_t n) {
  return as_type<int64_t>(metal::simd_shuffle_up(as_type<uint2>(x), n));
}
inline bool simd_shuffle_up(bool x, uint16_t n) {
  return metal::simd_shuffle_up(uint(x), n);
}
inline uint64_t simd_shuffle_and_fill_up(uint64_t x, uint64_t filling, uint16_t delta) {
  return as_type<uint64_t>(metal::simd_shuffle_and_fill_up(as_type<uint2>(x), as_type<uint2>(filling), delta));
}
inline int64_t simd_shuffle_and_fill_up(int64_t x, int64_t filling, uint16_t delta) {
  return as_type<int64_t>(metal::simd_shuffle_and_fill_up(as_type<uint2>(x), as_type<uint2>(filling), delta));
}
inline bool simd_shuffle_and_fill_up(bool x, bool filling, uint16_t delta) {
  return metal::simd_shuffle_and_fill_up(uint(x), uint(filling), delta);
}
inline complex64_t simd_shuffle(complex64_t z, uint16_t lane) {
  return {metal::simd_shuffle(z.real, lane), metal::simd_shuffle(z.imag, lane)};
}
inline complex64_t simd_shuffle_down(complex64_t z, uint16_t delta) {
  return {metal::simd_shuffle_down(z.real, delta), metal::simd_shuffle_down(z.imag, delta)};
}
inline complex64_t simd_shuffle_up(complex64_t z, uint16_t delta) {
  return {metal::simd_shuffle_up(z.real, delta), metal::simd_shuffle_up(z.imag, delta)};
}
inline complex64_t simd_shuffle_and_fill_up(complex64_t z, complex64_t filling, uint16_t delta) {
  return {metal::simd_shuffle_and_fill_up(z.real, filling.real, delta),
          metal::simd_shuffle_and_fill_up(z.imag, filling.imag, delta)};
}

// ---- which rows a simdgroup has, where each group of rows (offsets says where it begins) is cut into tiles of BM rows

template <int BM>
inline bool schedule_row_tile(const device int32_t* offsets, const int num_groups, const int M, const int tile,
                              const uint simd_lane_id, thread int& row, thread int& group, thread short& rows) {
  int tiles_before = 0;
  for (int first = 0; first < num_groups; first += 32) {
    // a lane looks at a group
    const int mine = first + int(simd_lane_id);
    const int start = mine < num_groups ? offsets[mine] : M;
    const int end = mine + 1 < num_groups ? offsets[mine + 1] : M;
    const int tiles = ceildiv(end - start, BM);
    const int through = tiles_before + simd_prefix_inclusive_sum(tiles);
    // the groups that end before the tile are those in front of its own
    const ushort owner = ushort(simd_sum(int(through <= tile)));
    if (owner < 32) {
      group = first + owner;
      row = simd_shuffle(start, owner) + (tile - simd_shuffle(through - tiles, owner)) * BM;
      rows = short(metal::min(BM, simd_shuffle(end, owner) - row));
      return true;
    }
    tiles_before = simd_shuffle(through, 31);
  }
  return false;
}
