#include "cpu/conv/wgrad_plan.hpp"

#include <algorithm>

#include "cpu/conv/tiling.hpp"

namespace polyphase::cpu {
namespace {

constexpr std::int64_t kBlockPositions = 512;
constexpr std::int64_t kBlockBytes = 64 << 20;  // most memory for one packed block of y

}  // namespace

WindowLayout window_layout(const ConvProblem& p, std::int64_t positions, std::int64_t lanes) {
  const std::int64_t channels = p.channels_out_per_group();
  const std::int64_t window = p.S * (positions - 1) + p.D * (p.K - 1) + 1;
  WindowLayout layout;
  // Unaligned rows pay if a single tap would leave vectors or registers empty.
  const bool thin = channels < 2 * lanes || p.channels_in_per_group() <= 2;
  layout.joint = p.D == 1 && thin && window <= p.K * positions;
  // One vector more than needed, so that rows do not map to the same cache sets.
  layout.pitch = layout.joint ? channels : (ceil_div(channels, lanes) + 1) * lanes;
  if (window > p.K * positions) {
    for (std::int64_t k = 0; k < p.K; ++k) layout.tap_row.push_back(k * positions);
    layout.rows = p.K * positions;
    return layout;
  }
  layout.where.assign(static_cast<std::size_t>(window), -1);
  if (layout.joint) {
    for (std::int64_t j = 0; j < window; ++j) layout.where[static_cast<std::size_t>(j)] = j;
    for (std::int64_t k = 0; k < p.K; ++k) layout.tap_row.push_back(k);
    layout.rows = window;
    layout.step = p.S;
    return layout;
  }
  std::vector<bool> needed(static_cast<std::size_t>(std::min(p.S, window)), false);
  for (std::int64_t k = 0; k < p.K; ++k) needed[static_cast<std::size_t>(k * p.D % p.S)] = true;
  for (std::int64_t residue = 0; residue < std::min(p.S, window); ++residue) {
    if (!needed[static_cast<std::size_t>(residue)]) continue;
    for (std::int64_t j = residue; j < window; j += p.S) layout.where[static_cast<std::size_t>(j)] = layout.rows++;
  }
  for (std::int64_t k = 0; k < p.K; ++k) layout.tap_row.push_back(layout.where[static_cast<std::size_t>(k * p.D)]);
  return layout;
}

BlockShape block_shape(const ConvProblem& p, std::int64_t lanes) {
  BlockShape block;
  block.positions = ceil_div(p.L_in, ceil_div(p.L_in, kBlockPositions));
  block.samples = std::clamp<std::int64_t>(kBlockPositions / block.positions, 1, p.N);
  for (;;) {
    const WindowLayout layout = window_layout(p, block.positions, lanes);
    if (layout.rows * layout.pitch * block.samples * p.G * static_cast<std::int64_t>(sizeof(double)) <= kBlockBytes)
      return block;
    if (block.samples > 1)
      block.samples = ceil_div(block.samples, 2);
    else if (block.positions > 16)
      block.positions = ceil_div(block.positions, 2);
    else
      return block;
  }
}

}  // namespace polyphase::cpu
