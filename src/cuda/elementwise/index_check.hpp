#pragma once
// Positions that a user gave on the device, checked there: nothing waits, the error comes from a call that waits anyway.

#include <cuda_runtime.h>

#include "tensor/tensor.hpp"

namespace polyphase::cuda {

/// Notes a position of index (J), i64 contiguous, that is outside [0, length), if there is one.
void check_index(const Tensor& index, std::int64_t length, cudaStream_t stream);

/// Throws the ShapeError of a check that has failed on the device by now, once. To be called after waiting for the device.
void report_bad_index(int device);

}  // namespace polyphase::cuda
