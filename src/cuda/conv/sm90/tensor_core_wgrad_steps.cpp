#include "cuda/conv/sm90/tensor_core_wgrad_steps.hpp"

#include <algorithm>
#include <cstdint>
#include <ostream>

#include "conv/workspace.hpp"
#include "tensor/error.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kStagesMost = 6;
constexpr int kFixedBytes = 128 + 256;
constexpr std::int64_t kWidestWindow = 160;

std::int64_t pieces(std::int64_t size, std::int64_t piece) { return (size + piece - 1) / piece; }

}  // namespace

WgradSteps make_wgrad_steps(const ConvProblem& problem, int parts, int vector, int sm_count, int shared_limit,
                            std::size_t partial_limit) {
  WgradSteps steps{};
  const std::int64_t in = problem.channels_in_per_group(), out = problem.channels_out_per_group();
  steps.rows = in <= 64 ? 64 : 128;
  steps.taps = static_cast<int>(pieces(problem.K, pieces(problem.K, kWgradTaps)));
  // Where S divides D, all taps meet the same phase of y.
  const std::int64_t window = kChunk + (steps.taps - 1) * (problem.D / problem.S);
  steps.shared = problem.D % problem.S == 0 && window <= kWidestWindow;
  steps.tap_step = steps.shared ? static_cast<int>(problem.D / problem.S) : 0;
  steps.x = make_tile(problem.L_in, 1, 0, steps.rows, 1, kChunk, vector);
  const int planes = steps.shared ? 1 : steps.taps;
  const int y_window = steps.shared ? static_cast<int>(pieces(window, 8) * 8) : kChunk;
  steps.y = make_tile(problem.L_out, problem.S, problem.D, kWgradColumns, planes, y_window, vector);
  steps.x_bytes = parts * steps.x.items * 16;
  steps.stage_bytes = steps.x_bytes + parts * steps.y.items * 16;
  steps.stages = std::min(kStagesMost, (shared_limit - kFixedBytes) / steps.stage_bytes);
  steps.shared_bytes = kFixedBytes + steps.stages * steps.stage_bytes;
  steps.row_tiles = pieces(in, steps.rows);
  steps.column_tiles = pieces(out, kWgradColumns);
  steps.tap_tiles = pieces(problem.K, steps.taps);
  steps.jobs = problem.G * steps.row_tiles * steps.column_tiles * steps.tap_tiles;
  steps.chunks_per_row = pieces(problem.L_in, kChunk);
  steps.chunks = problem.N * steps.chunks_per_row;
  // Enough slices for every SM, none shorter than a few chunks, and no more partial sums than allowed.
  const std::int64_t turns = steps.rows == 64 ? 2 : 1;
  const auto weight_bytes = static_cast<double>(problem.C_in) * static_cast<double>(out) * static_cast<double>(problem.K) * 4.0;
  const auto allowed =
      static_cast<std::int64_t>(static_cast<double>(partial_limit) / (weight_bytes * static_cast<double>(turns)));
  std::int64_t slices = std::max<std::int64_t>(1, pieces(sm_count, steps.jobs));
  slices = std::min({slices, std::max<std::int64_t>(1, steps.chunks / 8), std::max<std::int64_t>(1, allowed)});
  steps.chunks_per_slice = pieces(steps.chunks, slices);
  steps.slices = pieces(steps.chunks, steps.chunks_per_slice);
  steps.partial_slices = steps.slices * turns;
  return steps;
}

std::optional<std::string> wgrad_problem(const ConvProblem& problem, int sm_count, int shared_limit) {
  const bool is_split = problem.dtype == DType::f32;
  const std::size_t limit = conv_workspace_limit();
  const WgradSteps steps = make_wgrad_steps(problem, is_split ? 2 : 1, 8, sm_count, shared_limit, limit);
  if (steps.stages < 1) return concat("a step of it does not fit ", shared_limit, " bytes of shared memory");
  if (steps.jobs * steps.slices > INT32_MAX)
    return concat("it takes ", steps.jobs * steps.slices, " blocks, at most ", INT32_MAX);
  const double bytes = 4.0 * static_cast<double>(steps.partial_slices) * static_cast<double>(problem.C_in) *
                       static_cast<double>(problem.channels_out_per_group()) * static_cast<double>(problem.K);
  if (bytes > static_cast<double>(limit)) return concat("its least partial sums take ", bytes, " bytes, the limit is ", limit);
  return std::nullopt;
}

}  // namespace polyphase::cuda::tensor_core
