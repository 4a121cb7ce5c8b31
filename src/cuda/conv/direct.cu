// Algorithm::direct: from a problem to the kernel of its dtype.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <ostream>
#include "cuda/conv/direct.hpp"

#include "tensor/error.hpp"

namespace polyphase::cuda::direct {

// Defined once per dtype in direct_<dtype>.cu.
template <class T>
void gather_as(const ConvProblem& problem, ConvDirection direction, const T* source, const T* w, const T* bias, T* out,
               const Epilogue& epilogue, int device, cudaStream_t stream, int tile);

void gather(const ConvProblem& problem, ConvDirection direction, const void* source, const void* w, const void* bias, void* out,
            const Epilogue& epilogue, int device, cudaStream_t stream, int tile) {
  const bool is_forward = direction == ConvDirection::forward;
  if (problem.N == 0 || (is_forward ? problem.L_out : problem.L_in) == 0) return;
  auto run = [&]<class T>(const T*) {
    gather_as<T>(problem, direction, static_cast<const T*>(source), static_cast<const T*>(w), static_cast<const T*>(bias),
                 static_cast<T*>(out), epilogue, device, stream, tile);
  };
  switch (problem.dtype) {
    case DType::f32:
      return run(static_cast<const float*>(nullptr));
    case DType::f64:
      return run(static_cast<const double*>(nullptr));
    case DType::f16:
      return run(static_cast<const __half*>(nullptr));
    case DType::bf16:
      return run(static_cast<const __nv_bfloat16*>(nullptr));
    case DType::i64:
      break;
  }
  throw DTypeError(concat("conv ", direction, ": expected f32, f64, f16 or bf16, got ", problem.dtype));
}

}  // namespace polyphase::cuda::direct
