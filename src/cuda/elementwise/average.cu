// out = activation((a + b + ...)/divisor). Memory bound: every part is read once and the result written once. A thread computes
// kPacksAtOnce packs of 16 bytes, so that each SM has enough loads outstanding.

#include "cuda/elementwise/average.hpp"

#include <algorithm>

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kPacksAtOnce = 2;

template <class T, int kParts>
struct AverageLaunch {
  const T* part[kParts];
  T* out;
  std::int64_t count;
  MathOf<T> divisor, slope;
  Activation activation;
};

// Not contracted to a fused multiply-add, and rounded to T after every step, as separate operations are.
template <class T, int kParts>
__device__ __forceinline__ T averaged(const AverageLaunch<T, kParts>& launch, const T (&parts)[kParts]) {
  using A = MathOf<T>;
  const auto rounded = [](A value) { return convert<A>(convert<T>(value)); };
  A sum = convert<A>(parts[0]);
#pragma unroll
  for (int k = 1; k < kParts; ++k) sum = rounded(sum + convert<A>(parts[k]));
  if (launch.divisor != A(1)) sum = rounded(sum / launch.divisor);
  if (launch.activation == Activation::relu) sum = sum < A(0) ? A(0) : sum;
  if (launch.activation == Activation::leaky_relu) sum = sum < A(0) ? launch.slope * sum : sum;
  return convert<T>(sum);
}

template <class T, int kPack, int kParts>
__global__ void __launch_bounds__(kThreads) average_kernel(const __grid_constant__ AverageLaunch<T, kParts> launch) {
  using Elements = Pack<T, kPack>;
  const std::int64_t block = static_cast<std::int64_t>(kThreads) * kPack * kPacksAtOnce;
  for (std::int64_t start = blockIdx.x * block; start < launch.count; start += gridDim.x * block) {
    const std::int64_t first = start + threadIdx.x * kPack;
    Elements in[kPacksAtOnce][kParts];
    const auto for_packs = [&](const auto& use) {
#pragma unroll
      for (int u = 0; u < kPacksAtOnce; ++u) {
        const std::int64_t flat = first + u * (kThreads * kPack);
        if (flat + kPack <= launch.count) use(u, flat);
      }
    };
    for_packs([&](int u, std::int64_t flat) {
#pragma unroll
      for (int k = 0; k < kParts; ++k) in[u][k] = *reinterpret_cast<const Elements*>(launch.part[k] + flat);
    });
    for_packs([&](int u, std::int64_t flat) {
      Elements out;
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        T parts[kParts];
#pragma unroll
        for (int k = 0; k < kParts; ++k) parts[k] = in[u][k].at[i];
        out.at[i] = averaged<T, kParts>(launch, parts);
      }
      *reinterpret_cast<Elements*>(launch.out + flat) = out;
    });
  }
  const std::int64_t rest = launch.count % kPack, at = launch.count - rest + threadIdx.x;
  if (blockIdx.x != 0 || threadIdx.x >= rest) return;
  T parts[kParts];
#pragma unroll
  for (int k = 0; k < kParts; ++k) parts[k] = launch.part[k][at];
  launch.out[at] = averaged<T, kParts>(launch, parts);
}

template <class T, int kParts>
void launch_average(const Tensor& out, std::span<const Tensor> parts, double divisor, Activation activation, double slope,
                    cudaStream_t stream) {
  AverageLaunch<T, kParts> launch{{}, static_cast<T*>(out.raw()), out.numel(), {}, {}, activation};
  launch.divisor = static_cast<MathOf<T>>(divisor);
  launch.slope = static_cast<MathOf<T>>(slope);
  bool aligned = is_aligned(out.raw(), 16);
  for (int k = 0; k < kParts; ++k) {
    const void* const part = parts[static_cast<std::size_t>(k)].raw();
    launch.part[k] = static_cast<const T*>(part);
    aligned = aligned && is_aligned(part, 16);
  }
  constexpr int kWide = 16 / static_cast<int>(sizeof(T));
  const auto blocks = [&](int pack) { return grid_for(launch.count, kThreads * pack * kPacksAtOnce); };
  if (aligned) {
    average_kernel<T, kWide, kParts><<<blocks(kWide), kThreads, 0, stream>>>(launch);
  } else {
    average_kernel<T, 1, kParts><<<blocks(1), kThreads, 0, stream>>>(launch);
  }
}

}  // namespace

void average_of(const Tensor& out, std::span<const Tensor> parts, double divisor, Activation activation, double slope,
                cudaStream_t stream) {
  if (out.numel() == 0) return;
  dispatch_element(out.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, std::int64_t>) {
      switch (parts.size()) {
        case 1:
          return launch_average<T, 1>(out, parts, divisor, activation, slope, stream);
        case 2:
          return launch_average<T, 2>(out, parts, divisor, activation, slope, stream);
        case 3:
          return launch_average<T, 3>(out, parts, divisor, activation, slope, stream);
        default:
          return launch_average<T, 4>(out, parts, divisor, activation, slope, stream);
      }
    }
  });
  check_launch("average_of");
}

}  // namespace polyphase::cuda
