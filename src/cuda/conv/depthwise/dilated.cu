// Depthwise convolutions at stride 1 with dilation, as in the residual units of codecs. With k' = K - 1 - k forward and k in
// dgrad:
//   out[t] = bias + sum over k' of w[k] source[t + begin + k' D],   begin = P_l - (K - 1) D forward, -P_l in dgrad
//
// A block computes kEach*threads outputs of a row. The positions they read pass through shared memory once, 16 bytes at a time
// (row_stage.cuh). Neighbouring threads compute neighbouring outputs, so a tap is a read without bank conflicts whatever D is,
// and a weight serves kEach outputs. Bound by shared memory: a read of 4 bytes for each tap of an output.

#include "cuda/conv/depthwise/dilated.hpp"

#include <algorithm>

#include "cuda/conv/depthwise/row_stage.cuh"
#include "cuda/conv/element.cuh"
#include "cuda/conv/rounding.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::depthwise {
namespace {

constexpr int kEach = 8;  // outputs per thread
constexpr int kMostThreads = 128;

struct DilatedPlan {
  std::int64_t length, source_length, begin;  // of a row; begin: see above
  int K, D, stage_words, tile;
  bool is_forward;
  FastDivide by_tiles, by_channels;
  Planes plane;
};

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    dilated_kernel(const __grid_constant__ DilatedPlan plan, const T* __restrict__ source, const T* __restrict__ w,
                   const T* __restrict__ bias, T* __restrict__ out, const __grid_constant__ Epilogue epilogue) {
  extern __shared__ __align__(16) unsigned char memory[];
  float* const stage = reinterpret_cast<float*>(memory);
  float* const weights = stage + plan.stage_words;
  const std::uint32_t row = plan.by_tiles.divide(blockIdx.x), tile = blockIdx.x - row * plan.by_tiles.divisor;
  const std::uint32_t channel = row - plan.by_channels.divide(row) * plan.by_channels.divisor;
  const std::int64_t t0 = static_cast<std::int64_t>(tile) * plan.tile;
  const T* const from = source + row * plan.source_length;
  std::int64_t begin = t0 + plan.begin;
  const int shift = misalignment(from + begin, kVectorOf<T>);
  begin -= shift;
  load_window(from, plan.source_length, begin, plan.stage_words, plan.plane, stage);
  for (int k = static_cast<int>(threadIdx.x); k < plan.K; k += static_cast<int>(blockDim.x))
    weights[k] = static_cast<float>(w[channel * plan.K + (plan.is_forward ? plan.K - 1 - k : k)]);
  __syncthreads();
  const int threads = static_cast<int>(blockDim.x);
  const float* at = stage + shift + threadIdx.x;
  float sums[kEach] = {};
#pragma unroll 4
  for (int k = 0; k < plan.K; ++k, at += plan.D) {
    const float weight = weights[k];
#pragma unroll
    for (int i = 0; i < kEach; ++i) sums[i] = fmaf(at[i * threads], weight, sums[i]);
  }
  const float offset = bias != nullptr ? static_cast<float>(bias[channel]) : 0.0F;
  T* const to = out + row * plan.length + t0;
  const bool is_finished = !epilogue.is_needed();
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int t = static_cast<int>(threadIdx.x) + i * threads;
    if (t0 + t >= plan.length) break;
    const float sum = sums[i] + offset;
    to[t] = is_finished ? static_cast<T>(sum) : epilogue.finish<T>(sum, channel, to + t);
  }
}

}  // namespace

void dilated_gather(const ConvProblem& problem, ConvDirection direction, const void* source, const void* w, const void* bias,
                    void* out, const Epilogue& epilogue, cudaStream_t stream) {
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
  plan.by_tiles = FastDivide(static_cast<std::uint32_t>(tiles));
  plan.by_channels = FastDivide(static_cast<std::uint32_t>(problem.C_in));
  plan.plane = {1, plan.stage_words, FastDivide(1)};
  const std::size_t shared = static_cast<std::size_t>(plan.stage_words + plan.K) * sizeof(float);
  with_element(problem, direction, [&]<class T>(T*) {
    if constexpr (sizeof(T) != 8) {
      dilated_kernel<<<static_cast<unsigned>(rows * tiles), static_cast<unsigned>(threads), shared, stream>>>(
          plan, static_cast<const T*>(source), static_cast<const T*>(w), static_cast<const T*>(bias), static_cast<T*>(out),
          epilogue);
    }
  });
  check_launch("conv depthwise: dilated");
}

}  // namespace polyphase::cuda::depthwise
