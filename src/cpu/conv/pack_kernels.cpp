// Movers between the user's arrays and packed ones, for all types. An ISA source: see the rules in cpu/isa_target.hpp. Each
// takes a few instructions per vector; every moved vector is then used by dozens of multiply-adds.

#include "cpu/conv/conv_kernels.hpp"
#include "cpu/conv/isa_element.hpp"
#include "cpu/isa_target.hpp"
#include "cpu/isa_transpose.hpp"

namespace polyphase::cpu {
namespace POLYPHASE_ISA {
namespace {

using Index = std::int64_t;

POLYPHASE_INLINE Index smaller(Index a, Index b) { return a < b ? a : b; }
POLYPHASE_INLINE Index larger(Index a, Index b) { return a > b ? a : b; }
// The least p >= 0 with stride*p + offset >= bound.
POLYPHASE_INLINE Index first_reaching(Index bound, Index offset, Index stride) {
  return bound <= offset ? 0 : (bound - offset + stride - 1) / stride;
}

template <class T>
POLYPHASE_INLINE void zero(T* to, Index count) {
  if (count > 0) std::memset(to, 0, static_cast<std::size_t>(count) * sizeof(T));
}

// Every `stride`-th element of stride*lanes elements: a tree of even().
template <int stride, class E>
POLYPHASE_INLINE Vector<Compute<E>> load_strided(const E* from) {
  using T = Compute<E>;
  if constexpr (stride == 1) {
    return load_as(from);
  } else {
    return Shuffle<kLanes<T>>::even(load_strided<stride / 2>(from), load_strided<stride / 2>(from + stride / 2 * kLanes<T>));
  }
}

// Whole vectors of a strided row from j on, without reading past `readable`. Returns where it stopped.
template <int stride, class E>
Index gather_vectors(const E* from, Index readable, Compute<E>* to, Index j, Index end) {
  using T = Compute<E>;
  for (; j + kLanes<T> <= end && (j + kLanes<T>)*stride <= readable; j += kLanes<T>)
    store<T>(to + j, load_strided<stride>(from + j * stride));
  return j;
}

template <class E>
void gather_row(const E* from, Index length, Index first, Index stride, Compute<E>* to, Index count) {
  const Index begin = smaller(count, first_reaching(0, first, stride));
  const Index end = larger(begin, smaller(count, first_reaching(length, first, stride)));
  zero(to, begin);
  zero(to + end, count - end);
  // `origin` may precede the array; only elements from `begin` on are read.
  const Index shift = first + begin * stride;
  const E* origin = from + (begin < end ? shift : 0);
  Compute<E>* out = to + begin;
  const Index valid = end - begin;
  const Index readable = length - shift;
  Index j = 0;
  if (stride == 1) j = gather_vectors<1>(origin, readable, out, j, valid);
  if (stride == 2) j = gather_vectors<2>(origin, readable, out, j, valid);
  if (stride == 4) j = gather_vectors<4>(origin, readable, out, j, valid);
  if (stride == 8) j = gather_vectors<8>(origin, readable, out, j, valid);
  for (; j < valid; ++j) out[j] = widen(origin[j * stride]);
}

template <class E>
POLYPHASE_INLINE Float8 load_eight(const E* from) {
  float value[8];
  for (int i = 0; i < 8; ++i) value[i] = widen(from[i]);
  Float8 v;
  std::memcpy(&v, value, sizeof v);
  return v;
}

// Transposes an 8 x 8 block.
template <class E>
POLYPHASE_INLINE void transpose_block(const E* from, Index row_stride, const Index* where, Index column, float* to,
                                      Index pitch) {
  Float8 rows[8], columns[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) rows[i] = load_eight(from + i * row_stride);
  transpose_eight(rows, columns);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const Index at = where != nullptr ? where[column + j] : column + j;
    if (at >= 0) std::memcpy(to + at * pitch, &columns[j], sizeof columns[j]);
  }
}

template <class T>
struct FourOf {
  typedef T Type __attribute__((vector_size(4 * sizeof(T))));
};

// Transposes a 4 x 4 block.
template <class E>
POLYPHASE_INLINE void transpose_small(const E* from, Index row_stride, const Index* where, Index column, Compute<E>* to,
                                      Index pitch) {
  using T = Compute<E>;
  using Four = typename FourOf<T>::Type;
  Four row[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    row[i] = Four{widen(from[i * row_stride]), widen(from[i * row_stride + 1]), widen(from[i * row_stride + 2]),
                  widen(from[i * row_stride + 3])};
  const Four ab_low = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5),
             ab_high = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  const Four cd_low = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5),
             cd_high = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  const Four columns[4] = {
      __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5), __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
      __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5), __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const Index at = where != nullptr ? where[column + j] : column + j;
    if (at >= 0) std::memcpy(to + at * pitch, &columns[j], sizeof columns[j]);
  }
}

template <class E>
POLYPHASE_INLINE void transpose_scalar(const E* from, Index row_stride, Index rows, Index padded, Index begin, Index end,
                                       const Index* where, Compute<E>* to, Index pitch) {
  for (Index j = begin; j < end; ++j) {
    const Index row = where != nullptr ? where[j] : j;
    if (row < 0) continue;
    for (Index m = 0; m < rows; ++m) to[row * pitch + m] = widen(from[m * row_stride + j]);
    for (Index m = rows; m < padded; ++m) to[row * pitch + m] = 0;
  }
}

template <class E>
void transpose(const E* from, Index row_stride, Index rows, Index padded, Index columns, const Index* where, Compute<E>* to,
               Index pitch) {
  const Index done = rows / 4 * 4;
  Index column = 0;
  if constexpr (sizeof(Compute<E>) == sizeof(float)) {
    const Index whole = rows / 8 * 8;
    for (; whole > 0 && column + 8 <= columns; column += 8) {
      for (Index m = 0; m < whole; m += 8)
        transpose_block(from + m * row_stride + column, row_stride, where, column, to + m, pitch);
      if (done > whole)
        for (Index part = 0; part < 8; part += 4)
          transpose_small(from + whole * row_stride + column + part, row_stride, where, column + part, to + whole, pitch);
    }
  }
  for (; column + 4 <= columns; column += 4)
    for (Index m = 0; m < done; m += 4)
      transpose_small(from + m * row_stride + column, row_stride, where, column, to + m, pitch);
  transpose_scalar(from + done * row_stride, row_stride, rows - done, padded - done, 0, column, where, to + done, pitch);
  transpose_scalar(from, row_stride, rows, padded, column, columns, where, to, pitch);
}

// Writes the vector of positions [at, at + lanes) of the output up to `last`.
template <class E, class V>
POLYPHASE_INLINE void put(V v, Index at, Index last, E* to) {
  using T = Compute<E>;
  if (at + kLanes<T> <= last) return store_as(to + at, v);
  T value[kLanes<T>];
  store<T>(value, v);
  for (Index i = 0; i < last - at; ++i) narrow(value[i], to + at + i);
}

// Interleaves rows into one row for a power of two: each round moves the top bit of the element's index to the bottom.
template <int stride, class E>
void interleave_vectors(const Compute<E>* from, Index pitch, Index count, Index last, E* to) {
  using T = Compute<E>;
  last = smaller(last, count * stride);
  for (Index p = 0; p < count; p += kLanes<T>) {
    Vector<T> a[stride], b[stride];
#pragma GCC unroll 16
    for (int r = 0; r < stride; ++r) a[r] = load(from + r * pitch + p);
#pragma GCC unroll 16
    for (int round = 1; round < stride; round *= 2) {
#pragma GCC unroll 16
      for (int r = 0; r < stride / 2; ++r) {
        b[2 * r] = Shuffle<kLanes<T>>::zip_low(a[r], a[r + stride / 2]);
        b[2 * r + 1] = Shuffle<kLanes<T>>::zip_high(a[r], a[r + stride / 2]);
      }
#pragma GCC unroll 16
      for (int r = 0; r < stride; ++r) a[r] = b[r];
    }
#pragma GCC unroll 16
    for (int r = 0; r < stride; ++r) put(a[r], p * stride + r * kLanes<T>, last, to);
  }
}

template <class E>
void interleave(const Compute<E>* from, Index pitch, Index rows, Index stride, Index count, Index last, E* to) {
  if (rows == stride) {
    if (stride == 1) return interleave_vectors<1>(from, pitch, count, last, to);
    if (stride == 2) return interleave_vectors<2>(from, pitch, count, last, to);
    if (stride == 4) return interleave_vectors<4>(from, pitch, count, last, to);
    if (stride == 8) return interleave_vectors<8>(from, pitch, count, last, to);
    if (stride == 16) return interleave_vectors<16>(from, pitch, count, last, to);
  }
  Index done = 0;
  if constexpr (sizeof(E) == sizeof(Compute<E>)) {
    // Positions of which all rows are written, if there is a whole block of them.
    const Index whole = smaller(count, last < rows ? 0 : (last - rows) / stride + 1);
    if (whole >= 8) {
      transpose<E>(from, pitch, rows, rows, whole, nullptr, to, stride);
      done = whole;
    }
  }
  for (Index r = 0; r < rows; ++r) {
    const Index end = smaller(count, first_reaching(last, r, stride));
    for (Index p = done; p < end; ++p) narrow(from[r * pitch + p], to + p * stride + r);
  }
}

template <class T>
void add(const T* values, Index count, bool first, double* totals) {
  if (first)
    for (Index i = 0; i < count; ++i) totals[i] = static_cast<double>(values[i]);
  else
    for (Index i = 0; i < count; ++i) totals[i] += static_cast<double>(values[i]);
}

// 0 * inf and 0 * NaN are NaN, which stays in the sum. Four sums, so that none waits for the previous one.
template <class T>
bool all_finite(const T* values, Index count) {
  constexpr int kSums = 4;
  Vector<T> spoiled[kSums] = {};
  Index j = 0;
  for (; j + kSums * kLanes<T> <= count; j += kSums * kLanes<T>)
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) spoiled[s] = fma(load(values + j + s * kLanes<T>), Vector<T>{}, spoiled[s]);
  const Vector<T> all = spoiled[0] + spoiled[1] + (spoiled[2] + spoiled[3]);
  T sum = 0;
  for (int lane = 0; lane < kLanes<T>; ++lane) sum += all[lane];
  for (; j < count; ++j) sum += values[j] * T{0};
  return sum == 0;
}

template <class E>
constexpr PackKernels<E> kPack = {gather_row<E>, transpose<E>, interleave<E>, add<Compute<E>>, all_finite<Compute<E>>};

}  // namespace
}  // namespace POLYPHASE_ISA

template <>
const PackKernels<float>& pack_kernels<Isa::POLYPHASE_ISA, float>() {
  return POLYPHASE_ISA::kPack<float>;
}
template <>
const PackKernels<double>& pack_kernels<Isa::POLYPHASE_ISA, double>() {
  return POLYPHASE_ISA::kPack<double>;
}
template <>
const PackKernels<Half>& pack_kernels<Isa::POLYPHASE_ISA, Half>() {
  return POLYPHASE_ISA::kPack<Half>;
}
template <>
const PackKernels<BFloat16>& pack_kernels<Isa::POLYPHASE_ISA, BFloat16>() {
  return POLYPHASE_ISA::kPack<BFloat16>;
}

}  // namespace polyphase::cpu
