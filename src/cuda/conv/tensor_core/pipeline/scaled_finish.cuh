#pragma once
// Turns a sum of scaled operands into an output.

#include <cstdint>

#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tensor_core/operand/traits.cuh"

namespace polyphase::cuda::tensor_core {

/// value = activation(sum * 2^exponent + offset), rounded in between as in a tensor. The factor is applied in two steps,
/// because no float holds every exponent that occurs.
struct ScaledFinish {
  float first, second;
  Epilogue epilogue;
  __device__ __forceinline__ ScaledFinish(int exponent, const Epilogue& epilogue_)
      : first(power_of_two(exponent / 2)), second(power_of_two(exponent - exponent / 2)), epilogue(epilogue_) {}
  __device__ __forceinline__ float linear(float sum, float offset) const { return fmaf(sum * first, second, offset); }

  /// All sums of a thread, which belong to two columns, scaled and with their offsets. Sums of 16-bit numbers have no scale.
  template <class T, int kSums>
  __device__ __forceinline__ void scale(float (&sums)[kSums], float offset, float offset_of_second) const {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const float own = i % 4 < 2 ? offset : offset_of_second;
      sums[i] = sizeof(T) == 2 ? sums[i] + own : linear(sums[i], own);
    }
  }

  /// Finishes them for an output of T.
  template <class T, int kSums>
  __device__ __forceinline__ void finish(float (&sums)[kSums], float offset, float offset_of_second) const {
    scale<T>(sums, offset, offset_of_second);
    if (!epilogue.has_aux()) activate<T>(sums);
  }

  /// The same for sums that are already scaled and have their offsets.
  template <class T, int kSums>
  __device__ __forceinline__ void activate(float (&sums)[kSums]) const {
    switch (epilogue.activation) {
      case Activation::relu:
        return apply<T, Activation::relu>(sums);
      case Activation::leaky_relu:
        return apply<T, Activation::leaky_relu>(sums);
      case Activation::tanh:
        return apply<T, Activation::tanh>(sums);
      default:
        return;
    }
  }

 private:
  template <class T, Activation kActivation, int kSums>
  __device__ __forceinline__ void apply(float (&sums)[kSums]) const {
    const Epilogue only{kActivation, epilogue.slope};
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = only.apply(static_cast<float>(static_cast<T>(sums[i])));
  }
};

}  // namespace polyphase::cuda::tensor_core
