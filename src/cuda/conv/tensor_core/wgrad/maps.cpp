#include "cuda/conv/tensor_core/wgrad/maps.hpp"

namespace polyphase::cuda::tensor_core {
TensorMapOf wgrad_map_of(const WgradSide& side, const ConvProblem& problem, const void* tensor, int bytes, int c,
                         bool swizzled) {
  const auto channels = static_cast<std::uint64_t>(problem.G * side.channels), length = static_cast<std::uint64_t>(side.length);
  const auto classes = static_cast<std::uint64_t>(side.raw.classes), own = static_cast<std::uint64_t>(c);
  const auto size = static_cast<std::uint64_t>(bytes);
  const std::uint64_t first = reinterpret_cast<std::uint64_t>(tensor) + own * length * size;
  TensorMapOf of{};
  of.address = first / 16 * 16;
  of.offset = static_cast<int>((first - of.address) / size);
  of.numbers = length + static_cast<std::uint64_t>(of.offset);
  of.rows = channels > own ? (channels - own + classes - 1) / classes : 1;
  of.samples = static_cast<std::uint64_t>(problem.N);
  of.row_bytes = classes * length * size;
  // With one sample the pitch is not used.
  of.sample_bytes = (channels * length * size + 15) / 16 * 16;
  of.box_numbers = static_cast<std::uint32_t>(side.raw.width);
  of.box_rows = static_cast<std::uint32_t>(side.raw.rows);
  of.bytes = bytes;
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
