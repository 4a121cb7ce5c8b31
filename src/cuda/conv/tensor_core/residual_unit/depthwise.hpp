#pragma once
// Residual units of 16 bits whose first convolution is depthwise. Host side.

#include <cuda_runtime.h>

#include <array>

#include "conv/residual_unit.hpp"
#include "cuda/conv/tensor_core/residual_unit/tiling.hpp"
#include "cuda/conv/unit_conv.hpp"

namespace polyphase::cuda::tensor_core {

/// Computes the unit, of f16 or bf16, on `stream`. Contiguous arrays; `out` is not x.
void depthwise_unit(const ResidualUnit& unit, const UnitTiling& tiling, const void* x, const std::array<UnitConv, 2>& convs,
                    void* out, int device, cudaStream_t stream);

}  // namespace polyphase::cuda::tensor_core
