#include "cuda/conv/tensor_core/residual_unit/f32/f32.hpp"

#include "cuda/conv/tensor_core/residual_unit/f32/exact.cuh"
#include "cuda/conv/tensor_core/residual_unit/f32/kernel.cuh"
#include "cuda/conv/tensor_core/residual_unit/f32/pack.cuh"
#include "cuda/conv/tensor_core/residual_unit/packing.hpp"
#include "cuda/memory/allocator.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

std::shared_ptr<const Buffer> packed_weights(const ResidualUnit& unit, std::size_t i, const Weights& weights, int device,
                                             cudaStream_t stream) {
  const auto channels = static_cast<int>(unit.C), taps = static_cast<int>(unit.K[i]);
  const std::size_t bytes = unit_weight_bytes(unit, i);
  return weights.packed(unit_packing_key(unit, i), bytes + static_cast<std::size_t>(channels) * sizeof(UnitChannel), device,
                        stream, [channels, taps, bytes](const void* w, void* to, cudaStream_t on) {
                          auto* const packed = static_cast<unsigned char*>(to);
                          f32_residual_unit_pack_kernel<<<static_cast<unsigned>(channels), kUnitF32PackThreads, 0, on>>>(
                              channels, taps, static_cast<const float*>(w), packed,
                              reinterpret_cast<UnitChannel*>(packed + bytes));
                          check_launch("residual unit of f32: pack weights");
                        });
}

// The blocks that the kernel before has marked.
void compute_marked(const ResidualUnit& unit, const UnitTiling& tiling, int positions, const float* x,
                    const std::array<UnitConv, 2>& convs, const unsigned char* marks, float* out, int device,
                    cudaStream_t stream) {
  // Rows of 8 channels are in different banks.
  const int pitch = (tiling.pitch + 23) / 32 * 32 + 8;
  UnitExact exact{};
  exact.channels = static_cast<int>(unit.C), exact.pitch = pitch, exact.is_snake = unit.is_snake;
  for (std::size_t i = 0; i < 2; ++i) {
    exact.weights[i] = static_cast<const float*>(convs[i].weights.data());
    exact.bias[i] = static_cast<const float*>(convs[i].bias);
    exact.alpha[i] = static_cast<const float*>(convs[i].alpha), exact.beta[i] = static_cast<const float*>(convs[i].beta);
  }
  const std::size_t bytes = static_cast<std::size_t>(exact.channels) * static_cast<std::size_t>(pitch) * 4;
  allow_shared_memory(f32_residual_unit_exact_kernel, static_cast<int>(bytes), 100);
  const std::int64_t grid = std::min(tiling.blocks, static_cast<std::int64_t>(properties(device).sm_count));
  launch_behind(f32_residual_unit_exact_kernel, static_cast<unsigned>(grid),
                static_cast<unsigned>(exact.channels / 16 * (positions / 128) * 32), bytes, stream, tiling, exact, x, marks,
                out);
  check_launch("residual unit of f32: blocks of mixed magnitudes");
}

template <class Shape>
void launch(const ResidualUnit& unit, const UnitTiling& tiling, const float* x, const std::array<UnitConv, 2>& convs,
            float* out, int device, cudaStream_t stream) {
  UnitF32Weights packed{};
  UnitSnakes<float> snakes{};
  std::array<std::shared_ptr<const Buffer>, 2> held;
  for (std::size_t i = 0; i < 2; ++i) {
    held[i] = packed_weights(unit, i, convs[i].weights, device, stream);
    packed.weights[i] = held[i]->template as<unsigned char>();
    packed.channels[i] = reinterpret_cast<const UnitChannel*>(packed.weights[i] + unit_weight_bytes(unit, i));
    packed.bias[i] = static_cast<const float*>(convs[i].bias);
    snakes.alpha[i] = static_cast<const float*>(convs[i].alpha), snakes.beta[i] = static_cast<const float*>(convs[i].beta);
  }
  const Buffer marks(static_cast<std::size_t>(tiling.blocks), device);
  const auto run = [&](auto* kernel) {
    allow_shared_memory(kernel, tiling.shared_bytes, 100);
    launch_behind(kernel, static_cast<unsigned>(tiling.thread_blocks), Shape::kThreads,
                  static_cast<std::size_t>(tiling.shared_bytes), stream, tiling, x, packed, snakes, out,
                  marks.as<unsigned char>());
    check_launch("residual unit of f32");
  };
  if (tiling.kind == UnitKind::snake)
    run(f32_residual_unit_kernel<UnitKind::snake, Shape>);
  else if constexpr (Shape::kChannels != 96 && Shape::kChannels != 192)  // what make_unit_tiling() offers
    tiling.kind == UnitKind::plain ? run(f32_residual_unit_kernel<UnitKind::plain, Shape>)
                                   : run(f32_residual_unit_kernel<UnitKind::any, Shape>);
  compute_marked(unit, tiling, Shape::kPositions, x, convs, marks.as<unsigned char>(), out, device, stream);
}

}  // namespace

void f32_residual_unit(const ResidualUnit& unit, const UnitTiling& tiling, const float* x, const std::array<UnitConv, 2>& convs,
                       float* out, int device, cudaStream_t stream) {
  switch (unit.C) {
    case 32:
      return launch<UnitShape<32>>(unit, tiling, x, convs, out, device, stream);
    case 64:
      return launch<UnitShape<64>>(unit, tiling, x, convs, out, device, stream);
    case 96:
      return launch<UnitShape<96>>(unit, tiling, x, convs, out, device, stream);
    case 128:
      return launch<UnitShape<128>>(unit, tiling, x, convs, out, device, stream);
    default:
      return launch<UnitShape<192>>(unit, tiling, x, convs, out, device, stream);
  }
}

}  // namespace polyphase::cuda::tensor_core
