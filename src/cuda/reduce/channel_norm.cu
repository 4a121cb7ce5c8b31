// y = (x - mean)/sqrt(variance + epsilon)*weight + bias over the channels of x (N, C, L). A block of 16 warps computes eight
// neighbouring positions of a sample: a warp reads four channels of them, a sector each. A thread keeps its first kChannelKept
// numbers in registers; those of more channels are read again. Sums in f64, so that a mean far from zero costs no digits; their
// order depends on C alone. f16 and bf16 are converted where they are read, computed in f32 and rounded once.

#include <algorithm>

#include "cuda/reduce/channel_norm.cuh"
#include "cuda/reduce/channel_norm.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kChannelWarps = 16, kChannelThreads = 32 * kChannelWarps;
constexpr int kChannelPositions = 8,
              kChannelStep = kChannelThreads / kChannelPositions;  // channels from one of a thread to its next one
constexpr int kChannelKept = 8;

template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    channel_norm_kernel(const __grid_constant__ NormCall<T> call, std::int64_t N, std::int64_t C, std::int64_t L) {
  using A = MathOf<T>;
  __shared__ double partial[kChannelWarps][kChannelPositions];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int own = lane % kChannelPositions, first = static_cast<int>(threadIdx.x) / kChannelPositions;
  const std::int64_t tiles = (L + kChannelPositions - 1) / kChannelPositions;
  for (std::int64_t block = blockIdx.x; block < N * tiles; block += gridDim.x) {
    const std::int64_t n = block / tiles, position = (block - n * tiles) * kChannelPositions + own;
    const std::int64_t begin = n * C * L + position, channels = position < L ? C : 0;
    A kept[kChannelKept];
#pragma unroll
    for (int k = 0; k < kChannelKept; ++k) {
      const std::int64_t c = first + k * kChannelStep;
      kept[k] = c < channels ? convert<A>(call.x[begin + c * L]) : A(0);
    }
    const auto for_channels = [&](const auto& use) {
#pragma unroll
      for (int k = 0; k < kChannelKept; ++k) {
        const std::int64_t c = first + k * kChannelStep;
        if (c < channels) use(c, kept[k]);
      }
      for (std::int64_t c = first + kChannelKept * kChannelStep; c < channels; c += kChannelStep)
        use(c, convert<A>(call.x[begin + c * L]));
    };
    const auto total = [&](const auto& term) {
      double sum = 0;
      for_channels([&](std::int64_t, A value) { sum = term(static_cast<double>(value), sum); });
#pragma unroll
      for (int distance = kChannelPositions; distance < 32; distance *= 2) sum += __shfl_xor_sync(0xffffffffU, sum, distance);
      __syncthreads();  // the sums before have been read
      if (lane < kChannelPositions) partial[warp][lane] = sum;
      __syncthreads();
      sum = 0;
#pragma unroll
      for (int w = 0; w < kChannelWarps; ++w) sum += partial[w][own];
      return sum;
    };
    const double share = 1 / static_cast<double>(C);
    const double mean = call.centres ? total([](double value, double sum) { return sum + value; }) * share : 0;
    const double variance = total([&](double value, double sum) { return fma(value - mean, value - mean, sum); }) * share;
    const auto of = call.position(mean, variance);
    for_channels([&](std::int64_t c, A value) { call.store(of, begin + c * L, c, value); });
    if (call.scale != nullptr && threadIdx.x < kChannelPositions && channels > 0)
      call.scale[n * L + position] = convert<T>(of.factor);
  }
}

}  // namespace

void normalize_channels(const NormOutputs& out, const NormInputs& in, cudaStream_t stream) {
  if (in.x.rank() == 2) return normalize_rows(out, in, stream);
  const std::int64_t N = in.x.size(0), C = in.x.size(1), L = in.x.size(2),
                     blocks = N * ((L + kChannelPositions - 1) / kChannelPositions);
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>(blocks, 1 << 20));
  dispatch_element(in.x.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, std::int64_t>)
      channel_norm_kernel<T><<<grid, kChannelThreads, 0, stream>>>(NormCall<T>(out, in), N, C, L);
  });
  check_launch("normalize channels");
}

}  // namespace polyphase::cuda
