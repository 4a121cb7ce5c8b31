#include "cpu/conv/phase_plan.hpp"

#include <algorithm>

#include "cpu/conv/tiling.hpp"

namespace polyphase::cpu {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

GatherShape forward_shape(const ConvProblem& p) {
  GatherShape s{};
  s.M = p.channels_out_per_group();
  s.R = p.channels_in_per_group();
  s.in_length = p.L_in;
  s.out_length = p.L_out;
  s.in_stride = 1;
  s.out_stride = p.S;
  s.q_count = p.L_out > 0 ? (p.L_out - 1) / p.S + 1 : 0;
  s.w_row = p.K;
  s.w_channel = s.M * p.K;
  s.phases.resize(static_cast<std::size_t>(p.S));
  for (std::int64_t k = 0; k < p.K; ++k) {
    const std::int64_t shift = -floor_div(k * p.D - p.P_l, p.S);
    const std::int64_t phase = k * p.D - p.P_l + p.S * shift;
    s.phases[static_cast<std::size_t>(phase)].push_back({.k = k, .residue = 0, .shift = shift});
  }
  return s;
}

GatherShape dgrad_shape(const ConvProblem& p) {
  GatherShape s{};
  s.M = p.channels_in_per_group();
  s.R = p.channels_out_per_group();
  s.in_length = p.L_out;
  s.out_length = p.L_in;
  s.in_stride = p.S;
  s.out_stride = 1;
  s.q_count = p.L_in;
  s.w_row = s.R * p.K;
  s.w_channel = p.K;
  s.phases.resize(1);
  for (std::int64_t k = 0; k < p.K; ++k) {
    const std::int64_t shift = floor_div(k * p.D - p.P_l, p.S);
    s.phases[0].push_back({.k = k, .residue = k * p.D - p.P_l - p.S * shift, .shift = shift});
  }
  return s;
}

}  // namespace

GatherShape gather_shape(const ConvProblem& problem, ConvDirection direction) {
  GatherShape shape = direction == ConvDirection::forward ? forward_shape(problem) : dgrad_shape(problem);
  shape.N = problem.N;
  shape.G = problem.G;
  shape.K = problem.K;
  shape.w_group = shape.M * shape.R * problem.K;
  return shape;
}

Interior interior(const GatherShape& shape, std::size_t phase) {
  Interior inner = {.begin = 0, .end = shape.q_count};
  for (const Tap& tap : shape.phases[phase]) {  // a residue is below the stride, so that q + shift >= 0 is enough on the left
    inner.begin = std::max(inner.begin, -tap.shift);
    inner.end = std::min(inner.end, ceil_div(shape.in_length - tap.residue, shape.in_stride) - tap.shift);
  }
  inner.begin = std::min(inner.begin, shape.q_count);
  inner.end = std::max(inner.end, inner.begin);
  return inner;
}

TileLayout tile_layout(const GatherShape& shape, std::int64_t positions, std::int64_t lanes) {
  std::vector<Tap> taps;
  for (const auto& phase : shape.phases) taps.insert(taps.end(), phase.begin(), phase.end());
  std::sort(taps.begin(), taps.end(),
            [](const Tap& a, const Tap& b) { return a.residue != b.residue ? a.residue < b.residue : a.shift < b.shift; });
  TileLayout layout;
  std::vector<std::int64_t> offset_of_k(static_cast<std::size_t>(shape.K));
  const auto close_segment = [&] {
    if (!layout.segments.empty()) layout.channel_pitch += (layout.segments.back().span + positions + lanes - 1) / lanes * lanes;
  };
  for (const Tap& tap : taps) {
    // A row that would be copied more than twice over to reach the next tap is not shared.
    const bool shared = !layout.segments.empty() && layout.segments.back().residue == tap.residue &&
                        tap.shift - layout.segments.back().first - layout.segments.back().span <= positions;
    if (!shared) {
      close_segment();
      layout.segments.push_back({.residue = tap.residue, .first = tap.shift, .span = 0, .base = layout.channel_pitch});
    }
    Segment& segment = layout.segments.back();
    segment.span = tap.shift - segment.first;
    offset_of_k[static_cast<std::size_t>(tap.k)] = segment.base + segment.span;
  }
  close_segment();
  for (const auto& phase : shape.phases) {
    layout.tap_offset.emplace_back();
    for (const Tap& tap : phase) layout.tap_offset.back().push_back(offset_of_k[static_cast<std::size_t>(tap.k)]);
  }
  return layout;
}

}  // namespace polyphase::cpu
