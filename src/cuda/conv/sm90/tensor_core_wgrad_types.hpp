#pragma once
// The weight gradient by operand type: what the files that compile the kernels offer to tensor_core_wgrad.cu.

#include <cuda_runtime.h>

#include <cstdint>

#include "conv/problem.hpp"

namespace polyphase::cuda::tensor_core {

/// What the scaling of f32 operands needs to know of the tensors, found on the device.
struct WgradScales {
  std::uint32_t x_largest, y_largest;  // float bits: of a sample
  std::uint32_t small;                 // how many numbers are below the normal halves
  std::uint32_t most;                  // float bits: the largest half there was; beyond 65504 some number has no half
  std::uint32_t repaired;              // weights computed again
};

struct WgradCall {
  const ConvProblem& problem;
  const void *x, *y;
  void* w;
  WgradScales* scales;  // of f32 operands
  int device;
  cudaStream_t stream;
};

void wgrad_split(const WgradCall& call);  // f32 as two f16
void wgrad_tf32(const WgradCall& call);   // f32 as one scaled f16
void wgrad_half(const WgradCall& call);
void wgrad_brain(const WgradCall& call);

}  // namespace polyphase::cuda::tensor_core
