#pragma once
// Weight gradients with the exponents of f32: what a first kernel leaves to a wide one. The kernel by rows is the wide one too,
// with numbers as bf16 parts, where it has a tiling for them; wide.cu is for other problems.

#include <cstddef>
#include <cstdint>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/wgrad/tiles.hpp"

namespace polyphase::cuda::tensor_core {

struct WgradCall;

inline constexpr int kWideInputs = 64, kWideOutputs = 128;  // channels of a group that a block of wide.cu has; of one tap
/// The largest scaled number of either tensor is about 2^this: sums stay below 2^127, and their smallest parts above 2^-126.
inline constexpr int kWideWgradTarget = 40;

inline constexpr std::uint32_t kAllMarked = 2;

/// Blocks of weights that are left to the wide kernel: jobs of its tiling by rows, or those of wide.cu. In global memory, all
/// zeros at first: a word that is not 0 where a block is marked, kAllMarked where all are; then for each block a word that is
/// not 0 if it is marked; then, for wide.cu, how many slices of each are done; by rows, how many blocks are done, and how
/// many have begun. Only by rows all are marked without their words.
struct WideWeights {
  std::uint32_t* any = nullptr;  ///< null: there is no wide kernel
  bool by_rows = false;
  WgradTiles tiles{};                                            // by rows
  std::int64_t input_blocks = 0, output_blocks = 0, blocks = 0;  // the first two of wide.cu

  explicit WideWeights() = default;
  /// `tiling`: by rows, or null.
  WideWeights(const ConvProblem& problem, const WgradTiling* tiling);
  [[nodiscard]] std::size_t word_count() const { return 1 + static_cast<std::size_t>(by_rows ? blocks + 2 : 2 * blocks); }

#ifdef __CUDACC__
  [[nodiscard]] __device__ __forceinline__ std::uint32_t* marks() const { return any + 1; }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t* done() const { return any + 1 + blocks; }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t* tickets() const { return any + 2 + blocks; }
  /// The block of weight i, (C_in, C_out/G, K).
  [[nodiscard]] __device__ __forceinline__ std::int64_t block_of(const ConvProblem& problem, std::int64_t i) const {
    if (by_rows) return job_of(tiles, i);
    const std::int64_t in = problem.C_in / problem.G, out = problem.C_out / problem.G;
    const std::int64_t k = i % problem.K, co = i / problem.K % out, ci = i / problem.K / out;
    const std::int64_t row = ci / in * input_blocks + ci % in / kWideInputs;
    return (row * output_blocks + co / kWideOutputs) * problem.K + k;
  }
  [[nodiscard]] __device__ __forceinline__ bool has_job(std::int64_t job) const {
    return *any == kAllMarked || marks()[job] != 0;
  }
  [[nodiscard]] __device__ __forceinline__ bool has(const ConvProblem& problem, std::int64_t i) const {
    return has_job(block_of(problem, i));
  }
  /// Whether the kernel by rows has left all to the wide one.
  [[nodiscard]] __device__ __forceinline__ bool has_all() const { return any != nullptr && *any == kAllMarked; }
  __device__ __forceinline__ void mark(const ConvProblem& problem, std::int64_t i) const {
    marks()[block_of(problem, i)] = 1;
    *any = 1;
  }
#endif
};

/// Launches the wide kernel of f32 after the kernels that mark call.wide.
void wgrad_wide(const WgradCall& call, Precision precision);

}  // namespace polyphase::cuda::tensor_core
