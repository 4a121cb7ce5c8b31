#pragma once
// The vector kernels of the CPU convolutions as tables of functions, one table per instruction set (cpu/isa.hpp). The drivers
// (phase_gemm, phase_gemm_wgrad, depthwise) decide what is computed; the kernels work on raw arrays without bounds checks.

#include <cstdint>

#include "cpu/isa.hpp"
#include "tensor/dtype.hpp"

namespace polyphase::cpu {

/// The type in which an element is computed: f32 for 16-bit types.
template <class E>
struct ComputeOf {
  using Type = float;
};
template <>
struct ComputeOf<double> {
  using Type = double;
};
template <class E>
using Compute = typename ComputeOf<E>::Type;

/// The inner loop of all three directions: a register tile of MR rows by NV vectors of positions:
///   out[m*pitch + p] = start[m] + sum over j < count of w[j*MR + m] * x[offset[j] + p]       m < MR, p < NV*lanes
/// If `start` is null, the sum starts from the previous contents of out. Summed in the order of j, one fused multiply-add at a
/// time. `w` is read once, in order. `offset` selects any set of rows of x; kOffsetSlack more entries after the last are
/// prefetched but not used.
template <class T>
using MicroKernel = void (*)(const T* w, const T* x, const std::int32_t* offset, std::int64_t count, const T* start, T* out,
                             std::int64_t pitch);

inline constexpr int kOffsetSlack = 8;
inline constexpr int kPanelKinds = 4;  ///< panels are 1, 2, 4 or 8 rows high: kind is the base-2 logarithm
inline constexpr int kMaxVectors = 8;  ///< widest register tile

/// The register tiles of one instruction set.
template <class T>
struct GemmKernels {
  int lanes;                                           ///< positions of one vector
  int widest[kPanelKinds];                             ///< most vectors per panel kind; 0 if the panel is too high
  MicroKernel<T> micro[kPanelKinds][kMaxVectors + 1];  ///< [kind][vectors]
};

/// Movers between the user's arrays (elements E) and packed ones (elements Compute<E>).
template <class E>
struct PackKernels {
  using T = Compute<E>;
  /// to[j] = from[first + j*stride] if that index lies in [0, length), else 0; j < count.
  void (*gather_row)(const E* from, std::int64_t length, std::int64_t first, std::int64_t stride, T* to, std::int64_t count);
  /// to[where[j]*pitch + m] = from[m*row_stride + j] for m < rows, 0 for rows <= m < padded; j < columns. If `where` is null,
  /// where[j] = j; a negative where[j] skips column j. Writes nothing else.
  void (*transpose)(const E* from, std::int64_t row_stride, std::int64_t rows, std::int64_t padded, std::int64_t columns,
                    const std::int64_t* where, T* to, std::int64_t pitch);
  /// to[stride*p + r] = from[r*pitch + p] if stride*p + r < last; p < count, r < rows <= stride. Writes nothing else. `from` is
  /// readable up to the next whole vector of p.
  void (*interleave)(const T* from, std::int64_t pitch, std::int64_t rows, std::int64_t stride, std::int64_t count,
                     std::int64_t last, E* to);
  /// totals[i] = values[i] if `first`, else totals[i] += values[i].
  void (*add)(const T* values, std::int64_t count, bool first, double* totals);
  /// Whether none of `count` packed values is infinite or NaN.
  bool (*all_finite)(const T* values, std::int64_t count);
};

inline constexpr std::int64_t kMostCorrelated = 8;  ///< shifted rows of one correlate call

/// sums[k] += sum over p < count of x[p] * y[offset[k] + p], for k < taps: correlate[taps - 1]. Lanes are added in double. Up
/// to the next whole vector x is zero and y is readable; an infinity in y must not occur there.
template <class T>
struct CorrelateKernels {
  int lanes;
  void (*correlate[kMostCorrelated])(const T* x, const T* y, const std::int64_t* offset, std::int64_t count, double* sums);
};

/// to[to + p] = from[a + p] + sign*from[b + p], where sign is 1, -1 or 0.
struct RowSum {
  std::int64_t to, a, b;
  float sign;
};

inline constexpr std::int64_t kRunSlack = 8;  ///< elements after the last run of D that split may overwrite or read

/// The movers of minimal filtering (cpu/conv/minimal_plan.hpp). Lane p of sequence b is element phases*D*(p div D) + b*D + p
/// mod D of the line.
struct MinimalKernels {
  /// to[b*pitch + p] = that element of `line`; p < count, b < phases. The rest of a sequence, up to D + kRunSlack elements, may
  /// be overwritten, and `line` is read up to kRunSlack elements and a vector per phase after its end.
  void (*split)(const float* line, std::int64_t phases, std::int64_t D, std::int64_t count, float* to, std::int64_t pitch);
  /// That element of `line` = from[b*pitch + p] where it is below `last`; p < count. Writes nothing else.
  void (*merge)(const float* from, std::int64_t pitch, std::int64_t phases, std::int64_t D, std::int64_t count,
                std::int64_t last, float* line);
  /// sums[p] += |line[p]|, squares[p] += line[p]^2; p < count, rounded up to whole vectors.
  void (*add_magnitudes)(const float* line, std::int64_t count, float* sums, float* squares);
  /// `rows` of them; p < count, rounded up to whole vectors.
  void (*combine)(const RowSum* row, std::int64_t rows, const float* from, float* to, std::int64_t count);
  /// Two outputs of the sums m0, m1, m2, m3, `pitch` apart: out[p] = m0 + m1 + m2, out[count + p] = m1 - m2 - m3. `count` is a
  /// multiple of the vector length.
  void (*two_outputs)(const float* m, std::int64_t pitch, std::int64_t count, float* out);
  /// Four outputs of three parts with two outputs each: out[p], out[count + p], ... `count` is a multiple of the vector length.
  void (*four_outputs)(const float* part0, const float* part1, const float* part2, std::int64_t count, float* out);
};

template <Isa isa, class T>
const GemmKernels<T>& gemm_kernels();
template <Isa isa>
const MinimalKernels& minimal_kernels();
template <Isa isa, class T>
const CorrelateKernels<T>& correlate_kernels();
template <Isa isa, class E>
const PackKernels<E>& pack_kernels();

#ifndef POLYPHASE_ISA  // for callers, not for kernel sources
template <class T>
const GemmKernels<T>& gemm_kernels() {
  return dispatch_isa([](auto tag) -> const GemmKernels<T>& { return gemm_kernels<tag.value, T>(); });
}
inline const MinimalKernels& minimal_kernels() {
  return dispatch_isa([](auto tag) -> const MinimalKernels& { return minimal_kernels<tag.value>(); });
}
template <class T>
const CorrelateKernels<T>& correlate_kernels() {
  return dispatch_isa([](auto tag) -> const CorrelateKernels<T>& { return correlate_kernels<tag.value, T>(); });
}
template <class E>
const PackKernels<E>& pack_kernels() {
  return dispatch_isa([](auto tag) -> const PackKernels<E>& { return pack_kernels<tag.value, E>(); });
}
#endif

}  // namespace polyphase::cpu
