#pragma once
// Checks positions from the user on the device. Nothing waits; a later call that waits anyway reports the error.

#include <cuda_runtime.h>

#include "tensor/tensor.hpp"

namespace polyphase::cuda {

/// Notes a position of index (J), i64 contiguous, that is outside [0, length), if there is one.
void check_index(const Tensor& index, std::int64_t length, cudaStream_t stream);

/// Throws the ShapeError of a failed check, once. Call it after waiting for the device.
void report_bad_index(int device);

}  // namespace polyphase::cuda
