#pragma once
// What every launch of forward and dgrad has around its product: scales and packed weights before, repair behind.

#include <algorithm>

#include "cuda/allocator.hpp"
#include "cuda/conv/sm90/tensor_core_prepare.cuh"
#include "cuda/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// The problem as its kernels want it.
struct Gather {
  const ConvProblem& problem;
  ConvDirection direction;
  TapGemm form;
  const void *source, *w, *bias;
  void* out;
  Epilogue epilogue;
  int device;
  cudaStream_t stream;
};

/// Weights as operands of `columns` columns a tile, and what the splitting knows.
template <class Operand>
class Prepared {
 public:
  using T = typename Operand::Source;

  Prepared(const Gather& call, const Steps& steps, int columns)
      : vectors_(steps.weight_tiles * steps.count * (steps.weight_bytes / 16 / Operand::kParts)),
        packed_(static_cast<std::size_t>(vectors_ * Operand::kParts) * 16, call.device),
        state_bytes_(sizeof(State) + (Operand::kScaled ? static_cast<std::size_t>(steps.blocks) * 4 : 0)),
        state_(state_bytes_, call.device) {
    CHECK_CUDA(cudaMemsetAsync(state(), 0, state_bytes_, call.stream));
    const ConvProblem& problem = call.problem;
    const TapGemm& form = call.form;
    const auto* w = static_cast<const T*>(call.w);
    if constexpr (Operand::kScaled) {
      const std::int64_t weight_count = problem.C_in * (problem.C_out / problem.G) * problem.K;
      const auto blocks = static_cast<unsigned>(kSampleBlocks + std::min<std::int64_t>((weight_count + 2047) / 2048, 1024));
      scales_kernel<<<blocks, kPrepareThreads, 0, call.stream>>>(
          static_cast<const T*>(call.source), form.N * form.G * form.rows * form.source_length, w, weight_count, state());
      check_launch("conv tensor_core: scales");
    }
    const auto grid = static_cast<unsigned>(std::min<std::int64_t>((vectors_ + kPrepareThreads - 1) / kPrepareThreads, 4096));
    pack_kernel<Operand><<<grid, kPrepareThreads, 0, call.stream>>>(
        form, steps, problem, columns, call.direction == ConvDirection::forward, vectors_, w, packed(), state());
    check_launch("conv tensor_core: pack weights");
  }

  /// Behind the product: tiles of `columns` x `positions` whose numbers the scaling may have got wrong.
  void repair(const Gather& call, const Steps& steps, int columns, int positions) const {
    if constexpr (Operand::kScaled) {
      const dim3 grid(static_cast<unsigned>(std::min<std::int64_t>(steps.blocks, properties(call.device).sm_count)),
                      kRepairPieces);
      const TapGemm& form = call.form;
      repair_kernel<<<grid, 256, 0, call.stream>>>(
          form, steps, call.problem, columns, positions, call.epilogue, call.direction == ConvDirection::forward,
          Operand::kLeastSafe * static_cast<double>(form.rows * form.planes * form.taps), static_cast<const T*>(call.source),
          static_cast<const T*>(call.w), static_cast<const T*>(call.bias), static_cast<T*>(call.out), tile_split(), state(),
          state());
      check_launch("conv tensor_core: repair");
    }
  }

  [[nodiscard]] unsigned char* packed() const { return packed_.as<unsigned char>(); }
  [[nodiscard]] State* state() const { return state_.as<State>(); }
  [[nodiscard]] std::uint32_t* tile_split() const { return reinterpret_cast<std::uint32_t*>(state() + 1); }

 private:
  std::int64_t vectors_;
  Buffer packed_;
  std::size_t state_bytes_;
  Buffer state_;
};

}  // namespace polyphase::cuda::tensor_core
