// The direct weight gradient for every dtype.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/conv/direct_wgrad_launch.cuh"

namespace polyphase::cuda::direct {

void wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, int device, cudaStream_t stream) {
  const std::size_t bytes =
      static_cast<std::size_t>(problem.C_in * problem.channels_out_per_group() * problem.K) * size_of(problem.dtype);
  if (problem.N == 0 || problem.L_in == 0 || problem.L_out == 0) {
    CHECK_CUDA(cudaMemsetAsync(w, 0, bytes, stream));
    return;
  }
  auto run = [&]<class T>(T*) {
    wgrad_as(problem, static_cast<const T*>(x), static_cast<const T*>(y), static_cast<T*>(w), device, stream);
  };
  switch (problem.dtype) {
    case DType::f32:
      return run(static_cast<float*>(nullptr));
    case DType::f64:
      return run(static_cast<double*>(nullptr));
    case DType::f16:
      return run(static_cast<__half*>(nullptr));
    case DType::bf16:
      return run(static_cast<__nv_bfloat16*>(nullptr));
    case DType::i64:
      break;
  }
  throw DTypeError(concat("conv wgrad: expected f32, f64, f16 or bf16, got ", problem.dtype));
}

}  // namespace polyphase::cuda::direct
