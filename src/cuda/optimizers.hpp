#pragma once
// Optimizer steps on the device: one launch for up to 90 parameters (Backend::sgd_step, adam_step).

#include <cuda_runtime.h>

#include <span>

#include "tensor/backend.hpp"

namespace polyphase::cuda {

/// The formulas of cpu/optimizers_kernels.cpp; halves are computed in f32. In a recorded graph Adam's step count goes on from
/// replay to replay. All slots on `device`; throws DTypeError for i64.
void sgd_step(std::span<const OptimizerSlot> slots, const SgdStep& step, int device, cudaStream_t stream);
void adam_step(std::span<const OptimizerSlot> slots, const AdamStep& step, int device, cudaStream_t stream);

}  // namespace polyphase::cuda
