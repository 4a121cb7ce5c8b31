// all = kept followed by x; then kept = the end of all. A block computes one row, which its threads hold in registers: all of
// it has been read when the first number of `kept` is overwritten. Memory bound, and for a stream's push bound by the launch.

#include "cuda/elementwise/advance.hpp"

#include <algorithm>

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kHeld = 32;  // numbers per thread at most
constexpr int kMostThreads = 1024;

struct AdvanceLaunch {
  std::int64_t B;
  int kept, added, C;       // numbers of a row of `kept` and of x; of a position
  std::int64_t strides[4];  // of x
};

template <class T, int kPer>
__global__ void __launch_bounds__(kMostThreads)
    advance_kernel(const __grid_constant__ AdvanceLaunch launch, T* all, T* kept, const T* x) {
  const std::int64_t row = blockIdx.x;
  const T* const from = x + row / launch.B * launch.strides[0] + row % launch.B * launch.strides[1];
  const int count = launch.kept + launch.added, threads = static_cast<int>(blockDim.x);
  T held[kPer];
#pragma unroll
  for (int k = 0; k < kPer; ++k) {
    const int e = static_cast<int>(threadIdx.x) + k * threads, i = e - launch.kept;
    if (e < launch.kept)
      held[k] = kept[row * launch.kept + e];
    else if (e < count)
      held[k] = from[i / launch.C * launch.strides[2] + i % launch.C * launch.strides[3]];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kPer; ++k) {
    const int e = static_cast<int>(threadIdx.x) + k * threads;
    if (e >= count) continue;
    all[row * count + e] = held[k];
    if (e >= launch.added) kept[row * launch.kept + e - launch.added] = held[k];
  }
}

}  // namespace

bool advance_fits(const Tensor& all) {
  return all.size(2) * all.size(3) <= kHeld * kMostThreads && all.size(0) * all.size(1) < std::int64_t{1} << 31;
}

void advance(const Tensor& all, const Tensor& kept, const Tensor& x, cudaStream_t stream) {
  const std::int64_t rows = all.size(0) * all.size(1), C = all.size(3);
  if (all.numel() == 0) return;
  AdvanceLaunch launch{
      all.size(1), static_cast<int>(kept.size(2) * C), static_cast<int>(x.size(2) * C), static_cast<int>(C), {}};
  for (int d = 0; d < 4; ++d) launch.strides[d] = x.stride(d);
  const int count = launch.kept + launch.added;
  const auto threads = static_cast<unsigned>(std::min((count + 31) / 32 * 32, kMostThreads));
  dispatch_size(size_of(all.dtype()), [&]<class T>(T) {
    auto* const kernel = count <= kMostThreads       ? advance_kernel<T, 1>
                         : count <= 4 * kMostThreads ? advance_kernel<T, 4>
                                                     : advance_kernel<T, kHeld>;
    kernel<<<static_cast<unsigned>(rows), threads, 0, stream>>>(launch, static_cast<T*>(all.raw()), static_cast<T*>(kept.raw()),
                                                                static_cast<const T*>(x.raw()));
  });
  check_launch("stream: advance");
}

}  // namespace polyphase::cuda
