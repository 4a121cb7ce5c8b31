#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/source_tma_16bit.hpp"

#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/kernel.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/maps.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

Tma16Tiling tiling_of(const TapGemm& gemm, Tma16Place place, int device) {
  const DeviceProperties& gpu = properties(device);
  return make_tma16_tiling(gemm, place, gpu.sm_count, gpu.shared_bytes_per_block);
}

/// The number of elements after the previous multiple of `bytes` bytes.
int elements_behind(const void* array, std::uintptr_t bytes) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(array) % bytes / 2);
}

Tma16Place place_of(const void* source, const void* out) { return {elements_behind(source, 16), elements_behind(out, 32)}; }

/// The weights packed as operands, cached with the layer.
template <class T>
std::shared_ptr<const Buffer> packed_weights(const Gather& call, const Tma16Tiling& tiling) {
  constexpr std::int64_t kTma16Packing = -5;  // not a ConvDirection, which the preconverted kernel's keys have here
  const ConvProblem& problem = call.problem;
  const PackingKey key{static_cast<std::int64_t>(Algorithm::tensor_core),
                       kTma16Packing,
                       static_cast<std::int64_t>(call.direction),
                       static_cast<std::int64_t>(problem.dtype),
                       problem.C_in,
                       problem.C_out,
                       problem.K,
                       tiling.source.classes};
  return call.weights.packed(key, static_cast<std::size_t>(tiling.packed_bytes), call.device, call.stream,
                             [problem, gemm = call.gemm, depths = tiling.depths, classes = tiling.source.classes,
                              direction = call.direction](const void* w, void* to, cudaStream_t stream) {
                               source_tma_16bit_pack_kernel<T><<<static_cast<unsigned>(depths), 128, 0, stream>>>(
                                   gemm, problem, classes, direction == ConvDirection::forward, static_cast<const T*>(w),
                                   static_cast<uint4*>(to));
                               check_launch("conv tensor_core: pack weights");
                             });
}

template <class T, Tma16Aux kAux, int kDepths, int kN>
auto kernel_of(const Tma16Tiling& tiling) {
  if (tiling.stride == 2) return source_tma_16bit_kernel<T, kDepths, kN, Tma16Store::strided, kAux>;
  return tiling.is_even ? source_tma_16bit_kernel<T, kDepths, kN, Tma16Store::words, kAux>
                        : source_tma_16bit_kernel<T, kDepths, kN, Tma16Store::halves, kAux>;
}

template <class T, Tma16Aux kAux>
auto kernel_of(const Tma16Tiling& tiling) {
  if (tiling.kernel_depths == 6) return kernel_of<T, kAux, 6, 256>(tiling);
  return tiling.kernel_depths == 10 ? kernel_of<T, kAux, 10, 256>(tiling) : kernel_of<T, kAux, kTma16DepthsMost, 208>(tiling);
}

template <class T>
void launch(const Gather& call) {
  const Tma16Tiling tiling = tiling_of(call.gemm, place_of(call.source, call.out), call.device);
  const auto packed = packed_weights<T>(call, tiling);
  const Tma16Maps maps = make_tma16_maps(call.gemm, tiling, call.source, call.out, call.epilogue.first_aux());
  auto* kernel =
      call.epilogue.derivative != 0 ? kernel_of<T, Tma16Aux::derivative>(tiling) : kernel_of<T, Tma16Aux::sum>(tiling);
  allow_shared_memory(kernel, tiling.shared_bytes);
  kernel<<<tiling.grid, kTma16Threads, static_cast<std::size_t>(tiling.shared_bytes), call.stream>>>(
      tiling, maps, call.epilogue, call.gemm.source_length, call.gemm.out_length, tma16_unit(call.gemm, tiling) == 4 ? 1 : 0,
      packed->template as<uint4>(), static_cast<const T*>(call.bias), static_cast<T*>(call.out));
  check_launch("conv tensor_core: source_tma_16bit");
}

}  // namespace

void source_tma_16bit_gather(const Gather& call) {
  if (call.problem.dtype == DType::f16) return launch<__half>(call);
  return launch<__nv_bfloat16>(call);
}

}  // namespace polyphase::cuda::tensor_core
