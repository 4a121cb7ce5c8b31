#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/source_tma_16bit.hpp"

#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/kernel.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/maps.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

TurnedSteps steps_of(const TapGemm& form, TurnedPlace place, int device) {
  const DeviceProperties& gpu = properties(device);
  return make_turned_steps(form, place, gpu.sm_count, gpu.shared_bytes_per_block);
}

/// Elements behind a multiple of `bytes` bytes.
int elements_behind(const void* array, std::uintptr_t bytes) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(array) % bytes / 2);
}

TurnedPlace place_of(const void* source, const void* out) { return {elements_behind(source, 16), elements_behind(out, 32)}; }

/// The weights as operands, kept with the layer.
template <class T>
std::shared_ptr<const Buffer> packed_weights(const Gather& call, const TurnedSteps& steps) {
  constexpr std::int64_t kTurnedForm = -5;  // no ConvDirection, which the wide form's keys have here
  const ConvProblem& problem = call.problem;
  const FormKey key{static_cast<std::int64_t>(Algorithm::tensor_core),
                    kTurnedForm,
                    static_cast<std::int64_t>(call.direction),
                    static_cast<std::int64_t>(problem.dtype),
                    problem.C_in,
                    problem.C_out,
                    problem.K,
                    steps.source.classes};
  return call.weights.packed(key, static_cast<std::size_t>(steps.packed_bytes), call.device, call.stream,
                             [problem, form = call.form, depths = steps.depths, classes = steps.source.classes,
                              direction = call.direction](const void* w, void* to, cudaStream_t stream) {
                               turned_pack_kernel<T><<<static_cast<unsigned>(depths), 128, 0, stream>>>(
                                   form, problem, classes, direction == ConvDirection::forward, static_cast<const T*>(w),
                                   static_cast<uint4*>(to));
                               check_launch("conv tensor_core: pack weights");
                             });
}

template <class T, TurnedLate kLate, int kDepths, int kN>
auto kernel_of(const TurnedSteps& steps) {
  if (steps.stride == 2) return turned_kernel<T, kDepths, kN, TurnedStore::strided, kLate>;
  return steps.is_even ? turned_kernel<T, kDepths, kN, TurnedStore::words, kLate>
                       : turned_kernel<T, kDepths, kN, TurnedStore::halves, kLate>;
}

template <class T, TurnedLate kLate>
auto kernel_of(const TurnedSteps& steps) {
  if (steps.kernel_depths == 6) return kernel_of<T, kLate, 6, 256>(steps);
  return steps.kernel_depths == 10 ? kernel_of<T, kLate, 10, 256>(steps) : kernel_of<T, kLate, kTurnedDepthsMost, 208>(steps);
}

template <class T>
void launch(const Gather& call) {
  const TurnedSteps steps = steps_of(call.form, place_of(call.source, call.out), call.device);
  const auto packed = packed_weights<T>(call, steps);
  const TurnedMaps maps = make_turned_maps(call.form, steps, call.source, call.out, call.epilogue.first_beside());
  auto* kernel =
      call.epilogue.derivative != 0 ? kernel_of<T, TurnedLate::derivative>(steps) : kernel_of<T, TurnedLate::sum>(steps);
  allow_shared_memory(kernel, steps.shared_bytes);
  kernel<<<steps.grid, kTurnedThreads, static_cast<std::size_t>(steps.shared_bytes), call.stream>>>(
      steps, maps, call.epilogue, call.form.source_length, call.form.out_length, turned_unit(call.form, steps) == 4 ? 1 : 0,
      packed->template as<uint4>(), static_cast<const T*>(call.bias), static_cast<T*>(call.out));
  check_launch("conv tensor_core: turned");
}

}  // namespace

void turned_gather(const Gather& call) {
  if (call.problem.dtype == DType::f16) return launch<__half>(call);
  return launch<__nv_bfloat16>(call);
}

}  // namespace polyphase::cuda::tensor_core
