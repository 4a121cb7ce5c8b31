// Plans of the vector kernels. The kernels are in depthwise_vector.cuh and depthwise_vector_wgrad.cuh, compiled by
// depthwise_vector_f32.cu and its siblings.
#include "cuda/conv/depthwise_vector.hpp"

#include <algorithm>
#include <type_traits>

#include "cuda/conv/depthwise_vector_wgrad.cuh"

namespace polyphase::cuda::depthwise {

// Defined once per dtype in depthwise_vector_<dtype>.cu.
template <class T>
void vector_gather_as(const VectorPlan& plan, ConvDirection direction, const T* source, const T* w, const T* bias, T* out,
                      cudaStream_t stream);
template <class T>
void vector_wgrad_as(const VectorPlan& plan, const T* x, const T* y, float* partial, cudaStream_t stream);

namespace {

constexpr std::int64_t kSharedLimit = 48 * 1024;
constexpr std::int64_t kLongest = std::int64_t{1} << 30;

std::int64_t divide_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }
std::int64_t round_up(std::int64_t value, std::int64_t unit) { return divide_up(value, unit) * unit; }

/// Chunks of one of S planes that hold `chunks`, without bank conflicts (word_place).
std::int64_t plane_pitch(std::int64_t chunks, std::int64_t S) {
  std::int64_t pitch = divide_up(chunks, S);
  while (S > 1 && pitch % 8 != 8 / S) ++pitch;
  return pitch;
}

int vectors_of_thread(ConvDirection direction) { return direction == ConvDirection::dgrad ? kDgradVectors : kVectors; }

/// Shared memory of a block of `threads`.
struct Stages {
  std::int64_t count = 0, words = 0;  // words of one
  std::int64_t tap_words = 0, pitch = 0;
  [[nodiscard]] std::int64_t bytes() const { return 4 * (tap_words + count * words); }
};
Stages stages_of(const ConvProblem& p, ConvDirection direction, std::int64_t threads, std::int64_t E) {
  const std::int64_t vectors = threads * vectors_of_thread(direction);
  const std::int64_t steps = divide_up(p.K, p.S), shifted_steps = divide_up(p.K + p.S - 1, p.S);  // the latter for any sigma
  // One element for a skip; Feed reads up to 8 words past the last one it needs.
  const auto words_of = [&](std::int64_t elements) { return round_up(divide_up(elements + 1, E / 4) + 8, 4); };
  switch (direction) {
    case ConvDirection::forward:
      return {kVectorStages, words_of(vectors * E / p.S + shifted_steps), round_up(shifted_steps * p.S, 4), 0};
    case ConvDirection::dgrad: {
      const std::int64_t pitch = plane_pitch(words_of(p.S * (vectors * E + steps)) / 4, p.S);
      return {kVectorStages, 4 * p.S * pitch, round_up(p.channels_out_per_group() * steps * p.S, 4), pitch};
    }
    case ConvDirection::wgrad:
      break;
  }
  return {kWgradStages, vectors * 4 + words_of(vectors * E / p.S + shifted_steps), 0, 0};
}

bool fits(const ConvProblem& p, ConvDirection direction) {
  const bool is_type = p.dtype == DType::f32 || p.dtype == DType::f16 || p.dtype == DType::bf16;
  if (!is_type || p.G != p.C_in || p.D != 1 || (p.S != 1 && p.S != 2 && p.S != 4)) return false;
  if (divide_up(p.K + p.S - 1, p.S) > (p.S == 1 ? kMostSteps<1> : kMostSteps<2>)) return false;
  if (std::max({p.S * p.L_in, p.L_out, p.K, p.P_l}) >= kLongest / 4) return false;
  return direction != ConvDirection::wgrad || p.N == 1 || p.C_out * p.L_out % p.S == 0;
}

/// Calls run(pointer) with a null pointer to the element type of a problem that fits.
template <class Run>
void with_vector_element(const ConvProblem& problem, const Run& run) {
  if (problem.dtype == DType::f32) return run(static_cast<float*>(nullptr));
  if (problem.dtype == DType::f16) return run(static_cast<__half*>(nullptr));
  return run(static_cast<__nv_bfloat16*>(nullptr));
}

}  // namespace

std::optional<VectorPlan> make_vector_plan(const ConvProblem& p, ConvDirection direction, const void* vectors, int sm_count,
                                           const VectorTuning& tuning) {
  if (!fits(p, direction)) return std::nullopt;
  const bool is_dgrad = direction == ConvDirection::dgrad, is_wgrad = direction == ConvDirection::wgrad;
  const std::int64_t E = 16 / static_cast<std::int64_t>(size_of(p.dtype));
  const std::int64_t line = kLineBytes / static_cast<std::int64_t>(size_of(p.dtype));
  // Tiles of equal length, whole warps, as few as the largest block allows that fits shared memory. Rows that begin inside a
  // line need up to a line more.
  const std::int64_t row = is_dgrad ? p.L_in : p.L_out, of_thread = E * vectors_of_thread(direction);
  const bool whole_lines = reinterpret_cast<std::uintptr_t>(vectors) % kLineBytes == 0 && row % line == 0;
  const std::int64_t length = whole_lines ? row : row + line - 1;
  std::int64_t most_threads = is_wgrad ? kWgradThreads : kVectorThreads;
  while (most_threads > 32 && stages_of(p, direction, most_threads, E).bytes() > kSharedLimit) most_threads /= 2;
  const std::int64_t fewest = divide_up(length, of_thread * most_threads);
  const std::int64_t threads = round_up(divide_up(length, of_thread * fewest), 32);
  const std::int64_t tiles = divide_up(length, of_thread * threads);
  const Stages stages = stages_of(p, direction, threads, E);
  if (stages.bytes() > kSharedLimit) return std::nullopt;

  VectorPlan plan{};
  plan.S = static_cast<int>(p.S), plan.K = static_cast<int>(p.K), plan.P = static_cast<int>(p.P_l);
  plan.L_in = static_cast<int>(p.L_in), plan.L_out = static_cast<int>(p.L_out);
  plan.threads = static_cast<int>(threads);
  plan.tiles = static_cast<int>(tiles);
  plan.pitch = static_cast<int>(stages.pitch);
  plan.tap_words = static_cast<int>(stages.tap_words);
  plan.stage_words = static_cast<int>(stages.words);
  plan.shared_bytes = static_cast<int>(stages.bytes());
  const std::int64_t channels = is_dgrad ? p.C_in : p.C_out, rows = p.N * channels;
  const auto divide = [](std::int64_t by) { return FastDivide(static_cast<std::uint32_t>(by)); };
  if (std::max(rows * tiles, p.N * p.C_out * p.K) >= kLongest) return std::nullopt;
  plan.by_channels = divide(channels);
  plan.by_outputs = divide(p.channels_out_per_group());
  if (is_wgrad) {
    const std::int64_t items = p.N * tiles;
    const std::int64_t wanted = divide_up(std::int64_t{tuning.wgrad_blocks_per_sm} * sm_count, p.C_out);
    plan.items = static_cast<int>(items);
    plan.tiles_per_slice = static_cast<int>(divide_up(items, std::min(wanted, items)));
    plan.slices = static_cast<int>(divide_up(items, plan.tiles_per_slice));
    plan.by_slices = divide(plan.slices), plan.by_tiles = divide(tiles);
    plan.blocks = static_cast<int>(p.C_out * plan.slices);
  } else {
    const std::int64_t spread = rows * tiles / (std::int64_t{tuning.blocks_per_sm} * sm_count);
    const std::int64_t longest = std::clamp<std::int64_t>(spread, 1, tuning.tiles_per_run > 0 ? tuning.tiles_per_run : E / 4);
    plan.tiles_per_run = static_cast<int>(divide_up(tiles, divide_up(tiles, longest)));  // runs of equal length
    const std::int64_t runs = divide_up(tiles, plan.tiles_per_run);
    plan.by_runs = divide(runs);
    plan.blocks = static_cast<int>(rows * runs);
  }
  return plan;
}

void vector_gather(const ConvProblem& problem, ConvDirection direction, const VectorPlan& plan, const void* source,
                   const void* w, const void* bias, void* out, cudaStream_t stream) {
  with_vector_element(problem, [&](auto* result) {
    using T = std::remove_pointer_t<decltype(result)>;
    vector_gather_as<T>(plan, direction, static_cast<const T*>(source), static_cast<const T*>(w), static_cast<const T*>(bias),
                        static_cast<T*>(out), stream);
  });
}

void vector_wgrad(const ConvProblem& problem, const VectorPlan& plan, const void* x, const void* y, float* partial,
                  cudaStream_t stream) {
  with_vector_element(problem, [&](auto* result) {
    using T = std::remove_pointer_t<decltype(result)>;
    vector_wgrad_as<T>(plan, static_cast<const T*>(x), static_cast<const T*>(y), partial, stream);
  });
}

}  // namespace polyphase::cuda::depthwise
