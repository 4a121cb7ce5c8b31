// Residual units of f32 to the accuracy of tf32.

#include "cuda/conv/tensor_core/residual_unit/f32/f32.hpp"
#include "cuda/conv/tensor_core/residual_unit/f32/launch.cuh"

namespace polyphase::cuda::tensor_core {

void tf32_residual_unit(const ResidualUnit& unit, const UnitTiling& tiling, const float* x,
                        const std::array<UnitConv, 2>& convs, float* out, int device, cudaStream_t stream) {
  switch (unit.C) {
    case 32:
      return launch_unit<32, 1>(unit, tiling, x, convs, out, device, stream);
    case 64:
      return launch_unit<64, 1>(unit, tiling, x, convs, out, device, stream);
    case 96:
      return launch_unit<96, 1>(unit, tiling, x, convs, out, device, stream);
    case 128:
      return launch_unit<128, 1>(unit, tiling, x, convs, out, device, stream);
    default:
      return launch_unit<192, 1>(unit, tiling, x, convs, out, device, stream);
  }
}

}  // namespace polyphase::cuda::tensor_core
