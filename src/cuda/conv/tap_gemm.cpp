#include "cuda/conv/tap_gemm.hpp"

#include <algorithm>
#include <numeric>

#include "cuda/conv/rounding.hpp"

namespace polyphase::cuda {
TapGemm make_tap_gemm(const ConvProblem& problem, ConvDirection direction) {
  const std::int64_t g = std::gcd(problem.S, problem.D);
  const std::int64_t phase_classes = problem.S / g;  // Sg
  const std::int64_t classes = std::min(phase_classes, problem.K);
  TapGemm gemm{};
  gemm.N = problem.N;
  gemm.G = problem.G;
  gemm.taps = (problem.K + phase_classes - 1) / phase_classes;
  gemm.tap_step = problem.D / g;
  gemm.phase_classes = phase_classes;
  const std::int64_t full = problem.K - (gemm.taps - 1) * phase_classes;  // classes with all taps
  if (direction == ConvDirection::forward) {
    gemm.rows = problem.channels_in_per_group();
    gemm.source_length = problem.L_in;
    gemm.source_stride = 1;
    gemm.source_plane_step = 0;
    gemm.source_origin = -(gemm.taps - 1) * gemm.tap_step;  // taps are walked from the last to the first
    gemm.planes = 1;
    gemm.classes = classes;
    gemm.out_channels = problem.channels_out_per_group();
    gemm.columns = gemm.out_channels * classes;
    gemm.out_length = problem.L_out;
    gemm.out_stride = problem.S;
    gemm.out_class_step = problem.D;
    gemm.out_origin = -problem.P_l;
    gemm.out_gcd = g;
    gemm.full_classes = full;
    gemm.full_planes = 1;
    // Every t in [0, L_out) is S*pos + a*D + b - P_l for one pos, a in [0, Sg), b in [0, g).
    gemm.position_begin = floor_divide(problem.P_l - (phase_classes - 1) * problem.D - (g - 1), problem.S);
    gemm.position_count = floor_divide(problem.L_out - 1 + problem.P_l, problem.S) - gemm.position_begin + 1;
  } else {
    gemm.rows = problem.channels_out_per_group();
    gemm.source_length = problem.L_out;
    gemm.source_stride = problem.S;
    gemm.source_plane_step = problem.D;
    gemm.source_origin = -problem.P_l;
    gemm.planes = classes;
    gemm.classes = 1;
    gemm.out_channels = problem.channels_in_per_group();
    gemm.columns = gemm.out_channels;
    gemm.out_length = problem.L_in;
    gemm.out_stride = 1;
    gemm.out_class_step = 0;
    gemm.out_origin = 0;
    gemm.out_gcd = 1;
    gemm.full_classes = 1;
    gemm.full_planes = full;
    gemm.position_begin = 0;
    gemm.position_count = problem.L_in;
  }
  return gemm;
}

}  // namespace polyphase::cuda
