#pragma once
// The weight gradient by operand type: the interface of the files that compile the kernels.

#include <cuda_runtime.h>

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/wgrad/wide/wide.hpp"

namespace polyphase::cuda::tensor_core {

struct WgradTiling;

inline constexpr int kSampleGroups = 32;  // per tensor
inline constexpr int kSampleWords = 64;   // per tensor

/// Counts the numbers below the normal halves, each once per tile that reads it.
using SmallCount = unsigned long long;  // the type of atomicAdd()

/// What the scaling of f32 operands needs to know of the tensors, found on the device. small_of_jobs() follows it in memory.
struct __align__(16) WgradScales {
  std::uint32_t x_largest[kSampleGroups], y_largest[kSampleGroups];  // float bits: of samples, see largest_of
  std::uint32_t x_sample[kSampleWords], y_sample[kSampleWords];      // WgradSampleWord (sample.cuh)
  SmallCount small;
  std::uint32_t most;  // float bits: the largest half; beyond 65504 some number has no half
};

#ifdef __CUDACC__
/// `small` of each job (WgradTiling): a weight's loss depends on its own job alone.
__device__ __forceinline__ SmallCount* small_of_jobs(WgradScales* scales) { return reinterpret_cast<SmallCount*>(scales + 1); }

/// The largest of a tensor's samples.
__device__ __forceinline__ std::uint32_t largest_of(const std::uint32_t* samples) {
  std::uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < kSampleGroups / 4; ++i) {
    const uint4 four = reinterpret_cast<const uint4*>(samples)[i];
    most = max(max(most, four.x), max(four.y, max(four.z, four.w)));
  }
  return most;
}
#endif

/// What the kernel by rows reads: the tensors of a problem, or their samples joined (joined.hpp).
struct WgradSource {
  const ConvProblem* problem;
  const void *x, *y;
};

struct WgradCall {
  const ConvProblem& problem;
  const void *x, *y;
  void* w;
  WgradScales* scales;  // for f32 operands
  int device;
  cudaStream_t stream;
  const WgradTiling* tiling = nullptr;       // on sm_90a
  WideWeights wide{};                        // of f32
  const WgradTiling* wide_tiling = nullptr;  // of the wide kernel by rows
  WgradSource source{&problem, x, y};
};

void wgrad_split(const WgradCall& call);       // f32 as two f16
void wgrad_tf32(const WgradCall& call);        // f32 as one scaled f16
void wgrad_split_wide(const WgradCall& call);  // marked jobs, f32 as three bf16
void wgrad_tf32_wide(const WgradCall& call);   // marked jobs, f32 as two bf16
void wgrad_f16(const WgradCall& call);
void wgrad_bf16(const WgradCall& call);

}  // namespace polyphase::cuda::tensor_core
