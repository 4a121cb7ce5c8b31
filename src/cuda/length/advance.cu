// all = kept followed by x; then kept = the end of all. A block computes some columns of one row, which its threads hold in
// registers: all of them have been read when the first number of `kept` is overwritten. Elements move 16 bytes at a time where
// the layouts allow it. Memory bound, and for a stream's push bound by the launch: long rows are cut into slices of columns, so
// that more SMs read them.

#include "cuda/length/advance.hpp"

#include <algorithm>
#include <cstdint>

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kHeldBytes = 128;  // per thread at most: more would not fit in the registers of kMostThreads
/// The most elements of so many bytes that a thread holds: 32 numbers, 16 of 8 bytes, 8 vectors.
constexpr int held(std::size_t bytes) { return kHeldBytes / static_cast<int>(std::max<std::size_t>(bytes, 4)); }
constexpr int kMostThreads = 1024;
constexpr int kSliceElements = 256;        // a row with fewer elements is not cut
constexpr std::int64_t kSectorBytes = 32;  // of one position, that a slice reads at least

/// Sizes and strides in elements: numbers, or vectors of 16 bytes.
struct AdvanceLaunch {
  std::int64_t B;
  int kept, added, C;  // positions of `kept` and of x; elements of a position
  int columns;         // of a slice
  Divider by_columns;
  std::int64_t strides[4];  // of x
};

template <class T, int kPer>
__global__ void __launch_bounds__(kMostThreads)
    advance_kernel(const __grid_constant__ AdvanceLaunch launch, T* all, T* kept, const T* x) {
  const std::int64_t row = blockIdx.x;
  const int first = static_cast<int>(blockIdx.y) * launch.columns, threads = static_cast<int>(blockDim.x);
  const int positions = launch.kept + launch.added, count = positions * launch.columns;
  x += row / launch.B * launch.strides[0] + row % launch.B * launch.strides[1] + first * launch.strides[3];
  kept += row * launch.kept * launch.C + first;
  all += row * positions * launch.C + first;
  T held[kPer];
  // Calls use(k, position, column) for the thread's elements.
  const auto for_elements = [&](const auto& use) {
#pragma unroll
    for (int k = 0; k < kPer; ++k) {
      std::int64_t column = static_cast<int>(threadIdx.x) + k * threads;
      if (column >= count) continue;
      const auto position = static_cast<int>(launch.by_columns.split(column, true));
      use(k, position, static_cast<int>(column));
    }
  };
  for_elements([&](int k, int position, int column) {
    held[k] = position < launch.kept ? kept[position * launch.C + column]
                                     : x[(position - launch.kept) * launch.strides[2] + column * launch.strides[3]];
  });
  __syncthreads();
  for_elements([&](int k, int position, int column) {
    all[position * launch.C + column] = held[k];
    if (position >= launch.added) kept[(position - launch.added) * launch.C + column] = held[k];
  });
}

/// Whether all three can be read and written as vectors of 16 bytes along the last dimension.
bool is_by_vectors(const Tensor& all, const Tensor& kept, const Tensor& x) {
  const auto bytes = static_cast<std::int64_t>(size_of(all.dtype()));
  bool is_whole = all.size(3) * bytes % 16 == 0 && all.size(2) * all.size(3) * bytes <= 16 * held(16) * kMostThreads &&
                  (x.stride(3) == 1 || x.numel() == 0);
  for (int d = 0; d < 3; ++d) is_whole = is_whole && (x.size(d) < 2 || x.stride(d) * bytes % 16 == 0);
  return is_whole && is_aligned(all.raw(), 16) && is_aligned(kept.raw(), 16) && is_aligned(x.raw(), 16);
}

/// `pack`: numbers of an element T.
template <class T>
void launch_advance(const Tensor& all, const Tensor& kept, const Tensor& x, std::int64_t pack, cudaStream_t stream) {
  const std::int64_t C = all.size(3) / pack, positions = all.size(2);
  std::int64_t slices = 1;
  while (C % (2 * slices) == 0 && C / (2 * slices) * static_cast<std::int64_t>(sizeof(T)) >= kSectorBytes &&
         positions * C / slices > kSliceElements)
    slices *= 2;
  const auto columns = static_cast<int>(C / slices);
  AdvanceLaunch launch{
      all.size(1), static_cast<int>(kept.size(2)), static_cast<int>(x.size(2)), static_cast<int>(C), columns, Divider(columns),
      {}};
  for (int d = 0; d < 4; ++d) launch.strides[d] = d < 3 ? x.stride(d) / pack : 1;
  if (pack == 1) launch.strides[3] = x.stride(3);
  const auto count = static_cast<int>(positions * columns);
  const int threads = std::min((count + 31) / 32 * 32, kMostThreads);
  constexpr int kMost = held(sizeof(T));
  auto* kernel = advance_kernel<T, kMost>;
  if (count <= 4 * kMostThreads) kernel = advance_kernel<T, 4>;
  if (count <= kMostThreads) kernel = advance_kernel<T, 1>;
  const dim3 grid(static_cast<unsigned>(all.size(0) * all.size(1)), static_cast<unsigned>(slices));
  kernel<<<grid, static_cast<unsigned>(threads), 0, stream>>>(launch, static_cast<T*>(all.raw()), static_cast<T*>(kept.raw()),
                                                              static_cast<const T*>(x.raw()));
}

}  // namespace

bool advance_fits(const Tensor& all) {
  return all.size(2) * all.size(3) <= held(size_of(all.dtype())) * kMostThreads && all.size(0) * all.size(1) < std::int64_t{1}
                                                                                                                   << 31;
}

void advance(const Tensor& all, const Tensor& kept, const Tensor& x, cudaStream_t stream) {
  if (all.numel() == 0) return;
  const auto bytes = static_cast<std::int64_t>(size_of(all.dtype()));
  if (is_by_vectors(all, kept, x)) {
    launch_advance<uint4>(all, kept, x, 16 / bytes, stream);
  } else {
    dispatch_size(size_of(all.dtype()), [&]<class T>(T) { launch_advance<T>(all, kept, x, 1, stream); });
  }
  check_launch("stream: advance");
}

}  // namespace polyphase::cuda
