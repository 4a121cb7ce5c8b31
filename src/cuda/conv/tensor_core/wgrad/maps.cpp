#include "cuda/conv/tensor_core/wgrad/maps.hpp"

namespace polyphase::cuda::tensor_core {
TensorMapOf wgrad_map_of(const WgradSide& side, const ConvProblem& problem, const void* tensor, int bytes, int c,
                         bool swizzled) {
  const int classes = side.raw.classes;
  const MapRows rows{tensor, problem.G * side.channels, side.length, bytes};
  TensorMapOf of = class_map_of(rows, c, classes, 16, side.raw.width, classes * side.raw.rows);
  of.samples = static_cast<std::uint64_t>(problem.N);
  // With one sample there is no next one.
  of.sample_bytes = static_cast<std::uint64_t>(rows.rows * rows.length * bytes + 15) / 16 * 16;
  of.swizzled = swizzled;
  return of;
}

WgradMaps make_wgrad_maps(const WgradTiling& tiling, const ConvProblem& problem, const void* x, const void* y, int bytes) {
  WgradMaps maps{};
  const auto fill = [&](WgradClasses& classes, const WgradSide& side, const void* tensor) {
    for (int c = 0; c < side.raw.classes; ++c) {
      const TensorMapOf of = wgrad_map_of(side, problem, tensor, bytes, c, side.raw.is_swizzled);
      classes.map[c] = encode_tensor_map(of);
      classes.offset[c] = of.offset;
    }
  };
  fill(maps.rows, tiling.rows, tiling.swapped ? y : x);
  fill(maps.columns, tiling.columns, tiling.swapped ? x : y);
  return maps;
}

}  // namespace polyphase::cuda::tensor_core
