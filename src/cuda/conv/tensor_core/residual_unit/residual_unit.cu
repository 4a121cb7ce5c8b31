#include "cuda/conv/tensor_core/residual_unit/residual_unit.hpp"

#include <bit>

#include "cuda/conv/alignment.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/pipeline/tensor_map.hpp"
#include "cuda/conv/tensor_core/residual_unit/depthwise.hpp"
#include "cuda/conv/tensor_core/residual_unit/f32/f32.hpp"
#include "cuda/conv/tensor_core/residual_unit/kernel.cuh"
#include "cuda/conv/tensor_core/residual_unit/pack.cuh"
#include "cuda/kernel/dependent_launch.cuh"

namespace polyphase::cuda::tensor_core {
namespace {

template <class Operand, class Shape>
void launch(const ResidualUnit& unit, const UnitTiling& tiling, const void* x, const std::array<UnitConv, 2>& convs,
            const UnitAverage& average, void* out, int device, cudaStream_t stream) {
  using T = typename Operand::Source;
  const auto first = packed_unit_weights<T>(unit, 0, convs[0].weights, device, stream);
  const auto second = packed_unit_weights<T>(unit, 1, convs[1].weights, device, stream);
  const auto row_bytes = static_cast<std::uint64_t>(unit.L) * sizeof(T);
  const CUtensorMap map = encode_tensor_map({.address = reinterpret_cast<std::uint64_t>(x),
                                             .numbers = static_cast<std::uint64_t>(unit.L),
                                             .rows = Shape::kChannels,
                                             .samples = static_cast<std::uint64_t>(unit.N),
                                             .row_bytes = row_bytes,
                                             .sample_bytes = Shape::kChannels * row_bytes,
                                             .box_numbers = static_cast<std::uint32_t>(tiling.source_width),
                                             .box_rows = Shape::kChannels,
                                             .bytes = sizeof(T),
                                             .offset = 0,
                                             .swizzled = false});
  UnitSnakes<T> snakes{};
  for (std::size_t i = 0; i < 2; ++i)
    snakes.alpha[i] = static_cast<const T*>(convs[i].alpha), snakes.beta[i] = static_cast<const T*>(convs[i].beta);
  const auto run = [&](auto* kernel) {
    allow_shared_memory(kernel, tiling.shared_bytes, 100);
    launch_dependent(starts_early(tiling), kernel, static_cast<unsigned>(tiling.thread_blocks), Shape::kThreads,
                     static_cast<std::size_t>(tiling.shared_bytes), stream, tiling, map, first->template as<unsigned char>(),
                     static_cast<const T*>(convs[0].bias), second->template as<unsigned char>(),
                     static_cast<const T*>(convs[1].bias), snakes, static_cast<T*>(out), average);
    check_launch("residual unit");
  };
  const auto run_kind = [&]<UnitKind kKind>() {
    if constexpr (Shape::kMayBeWhole) {
      if (tiling.is_whole) return run(residual_unit_kernel<Operand, kKind, WholeUnitShape<Shape>>);
    }
    run(residual_unit_kernel<Operand, kKind, Shape>);
  };
  if (tiling.kind == UnitKind::snake) return run_kind.template operator()<UnitKind::snake>();
  if constexpr (Shape::kChannels % 96 != 0) {  // what make_unit_tiling() offers
    if (tiling.kind == UnitKind::plain) return run_kind.template operator()<UnitKind::plain>();
    run_kind.template operator()<UnitKind::any>();
  }
}

/// Whether average.cuh computes it: its divisors are small powers of two and small odd numbers.
bool can_average(const ResidualUnit& unit, const UnitAverage& average) {
  if (average.other == nullptr) return true;
  constexpr int kMostDivisor = 64;
  if (unit.is_snake || !(average.divisor >= 1 && average.divisor <= kMostDivisor)) return false;
  const auto divisor = static_cast<unsigned>(average.divisor);
  return static_cast<float>(divisor) == average.divisor && (divisor % 2 == 1 || std::has_single_bit(divisor));
}

}  // namespace

bool residual_unit(const ResidualUnit& unit, const void* x, const std::array<UnitConv, 2>& convs, const UnitAverage& average,
                   void* out, int device, cudaStream_t stream) {
  const DeviceProperties& gpu = properties(device);
  if (gpu.arch() != 90 || uses_mma(gpu.arch())) return false;
  for (const void* tensor : {x, static_cast<const void*>(out), average.other})
    if (reinterpret_cast<std::uintptr_t>(tensor) % 16 != 0) return false;
  if (!can_average(unit, average)) return false;
  const auto tiling = make_unit_tiling(unit, gpu);
  if (!tiling) return false;
  if (unit.is_depthwise) {
    unit.dtype == DType::f32
        ? f32_depthwise_unit(unit, *tiling, static_cast<const float*>(x), convs, static_cast<float*>(out), device, stream)
        : depthwise_unit(unit, *tiling, x, convs, out, device, stream);
    return true;
  }
  if (unit.dtype == DType::f32) {
    (unit.precision == Precision::tf32 ? tf32_residual_unit : fp32_residual_unit)(
        unit, *tiling, static_cast<const float*>(x), convs, average, static_cast<float*>(out), device, stream);
    return true;
  }
  const auto run = [&]<int kChannels>() {
    if (unit.dtype == DType::f16)
      launch<F16, UnitShape<kChannels>>(unit, *tiling, x, convs, average, out, device, stream);
    else
      launch<Bf16, UnitShape<kChannels>>(unit, *tiling, x, convs, average, out, device, stream);
  };
  switch (unit.C) {
    case 32:
      run.template operator()<32>();
      return true;
    case 64:
      run.template operator()<64>();
      return true;
    case 96:
      run.template operator()<96>();
      return true;
    case 128:
      run.template operator()<128>();
      return true;
    default:
      run.template operator()<192>();
      return true;
  }
}

}  // namespace polyphase::cuda::tensor_core
