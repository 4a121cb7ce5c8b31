// Residual units of f32 whose first convolution is depthwise.

#include "cuda/conv/tensor_core/residual_unit/f32/depthwise.cuh"

#include <algorithm>

#include "cuda/conv/tensor_core/residual_unit/f32/f32.hpp"
#include "cuda/conv/tensor_core/residual_unit/f32/launch.cuh"

namespace polyphase::cuda::tensor_core {
namespace {

template <int kChannels, int kPasses>
void launch_depthwise(const ResidualUnit& unit, const UnitTiling& tiling, const float* x, const std::array<UnitConv, 2>& convs,
                      float* out, int device, cudaStream_t stream) {
  using Shape = DepthwiseUnitShape<UnitF32Shape<kChannels, kPasses>, true>;
  using MarkedShape = DepthwiseUnitShape<UnitShape<kChannels, 4, kPasses>, false>;
  UnitF32Weights packed{};
  const auto held = pack_unit_conv<kPasses>(unit, 1, convs[1], packed, device, stream);
  const UnitDepthwise<float> depthwise{static_cast<const float*>(convs[0].weights.data()),
                                       static_cast<const float*>(convs[0].bias)};
  const Buffer marks(static_cast<std::size_t>(tiling.blocks), device);
  const auto run = [&](auto* kernel, std::int64_t grid, int shared_bytes) {
    allow_shared_memory(kernel, shared_bytes, 100);
    launch_behind(kernel, static_cast<unsigned>(grid), Shape::kThreads, static_cast<std::size_t>(shared_bytes), stream, tiling,
                  x, depthwise, packed, unit_snakes(convs), out, marks.as<unsigned char>(), UnitAverage());
    check_launch("residual unit of f32, depthwise");
  };
  run(f32_depthwise_unit_kernel<Shape>, tiling.thread_blocks, tiling.shared_bytes);
  const std::int64_t most = static_cast<std::int64_t>(properties(device).sm_count) * MarkedShape::kBlocksPerSm;
  run(f32_depthwise_unit_marked_kernel<MarkedShape>, std::min(tiling.blocks, most), tiling.marked_shared_bytes);
}

}  // namespace

void f32_depthwise_unit(const ResidualUnit& unit, const UnitTiling& tiling, const float* x,
                        const std::array<UnitConv, 2>& convs, float* out, int device, cudaStream_t stream) {
  const bool is_tf32 = unit.precision == Precision::tf32;
  if (unit.C == 64)
    return is_tf32 ? launch_depthwise<64, 1>(unit, tiling, x, convs, out, device, stream)
                   : launch_depthwise<64, 3>(unit, tiling, x, convs, out, device, stream);
  is_tf32 ? launch_depthwise<128, 1>(unit, tiling, x, convs, out, device, stream)
          : launch_depthwise<128, 3>(unit, tiling, x, convs, out, device, stream);
}

}  // namespace polyphase::cuda::tensor_core
