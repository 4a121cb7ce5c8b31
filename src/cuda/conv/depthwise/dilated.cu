// Depthwise convolutions at stride 1 with dilation, as in the residual units of codecs. With k' = K - 1 - k forward and k in
// dgrad:
//   out[t] = bias + sum over k' of w[k] source[t + begin + k' D],   begin = P_l - (K - 1) D forward, -P_l in dgrad
//
// A block computes kTiles tiles of a row, each of kEach*threads outputs. The positions they read pass through shared memory
// once, 16 bytes at a time (row_stage.cuh), and Snake is applied to them on the way if the source is activated. Neighbouring
// threads compute neighbouring outputs, so a tap is a read without bank conflicts whatever D is, and a weight serves kEach
// outputs. Bound by shared memory, a read of 4 bytes for each tap of an output; with Snake bound by instructions.

#include "cuda/conv/depthwise/dilated.hpp"

#include <algorithm>

#include "cuda/conv/depthwise/rounded_snake.cuh"
#include "cuda/conv/depthwise/row_stage.cuh"
#include "cuda/conv/element.cuh"
#include "cuda/conv/rounding.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::depthwise {
namespace {

constexpr int kEach = 8;  // outputs per thread
constexpr int kMostThreads = 128;
constexpr int kTiles = 4;  // of a block, one after another

struct DilatedPlan {
  std::int64_t length, source_length, begin;  // of a row; begin: see above
  int K, D, stage_words, tile;
  bool is_forward;
  FastDivide by_pieces, by_channels;
  Planes plane;
};

/// Blocks per SM: as many as registers allow without spilling. Code for GPUs before sm_90 needs more of them.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kBlocks = 12;
#else
constexpr int kBlocks = 16;
#endif

template <class T>
__global__ void __launch_bounds__(kMostThreads, kBlocks)
    dilated_kernel(const __grid_constant__ DilatedPlan plan, const T* __restrict__ source, const T* __restrict__ w,
                   const T* __restrict__ bias, T* __restrict__ out, const SourceSnake snake,
                   const __grid_constant__ Epilogue epilogue) {
  extern __shared__ __align__(16) unsigned char memory[];
  float* const stage = reinterpret_cast<float*>(memory);
  float* const weights = stage + plan.stage_words;
  const std::uint32_t row = plan.by_pieces.divide(blockIdx.x), piece = blockIdx.x - row * plan.by_pieces.divisor;
  const auto channel = static_cast<int>(row - plan.by_channels.divide(row) * plan.by_channels.divisor);
  const T* const from = source + row * plan.source_length;
  T* const row_out = out + row * plan.length;
  const int threads = static_cast<int>(blockDim.x);
  for (int k = static_cast<int>(threadIdx.x); k < plan.K; k += threads)
    weights[k] = convert<float>(w[static_cast<std::int64_t>(channel) * plan.K + (plan.is_forward ? plan.K - 1 - k : k)]);
  if (threadIdx.x == 0) weights[plan.K] = bias != nullptr ? convert<float>(bias[channel]) : 0.0F;
  const bool is_active = snake.alpha != nullptr, is_snake = epilogue.activation == Activation::snake && !epilogue.has_aux();
  const bool is_finished = !epilogue.is_needed() || is_snake;
  // In registers they would cost a third of the warps.
  __shared__ __align__(16) unsigned char of_snakes[2 * sizeof(RoundedSnake<T>)];
  auto* const snakes = reinterpret_cast<RoundedSnake<T>*>(of_snakes);  // of the source and of the result
  if (threadIdx.x == 0 && is_active) snakes[0] = RoundedSnake<T>(snake.alpha, snake.beta, channel);
  if (threadIdx.x == 0 && is_snake) snakes[1] = RoundedSnake<T>(epilogue.alpha, epilogue.beta, channel);
#pragma unroll 1
  for (int tile = 0; tile < kTiles; ++tile) {
    const std::int64_t t0 = (static_cast<std::int64_t>(piece) * kTiles + tile) * plan.tile;
    if (t0 >= plan.length) return;
    std::int64_t begin = t0 + plan.begin;
    const int shift = misalignment(from + begin, kVectorOf<T>);
    begin -= shift;
    __syncthreads();  // the last tile has been read
    if (is_active)
      load_window(from, plan.source_length, begin, plan.stage_words, plan.plane, stage, snakes[0]);
    else
      load_window(from, plan.source_length, begin, plan.stage_words, plan.plane, stage);
    __syncthreads();
    const float* at = stage + shift + threadIdx.x;
    float sums[kEach] = {};
#pragma unroll 4
    for (int k = 0; k < plan.K; ++k, at += plan.D) {
      const float weight = weights[k];
#pragma unroll
      for (int i = 0; i < kEach; ++i) sums[i] = fmaf(at[i * threads], weight, sums[i]);
    }
#pragma unroll
    for (float& sum : sums) sum += weights[plan.K];
    if (is_snake) {
#pragma unroll
      for (float& sum : sums) sum = convert<float>(convert<T>(sum));
      snakes[1].apply(sums);
    }
    T* const to = row_out + t0 + threadIdx.x;
    const int most =
        static_cast<int>(min(plan.length - t0, static_cast<std::int64_t>(plan.tile))) - static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (i * threads >= most) break;
      T* const own = to + i * threads;
      *own = is_finished ? convert<T>(sums[i]) : epilogue.finish<T>(sums[i], channel, own);
    }
  }
}

}  // namespace

void dilated_gather(const ConvProblem& problem, ConvDirection direction, const void* source, const void* w, const void* bias,
                    void* out, const SourceSnake& snake, const Epilogue& epilogue, cudaStream_t stream) {
  const bool is_forward = direction == ConvDirection::forward;
  const std::int64_t length = is_forward ? problem.L_out : problem.L_in, reach = (problem.K - 1) * problem.D;
  const std::int64_t rows = problem.N * problem.C_in;
  const auto threads = static_cast<int>(std::min<std::int64_t>(round_up(divide_up(length, kEach), 32), kMostThreads));
  DilatedPlan plan{};
  plan.length = length;
  plan.source_length = is_forward ? problem.L_in : problem.L_out;
  plan.begin = is_forward ? problem.P_l - reach : -problem.P_l;
  plan.K = static_cast<int>(problem.K);
  plan.D = static_cast<int>(problem.D);
  plan.tile = threads * kEach;
  plan.stage_words = static_cast<int>(round_up(plan.tile + reach + 8, 8));
  plan.is_forward = is_forward;
  const std::int64_t tiles = divide_up(length, plan.tile);
  const std::int64_t pieces = divide_up(tiles, kTiles);
  plan.by_pieces = FastDivide(static_cast<std::uint32_t>(pieces));
  plan.by_channels = FastDivide(static_cast<std::uint32_t>(problem.C_in));
  plan.plane = {1, plan.stage_words, FastDivide(1)};
  const std::size_t shared = static_cast<std::size_t>(plan.stage_words + plan.K + 1) * sizeof(float);
  with_element(problem, direction, [&]<class T>(T*) {
    if constexpr (sizeof(T) != 8) {
      dilated_kernel<<<static_cast<unsigned>(rows * pieces), static_cast<unsigned>(threads), shared, stream>>>(
          plan, static_cast<const T*>(source), static_cast<const T*>(w), static_cast<const T*>(bias), static_cast<T*>(out),
          snake, epilogue);
    }
  });
  check_launch("conv depthwise: dilated");
}

}  // namespace polyphase::cuda::depthwise
