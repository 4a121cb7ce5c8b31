#pragma once
// Optimizer steps on the device: one launch for up to 70 parameters of a dtype, after one that counts (Backend::sgd_step,
// adam_step).

#include <cuda_runtime.h>

#include <span>

#include "device/backend.hpp"

namespace polyphase::cuda {

/// The formulas of cpu/optimizers/optimizers_kernels.cpp; 16-bit types are computed in f32. Learning rate, step counts and skip
/// flag are read on the device. Throws DTypeError for i64.
void sgd_step(std::span<const OptimizerSlot> slots, const SgdStep& step, const StepControl& control, cudaStream_t stream);
void adam_step(std::span<const OptimizerSlot> slots, const AdamStep& step, const StepControl& control, cudaStream_t stream);

}  // namespace polyphase::cuda
