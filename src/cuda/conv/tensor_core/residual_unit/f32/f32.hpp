#pragma once
// A residual unit of f32 tensors in one kernel, to the accuracy of tf32. Host side.

#include <array>

#include <cuda_runtime.h>

#include "conv/residual_unit.hpp"
#include "cuda/conv/tensor_core/residual_unit/tiling.hpp"
#include "cuda/conv/unit_conv.hpp"

namespace polyphase::cuda::tensor_core {

/// Computes the unit, tiled as for f32, on `stream`. Contiguous arrays; `out` is not x.
void f32_residual_unit(const ResidualUnit& unit, const UnitTiling& tiling, const float* x, const std::array<UnitConv, 2>& convs,
                       float* out, int device, cudaStream_t stream);

}  // namespace polyphase::cuda::tensor_core
