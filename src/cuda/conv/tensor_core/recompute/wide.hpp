#pragma once
// The wide kernels: f32 sums on the tensor cores with the exponents of f32.
//
// A number is the sum of bf16 numbers, three for fp32 and two for tf32, which have the exponent of f32. They take twice the
// products of the scaled f16 operands, and no number is too small or too large for them. A kernel of scaled operands marks the
// blocks whose sums it may have got wrong, and the wide kernel after it computes all outputs of these blocks again. Where no
// block is marked it ends immediately. With wgmma the by_tile kernel (by_tile/kernel.cuh) does this for forward and dgrad.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cuda/conv/tensor_core/operand/sample.cuh"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/conv/tensor_core/recompute/by_tile/tiling.hpp"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"
#include "cuda/memory/allocator.hpp"

namespace polyphase::cuda::tensor_core {

/// A forward or dgrad of f32, as its kernel and the wide kernel after it compute it.
struct WideCall {
  const TapGemm& gemm;
  ExactSource<> exact;  // without marks
  Precision precision;
  const float* bias;
  float* out;
  const Epilogue& epilogue;
  int device;
  cudaStream_t stream;
};

/// The wide or by_tile kernel after a forward or dgrad. For 16-bit tensors it takes no memory and does nothing.
class WideGather {
 public:
  explicit WideGather(const Gather& call);
  explicit WideGather(const WideCall& call);
  /// Have to be zeros when the marking kernel begins. `small_weights`: Marks::small_weights.
  [[nodiscard]] Marks marks(const std::uint32_t* small_weights) const;
  /// For the marking kernel.
  [[nodiscard]] const ExactSource<>& exact() const { return call_.exact; }
  /// Launches it. `source`: the header with the sample. `largest_weight`: its magnitude as float bits.
  void launch(const OperandHeader* source, const std::uint32_t* largest_weight) const;

 private:
  WideCall call_;
  std::optional<ByTileTiling> by_tile_;
  std::size_t words_ = 0;
  Buffer memory_;
};

}  // namespace polyphase::cuda::tensor_core
