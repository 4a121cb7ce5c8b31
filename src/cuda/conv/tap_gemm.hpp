#pragma once
// The common form of `forward` and `dgrad`, as the direct kernel computes them.
//
// With g = gcd(S, D), Sg = S/g, Dg = D/g write a tap as k = a + j*Sg. All taps of one class a reach the same phase, Dg low-rate
// positions apart. The high-rate index of (low-rate position m, class a) is S*m + a*D - P_l. So both directions are one
// stride-1 product over `taps` windows of `planes` rows. The high rate is on the writing side in forward and on the reading
// side in dgrad. The inner loop contains no division and no test:
//
//   out[n, g, col, t(pos, a)] = sum over row, plane, j of
//                               source[n, g, row, e(pos + j*tap_step, plane)] * weights[g, row, j, plane, col]
//   e(u, plane) = source_stride*u + plane*source_plane_step + source_origin   (outside the row: zero)
//   t(pos, a)   = out_stride*pos + a*out_class_step + out_origin              (outside the row: not written)
//
//            source   rows     planes  columns          pos
//   forward  x        C_in/G   1       (C_out/G)*A      m
//   dgrad    y        C_out/G  A       C_in/G           i
//
// A = min(Sg, K) is the number of classes that have a tap.

#include <cstdint>

#include "conv/problem.hpp"

namespace polyphase::cuda {

/// Plain and trivially copyable: passed to the kernel by value.
struct TapGemm {
  std::int64_t N, G;
  // the side that is read
  std::int64_t rows;  ///< channels of a group that are summed
  std::int64_t source_length;
  std::int64_t source_stride, source_plane_step, source_origin;
  std::int64_t planes;         ///< classes that are read separately
  std::int64_t taps;           ///< windows per plane
  std::int64_t tap_step;       ///< low-rate positions between windows: Dg
  std::int64_t phase_classes;  ///< Sg
  // the side that is written
  std::int64_t columns;       ///< output channels of a group times classes
  std::int64_t classes;       ///< A on the writing side
  std::int64_t out_channels;  ///< per group
  std::int64_t out_length;
  std::int64_t out_stride, out_class_step, out_origin;
  std::int64_t out_gcd;  ///< g on the writing side: out_stride = (out_stride/g classes) * g
  std::int64_t position_begin, position_count;
  std::int64_t
      full_classes;  ///< writing classes that have all `taps` taps; the others lack the last, which is window 0 in forward
  std::int64_t full_planes;  ///< the same for the planes that are read; the others lack the last window

  float source_slope = 1;  ///< what is read of an element v of the source is v < 0 ? source_slope*v : v; 0: ReLU, 0 at -inf too
#ifdef __CUDACC__
  /// What is read of `v`, rounded to its type, with the bits of MapOp::leaky_relu or MapOp::relu.
  template <class T>
  __device__ __forceinline__ T activated(T v) const {
    const auto value = static_cast<float>(v);
    return value < 0.0F ? static_cast<T>(low(source_slope, value)) : v;
  }
  /// slope*value, but 0 for every value if the slope is 0.
  static __device__ __forceinline__ float low(float slope, float value) { return slope == 0.0F ? 0.0F : slope * value; }
#endif

  /// Whether the columns of writing class `a` have no tap in window 0.
#ifdef __CUDACC__
  __host__ __device__
#endif
      bool
      lacks_first_tap(std::int64_t a) const {
    return a >= full_classes;
  }
};

/// The product of `direction` (forward or dgrad).
[[nodiscard]] TapGemm make_tap_gemm(const ConvProblem& problem, ConvDirection direction);

}  // namespace polyphase::cuda
