#pragma once
// Launches of tensor_core_resident_rows.cuh: what comes before and behind it.

#include <algorithm>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/sm90/tensor_core_prepare.cuh"
#include "cuda/conv/sm90/tensor_core_resident_rows.cuh"
#include "cuda/conv/weights.hpp"
#include "cuda/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// The problem as its kernel wants it.
struct RowsCall {
  const ConvProblem& problem;
  ConvDirection direction;
  const void* source;
  const Weights& weights;
  const void* bias;
  void* out;
  Epilogue epilogue;
  int device;
  cudaStream_t stream;
};

/// Names an instance of resident_rows_kernel.
template <class Mode, int kN>
struct RowKernel {};

/// The weights as `steps` want them, behind what the splitting knows of them.
template <class Operand>
void pack_rows(const ConvProblem& problem, ConvDirection direction, const RowSteps& steps, const void* w, void* packed,
               cudaStream_t stream) {
  using T = typename Operand::Source;
  auto* state = static_cast<State*>(packed);
  const auto* weights = static_cast<const T*>(w);
  CHECK_CUDA(cudaMemsetAsync(state, 0, sizeof(State), stream));
  if constexpr (Operand::kScaled) {
    const std::int64_t count = problem.C_in * (problem.C_out / problem.G) * problem.K;
    const auto blocks = static_cast<unsigned>(kSampleBlocks + std::min<std::int64_t>((count + 2047) / 2048, 1024));
    scales_kernel<<<blocks, kPrepareThreads, 0, stream>>>(weights, 0, weights, count, state);
    check_launch("conv tensor_core: rows, largest weight");
  }
  const std::int64_t vectors = steps.weight_tiles * steps.count * (steps.weight_bytes / 16 / Operand::kParts);
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>((vectors + kPrepareThreads - 1) / kPrepareThreads, 4096));
  pack_kernel<Operand><<<grid, kPrepareThreads, 0, stream>>>(make_tap_gemm(problem, direction), steps, problem, steps.columns,
                                                             direction == ConvDirection::forward, vectors, weights,
                                                             static_cast<unsigned char*>(packed) + kPackedHeaderBytes, state);
  check_launch("conv tensor_core: rows, weights");
}

/// All that pack_rows' result depends on but the weights.
inline FormKey rows_weight_key(const ConvProblem& problem, ConvDirection direction, int parts, const RowSteps& steps) {
  constexpr std::int64_t kRowsForm = -1;  // no ConvDirection, which the wide form's keys have here
  return {static_cast<std::int64_t>(Algorithm::tensor_core),
          kRowsForm,
          static_cast<std::int64_t>(direction),
          static_cast<std::int64_t>(problem.dtype),
          parts,
          problem.C_in,
          problem.C_out,
          problem.G,
          problem.K,
          steps.columns};
}

template <class Mode, int kN>
void launch_rows(RowKernel<Mode, kN>, const RowsCall& call, const TapGemm& form, const RowSteps& steps) {
  using Operand = typename Mode::Operand;
  using T = typename Operand::Source;
  const ConvProblem problem = call.problem;
  const ConvDirection direction = call.direction;
  const std::shared_ptr<const Buffer> packed =
      call.weights.packed(rows_weight_key(problem, direction, Operand::kParts, steps),
                          static_cast<std::size_t>(kPackedHeaderBytes + steps.weight_tiles * steps.count * steps.weight_bytes),
                          call.device, call.stream, [problem, direction, steps](const void* w, void* to, cudaStream_t stream) {
                            pack_rows<Operand>(problem, direction, steps, w, to, stream);
                          });
  const auto* weights = packed->template as<State>();
  const Steps tiles = tiles_of(steps);
  const std::size_t state_bytes = sizeof(State) + (Operand::kScaled ? static_cast<std::size_t>(tiles.blocks) * 4 : 0);
  const Buffer buffer(state_bytes, call.device);
  auto* state = buffer.as<State>();
  auto* tile_split = reinterpret_cast<std::uint32_t*>(state + 1);
  const auto* source = static_cast<const T*>(call.source);
  if constexpr (Operand::kScaled) {
    CHECK_CUDA(cudaMemsetAsync(state, 0, state_bytes, call.stream));
    scales_kernel<<<kSampleBlocks, kPrepareThreads, 0, call.stream>>>(source, form.N * form.G * form.rows * form.source_length,
                                                                      source, 0, state);
    check_launch("conv tensor_core: rows, scale");
  }
  auto* kernel = resident_rows_kernel<Mode, kN>;
  CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, steps.shared_bytes));
  const RowMaps maps = make_row_maps(form, steps, source, sizeof(T));
  const StoreMaps store_maps = make_store_maps(form, steps, call.out, sizeof(T));
  kernel<<<steps.grid, kRowsThreads, static_cast<std::size_t>(steps.shared_bytes), call.stream>>>(
      form, steps, maps, store_maps, call.epilogue, source, weights, static_cast<const T*>(call.bias),
      static_cast<T*>(call.out), state, tile_split);
  check_launch("conv tensor_core: rows");
  if constexpr (Operand::kScaled) {
    const dim3 grid(static_cast<unsigned>(std::min<std::int64_t>(tiles.blocks, properties(call.device).sm_count)),
                    kRepairPieces);
    repair_kernel<<<grid, 256, 0, call.stream>>>(
        form, tiles, problem, kN, steps.positions, call.epilogue, direction == ConvDirection::forward,
        Operand::kLeastSafe * static_cast<double>(form.rows * form.taps), source, static_cast<const T*>(call.weights.data()),
        static_cast<const T*>(call.bias), static_cast<T*>(call.out), tile_split, weights, state);
    check_launch("conv tensor_core: rows, repair");
  }
}

/// Calls run(RowKernel<Mode, kN>(), steps) with the kernel for a problem; false where there is none. `out` and `source` matter
/// only for what they are modulo 16.
template <class Operand, class Run>
bool with_rows_kernel(const TapGemm& form, const void* source, const void* out, const DeviceProperties& gpu, const Run& run) {
  const auto attempt = [&]<int kN, int kTaps>() {
    using Traits = RowTraits<Operand, kN, kTaps>;
    if (form.taps != kTaps || form.columns <= kN / 2) return false;
    const auto offset = [](const void* address) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(address) % 16); };
    const RowShape shape{Traits::kHalves,
                         kN,
                         Operand::kParts,
                         sizeof(typename Operand::Source),
                         Traits::kStagingBytes,
                         Traits::kCarryBytes,
                         Traits::kCarryPass,
                         offset(source),
                         offset(out)};
    const RowSteps steps = make_row_steps(form, shape, gpu.sm_count, gpu.shared_bytes_per_block);
    if (steps.count == 0) return false;
    const auto run_as = [&]<RowParity kParity>() {
      if constexpr (Traits::kHalves == 2 && kParity != RowParity::mixed) {
        if (steps.store_classes != 0)
          return run(RowKernel<RowMode<Operand, Traits::kHalves, kTaps, kParity, true>, kN>(), steps);
      }
      run(RowKernel<RowMode<Operand, Traits::kHalves, kTaps, kParity>, kN>(), steps);
    };
    if (steps.parity == RowParity::even) run_as.template operator()<RowParity::even>();
    if (steps.parity == RowParity::odd) run_as.template operator()<RowParity::odd>();
    if constexpr (sizeof(typename Operand::Source) == 4) {
      if (steps.parity == RowParity::mixed) run_as.template operator()<RowParity::mixed>();
    }
    return true;
  };
  return attempt.template operator()<128, 3>() || attempt.template operator()<128, 5>();
}

/// resident_rows_gather() of f16 and bf16, which are compiled by themselves.
void gather_rows_of_16_bits(const RowsCall& call);

template <class Operand>
void gather_rows(const RowsCall& call) {
  const TapGemm form = make_tap_gemm(call.problem, call.direction);
  with_rows_kernel<Operand>(form, call.source, call.out, properties(call.device),
                            [&](auto kernel, const RowSteps& steps) { launch_rows(kernel, call, form, steps); });
}

}  // namespace polyphase::cuda::tensor_core
