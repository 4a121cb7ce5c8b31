#pragma once
// Snake of the source, as depthwise kernels apply it to what they read.

#include "cuda/elementwise/snake_function.cuh"
#include "cuda/kernel/elements.cuh"

namespace polyphase::cuda::depthwise {

/// Snake of a channel, rounded to T.
template <class T>
class RoundedSnake {
 public:
  __device__ __forceinline__ RoundedSnake(const void* alpha, const void* beta, int channel)
      : function_(convert<float>(static_cast<const T*>(alpha)[channel]), convert<float>(static_cast<const T*>(beta)[channel])) {
  }
  template <int kCount>
  __device__ __forceinline__ void apply(float (&values)[kCount]) const {
    function_.apply(values);
#pragma unroll
    for (float& value : values) value = convert<float>(convert<T>(value));
  }

 private:
  SnakeFunction<float, sizeof(T) == 2> function_;
};

template <class T, int kCount>
__device__ __forceinline__ void activate(const RoundedSnake<T>& snake, T (&values)[kCount]) {
  float numbers[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) numbers[i] = convert<float>(values[i]);
  snake.apply(numbers);
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = convert<T>(numbers[i]);
}
/// Activates values e, e + 1, ... of a row that are inside [0, length). The others are zeros and stay zeros: with some
/// parameters Snake of zero is not zero.
template <class T, int kCount>
__device__ __forceinline__ void activate_inside(const RoundedSnake<T>& snake, int e, int length, T (&values)[kCount]) {
  activate(snake, values);
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (e + i < 0 || e + i >= length) values[i] = T(0.0F);
}

}  // namespace polyphase::cuda::depthwise
