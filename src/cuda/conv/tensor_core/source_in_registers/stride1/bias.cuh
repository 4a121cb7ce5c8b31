#pragma once
// Adds biases to the sums of kernel.cuh. 16-bit biases have the type of the operands: sums begin with a product of them and are
// complete at the end. Other biases are added when a tile is stored.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/tiling.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/opaque.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace polyphase::cuda::tensor_core {

/// Writes this thread's column's bias to shared memory in the format of rows_bias_bytes().
template <class Mode, int kN, class T>
__device__ __forceinline__ void keep_bias(const TapGemm& gemm, const Stride1Tiling& tiling, const T* __restrict__ bias,
                                          unsigned char* to) {
  const TilePlace place = Walk(tiling, 0).place(tiling);
  const std::int64_t column = place.column + threadIdx.x;
  auto own = static_cast<T>(0.0F);
  if (bias != nullptr && column < gemm.columns)
    own = bias[place.g * gemm.out_channels + tiling.by_classes.divide(static_cast<std::uint32_t>(column))];
  if constexpr (Mode::kBeginsAtBias) {
    auto* const rows = reinterpret_cast<uint4*>(to) + threadIdx.x;  // of eight; the next eight are kN further on
    rows[0] = make_uint4(*reinterpret_cast<const std::uint16_t*>(&own), 0, 0, 0);
    rows[kN] = make_uint4(0, 0, 0, 0);
    ptx::fence_async_shared();
  } else {
    reinterpret_cast<float*>(to)[threadIdx.x] = static_cast<float>(own);
  }
}

/// Rows of ones: their products with (bias, 0, ...) are the biases. This is exact for any bias, because it meets no zero. The
/// rows of the second half differ from those of the first only where they meet a zero: if they were equal, ptxas would merge
/// both into one product and 64 copies.
template <class Mode>
struct OneRows {
  std::uint32_t of[Mode::kHalves][4];
  __device__ __forceinline__ OneRows() {
    constexpr std::uint32_t kOne = Mode::Operand::kType == ptx::Tensor::bf16 ? 0x3f803f80 : 0x3c003c00;
#pragma unroll
    for (int m = 0; m < Mode::kHalves; ++m) of[m][0] = of[m][1] = kOne, of[m][2] = of[m][3] = m == 0 ? 0 : kOne;
  }
  /// Starts the sums of a tile; `biases` comes from keep_bias().
  template <int kN>
  __device__ __forceinline__ void multiply(std::uint64_t biases, float (&sums)[Mode::kHalves][kN]) const {
    ptx::wgmma_fence();
#pragma unroll
    for (int m = 0; m < Mode::kHalves; ++m)
      ptx::WgmmaFromRegisters<Mode::Operand::kType, 2 * kN, false>::multiply(sums[m], of[m], biases, false);
    ptx::wgmma_commit();
  }
  /// Call after the wait for that.
  __device__ __forceinline__ void keep() {
#pragma unroll
    for (auto& fragment : of) ptx::opaque(fragment);
  }
};

/// Finishes columns 2q and 2q + 1 of every eight: a factor and, if `adds`, the columns' biases, which are read before the
/// stores because reads do not overtake them.
template <int kColumns>
struct ScaledSums {
  float scale;
  float2 bias[kColumns / 8];
  ScaledSums() = default;
  __device__ __forceinline__ ScaledSums(float scale_, const float* biases, bool adds, int lane) : scale(scale_), bias{} {
    if (!adds) return;
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i) bias[i] = *reinterpret_cast<const float2*>(biases + 8 * i + 2 * (lane % 4));
  }
  __device__ __forceinline__ float operator()(float sum, int i, int b) const {
    return fmaf(sum, scale, b == 0 ? bias[i].x : bias[i].y);
  }
};
/// Sums that are already complete.
struct WholeSums {
  WholeSums() = default;
  __device__ __forceinline__ WholeSums(float, const float*, bool, int) {}
  __device__ __forceinline__ float operator()(float sum, int, int) const { return sum; }
};
template <class Mode, int kColumns>
using SumsOf = std::conditional_t<Mode::kBeginsAtBias, WholeSums, ScaledSums<kColumns>>;

}  // namespace polyphase::cuda::tensor_core
