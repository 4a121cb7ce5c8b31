// Algorithm::depthwise: plans and launches of the general kernels (kernel.cuh, wgrad.cuh), and the choice between them and the
// tensor-core kernels (band.hpp), the vector kernels (vector.hpp) and those for many rows (rows.cuh), for short rows
// (short_rows.cu) and for dilation (dilated.cu).
#include "cuda/conv/depthwise/depthwise.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <numeric>
#include <ostream>
#include <type_traits>

#include "cuda/conv/depthwise/band.hpp"
#include "cuda/conv/depthwise/dilated.hpp"
#include "cuda/conv/depthwise/rows.hpp"
#include "cuda/conv/depthwise/short_rows.hpp"
#include "cuda/conv/depthwise/vector.hpp"
#include "cuda/conv/depthwise/wgrad.cuh"
#include "cuda/conv/element.cuh"
#include "cuda/conv/reduce_slices.cuh"
#include "cuda/conv/rounding.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::depthwise {
namespace {

// Tiles are whole groups and whole 16-byte pieces of any dtype: multiples of 7 * 8.
constexpr int kPositions[] = {896, 448, 224, 112, 56};
constexpr std::int64_t kComfortBytes = 28 * 1024;  // of shared memory: eight blocks per SM

struct Layout {
  std::int64_t low_words, high_pitch, words;
};

/// Shared memory of a tile of `positions`.
Layout layout_of(const ConvProblem& problem, ConvDirection direction, int positions) {
  const std::int64_t span = (problem.K - 1) * problem.D;
  const std::int64_t taps = round_up(problem.K + problem.S, 8) + 8;
  Layout layout{};
  switch (direction) {
    case ConvDirection::forward:
      layout.low_words = round_up(positions + span / problem.S + 16, 8);
      layout.high_pitch = positions + 8;
      break;
    case ConvDirection::dgrad:
      layout.low_words = round_up(positions, 8);
      layout.high_pitch = round_up(positions + (span + 8) / problem.S + 2, 8);
      break;
    case ConvDirection::wgrad:
      layout.low_words = round_up(positions + 8, 8);
      layout.high_pitch = round_up(positions + (span + 8) / problem.S + 2, 8);
      break;
  }
  layout.words = layout.low_words + problem.S * layout.high_pitch + taps;
  return layout;
}

std::int64_t word_bytes(DType dtype) { return dtype == DType::f64 ? 8 : 4; }

/// The longest tile that leaves room for eight blocks per SM, else the longest that fits, else 0.
int choose_positions(const ConvProblem& problem, ConvDirection direction, std::int64_t limit) {
  for (const std::int64_t bytes : {std::min(kComfortBytes, limit), limit}) {
    for (const int positions : kPositions) {
      if (positions > 56 && positions >= 2 * round_up(problem.L_in, 56)) continue;  // short rows
      if (layout_of(problem, direction, positions).words * word_bytes(problem.dtype) <= bytes) return positions;
    }
  }
  return 0;
}

Plan make_plan(const ConvProblem& problem, ConvDirection direction, int device) {
  const DeviceProperties& gpu = properties(device);
  const std::int64_t g = std::gcd(problem.S, problem.D);
  Plan plan{};
  plan.M = static_cast<int>(problem.channels_out_per_group());
  plan.S = static_cast<int>(problem.S);
  plan.K = static_cast<int>(problem.K);
  plan.D = problem.D;
  plan.Sg = static_cast<int>(problem.S / g);
  plan.Dg = static_cast<int>(problem.D / g);
  plan.classes = std::min(plan.Sg, plan.K);
  plan.taps = (plan.K + plan.Sg - 1) / plan.Sg;
  plan.full_classes = plan.K - (plan.taps - 1) * plan.Sg;
  plan.positions = choose_positions(problem, direction, gpu.shared_bytes_per_block);
  const Layout layout = layout_of(problem, direction, plan.positions);
  plan.low_words = static_cast<int>(layout.low_words);
  plan.low = {1, plan.low_words, FastDivide(1)};
  plan.high = {plan.S, static_cast<int>(layout.high_pitch), FastDivide(static_cast<std::uint32_t>(plan.S))};
  const std::int64_t line = kLine / static_cast<std::int64_t>(size_of(problem.dtype)) - 1;
  const auto tiles = [](std::int64_t length, std::int64_t tile) { return (length + tile - 1) / tile; };
  switch (direction) {
    case ConvDirection::forward:
      plan.tiles_per_row = tiles(problem.L_out + line, static_cast<std::int64_t>(plan.positions) * plan.S);
      plan.blocks = problem.N * problem.C_out * plan.tiles_per_row;
      break;
    case ConvDirection::dgrad:
      plan.tiles_per_row = tiles(problem.L_in + line, plan.positions);
      plan.blocks = problem.N * problem.C_in * plan.tiles_per_row;
      break;
    case ConvDirection::wgrad: {
      plan.chunks = (plan.taps + kTapChunk - 1) / kTapChunk;
      plan.jobs = plan.classes * plan.chunks;
      plan.job_groups = static_cast<int>(tiles(plan.jobs, kThreads / 32));
      plan.tiles_per_row = tiles(problem.L_in, plan.positions);
      plan.tiles = problem.N * plan.tiles_per_row;
      const std::int64_t rows = problem.C_out * plan.job_groups;
      const std::int64_t wanted = std::max<std::int64_t>(1, tiles(std::int64_t{16} * gpu.sm_count, rows));
      plan.tiles_per_slice = tiles(plan.tiles, std::min(wanted, plan.tiles));
      plan.slices = tiles(plan.tiles, plan.tiles_per_slice);
      plan.blocks = rows * plan.slices;
      break;
    }
  }
  return plan;
}

template <class Kernel, class... Arguments>
void launch(Kernel* kernel, const char* name, const ConvProblem& problem, ConvDirection direction, const Plan& plan,
            cudaStream_t stream, Arguments... arguments) {
  const auto shared = static_cast<std::size_t>(layout_of(problem, direction, plan.positions).words * word_bytes(problem.dtype));
  allow_shared_memory(kernel, static_cast<std::int64_t>(shared));
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>(plan.blocks, INT32_MAX));
  kernel<<<grid, kThreads, shared, stream>>>(problem, plan, arguments...);
  check_launch(name);
}

}  // namespace

std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction, int device) {
  if (has_many_rows(problem, direction)) return std::nullopt;
  if (problem.G != problem.C_in) return concat("it needs groups = C_in, got G=", problem.G, " and C_in=", problem.C_in);
  const std::int64_t limit = properties(device).shared_bytes_per_block;
  const std::int64_t least = layout_of(problem, direction, 56).words * word_bytes(problem.dtype);
  if (least > limit) return concat("a tile needs ", least, " bytes of shared memory, this GPU has ", limit);
  return std::nullopt;
}

bool activates_snake(const ConvProblem& problem, ConvDirection direction) {
  return has_many_rows(problem, direction) || is_dilated(problem, direction);
}

void gather(const ConvProblem& problem, ConvDirection direction, const void* source, const void* w, const void* bias, void* out,
            const SourceSnake& snake, const Epilogue& epilogue, int device, cudaStream_t stream) {
  const bool is_forward = direction == ConvDirection::forward;
  if (problem.N == 0 || problem.C_in == 0 || (is_forward ? problem.L_out : problem.L_in) == 0) return;
  const bool has_short = has_short_rows(problem, direction);
  if (!is_forward && has_short && snake.alpha == nullptr)
    return short_rows_dgrad(problem, source, w, bias, out, epilogue, stream);
  if (has_many_rows(problem, direction)) return rows_dgrad(problem, source, w, bias, out, snake, epilogue, stream);
  if (is_dilated(problem, direction)) return dilated_gather(problem, direction, source, w, bias, out, snake, epilogue, stream);
  if (is_forward && has_short) return short_rows_forward(problem, source, w, bias, out, epilogue, stream);
  const int sm_count = properties(device).sm_count;
  if (const auto plan = make_band_plan(problem, direction, source, out, sm_count))
    return band_gather(problem, direction, *plan, source, w, bias, out, epilogue, stream);
  if (const auto plan = make_vector_plan(problem, direction, out, sm_count))
    return vector_gather(direction, *plan, source, w, bias, out, epilogue, stream);
  const Plan plan = make_plan(problem, direction, device);
  with_element(problem, direction, [&]<class T>(T* result) {
    using A = typename AccumulatorOf<T>::type;
    result = static_cast<T*>(out);
    launch(is_forward ? forward_kernel<T, A> : dgrad_kernel<T, A>, "conv depthwise", problem, direction, plan, stream,
           static_cast<const T*>(source), static_cast<const T*>(w), static_cast<const T*>(bias), result, epilogue);
  });
}

void wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, int device, cudaStream_t stream) {
  const std::int64_t weights = problem.C_out * problem.K;
  if (problem.N == 0 || problem.L_in == 0 || problem.L_out == 0) {
    CHECK_CUDA(cudaMemsetAsync(w, 0, static_cast<std::size_t>(weights) * size_of(problem.dtype), stream));
    return;
  }
  const int sm_count = properties(device).sm_count;
  if (has_short_rows(problem, ConvDirection::wgrad)) {
    const std::int64_t slices = short_rows_slices(problem, sm_count);
    const Buffer partial(static_cast<std::size_t>(slices * weights) * sizeof(float), device);
    short_rows_wgrad(problem, x, y, slices, partial.as<float>(), stream);
    return with_element(problem, ConvDirection::wgrad, [&]<class T>(T*) {
      if constexpr (!std::is_same_v<T, double>) reduce_slices(partial.as<float>(), weights, slices, static_cast<T*>(w), stream);
    });
  }
  const auto band_plan = make_band_plan(problem, ConvDirection::wgrad, y, x, sm_count);
  const auto vector_plan = band_plan ? std::nullopt : make_vector_plan(problem, ConvDirection::wgrad, y, sm_count);
  const Plan plan = band_plan || vector_plan ? Plan{} : make_plan(problem, ConvDirection::wgrad, device);
  with_element(problem, ConvDirection::wgrad, [&]<class T>(T* result) {
    using A = typename AccumulatorOf<T>::type;
    result = static_cast<T*>(w);
    if constexpr (std::is_same_v<A, float>) {
      if (band_plan || vector_plan) {
        const int slices = band_plan ? band_plan->slices : vector_plan->slices;
        const Buffer partial(static_cast<std::size_t>(slices * weights) * sizeof(A), device);
        if (band_plan)
          band_wgrad(problem, *band_plan, x, y, partial.as<A>(), stream);
        else
          vector_wgrad(*vector_plan, x, y, partial.as<A>(), stream);
        return reduce_slices(partial.as<A>(), weights, slices, result, stream);
      }
    }
    const Buffer partial(static_cast<std::size_t>(plan.slices * weights) * sizeof(A), device);
    launch(wgrad_kernel<T, A>, "conv depthwise: wgrad", problem, ConvDirection::wgrad, plan, stream, static_cast<const T*>(x),
           static_cast<const T*>(y), partial.as<A>());
    reduce_slices(partial.as<A>(), weights, plan.slices, result, stream);
  });
}

}  // namespace polyphase::cuda::depthwise
