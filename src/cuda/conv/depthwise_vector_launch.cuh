#pragma once
// Launches of the vector kernels for one element type; depthwise_vector_<dtype>.cu compile them.

#include <type_traits>

#include "cuda/conv/depthwise_vector_wgrad.cuh"
#include "cuda/runtime.hpp"

namespace polyphase::cuda::depthwise {

template <class Kernel, class... Arguments>
void launch_vectors(Kernel* kernel, const char* name, const VectorPlan& plan, cudaStream_t stream, Arguments... arguments) {
  kernel<<<static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.threads), static_cast<std::size_t>(plan.shared_bytes),
           stream>>>(plan, arguments...);
  check_launch(name);
}

/// Calls run(integral_constant) with the stride of a plan.
template <class Run>
void with_vector_stride(const VectorPlan& plan, const Run& run) {
  if (plan.S == 1) return run(std::integral_constant<int, 1>());
  if (plan.S == 2) return run(std::integral_constant<int, 2>());
  return run(std::integral_constant<int, 4>());
}

template <class T>
void vector_gather_as(const VectorPlan& plan, ConvDirection direction, const T* source, const T* w, const T* bias, T* out,
                      cudaStream_t stream) {
  with_vector_stride(plan, [&](auto stride) {
    constexpr int S = decltype(stride)::value;
    launch_vectors(direction == ConvDirection::forward ? vector_forward_kernel<T, S> : vector_dgrad_kernel<T, S>,
                   "conv depthwise", plan, stream, source, w, bias, out);
  });
}

template <class T>
void vector_wgrad_as(const VectorPlan& plan, const T* x, const T* y, float* partial, cudaStream_t stream) {
  with_vector_stride(plan, [&](auto stride) {
    launch_vectors(vector_wgrad_kernel<T, decltype(stride)::value>, "conv depthwise: wgrad", plan, stream, x, y, partial);
  });
}

}  // namespace polyphase::cuda::depthwise
