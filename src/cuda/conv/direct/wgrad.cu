// The direct weight gradient for every dtype.
#include "cuda/conv/direct/wgrad_launch.cuh"
#include "cuda/conv/element.cuh"

namespace polyphase::cuda::direct {

void wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, int device, cudaStream_t stream) {
  const std::size_t bytes =
      static_cast<std::size_t>(problem.C_in * problem.channels_out_per_group() * problem.K) * size_of(problem.dtype);
  if (problem.N == 0 || problem.L_in == 0 || problem.L_out == 0) {
    CHECK_CUDA(cudaMemsetAsync(w, 0, bytes, stream));
    return;
  }
  with_element(problem, ConvDirection::wgrad, [&]<class T>(T* result) {
    result = static_cast<T*>(w);
    wgrad_as(problem, static_cast<const T*>(x), static_cast<const T*>(y), result, device, stream);
  });
}

}  // namespace polyphase::cuda::direct
