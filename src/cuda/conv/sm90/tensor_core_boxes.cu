#include "cuda/conv/sm90/tensor_core_boxes.cuh"

#include <ostream>

#include "cuda/conv/sm90/tensor_core_boxes.hpp"
#include "cuda/conv/sm90/tensor_core_kept.cuh"

namespace polyphase::cuda::tensor_core {
namespace {

template <class Operand>
BoxesSteps steps_of(const TapGemm& form, const void* source, const void* out, int device) {
  const DeviceProperties& gpu = properties(device);
  const auto place = [](const void* address, std::uintptr_t boundary) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(address) % boundary / sizeof(float));
  };
  return make_boxes_steps(form, {Operand::kParts, place(source, 16), place(out, 32)}, gpu.sm_count, gpu.shared_bytes_per_block);
}

template <class Mode>
void launch(const Gather& call, const BoxesSteps& steps) {
  using Operand = typename Mode::Operand;
  const auto packed = kept_weights<Operand>(call, steps, steps.columns);
  const BoxesMaps maps = make_boxes_maps(call.form, steps, call.source, call.out);
  const DrawnMemory<Operand> order(steps, steps.is_drawn, call);
  const Sampled<Operand> sampled(call, order.words(), order.counters());
  sampled.launch(boxes_kernel<Mode>, steps.grid, kBoxesThreads, steps.shared_bytes, call.form, steps, maps,
                 packed->template as<unsigned char>(), static_cast<const float*>(call.bias), static_cast<float*>(call.out),
                 sampled.header(), sampled.exact(), call.epilogue, DrawnOrder{order.words()});
  check_launch("conv tensor_core: boxes");
}

template <class Operand, int kDepths, bool kHalf>
void launch_as(const Gather& call, const BoxesSteps& steps) {
  if (steps.kind == BoxesRows::whole) return launch<BoxesMode<Operand, kDepths, kHalf, BoxesRows::whole>>(call, steps);
  if (steps.kind == BoxesRows::pairs) return launch<BoxesMode<Operand, kDepths, kHalf, BoxesRows::pairs>>(call, steps);
  launch<BoxesMode<Operand, kDepths, kHalf, BoxesRows::any>>(call, steps);
}

/// The kernel with the fewest products that holds all of a tile's.
template <class Operand>
void gather_as(const Gather& call) {
  const BoxesSteps steps = steps_of<Operand>(call.form, call.source, call.out, call.device);
  const int depths = steps.depths;
  if constexpr (Operand::kParts == 2) {
    if (!steps.is_half)
      return depths <= 6 ? launch_as<Operand, 6, false>(call, steps) : launch_as<Operand, 10, false>(call, steps);
    if (depths <= 6) return launch_as<Operand, 6, true>(call, steps);
    if (depths <= 14) return launch_as<Operand, 14, true>(call, steps);
  } else {
    if (!steps.is_half)
      return depths <= 10 ? launch_as<Operand, 10, false>(call, steps) : launch_as<Operand, 20, false>(call, steps);
  }
  launch_as<Operand, 20, true>(call, steps);
}

}  // namespace

void boxes_gather(const Gather& call) {
  if (call.precision == Precision::tf32) return gather_as<OneHalf>(call);
  return gather_as<SplitHalf>(call);
}

}  // namespace polyphase::cuda::tensor_core
