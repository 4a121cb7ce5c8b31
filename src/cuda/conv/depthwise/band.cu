// Plans and launches of the tensor-core kernels of Algorithm::depthwise (band.cuh, band_wgrad.cuh).
#include "cuda/conv/depthwise/band.hpp"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/conv/depthwise/band_wgrad.cuh"
#include "cuda/conv/rounding.hpp"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::depthwise {

namespace {

constexpr std::int64_t kBandShared = 48 * 1024;
constexpr std::int64_t kSharedOfSm = 228 * 1024;
constexpr std::int64_t kBandLongest = std::int64_t{1} << 28;

std::int64_t address_of(const void* pointer) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(pointer) / 2);
}

/// Multiplications of 16 source elements per block of outputs, or 0 if these kernels cannot compute the problem.
std::int64_t depth_of(const ConvProblem& p, ConvDirection direction, const void* source, const void* out) {
  if ((p.dtype != DType::f16 && p.dtype != DType::bf16) || p.G != p.C_in || p.D != 1) return 0;
  if (std::max({p.S * p.L_in, p.L_out, p.K, p.P_l}) >= kBandLongest) return 0;
  if (direction == ConvDirection::forward) {
    // Eight low-rate positions, the steps behind them, and up to 7 elements of alignment.
    const std::int64_t window = 8 + std::max<std::int64_t>(0, p.K - 2 + p.S) / p.S + 7;
    return (p.S == 1 || p.S == 2 || p.S == 4) && window <= 32 ? 2 : 0;
  }
  // If all rows begin at the same offset, the shift is known.
  const std::int64_t y = address_of(source), x = address_of(out);
  const bool alike = p.L_in % kChunk == 0 && p.L_out % kChunk == 0 && x % kChunk == 0;
  const std::int64_t shift = alike ? ((y - p.P_l) % kChunk + kChunk) % kChunk : kChunk - 1;
  const std::int64_t depth = std::max<std::int64_t>(2, divide_up(7 * p.S + p.K + shift, 16));
  return depth <= 4 && 7 * p.S + p.K + kChunk - 1 <= 64 ? depth : 0;
}

/// Shared memory of a block.
struct Stages {
  std::int64_t count, chunks, stage_chunks;  // of the source or y; of one stage
  [[nodiscard]] std::int64_t bytes() const { return count * stage_chunks * 16; }
};
Stages stages_of(const ConvProblem& p, ConvDirection direction, std::int64_t depth, std::int64_t threads) {
  const std::int64_t blocks = threads / 32 * kBandGroups * kWarpBlocks;
  const std::int64_t pitch = direction == ConvDirection::forward ? 1 : p.S;
  const std::int64_t chunks = pitch * (blocks - 1) + 2 * depth;
  const std::int64_t aligned = round_up(chunks + kBandLine / kChunk - 1, 8);  // copies begin at lines
  if (direction == ConvDirection::wgrad) return {kBandWgradStages, chunks, aligned + blocks};
  return {direction == ConvDirection::dgrad && p.C_out > p.G ? kBandStages : 1, chunks, aligned};
}

/// Number of slices of `items` for each of `owners`. `stationary` blocks run at the same time; a wave of fewer than two thirds
/// of them still takes about two thirds of the time. Tries two thirds of a wave and one to four waves; takes the least time,
/// and the fewest slices on a tie.
std::int64_t slices_of(std::int64_t owners, std::int64_t items, std::int64_t stationary) {
  std::int64_t best = 0;
  double best_time = 0;
  for (const std::int64_t blocks : {stationary * 2 / 3, stationary, 2 * stationary, 3 * stationary, 4 * stationary}) {
    const std::int64_t slices = std::clamp<std::int64_t>(blocks / owners, 1, items);
    const std::int64_t full = owners * slices / stationary, rest = owners * slices % stationary;
    const double last = rest == 0 ? 0 : std::max(0.65, static_cast<double>(rest) / static_cast<double>(stationary));
    const double time = (static_cast<double>(full) + last) * static_cast<double>(divide_up(items, slices));
    if (best == 0 || time < 0.98 * best_time) best = slices, best_time = time;
  }
  return best;
}

template <class Run>
void with_band_element(const ConvProblem& problem, const Run& run) {
  if (problem.dtype == DType::f16) return run(static_cast<__half*>(nullptr));
  return run(static_cast<__nv_bfloat16*>(nullptr));
}

/// Calls run(integral_constant) with a depth of 2, 3 or 4.
template <class Run>
void with_depth(int depth, const Run& run) {
  if (depth == 2) return run(std::integral_constant<int, 2>());
  if (depth == 3) return run(std::integral_constant<int, 3>());
  return run(std::integral_constant<int, 4>());
}

template <class Kernel, class... Arguments>
void launch_band(Kernel* kernel, const char* name, const BandPlan& plan, cudaStream_t stream, Arguments... arguments) {
  launch_behind(kernel, static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.threads),
                static_cast<std::size_t>(plan.shared_bytes), stream, plan, arguments...);
  check_launch(name);
}

}  // namespace

std::optional<BandPlan> make_band_plan(const ConvProblem& p, ConvDirection direction, const void* source, const void* out,
                                       int sm_count) {
  const std::int64_t depth = depth_of(p, direction, source, out);
  if (depth == 0) return std::nullopt;
  const bool is_forward = direction == ConvDirection::forward, is_wgrad = direction == ConvDirection::wgrad;
  // Tiles of equal length in whole warps, as few as the largest block allows. Rows that begin inside a line need up to a line
  // more.
  const std::int64_t row = is_forward ? p.L_out : p.L_in, of_warp = kBandGroups * kWarpBlocks * 8 * (is_forward ? p.S : 1);
  const bool whole_lines = address_of(out) % kBandLine == 0 && row % kBandLine == 0;
  const std::int64_t length = whole_lines ? row : row + kBandLine - 1;
  std::int64_t most_threads = kBandThreads;
  while (most_threads > 32 && stages_of(p, direction, depth, most_threads).bytes() > kBandShared) most_threads /= 2;
  const std::int64_t fewest = divide_up(length, of_warp * most_threads / 32);
  const std::int64_t threads = divide_up(length, of_warp * fewest) * 32;
  const std::int64_t tiles = divide_up(length, of_warp * threads / 32);
  const Stages stages = stages_of(p, direction, depth, threads);
  const std::int64_t channels = direction == ConvDirection::dgrad ? p.C_in : p.C_out, rows = p.N * channels;
  if (stages.bytes() > kBandShared || std::max(rows * tiles, p.N * p.C_out * p.K) >= 4 * kBandLongest) return std::nullopt;

  BandPlan plan{};
  plan.S = static_cast<int>(p.S), plan.K = static_cast<int>(p.K), plan.P = static_cast<int>(p.P_l);
  plan.L_in = static_cast<int>(p.L_in), plan.L_out = static_cast<int>(p.L_out);
  plan.depth = static_cast<int>(depth);
  plan.threads = static_cast<int>(threads);
  plan.tiles = static_cast<int>(tiles);
  plan.chunks = static_cast<int>(stages.chunks);
  plan.stage_chunks = static_cast<int>(stages.stage_chunks);
  const std::int64_t pitch = is_forward ? 1 : p.S;
  plan.swizzle = static_cast<int>(std::min<std::int64_t>(pitch & -pitch, 8) - 1);
  plan.shared_bytes = static_cast<int>(stages.bytes());
  const auto divide = [](std::int64_t by) { return FastDivide(static_cast<std::uint32_t>(by)); };
  plan.by_tiles = divide(tiles), plan.by_channels = divide(channels), plan.by_outputs = divide(p.channels_out_per_group());
  plan.blocks = static_cast<int>(rows * tiles);
  if (is_wgrad) {
    // Samples whose rows begin at different offsets have slices of their own.
    const bool alike = p.N == 1 || (p.C_in * p.L_in % kChunk == 0 && p.C_out * p.L_out % kChunk == 0);
    const std::int64_t units = alike ? 1 : p.N, unit_tiles = alike ? p.N * tiles : tiles;
    plan.shared_bytes = std::max(plan.shared_bytes, plan.threads / 32 * 16 * plan.depth * 8 * 4);
    const std::int64_t stationary =
        std::min(kSharedOfSm / (plan.shared_bytes + 1024), kBandWgradBlocks * kBandThreads / threads);
    const std::int64_t unit_slices = slices_of(p.C_out * units, unit_tiles, stationary * sm_count);
    plan.unit_tiles = static_cast<int>(unit_tiles);
    plan.slices = static_cast<int>(units * unit_slices);
    plan.by_slices = divide(plan.slices), plan.by_unit_slices = divide(unit_slices);
    plan.blocks = static_cast<int>(p.C_out * plan.slices);
  }
  return plan;
}

void band_gather(const ConvProblem& problem, ConvDirection direction, const BandPlan& plan, const void* source, const void* w,
                 const void* bias, void* out, const Epilogue& epilogue, cudaStream_t stream) {
  with_band_element(problem, [&](auto* result) {
    using T = std::remove_pointer_t<decltype(result)>;
    const auto launch = [&](auto* kernel) {
      launch_band(kernel, "conv depthwise", plan, stream, static_cast<const T*>(source), static_cast<const T*>(w),
                  static_cast<const T*>(bias), static_cast<T*>(out), epilogue);
    };
    const auto run = [&]<int kN, int kDepth, bool kForward>() {
      if (epilogue.is_needed()) return launch(band_gather_kernel<T, kN, kDepth, kForward, false>);
      launch(band_gather_kernel<T, kN, kDepth, kForward, true>);
    };
    if (direction == ConvDirection::dgrad)
      return with_depth(plan.depth, [&](auto depth) { run.template operator()<1, decltype(depth)::value, false>(); });
    if (plan.S == 1) return run.template operator()<1, 2, true>();
    if (plan.S == 2) return run.template operator()<2, 2, true>();
    run.template operator()<4, 2, true>();
  });
}

void band_wgrad(const ConvProblem& problem, const BandPlan& plan, const void* x, const void* y, float* partial,
                cudaStream_t stream) {
  with_band_element(problem, [&](auto* result) {
    using T = std::remove_pointer_t<decltype(result)>;
    with_depth(plan.depth, [&](auto depth) {
      launch_band(band_wgrad_kernel<T, decltype(depth)::value>, "conv depthwise: wgrad", plan, stream, static_cast<const T*>(x),
                  static_cast<const T*>(y), partial);
    });
  });
}

}  // namespace polyphase::cuda::depthwise
