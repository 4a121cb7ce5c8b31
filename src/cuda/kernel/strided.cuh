#pragma once
// An index space over strided operands as a kernel parameter: maps flat positions to element offsets.

#include <algorithm>
#include <cstdint>

#include "cuda/kernel/fast_divide.cuh"
#include "tensor/loop.hpp"
#include "tensor/shape.hpp"

namespace polyphase::cuda {

inline constexpr int kThreads = 256;  ///< per block of memory-bound kernels

/// Blocks of kThreads for `items` threads; kernels loop if the grid cannot be that large.
inline unsigned grid_for(std::int64_t items, int threads = kThreads) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((items + threads - 1) / threads, 1, 0x7fffffff));
}

/// The calling thread's index in the launch, and the number of threads.
#ifdef __CUDACC__
__device__ __forceinline__ std::int64_t thread_position() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t thread_count() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }
#endif

/// Division of a flat position by a size known at launch, by multiplication (fast_divide.cuh; here also for 63 bits).
struct Divider {
  FastDivide fast;               ///< for sizes below 2^31
  std::uint64_t multiplier = 1;  ///< for positions from 2^31 on
  std::uint32_t shift = 0;
  std::int64_t size = 1;
  Divider() = default;
  explicit Divider(std::int64_t divisor) : size(divisor) {
    if (divisor < std::int64_t{1} << 31) fast = FastDivide(static_cast<std::uint32_t>(divisor));
    __extension__ typedef unsigned __int128 Wide;
    const auto d = static_cast<std::uint64_t>(divisor);
    while ((std::uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<std::uint64_t>((static_cast<Wide>((std::uint64_t{1} << shift) - d) << 64) / d + 1);
  }
#ifdef __CUDACC__
  /// The quotient; `flat` becomes the remainder. `narrow`: flat and size are below 2^31.
  __device__ __forceinline__ std::int64_t split(std::int64_t& flat, bool narrow) const {
    if (narrow) {
      const auto n = static_cast<std::uint32_t>(flat);
      const std::uint32_t quotient = fast.divide(n);
      flat = n - quotient * fast.divisor;
      return quotient;
    }
    const auto n = static_cast<std::uint64_t>(flat);
    const auto quotient = static_cast<std::int64_t>((__umul64hi(n, multiplier) + n) >> shift);
    flat -= quotient * size;
    return quotient;
  }
#endif
};

/// The index space of tensor/loop.hpp's Loop. Dimension rank - 1 is the innermost.
template <int kOperands>
struct Strided {
  int rank = 1;
  bool narrow = true;  ///< fewer than 2^31 positions
  std::int64_t count = 0;
  Divider sizes[kMaxRank];
  std::int64_t strides[kOperands][kMaxRank] = {};  // (operand, dimension), in elements

  Strided() = default;
  explicit Strided(const Loop& loop) : rank(loop.rank), narrow(loop.count < std::int64_t{1} << 31), count(loop.count) {
    for (std::size_t d = 0; d < static_cast<std::size_t>(rank); ++d) {
      sizes[d] = Divider(loop.sizes[d]);
      for (std::size_t k = 0; k < kOperands && k < static_cast<std::size_t>(loop.operands); ++k)
        strides[k][d] = loop.strides[k][d];
    }
  }

#ifdef __CUDACC__
  /// Calls add(dimension, index in it) for the dimensions of position `flat`, innermost first.
  template <class Add>
  __device__ __forceinline__ void walk(std::int64_t flat, const Add& add) const {
    for (int d = rank - 1; d > 0; --d) {
      std::int64_t index = flat;
      flat = sizes[d].split(index, narrow);
      add(d, index);
    }
    add(0, flat);
  }
  __device__ __forceinline__ std::int64_t offset(int operand, std::int64_t flat) const {
    std::int64_t result = 0;
    walk(flat, [&](int d, std::int64_t index) { result += index * strides[operand][d]; });
    return result;
  }
#endif
};

}  // namespace polyphase::cuda
