#include "cuda/conv/sm90/tensor_core_resident.cuh"

#include <algorithm>
#include <ostream>

#include "cuda/conv/sm90/tensor_core_launch.cuh"
#include "cuda/conv/sm90/tensor_core_resident.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

/// Tiles of twice the positions where one part leaves room for them.
template <class Operand>
ResidentSteps steps_of(const TapGemm& form, const void* source, const DeviceProperties& gpu) {
  ResidentShape shape{256, Operand::kParts, sizeof(typename Operand::Source),
                      reinterpret_cast<std::uintptr_t>(source) % 4 == 0};
  if constexpr (Operand::kParts == 1) {
    const ResidentSteps steps = make_resident_steps(form, shape, gpu.sm_count, gpu.shared_bytes_per_block);
    if (steps.count > 0) return steps;
  }
  shape.positions = 128;
  return make_resident_steps(form, shape, gpu.sm_count, gpu.shared_bytes_per_block);
}

template <class Operand>
auto kernel_of(const ResidentSteps& steps) {
  constexpr bool kMayPair = sizeof(typename Operand::Source) == 2;
  if constexpr (Operand::kParts == 2)
    return resident_kernel<Operand, false, 128>;
  else
    return steps.positions == 256 ? resident_kernel<Operand, kMayPair, 256> : resident_kernel<Operand, false, 128>;
}

/// The weights as operands, kept with the layer: numbers that are not scaled need nothing else.
template <class Operand>
std::shared_ptr<const Buffer> packed_weights(const Gather& call, const Weights& weights, const ResidentSteps& steps) {
  using T = typename Operand::Source;
  constexpr std::int64_t kTiles = -3;  // no ConvDirection, which the wide form's keys have here
  const ConvProblem& problem = call.problem;
  const Steps cut = steps;
  const std::int64_t vectors = cut.weight_tiles * cut.count * (cut.weight_bytes / 16);
  const FormKey key{static_cast<std::int64_t>(Algorithm::tensor_core),
                    kTiles,
                    static_cast<std::int64_t>(call.direction),
                    static_cast<std::int64_t>(problem.dtype),
                    problem.C_in,
                    problem.C_out,
                    problem.G,
                    problem.K,
                    problem.S,
                    problem.D,
                    cut.rows,
                    cut.planes,
                    cut.taps,
                    cut.count};
  return weights.packed(
      key, static_cast<std::size_t>(vectors) * 16, call.device, call.stream,
      [problem, direction = call.direction, cut, vectors](const void* w, void* to, cudaStream_t stream) {
        const auto grid =
            static_cast<unsigned>(std::min<std::int64_t>((vectors + kPrepareThreads - 1) / kPrepareThreads, 4096));
        pack_kernel<Operand><<<grid, kPrepareThreads, 0, stream>>>(
            make_tap_gemm(problem, direction), cut, problem, kResidentColumns, direction == ConvDirection::forward, vectors,
            static_cast<const T*>(w), static_cast<unsigned char*>(to), nullptr);
        check_launch("conv tensor_core: pack weights");
      });
}

template <class Operand>
void launch(const Gather& call, const Weights& weights) {
  using T = typename Operand::Source;
  const ResidentSteps steps = steps_of<Operand>(call.form, call.source, properties(call.device));
  auto* kernel = kernel_of<Operand>(steps);
  CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, steps.shared_bytes));
  const auto multiply = [&](const unsigned char* packed, const State* state, std::uint32_t* tile_split) {
    kernel<<<steps.grid, kResidentThreads, static_cast<std::size_t>(steps.shared_bytes), call.stream>>>(
        call.form, steps, call.epilogue, static_cast<const T*>(call.source), packed, static_cast<const T*>(call.bias),
        static_cast<T*>(call.out), state, tile_split);
    check_launch("conv tensor_core: resident");
  };
  if constexpr (Operand::kScaled) {
    const Prepared<Operand> prepared(call, steps, kResidentColumns);
    multiply(prepared.packed(), prepared.state(), prepared.tile_split());
    prepared.repair(call, steps, kResidentColumns, steps.positions);
  } else {
    multiply(packed_weights<Operand>(call, weights, steps)->template as<unsigned char>(), nullptr, nullptr);
  }
}

}  // namespace

ResidentSteps resident_steps(const ConvProblem& problem, ConvDirection direction, Precision precision, const void* source,
                             const DeviceProperties& gpu) {
  const TapGemm form = make_tap_gemm(problem, direction);
  if (problem.dtype != DType::f32) return steps_of<Half>(form, source, gpu);
  return precision == Precision::tf32 ? steps_of<OneHalf>(form, source, gpu) : steps_of<SplitHalf>(form, source, gpu);
}

void resident_gather(const ConvProblem& problem, ConvDirection direction, const void* source, const Weights& weights,
                     const void* bias, void* out, const Epilogue& epilogue, Precision precision, int device,
                     cudaStream_t stream) {
  const Gather call{problem, direction, make_tap_gemm(problem, direction), source, weights.data(), bias, out, epilogue,
                    device,  stream};
  if (problem.dtype == DType::f16) return launch<Half>(call, weights);
  if (problem.dtype == DType::bf16) return launch<Brain>(call, weights);
  if (precision == Precision::tf32) return launch<OneHalf>(call, weights);
  return launch<SplitHalf>(call, weights);
}

}  // namespace polyphase::cuda::tensor_core
