#pragma once
// Weight gradients of marked blocks with the exponents of f32 (recompute/wide.hpp).

#include <cstddef>
#include <cstdint>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"

namespace polyphase::cuda::tensor_core {

struct WgradCall;

inline constexpr int kWideInputs = 64, kWideOutputs = 128;  // channels of a group that a block has; of one tap

/// Blocks of weights that are left to the wide kernel. In global memory, all zeros at first: a word that is not 0 where a block
/// is marked, then for each block a word that is not 0 if it is marked, then for each how many slices are done.
struct WideWeights {
  std::uint32_t* any = nullptr;  ///< null: there is no wide kernel
  std::int64_t input_blocks = 0, output_blocks = 0, blocks = 0;

  explicit WideWeights() = default;
  WideWeights(const ConvProblem& problem, std::uint32_t* words);
  [[nodiscard]] static std::size_t word_count(const ConvProblem& problem);

#ifdef __CUDACC__
  [[nodiscard]] __device__ __forceinline__ std::uint32_t* marks() const { return any + 1; }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t* done() const { return any + 1 + blocks; }
  /// The block of weight i, (C_in, C_out/G, K).
  __device__ __forceinline__ void mark(const ConvProblem& problem, std::int64_t i) const {
    const std::int64_t in = problem.C_in / problem.G, out = problem.C_out / problem.G;
    const std::int64_t k = i % problem.K, co = i / problem.K % out, ci = i / problem.K / out;
    const std::int64_t row = ci / in * input_blocks + ci % in / kWideInputs;
    marks()[(row * output_blocks + co / kWideOutputs) * problem.K + k] = 1;
    *any = 1;
  }
#endif
};

/// Launches the wide kernel of f32 after the kernels that mark call.wide.
void wgrad_wide(const WgradCall& call, Precision precision);

}  // namespace polyphase::cuda::tensor_core
