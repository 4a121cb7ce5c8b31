#pragma once
// The activations of a residual unit of f32, for several numbers at a time.

#include "cuda/conv/tensor_core/residual_unit/activation.cuh"
#include "cuda/conv/tensor_core/residual_unit/tiling.hpp"
#include "cuda/elementwise/snake_function.cuh"

namespace polyphase::cuda::tensor_core {

/// Snake's parameters of one channel: alpha and 1/beta.
struct SnakeOne {
  float alpha, inverse;
  int channel;
};

/// near[i] = Snake of v[i], if it is near zero. Sets `is_far` if one is not.
template <bool kIs16Bit, int kCount, class OfNumber>
__device__ __forceinline__ void snake_all_near(const float (&v)[kCount], const OfNumber& of_number, float (&near)[kCount],
                                               bool& is_far) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    near[i] = snake_near(SnakeAngle<kIs16Bit>(of_number(i).alpha), of_number(i).inverse, v[i], is_far);
}

/// One of the unit's activations. Like 16-bit results, operands with 11 bits (kIsTf32) take the hardware's sine.
template <UnitKind kKind, bool kIsTf32>
struct UnitF32Activation {
  float slope;
  const SnakePair* pairs;  ///< of all channels, in shared memory

  [[nodiscard]] __device__ __forceinline__ SnakeOne of(int channel) const {
    if constexpr (kKind == UnitKind::snake)
      return {pairs[channel / 2].alpha[channel % 2], pairs[channel / 2].inverse[channel % 2], channel};
    else
      return {};
  }
  /// v = the activation of them; of_number(i): the parameters of number i. Sets `is_unfit` if one has to be computed by the
  /// standard library's functions.
  template <int kCount, class OfNumber>
  __device__ __forceinline__ void apply(float (&v)[kCount], const OfNumber& of_number, bool& is_unfit) const {
    apply_by(v, of_number, [&]([[maybe_unused]] float(&near)[kCount]) {
      if constexpr (kIsTf32)
        snake_all_near<false>(v, of_number, near, is_unfit);
      else
        is_unfit = true;
    });
  }

 protected:
  /// far(near) computes Snake of all v, if one is far.
  template <int kCount, class OfNumber, class Far>
  __device__ __forceinline__ void apply_by(float (&v)[kCount], const OfNumber& of_number, const Far& far) const {
    if constexpr (kKind == UnitKind::snake) {
      float near[kCount];
      bool is_far = false;
      snake_all_near<kIsTf32>(v, of_number, near, is_far);
      if (is_far) far(near);
#pragma unroll
      for (int i = 0; i < kCount; ++i) v[i] = near[i];
    } else if constexpr (kKind == UnitKind::plain) {
#pragma unroll
      for (float& value : v) value = fmaxf(value, slope * value);
    } else {
#pragma unroll
      for (float& value : v) value = value < 0.0F ? TapGemm::low(slope, value) : value;
    }
  }
};

/// Snake of a number of any magnitude.
static __device__ __noinline__ float snake_of_any(float v, const float* alpha, const float* beta, int channel) {
  return SnakeFunction<float, false>(alpha[channel], beta[channel])(v);
}

/// The same for blocks that are marked: of any number.
template <UnitKind kKind, bool kIsTf32>
struct UnitMarkedActivation : UnitF32Activation<kKind, kIsTf32> {
  const float *alpha, *beta;  ///< in memory

  template <int kCount, class OfNumber>
  __device__ __forceinline__ void apply(float (&v)[kCount], const OfNumber& of_number, bool&) const {
    this->apply_by(v, of_number, [&](float(&near)[kCount]) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) near[i] = snake_of_any(v[i], alpha, beta, of_number(i).channel);
    });
  }
};

}  // namespace polyphase::cuda::tensor_core
