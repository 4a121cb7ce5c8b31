#pragma once
// Launches of kernel.cuh.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/prologue.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/kernel.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/maps.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

template <class Mode>
void launch_boxes(const Gather& call, const BoxesSteps& steps) {
  using Operand = typename Mode::Operand;
  const auto packed = kept_weights<Operand>(call, steps, steps.columns);
  const BoxesMaps maps = make_boxes_maps(call.form, steps, call.source, call.out);
  typename Mode::Beside beside{};
  if constexpr (Mode::kBeside) {
    const auto of = [&](std::int64_t distance) {
      return make_boxes_beside(call.form, steps, static_cast<const char*>(call.out) + distance);
    };
    beside.of[0] = of(call.epilogue.first_beside());
    if (call.epilogue.has_both()) beside.of[1] = of(call.epilogue.residual);
  }
  const DrawnMemory<Operand> order(steps, steps.is_drawn, call);
  const Sampled<Operand> sampled(call, order.words(), order.counters());
  sampled.launch(boxes_kernel<Mode>, steps.grid, kBoxesThreads, steps.shared_bytes, call.form, steps, maps, beside,
                 packed->template as<unsigned char>(), static_cast<const float*>(call.bias), static_cast<float*>(call.out),
                 sampled.header(), sampled.exact(), call.epilogue, DrawnOrder{order.words()});
  check_launch("conv tensor_core: boxes");
}

template <class Operand, int kDepths, bool kHalf, bool kBeside>
void launch_boxes_as(const Gather& call, const BoxesSteps& steps) {
  if (steps.kind == BoxesRows::whole)
    return launch_boxes<BoxesMode<Operand, kDepths, kHalf, BoxesRows::whole, kBeside>>(call, steps);
  if (steps.kind == BoxesRows::pairs)
    return launch_boxes<BoxesMode<Operand, kDepths, kHalf, BoxesRows::pairs, kBeside>>(call, steps);
  launch_boxes<BoxesMode<Operand, kDepths, kHalf, BoxesRows::any, kBeside>>(call, steps);
}

/// The kernel with the fewest products that holds all of a tile's; with kBeside the one with a residual, through a derivative,
/// or both.
template <class Operand, bool kBeside>
void gather_boxes(const Gather& call) {
  const DeviceProperties& gpu = properties(call.device);
  const BoxesSteps steps = make_boxes_steps(call.form, boxes_shape_of(Operand::kParts, call.source, call.out), gpu.sm_count,
                                            gpu.shared_bytes_per_block);
  const int depths = steps.depths;
  if constexpr (Operand::kParts == 2) {
    if (!steps.is_half)
      return depths <= 6 ? launch_boxes_as<Operand, 6, false, kBeside>(call, steps)
                         : launch_boxes_as<Operand, 10, false, kBeside>(call, steps);
    if (depths <= 6) return launch_boxes_as<Operand, 6, true, kBeside>(call, steps);
    if (depths <= 14) return launch_boxes_as<Operand, 14, true, kBeside>(call, steps);
  } else {
    if (!steps.is_half)
      return depths <= 10 ? launch_boxes_as<Operand, 10, false, kBeside>(call, steps)
                          : launch_boxes_as<Operand, 20, false, kBeside>(call, steps);
  }
  launch_boxes_as<Operand, 20, true, kBeside>(call, steps);
}

/// boxes_gather() of what has a residual or goes through a derivative, compiled by itself.
void boxes_gather_beside(const Gather& call);

}  // namespace polyphase::cuda::tensor_core
