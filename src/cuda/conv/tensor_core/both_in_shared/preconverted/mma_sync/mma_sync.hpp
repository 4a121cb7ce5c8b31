#pragma once
// Forward and dgrad on mma.sync, for GPUs without wgmma. Host side of kernel.cuh.

#include <cuda_runtime.h>

#include <optional>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/tiling.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"

namespace polyphase::cuda::tensor_core {

/// The plan with the shortest estimated time, as in make_preconverted_plan; for preconverted_pack_weights and
/// preconverted_gather.
[[nodiscard]] std::optional<PreconvertedPlan> make_mma_plan(const ConvProblem& problem, ConvDirection direction,
                                                            Precision precision, int sm_count, int shared_limit);

struct OperandHeader;
template <class T>
struct FlaggedSource;

/// The arguments of mma_multiply().
template <class T>
struct MmaCall {
  const TapGemm& gemm;
  const PreconvertedTiling& tiling;
  const Epilogue& epilogue;
  const unsigned char* source;  ///< as an operand
  const unsigned char* weights;
  const T* bias;
  T* out;
  float4* partial;
  const OperandHeader* source_header;
  const OperandHeader* weight_header;
  const FlaggedSource<T>& exact;  ///< the tensors that suspect sums are recomputed from
  cudaStream_t stream;
};

/// The products, the stores and the recompute, by the kernel of mma_shapes()[shape]. Operand: SplitF16, ScaledF16, F16 or Bf16.
template <class Operand>
void mma_multiply(const MmaCall<typename Operand::Source>& call, int shape);

}  // namespace polyphase::cuda::tensor_core
