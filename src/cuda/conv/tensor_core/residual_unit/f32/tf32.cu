// Residual units of f32 to the accuracy of tf32.

#include "cuda/conv/tensor_core/residual_unit/f32/f32.hpp"
#include "cuda/conv/tensor_core/residual_unit/f32/launch.cuh"

namespace polyphase::cuda::tensor_core {

void tf32_residual_unit(const ResidualUnit& unit, const UnitTiling& tiling, const float* x,
                        const std::array<UnitConv, 2>& convs, const UnitAverage& average, float* out, int device,
                        cudaStream_t stream) {
  launch_unit_of_channels<1>(unit, tiling, x, convs, average, out, device, stream);
}

}  // namespace polyphase::cuda::tensor_core
