#pragma once
// What happens to a finished sum (bias already added) before it is stored.

#include <cstdint>

namespace polyphase::cuda {

enum class Activation : std::uint8_t { none, relu, leaky_relu, tanh };

#ifdef __CUDACC__
/// Not inlined: a kernel that finishes 64 sums would hold 64 copies.
template <class A>
__device__ __noinline__ A tanh_once(A value) {
  return tanh(value);
}
#endif

struct Epilogue {
  Activation activation = Activation::none;
  float slope = 0;  // leaky_relu

#ifdef __CUDACC__
  template <class A>
  __device__ __forceinline__ A apply(A value) const {
    switch (activation) {
      case Activation::none:
        return value;
      case Activation::relu:
        return value > A(0) ? value : (value != value ? value : A(0));
      case Activation::leaky_relu:
        return value > A(0) ? value : value * A(slope);
      case Activation::tanh:
        return tanh_once(value);
    }
    return value;
  }
#endif
};

}  // namespace polyphase::cuda
