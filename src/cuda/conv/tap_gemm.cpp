#include "cuda/conv/tap_gemm.hpp"

#include <algorithm>
#include <numeric>

namespace polyphase::cuda {
namespace {

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

}  // namespace

TapGemm make_tap_gemm(const ConvProblem& problem, ConvDirection direction) {
  const std::int64_t g = std::gcd(problem.S, problem.D);
  const std::int64_t phase_classes = problem.S / g;  // Sg
  const std::int64_t classes = std::min(phase_classes, problem.K);
  TapGemm form{};
  form.N = problem.N;
  form.G = problem.G;
  form.taps = (problem.K + phase_classes - 1) / phase_classes;
  form.tap_step = problem.D / g;
  form.phase_classes = phase_classes;
  const std::int64_t full = problem.K - (form.taps - 1) * phase_classes;  // classes that have all taps
  if (direction == ConvDirection::forward) {
    form.rows = problem.channels_in_per_group();
    form.source_length = problem.L_in;
    form.source_stride = 1;
    form.source_plane_step = 0;
    form.source_origin = -(form.taps - 1) * form.tap_step;  // taps are walked from the last to the first
    form.planes = 1;
    form.classes = classes;
    form.out_channels = problem.channels_out_per_group();
    form.columns = form.out_channels * classes;
    form.out_length = problem.L_out;
    form.out_stride = problem.S;
    form.out_class_step = problem.D;
    form.out_origin = -problem.P_l;
    form.out_gcd = g;
    form.full_classes = full;
    form.full_planes = 1;
    // Every t in [0, L_out) is S*pos + a*D + b - P_l for one pos, a in [0, Sg), b in [0, g).
    form.position_begin = floor_divide(problem.P_l - (phase_classes - 1) * problem.D - (g - 1), problem.S);
    form.position_count = floor_divide(problem.L_out - 1 + problem.P_l, problem.S) - form.position_begin + 1;
  } else {
    form.rows = problem.channels_out_per_group();
    form.source_length = problem.L_out;
    form.source_stride = problem.S;
    form.source_plane_step = problem.D;
    form.source_origin = -problem.P_l;
    form.planes = classes;
    form.classes = 1;
    form.out_channels = problem.channels_in_per_group();
    form.columns = form.out_channels;
    form.out_length = problem.L_in;
    form.out_stride = 1;
    form.out_class_step = 0;
    form.out_origin = 0;
    form.out_gcd = 1;
    form.full_classes = 1;
    form.full_planes = full;
    form.position_begin = 0;
    form.position_count = problem.L_in;
  }
  return form;
}

}  // namespace polyphase::cuda
