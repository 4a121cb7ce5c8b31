#pragma once
// A residual unit of f32 tensors in one kernel. Host side.

#include <array>

#include <cuda_runtime.h>

#include "conv/residual_unit.hpp"
#include "cuda/conv/tensor_core/residual_unit/tiling.hpp"
#include "cuda/conv/unit_conv.hpp"

namespace polyphase::cuda::tensor_core {

/// Computes the unit, tiled for this precision, on `stream`. Contiguous arrays; `out` is not x, but may be `average.other`.
void tf32_residual_unit(const ResidualUnit& unit, const UnitTiling& tiling, const float* x,
                        const std::array<UnitConv, 2>& convs, const UnitAverage& average, float* out, int device,
                        cudaStream_t stream);
void fp32_residual_unit(const ResidualUnit& unit, const UnitTiling& tiling, const float* x,
                        const std::array<UnitConv, 2>& convs, const UnitAverage& average, float* out, int device,
                        cudaStream_t stream);

/// The same for a unit whose first convolution is depthwise, in either precision.
void f32_depthwise_unit(const ResidualUnit& unit, const UnitTiling& tiling, const float* x,
                        const std::array<UnitConv, 2>& convs, float* out, int device, cudaStream_t stream);

}  // namespace polyphase::cuda::tensor_core
