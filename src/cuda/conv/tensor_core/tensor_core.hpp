#pragma once
// Algorithm::tensor_core: convolutions on the tensor cores of sm_90a. Host side; the kernels' mathematics stand in
// both_in_shared/stationary/kernel.cuh and wgrad/rows.cuh, how numbers become operands in operand/traits.cuh.

#include <cuda_runtime.h>

#include <optional>
#include <string>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/packed_weights.hpp"

namespace polyphase::cuda::tensor_core {

/// Why the problem cannot be computed, or nothing.
[[nodiscard]] std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                                       int device);

/// Whether the sum with its bias can be recovered from an output.
[[nodiscard]] constexpr bool tells_sum(const Epilogue& epilogue) {
  return !epilogue.has_aux() &&
         (epilogue.activation == Activation::none || (epilogue.activation == Activation::leaky_relu && epilogue.slope > 0));
}

/// w = the weight gradient of x and y. On `stream`; partial sums and operands within conv_workspace_limit(). In fp32
/// FFMA does sums of few products (wgrad/few.hpp).
void wgrad(const ConvProblem& problem, Precision precision, const void* x, const void* y, void* w, int device,
           cudaStream_t stream);

struct WgradTiling;

/// The same with one of wgrad_candidates() for this problem, precision and device, on sm_90a. If x and y began at multiples of
/// 16 bytes for the candidate, they must here.
void wgrad_by(const WgradTiling& tiling, const ConvProblem& problem, Precision precision, const void* x, const void* y, void* w,
              int device, cudaStream_t stream);

/// The same with one of wide_wgrad_candidates() for f32, with the exponents of f32: what wgrad() does where magnitudes differ.
void wgrad_wide_by(const WgradTiling& tiling, const ConvProblem& problem, Precision precision, const void* x, const void* y,
                   void* w, int device, cudaStream_t stream);

}  // namespace polyphase::cuda::tensor_core
