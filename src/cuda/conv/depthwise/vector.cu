// Plans and launches of the vector kernels. The kernels are in vector.cuh and vector_wgrad.cuh.
#include "cuda/conv/depthwise/vector.hpp"

#include <algorithm>
#include <type_traits>

#include "cuda/conv/depthwise/vector_wgrad.cuh"
#include "cuda/conv/rounding.hpp"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::depthwise {

namespace {

constexpr std::int64_t kSharedLimit = 48 * 1024;
constexpr std::int64_t kLongest = std::int64_t{1} << 30;

int vectors_of_thread(ConvDirection direction) { return direction == ConvDirection::dgrad ? kDgradVectors : kVectors; }

/// Shared memory of a block of `threads`. Stages that 16-byte copies fill begin at lines.
struct VectorStages {
  std::int64_t count = 0, words = 0;  // words per stage
  std::int64_t tap_words = 0, chunks = 0;
  [[nodiscard]] std::int64_t bytes() const { return 4 * (tap_words + count * words); }
};
VectorStages stages_of(const ConvProblem& p, ConvDirection direction, std::int64_t threads) {
  const std::int64_t vectors = threads * vectors_of_thread(direction);
  const std::int64_t steps = divide_up(p.K, p.S), shifted_steps = divide_up(p.K + p.S - 1, p.S);  // the latter for any sigma
  // Reads go up to three words past the last one used.
  const std::int64_t low_words = round_up(vectors * 4 / p.S + shifted_steps + 3, 4);
  switch (direction) {
    case ConvDirection::forward:
      return {1, low_words, round_up(shifted_steps * p.S, 4), 0};
    case ConvDirection::dgrad: {
      // add_positions reads two steps at a time, and copies begin up to 7 chunks before the first one used.
      const std::int64_t chunks = divide_up(p.S * (vectors * 4 + round_up(steps, 2) - 1) + 3, 4);
      const std::int64_t rows = p.channels_out_per_group();
      return {rows > 1 ? kVectorStages : 1, 4 * round_up(chunks + 7, 8), round_up((rows * steps + 1) * p.S, kVectorLine),
              chunks};
    }
    case ConvDirection::wgrad:
      break;
  }
  return {kWgradStages, round_up(vectors * 4 + low_words, kVectorLine), 0, 0};
}

bool fits(const ConvProblem& p, ConvDirection direction) {
  if (p.dtype != DType::f32 || p.G != p.C_in || p.D != 1 || (p.S != 1 && p.S != 2 && p.S != 4)) return false;
  if (divide_up(p.K + p.S - 1, p.S) > (p.S == 1 ? kMostSteps<1> : kMostSteps<2>)) return false;
  if (std::max({p.S * p.L_in, p.L_out, p.K, p.P_l}) >= kLongest / 4) return false;
  return direction != ConvDirection::wgrad || p.N == 1 || p.C_out * p.L_out % p.S == 0;
}

/// Calls run(integral_constant) with the plan's stride.
template <class Run>
void with_vector_stride(const VectorPlan& plan, const Run& run) {
  if (plan.S == 1) return run(std::integral_constant<int, 1>());
  if (plan.S == 2) return run(std::integral_constant<int, 2>());
  return run(std::integral_constant<int, 4>());
}

template <class Kernel, class... Arguments>
void launch_vectors(Kernel* kernel, const char* name, const VectorPlan& plan, cudaStream_t stream, Arguments... arguments) {
  launch_behind(kernel, static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.threads),
                static_cast<std::size_t>(plan.shared_bytes), stream, plan, arguments...);
  check_launch(name);
}

}  // namespace

std::optional<VectorPlan> make_vector_plan(const ConvProblem& p, ConvDirection direction, const void* vectors, int sm_count,
                                           const VectorTuning& tuning) {
  if (!fits(p, direction)) return std::nullopt;
  const bool is_dgrad = direction == ConvDirection::dgrad, is_wgrad = direction == ConvDirection::wgrad;
  // Tiles of equal length in whole warps, as few as the largest block that fits in shared memory allows. Rows that begin inside
  // a line need up to a line more.
  const std::int64_t row = is_dgrad ? p.L_in : p.L_out, of_thread = 4 * vectors_of_thread(direction);
  const bool whole_lines = reinterpret_cast<std::uintptr_t>(vectors) % kLineBytes == 0 && row % kVectorLine == 0;
  const std::int64_t length = whole_lines ? row : row + kVectorLine - 1;
  std::int64_t most_threads = is_wgrad ? kWgradThreads : kVectorThreads;
  while (most_threads > 32 && stages_of(p, direction, most_threads).bytes() > kSharedLimit) most_threads /= 2;
  const std::int64_t fewest = divide_up(length, of_thread * most_threads);
  const std::int64_t threads = round_up(divide_up(length, of_thread * fewest), 32);
  const std::int64_t tiles = divide_up(length, of_thread * threads);
  const VectorStages stages = stages_of(p, direction, threads);
  if (stages.bytes() > kSharedLimit) return std::nullopt;

  VectorPlan plan{};
  plan.S = static_cast<int>(p.S), plan.K = static_cast<int>(p.K), plan.P = static_cast<int>(p.P_l);
  plan.L_in = static_cast<int>(p.L_in), plan.L_out = static_cast<int>(p.L_out);
  plan.threads = static_cast<int>(threads);
  plan.tiles = static_cast<int>(tiles);
  plan.chunks = static_cast<int>(stages.chunks);
  plan.tap_words = static_cast<int>(stages.tap_words);
  plan.stage_words = static_cast<int>(stages.words);
  plan.shared_bytes = static_cast<int>(stages.bytes());
  const std::int64_t channels = is_dgrad ? p.C_in : p.C_out, rows = p.N * channels;
  const auto divide = [](std::int64_t by) { return FastDivide(static_cast<std::uint32_t>(by)); };
  if (std::max(rows * tiles, p.N * p.C_out * p.K) >= kLongest) return std::nullopt;
  plan.by_tiles = divide(tiles), plan.by_channels = divide(channels), plan.by_outputs = divide(p.channels_out_per_group());
  plan.blocks = static_cast<int>(rows * tiles);
  if (is_wgrad) {
    const std::int64_t items = p.N * tiles;
    const std::int64_t wanted = divide_up(std::int64_t{tuning.wgrad_blocks_per_sm} * sm_count, p.C_out);
    plan.items = static_cast<int>(items);
    plan.tiles_per_slice = static_cast<int>(divide_up(items, std::min(wanted, items)));
    plan.slices = static_cast<int>(divide_up(items, plan.tiles_per_slice));
    plan.by_slices = divide(plan.slices);
    plan.blocks = static_cast<int>(p.C_out * plan.slices);
  }
  return plan;
}

void vector_gather(ConvDirection direction, const VectorPlan& plan, const void* source, const void* w, const void* bias,
                   void* out, const Epilogue& epilogue, cudaStream_t stream) {
  with_vector_stride(plan, [&](auto stride) {
    constexpr int S = decltype(stride)::value;
    const bool is_forward = direction == ConvDirection::forward;
    // Without the epilogue ptxas spills registers of dgrad with S = 4.
    auto* const plain = is_forward ? vector_forward_kernel<S, true> : vector_dgrad_kernel<S, S != 4>;
    auto* const finishing = is_forward ? vector_forward_kernel<S, false> : vector_dgrad_kernel<S, false>;
    launch_vectors(epilogue.is_needed() ? finishing : plain, "conv depthwise", plan, stream, static_cast<const float*>(source),
                   static_cast<const float*>(w), static_cast<const float*>(bias), static_cast<float*>(out), epilogue);
  });
}

void vector_wgrad(const VectorPlan& plan, const void* x, const void* y, float* partial, cudaStream_t stream) {
  with_vector_stride(plan, [&](auto stride) {
    launch_vectors(vector_wgrad_kernel<decltype(stride)::value>, "conv depthwise: wgrad", plan, stream,
                   static_cast<const float*>(x), static_cast<const float*>(y), partial);
  });
}

}  // namespace polyphase::cuda::depthwise
