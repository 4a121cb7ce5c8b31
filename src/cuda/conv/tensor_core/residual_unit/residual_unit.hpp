#pragma once
// A residual unit in one kernel, on sm_90a. Host side.

#include <array>
#include <optional>

#include <cuda_runtime.h>

#include "conv/residual_unit.hpp"
#include "cuda/conv/unit_conv.hpp"

namespace polyphase::cuda::tensor_core {

/// Computes the unit on `stream` and returns true; returns false, with nothing done, where it is computed faster in steps or no
/// kernel does it. Contiguous arrays of `unit.dtype`; `out` is not x, but may be `average.other`.
[[nodiscard]] bool residual_unit(const ResidualUnit& unit, const void* x, const std::array<UnitConv, 2>& convs,
                                 const UnitAverage& average, void* out, int device, cudaStream_t stream);

}  // namespace polyphase::cuda::tensor_core
