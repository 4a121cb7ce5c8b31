#pragma once
// Fragments of mma.sync, their products, and the wait for a stage of cp.async.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace polyphase::cuda::tensor_core {

template <class Operand>
using MmaElement = std::conditional_t<Operand::kType == ptx::Tensor::bf16, __nv_bfloat16, __half>;

/// 16 rows of a warp's 64 columns, as A.
struct MmaColumns {
  std::uint32_t of[4][4];
  __device__ __forceinline__ void load(std::uint32_t address) {
#pragma unroll
    for (int i = 0; i < 4; ++i) ptx::load_matrices(of[i], address + static_cast<std::uint32_t>(i) * 256);
  }
};
/// 16 rows of a warp's positions, as B.
template <int kPositions>
struct MmaPositions {
  std::uint32_t of[kPositions / 16][4];
  __device__ __forceinline__ void load(std::uint32_t address) {
#pragma unroll
    for (int i = 0; i < kPositions / 16; ++i) ptx::load_matrices(of[i], address + static_cast<std::uint32_t>(i) * 256);
  }
};

template <class Element, bool kFresh = false, int kPositions>
__device__ __forceinline__ void mma_multiply(float (&sums)[4][kPositions / 8][4], const MmaColumns& a,
                                             const MmaPositions<kPositions>& b) {
#pragma unroll
  for (int j = 0; j < kPositions / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kFresh)
        ptx::multiply(sums[i][j], a.of[i], b.of[j / 2][j % 2 * 2], b.of[j / 2][j % 2 * 2 + 1], Element{});
      else
        ptx::multiply_add(sums[i][j], a.of[i], b.of[j / 2][j % 2 * 2], b.of[j / 2][j % 2 * 2 + 1], Element{});
    }
  }
}

/// Waits for all but the last stages - 2 groups of copies.
__device__ __forceinline__ void wait_for_stage(int stages) {
  if (stages == 2) return ptx::copy_wait<0>();
  if (stages == 3) return ptx::copy_wait<1>();
  ptx::copy_wait<kMmaStagesMost - 2>();
}

}  // namespace polyphase::cuda::tensor_core
