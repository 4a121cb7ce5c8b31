#pragma once
// The epilogue of f32 outputs whose aux operand is in the staging (store.cuh).

#include "cuda/conv/epilogue/epilogue.cuh"

namespace polyphase::cuda::tensor_core {

/// What is computed of a sum and its aux operand: the sum alone, sum + aux, activation(sum) + aux, or the sum times the
/// derivative given by aux.
enum class Aux { nothing, sum, activated_sum, derivative };

/// StoreFinish (epilogue/light.cuh) for one of these cases.
template <class T>
struct AuxFinish {
  bool is_relu;
  float slope, scale;
  __device__ __forceinline__ explicit AuxFinish(const Epilogue& epilogue)
      : is_relu(epilogue.activation == Activation::relu),
        slope(static_cast<float>(epilogue.slope)),
        scale(static_cast<float>(epilogue.scale)) {}
  static __device__ __forceinline__ float rounded(float value) { return static_cast<float>(static_cast<T>(value)); }
  template <Aux kAux>
  __device__ __forceinline__ T finished(float sum, T aux) const {
    const float value = rounded(sum), other = static_cast<float>(aux);
    if constexpr (kAux == Aux::sum) return static_cast<T>(fmaf(scale, value, other));
    const float low = is_relu ? 0.0F : rounded(slope * value);
    if constexpr (kAux == Aux::activated_sum) return static_cast<T>(fmaf(scale, value < 0.0F ? low : value, other));
    return static_cast<T>(passes(is_relu, other) ? value : low);
  }
};

}  // namespace polyphase::cuda::tensor_core
