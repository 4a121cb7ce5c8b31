#pragma once
// Packs the weights of a residual unit of f32 and launches its kernels.

#include <algorithm>
#include <array>
#include <memory>

#include "cuda/conv/tensor_core/residual_unit/f32/kernel.cuh"
#include "cuda/conv/tensor_core/residual_unit/f32/marked.cuh"
#include "cuda/conv/tensor_core/residual_unit/f32/pack.cuh"
#include "cuda/conv/tensor_core/residual_unit/packing.hpp"
#include "cuda/memory/allocator.hpp"

namespace polyphase::cuda::tensor_core {

/// Where the packed weights of a convolution are, in bytes from their beginning.
template <int kPasses>
struct UnitF32Places {
  std::size_t channels, tf32, tf32_channels, bytes;
  UnitF32Places(const ResidualUnit& unit, std::size_t i) {
    const std::size_t of_weights = unit_weight_bytes(unit, i), count = static_cast<std::size_t>(unit.C);
    channels = of_weights * UnitShape<32, 2, kPasses>::kWeightParts;
    tf32 = channels + count * sizeof(UnitChannel);
    tf32_channels = tf32 + 2 * of_weights * UnitShape<32, 4, kPasses>::kWeightParts;
    bytes = tf32_channels + count * sizeof(UnitMarkedChannel);
  }
};

template <int kPasses>
std::shared_ptr<const Buffer> packed_unit_weights(const ResidualUnit& unit, std::size_t i, const Weights& weights, int device,
                                                  cudaStream_t stream) {
  const auto channels = static_cast<int>(unit.C), taps = static_cast<int>(unit.K[i]);
  const UnitF32Places<kPasses> places(unit, i);
  return weights.packed(
      unit_packing_key(unit, i), places.bytes, device, stream,
      [channels, taps, places](const void* w, void* to, cudaStream_t on) {
        auto* const packed = static_cast<unsigned char*>(to);
        f32_residual_unit_pack_kernel<kPasses><<<static_cast<unsigned>(channels), kUnitF32PackThreads, 0, on>>>(
            channels, taps, static_cast<const float*>(w), packed, reinterpret_cast<UnitChannel*>(packed + places.channels),
            reinterpret_cast<float*>(packed + places.tf32),
            reinterpret_cast<UnitMarkedChannel*>(packed + places.tf32_channels));
        check_launch("residual unit of f32: pack weights");
      });
}

/// packed = the arrays of convolution i, which the result holds.
template <int kPasses>
std::shared_ptr<const Buffer> pack_unit_conv(const ResidualUnit& unit, std::size_t i, const UnitConv& conv,
                                             UnitF32Weights& packed, int device, cudaStream_t stream) {
  std::shared_ptr<const Buffer> held = packed_unit_weights<kPasses>(unit, i, conv.weights, device, stream);
  const UnitF32Places<kPasses> places(unit, i);
  packed.weights[i] = held->template as<unsigned char>();
  packed.channels[i] = reinterpret_cast<const UnitChannel*>(packed.weights[i] + places.channels);
  packed.of_marked[i] = packed.weights[i] + places.tf32;
  packed.marked_channels[i] = reinterpret_cast<const UnitMarkedChannel*>(packed.weights[i] + places.tf32_channels);
  packed.bias[i] = static_cast<const float*>(conv.bias);
  return held;
}

[[nodiscard]] inline UnitSnakes<float> unit_snakes(const std::array<UnitConv, 2>& convs) {
  UnitSnakes<float> snakes{};
  for (std::size_t i = 0; i < 2; ++i)
    snakes.alpha[i] = static_cast<const float*>(convs[i].alpha), snakes.beta[i] = static_cast<const float*>(convs[i].beta);
  return snakes;
}

template <UnitKind kKind, int kChannels, int kPasses>
void launch_unit_kernels(const UnitTiling& tiling, const float* x, const UnitF32Weights& packed,
                         const UnitSnakes<float>& snakes, const UnitAverage& average, float* out, int device,
                         cudaStream_t stream) {
  using Shape = UnitF32Shape<kChannels, kPasses>;
  using MarkedShape = UnitShape<kChannels, 4, kPasses>;
  const Buffer marks(static_cast<std::size_t>(tiling.blocks), device);
  const auto run = [&](auto* kernel, std::int64_t grid, int shared_bytes) {
    allow_shared_memory(kernel, shared_bytes, 100);
    launch_dependent(starts_early(tiling), kernel, static_cast<unsigned>(grid), Shape::kThreads,
                     static_cast<std::size_t>(shared_bytes), stream, tiling, x, packed, snakes, out, marks.as<unsigned char>(),
                     average);
    check_launch("residual unit of f32");
  };
  if constexpr (Shape::kMayBeWhole) {
    run(tiling.is_whole ? f32_residual_unit_kernel<kKind, WholeUnitShape<Shape>> : f32_residual_unit_kernel<kKind, Shape>,
        tiling.thread_blocks, tiling.shared_bytes);
  } else {
    run(f32_residual_unit_kernel<kKind, Shape>, tiling.thread_blocks, tiling.shared_bytes);
  }
  const std::int64_t most = static_cast<std::int64_t>(properties(device).sm_count) * MarkedShape::kBlocksPerSm;
  run(f32_residual_unit_marked_kernel<kKind, MarkedShape>, std::min(tiling.blocks, most), tiling.marked_shared_bytes);
}

/// Computes the unit, tiled for kPasses, on `stream`.
template <int kChannels, int kPasses>
void launch_unit(const ResidualUnit& unit, const UnitTiling& tiling, const float* x, const std::array<UnitConv, 2>& convs,
                 const UnitAverage& average, float* out, int device, cudaStream_t stream) {
  UnitF32Weights packed{};
  std::array<std::shared_ptr<const Buffer>, 2> held;
  for (std::size_t i = 0; i < 2; ++i) held[i] = pack_unit_conv<kPasses>(unit, i, convs[i], packed, device, stream);
  const UnitSnakes<float> snakes = unit_snakes(convs);
  if (tiling.kind == UnitKind::snake)
    launch_unit_kernels<UnitKind::snake, kChannels, kPasses>(tiling, x, packed, snakes, average, out, device, stream);
  else if constexpr (kChannels % 96 != 0)  // what make_unit_tiling() offers
    tiling.kind == UnitKind::plain
        ? launch_unit_kernels<UnitKind::plain, kChannels, kPasses>(tiling, x, packed, snakes, average, out, device, stream)
        : launch_unit_kernels<UnitKind::any, kChannels, kPasses>(tiling, x, packed, snakes, average, out, device, stream);
}

/// The same for unit.C channels.
template <int kPasses>
void launch_unit_of_channels(const ResidualUnit& unit, const UnitTiling& tiling, const float* x,
                             const std::array<UnitConv, 2>& convs, const UnitAverage& average, float* out, int device,
                             cudaStream_t stream) {
  const auto run = [&]<int kChannels>() {
    launch_unit<kChannels, kPasses>(unit, tiling, x, convs, average, out, device, stream);
  };
  switch (unit.C) {
    case 32:
      return run.template operator()<32>();
    case 64:
      return run.template operator()<64>();
    case 128:
      return run.template operator()<128>();
    default:
      if constexpr (kPasses == 1) return unit.C == 96 ? run.template operator()<96>() : run.template operator()<192>();
  }
}

}  // namespace polyphase::cuda::tensor_core
