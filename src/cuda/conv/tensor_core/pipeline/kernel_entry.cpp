#include "cuda/conv/tensor_core/pipeline/kernel_entry.hpp"

namespace polyphase::cuda::tensor_core {

bool staging_takes_aux(const KernelProblem& asked, const Epilogue& epilogue, bool may_add) {
  const TapGemm gemm = make_tap_gemm(asked.problem, asked.direction);
  if (gemm.out_stride != 1) return false;
  const std::int64_t sector = 32 / size_of(asked.problem.dtype);
  const bool by_vectors =
      gemm.out_length % sector == 0 && asked.at.out == 0 && (epilogue.residual | epilogue.derivative) % 16 == 0;
  if (epilogue.has_both()) return may_add && by_vectors;
  return asked.problem.dtype == DType::f32 || (by_vectors && gemm.columns > 32);
}

}  // namespace polyphase::cuda::tensor_core
